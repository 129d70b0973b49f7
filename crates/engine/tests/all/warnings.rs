//! Notices of a pool that fills up or is overcommitted, and the counters that survive a restart.

use crate::machine;

use machine::Machine;
use windrow_engine::*;
use windrow_format::checkpoint::{Compression, Dedup};
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::VolumeId;

fn set(machine: &mut Machine, warn_at: [u8; 4]) -> Option<Result<ControlReply, ControlError>> {
    let properties = machine.engine.status().properties;
    machine.command(Control::SetProperties(Properties {
        warn_at,
        ..properties
    }))
}

/// Fills or trims a volume from its end until exactly this percentage of the pool is in use, and
/// not one block more.
fn fill(machine: &mut Machine, volume: VolumeId, percent: u64) -> Vec<u8> {
    let status = machine.engine.status();
    let (usable, used) = (status.plan.usable_bytes / 4096, status.used_bytes / 4096);
    let wanted = (usable * percent).div_ceil(100);
    for lba in used..wanted {
        let mut bytes = vec![lba as u8 | 1; 4096];
        bytes[..8].copy_from_slice(&lba.to_le_bytes());
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&bytes),
                fua: false,
            },
        );
    }
    if used > wanted {
        machine.request(
            volume,
            Op::Trim {
                offset: wanted * 4096,
                length: (used - wanted) * 4096,
                fua: false,
            },
        );
    }
    machine.flush(volume);
    machine::pass(machine, 5);
    assert_eq!(machine.engine.status().used_bytes / 4096, wanted);
    let notices = std::mem::take(&mut machine.out.notices).into_iter();
    notices
        .filter_map(|notice| {
            if let Notice::Filling { percent } = notice {
                Some(percent)
            } else {
                None
            }
        })
        .collect()
}

#[test]
fn each_crossing_is_reported_once() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 300);
    let volume = machine.volume(1 << 30);
    assert_eq!(fill(&mut machine, volume, 79), []);
    assert_eq!(fill(&mut machine, volume, 80), [80]);
    assert_eq!(machine.engine.status().warned_percent, 80);
    assert_eq!(fill(&mut machine, volume, 89), []);
    // Two are passed at once: only the higher one is reported.
    assert_eq!(fill(&mut machine, volume, 96).last(), Some(&95));
    // Below it by less than two per cent, and back: no new report.
    assert_eq!(fill(&mut machine, volume, 93), []);
    assert_eq!(
        (
            fill(&mut machine, volume, 96),
            machine.engine.status().warned_percent
        ),
        (vec![], 95)
    );
    assert_eq!(
        (
            fill(&mut machine, volume, 92),
            machine.engine.status().warned_percent
        ),
        (vec![], 90)
    );
    assert_eq!(fill(&mut machine, volume, 95), [95], "it had been over");
    assert_eq!(
        (
            fill(&mut machine, volume, 10),
            machine.engine.status().warned_percent
        ),
        (vec![], 0)
    );
    assert_eq!(fill(&mut machine, volume, 81), [80]);
}

#[test]
fn warnings_are_where_they_are_set() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 300);
    let volume = machine.volume(1 << 30);
    assert_eq!(fill(&mut machine, volume, 60), []);
    assert_eq!(
        set(&mut machine, [50, 70, 0, 0]),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(fill(&mut machine, volume, 61), [50], "it is over at once");
    assert_eq!(fill(&mut machine, volume, 70), [70]);
    let mut machine = machine.crash();
    assert_eq!(machine.engine.status().properties.warn_at, [50, 70, 0, 0]);
    assert_eq!(
        fill(&mut machine, volume, 71),
        [70],
        "a start reports the current state"
    );
    assert_eq!(set(&mut machine, [0; 4]), Some(Ok(ControlReply::Done)));
    assert_eq!(fill(&mut machine, volume, 99), [], "never");
    assert_eq!(
        machine.crash().engine.status().properties.warn_at,
        [0; 4],
        "and that stays so"
    );
}

