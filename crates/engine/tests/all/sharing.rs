//! References to shared content: exclusive bytes of each volume, and the blocks that are lost with
//! lost content.

use crate::machine;

use machine::{Machine, numbers::Numbers};
use std::collections::BTreeSet;
use windrow_engine::*;
use windrow_format::checkpoint::{Compression, Dedup};
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::VolumeId;

const MIB: u64 = 1 << 20;

/// Content number `n`; it is compressible, the more the higher `n`.
fn content(n: u64) -> Vec<u8> {
    let mut block = vec![n as u8 | 1; 4096];
    Numbers::of(n).fill(&mut block[..4096 - (n as usize * 40).min(3000)]);
    block
}

fn write(
    machine: &mut Machine,
    volume: VolumeId,
    lba: u64,
    numbers: impl IntoIterator<Item = u64>,
) {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(content).collect();
    machine.request(
        volume,
        Op::Write {
            offset: lba * 4096,
            data: Payload::copy_of(&bytes),
            fua: false,
        },
    );
    machine.settle();
}

fn create(machine: &mut Machine, name: &str, dedup: Dedup) -> VolumeId {
    match machine.command(Control::VolumeCreate {
        name: name.into(),
        size_bytes: 16 * MIB,
    }) {
        Some(Ok(ControlReply::Volume(volume))) => {
            assert_eq!(
                machine.command(Control::VolumeDedup { volume, dedup }),
                Some(Ok(ControlReply::Done))
            );
            assert_eq!(
                machine.command(Control::VolumeCompression {
                    volume,
                    compression: Compression::Lz4
                }),
                Some(Ok(ControlReply::Done))
            );
            volume
        }
        other => panic!("{other:?}"),
    }
}

fn count(machine: &mut Machine) -> Sharing {
    match machine.command(Control::CountSharing) {
        Some(Ok(ControlReply::Sharing(sharing))) => sharing,
        other => panic!("{other:?}"),
    }
}

fn exclusive(sharing: &Sharing, volume: VolumeId) -> u64 {
    sharing
        .volumes
        .iter()
        .find(|v| v.id == volume)
        .expect("counted")
        .exclusive_bytes
}

fn stored(machine: &mut Machine, volume: VolumeId) -> u64 {
    machine.flush(volume);
    machine::pass(machine, 20);
    machine
        .engine
        .self_check()
        .unwrap_or_else(|error| panic!("{error}"));
    machine.engine.status().stored_bytes
}

/// Three volumes with exclusive content, content that two of them have, content that a volume has
/// several times, and blocks that are not shared.
fn three(machine: &mut Machine) -> [VolumeId; 3] {
    let volumes = ["a", "b", "c"].map(|name| create(machine, name, Dedup::Hash));
    let [a, b, c] = volumes;
    write(machine, a, 0, 0..40);
    write(machine, b, 100, 20..60);
    write(machine, a, 300, (0..40).map(|n| 61 + n % 4));
    write(machine, b, 300, (0..9).map(|_| 63));
    assert_eq!(
        machine.command(Control::VolumeDedup {
            volume: c,
            dedup: Dedup::Off
        }),
        Some(Ok(ControlReply::Done))
    );
    write(machine, c, 0, 0..30);
    machine.flush(a);
    volumes
}

/// The exclusive bytes of a volume are freed with it, to the byte, in whatever order volumes are
/// deleted.
#[test]
fn exclusive_bytes_are_freed_with_their_volume() {
    for first in 0..3 {
        let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
        let volumes = three(&mut machine);
        let mut stored_now = stored(&mut machine, volumes[0]);
        for at in (first..first + 3).map(|at| at % 3) {
            let sharing = count(&mut machine);
            assert!(sharing.exact, "nothing was written meanwhile");
            let alone = exclusive(&sharing, volumes[at]);
            assert!(alone > 0 && alone <= stored_now);
            assert_eq!(
                machine.command(Control::VolumeDelete {
                    volume: volumes[at]
                }),
                Some(Ok(ControlReply::Done))
            );
            let after = stored(&mut machine, volumes[at]);
            assert_eq!(
                stored_now - after,
                alone,
                "volume {at} of those that begin with {first}"
            );
            stored_now = after;
        }
        assert_eq!(stored_now, 0, "and nothing was anybody else's");
    }
}

/// The same after a crash, computed by hand: content 20 to 39 is in two volumes, 61 to 64 in one
/// except for 63, and unshared blocks are exclusive.
#[test]
fn content_of_several_volumes_is_exclusive_to_none() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volumes = three(&mut machine);
    let mut machine = machine.crash();
    let mut compressor = windrow_reduction::Compressor::default();
    let mut bytes = |numbers: &mut dyn Iterator<Item = u64>| -> u64 {
        numbers
            .map(|n| {
                compressor
                    .compress_stored(windrow_reduction::Codec::Lz4, &content(n), &mut Vec::new())
                    .unwrap_or(4096) as u64
            })
            .sum()
    };
    let sharing = count(&mut machine);
    let expected = [
        bytes(&mut (0..20).chain([61, 62, 64])),
        bytes(&mut (40..60)),
        bytes(&mut (0..30)),
    ];
    assert_eq!(volumes.map(|volume| exclusive(&sharing, volume)), expected);
}

