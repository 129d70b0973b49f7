//! Blocks that a salvage declared lost have no address in the log: a count of lost blocks has to
//! read the maps.

use crate::machine;

use machine::Machine;
use machine::given_up::{self, GIVEN_UP, rebuild};
use windrow_engine::*;
use windrow_types::{Lba, VolumeId};

fn scrub(machine: &mut Machine) -> ScrubStatus {
    assert_eq!(
        machine.command(Control::Scrub(ScrubCommand::Start {
            unix_s: 5,
            bytes_per_second: 0
        })),
        Some(Ok(ControlReply::Done))
    );
    machine::pass(machine, 200);
    let scrub = machine.engine.status().scrub;
    assert_eq!(scrub.state, ScrubState::Completed);
    scrub
}

fn named(machine: &mut Machine) -> Vec<(VolumeId, u64)> {
    let notices = std::mem::take(&mut machine.out.notices);
    let lost = notices.into_iter().filter_map(|notice| {
        if let Notice::Unrecoverable {
            volume,
            lba,
            blocks,
        } = notice
        {
            Some((volume, lba..lba + blocks))
        } else {
            None
        }
    });
    lost.flat_map(|(volume, blocks)| blocks.map(move |lba| (volume, lba)))
        .collect()
}

/// Regression: the second salvage counted nothing. It starts from a checkpoint in which these
/// blocks are lost already.
#[test]
fn a_salvage_counts_blocks_that_an_earlier_one_declared_lost() {
    let (mut memory, volume, first) = given_up::pool();
    let all = GIVEN_UP.map(|lba| (volume, Lba(lba)));
    assert_eq!(
        (&first.lost_blocks[..], first.lost_blocks_total),
        (&all[..], 5)
    );
    for write in [false, true, true] {
        let report = rebuild(&mut memory, write);
        assert_eq!(
            (&report.lost_blocks[..], report.lost_blocks_total),
            (&all[..], 5),
            "{report:?}"
        );
        assert!(report.checkpoint > 0);
    }
    let mut machine = Machine::open(memory);
    given_up::make_good(&mut machine, volume);
    machine.flush(volume);
    let report = rebuild(&mut machine.memory, false);
    assert_eq!(
        (report.lost_blocks, report.lost_blocks_total),
        (Vec::new(), 0)
    );
}

/// Regression: a scrub reported no damage. It proceeds from batch to batch, and no batch refers to
/// these blocks.
#[test]
fn a_scrub_lists_blocks_lost_in_a_salvage_until_they_are_written_or_trimmed() {
    let (memory, volume, _) = given_up::pool();
    let mut machine = Machine::open(memory);
    for again in 0..2 {
        machine.out.notices.clear();
        let found = scrub(&mut machine);
        let listed: Vec<_> = found
            .lost
            .iter()
            .map(|block| (block.volume, block.lba))
            .collect();
        let all = GIVEN_UP.map(|lba| (volume, lba));
        assert_eq!(
            (
                found.lost_blocks,
                &listed[..],
                found.wrong_blocks,
                found.damaged_batches
            ),
            (5, &all[..], 0, 0),
            "scrub {again}"
        );
        assert_eq!(named(&mut machine), all);
        machine = machine.crash();
    }
    // Nothing of it is flushed, and the trims may not have been processed.
    given_up::make_good(&mut machine, volume);
    for _ in 0..2 {
        let found = scrub(&mut machine);
        assert_eq!(
            (
                found.lost_blocks,
                found.lost.len(),
                named(&mut machine).len()
            ),
            (0, 0, 0)
        );
        machine.flush(volume);
        machine = machine.crash();
    }
    assert_eq!(
        [0, 1, 2, 3, 10].map(|lba| machine.byte(volume, lba)),
        [9, 9, 0, 0, 0]
    );
}