#[test]
fn warnings_that_make_no_sense_are_refused() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 300);
    for wrong in [
        [90, 80, 0, 0],
        [80, 80, 0, 0],
        [101, 0, 0, 0],
        [0, 80, 0, 0],
        [80, 0, 90, 0],
    ] {
        assert!(
            matches!(
                set(&mut machine, wrong),
                Some(Err(ControlError::Invalid(_)))
            ),
            "{wrong:?}"
        );
    }
    assert_eq!(machine.engine.status().properties.warn_at, [80, 90, 95, 0]);
}

#[test]
fn overcommitment_is_reported_once() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let usable = machine.engine.status().plan.usable_bytes / 4096 * 4096;
    let told = |machine: &mut Machine| {
        let notices = std::mem::take(&mut machine.out.notices);
        notices
            .into_iter()
            .filter(|notice| matches!(notice, Notice::Overcommitted { .. }))
            .collect::<Vec<_>>()
    };
    let volume = machine.volume(usable);
    assert_eq!(told(&mut machine), [], "all of it, and no more");
    let Some(Ok(ControlReply::Volume(other))) = machine.command(Control::VolumeCreate {
        name: "other".into(),
        size_bytes: 4096,
    }) else {
        panic!("created")
    };
    assert_eq!(
        told(&mut machine),
        [Notice::Overcommitted {
            provisioned_bytes: usable + 4096,
            usable_bytes: machine.engine.status().plan.usable_bytes
        }]
    );
    machine.command(Control::VolumeResize {
        volume: other,
        size_bytes: 8192,
        shrink: true,
    });
    assert_eq!(told(&mut machine), [], "that is known");
    machine.command(Control::VolumeDelete { volume: other });
    machine.command(Control::VolumeResize {
        volume,
        size_bytes: usable + 4096,
        shrink: true,
    });
    assert_eq!(told(&mut machine).len(), 1, "it had been over");
}

/// The counters of reduction were lost at each start.
#[test]
fn sums_of_reduction_survive_a_restart() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = machine.volume(1 << 20);
    machine.command(Control::VolumeDedup {
        volume,
        dedup: Dedup::Hash,
    });
    machine.command(Control::VolumeCompression {
        volume,
        compression: Compression::Lz4,
    });
    let write = |machine: &mut Machine, first: u64| {
        for lba in first..first + 40 {
            let mut bytes = vec![1; 4096];
            bytes[..8].copy_from_slice(&(lba % 10).to_le_bytes());
            machine.request(
                volume,
                Op::Write {
                    offset: lba * 4096,
                    data: Payload::copy_of(&bytes),
                    fua: false,
                },
            );
        }
        machine.flush(volume);
    };
    write(&mut machine, 0);
    let first = machine.engine.status();
    assert_eq!(
        (
            first.lifetime_dedup.looked_up,
            first.lifetime_dedup.found,
            first.lifetime_reduction
        ),
        (40, 30, first.reduction)
    );
    assert!(first.reduction.compressed_user_bytes > 0);
    machine.command(Control::Checkpoint);
    machine::pass(&mut machine, 20);
    let mut machine = machine.crash();
    let start = machine.engine.status();
    assert_eq!(
        (start.lifetime_dedup, start.lifetime_reduction),
        (first.lifetime_dedup, first.lifetime_reduction),
        "the checkpoint has them"
    );
    assert_eq!(
        (start.dedup.sums.looked_up, start.reduction.tried_bytes),
        (0, 0),
        "since the start"
    );
    assert_eq!(
        (start.dedup.referred_bytes, start.dedup.unique_bytes),
        (40 * 4096, 10 * 4096),
        "counted again"
    );
    write(&mut machine, 50);
    let end = machine.engine.status();
    assert_eq!(end.lifetime_dedup.looked_up, 80);
    assert_eq!(
        end.lifetime_reduction.tried_bytes,
        first.reduction.tried_bytes + end.reduction.tried_bytes
    );
}