/// A count runs in parallel with writes. A write between its start and its end is not in all of it,
/// and the result reports that.
#[test]
fn a_disturbed_count_reports_it() {
    for disturbed in [true, false] {
        let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
        let [a, _, c] = three(&mut machine);
        // Unshared blocks do not disturb it. The write is in flight, and commits in the step in
        // which the count continues.
        machine.held = Some(Vec::new());
        write(&mut machine, if disturbed { a } else { c }, 900, [1]);
        machine.flush(a);
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command: Control::CountSharing,
        }));
        machine.turn();
        assert!(
            machine.control.is_empty(),
            "it takes a step for the pages and one for the contents"
        );
        machine.release();
        let Some(Ok(ControlReply::Sharing(sharing))) =
            machine.control.pop().map(|answer| answer.result)
        else {
            panic!("not answered")
        };
        assert_eq!(sharing.exact, !disturbed);
        assert!(count(&mut machine).exact, "the next one is");
    }
}

/// A pool that stops, or is open read-only, answers.
#[test]
fn a_count_is_answered_in_every_state_of_the_pool() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let [a, ..] = three(&mut machine);
    let sharing = count(&mut machine);
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(7),
        command: Control::CountSharing,
    }));
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    assert!(
        machine
            .control
            .iter()
            .any(|answer| answer.id == ControlId(7)),
        "{:?}",
        machine.control
    );
    let mut machine = Machine::open_with(
        machine.memory,
        &OpenOptions {
            read_only: true,
            ..Machine::options()
        },
    );
    assert_eq!(exclusive(&count(&mut machine), a), exclusive(&sharing, a));
}

/// Destroys the batch with this content, beyond redundancy.
fn lose(machine: &mut Machine, volume: VolumeId, lba: u64) -> Vec<u64> {
    let ids: Vec<u64> = machine
        .engine
        .content_ids(volume, lba..lba + 8)
        .into_iter()
        .flatten()
        .collect();
    let (segment, row, header) = machine
        .memory
        .headers()
        .into_iter()
        .rfind(|(_, _, header)| header.stream.0 == 0)
        .expect("a batch");
    machine
        .memory
        .overwrite(segment, row..row + header.rows, 0xee);
    machine.out.notices.clear();
    ids
}

/// Shared content was lost, and the index still named it. A client that rewrote the same bytes to
/// repair the block was acknowledged, and got a reference to the lost content: with `hash` the
/// bytes found through the index are not compared.
#[test]
fn bytes_rewritten_after_their_content_was_lost_are_stored_again() {
    for dedup in [Dedup::Hash, Dedup::Verify] {
        let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
        let [a, b] = ["a", "b"].map(|name| create(&mut machine, name, dedup));
        write(&mut machine, a, 0, 0..8);
        machine.flush(a);
        lose(&mut machine, a, 0);
        assert!(machine.is_lost(a, 3));
        write(&mut machine, a, 3, [3]);
        write(&mut machine, b, 7, [3]);
        machine.flush(a);
        assert_eq!(
            machine.read(a, 3 * 4096, 4096),
            content(3),
            "{dedup:?}: made good"
        );
        assert_eq!(
            machine.read(b, 7 * 4096, 4096),
            content(3),
            "{dedup:?}: made good"
        );
        assert!(machine.is_lost(a, 4), "the others are what they were");
    }
}

/// A scrub found lost content and reported volume 0, which is internal: the affected blocks must be
/// named.
#[test]
fn blocks_that_refer_to_lost_content_are_named() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let [a, b] = ["a", "b"].map(|name| create(&mut machine, name, Dedup::Hash));
    write(&mut machine, b, 50, 100..105);
    machine.flush(a);
    write(&mut machine, a, 0, 0..8);
    machine.flush(a);
    let ids = lose(&mut machine, a, 0);
    write(&mut machine, b, 200, [2, 101, 5]);
    machine.flush(a);
    let mut named = BTreeSet::new();
    for round in 0..2 {
        assert_eq!(
            machine.command(Control::Scrub(ScrubCommand::Start {
                unix_s: 1,
                bytes_per_second: 0
            })),
            Some(Ok(ControlReply::Done))
        );
        machine::pass(&mut machine, 200);
        let status = machine.engine.status();
        assert_eq!(
            (status.scrub.state, status.scrub.lost_blocks),
            (ScrubState::Completed, 8),
            "contents"
        );
        let referring = status
            .scrub
            .lost
            .iter()
            .filter(|block| block.volume != VolumeId::SHARED)
            .map(|block| (block.volume, block.lba));
        let listed: BTreeSet<_> = referring.collect();
        let expected: BTreeSet<_> = (0..8)
            .map(|lba| (a, lba))
            .chain([(b, 200), (b, 202)])
            .collect();
        assert_eq!(listed, expected, "by the list of scrub {round}");
        for notice in std::mem::take(&mut machine.out.notices) {
            match notice {
                Notice::Unrecoverable { volume, .. } => assert_eq!(volume, VolumeId::SHARED),
                Notice::UnrecoverableReference {
                    volume,
                    lba,
                    content,
                } => {
                    assert!(ids.contains(&content));
                    assert!(
                        named.insert((round, volume, lba)),
                        "reported once by each scrub"
                    );
                }
                _ => {}
            }
        }
        assert_eq!(
            named
                .iter()
                .filter(|(of, ..)| *of == round)
                .map(|(_, volume, lba)| (*volume, *lba))
                .collect::<BTreeSet<_>>(),
            expected,
            "by notices"
        );
    }
    // Reading a block of it again and again does not report the others again.
    for _ in 0..3 {
        assert!(machine.is_lost(a, 0));
    }
    assert!(
        !machine
            .out
            .notices
            .iter()
            .any(|notice| matches!(notice, Notice::UnrecoverableReference { .. }))
    );
}
