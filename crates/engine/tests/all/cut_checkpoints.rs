//! Power loss in the middle of one checkpoint after the other.

use crate::machine;

use machine::{Machine, pass};
use windrow_engine::*;
use windrow_io::*;

/// A block of a pattern that is not all one byte, so that it needs an address.
fn block(number: u64) -> Payload {
    let mut bytes = vec![0; 4096];
    machine::numbers::Numbers::of(number).fill(&mut bytes);
    Payload::copy_of(&bytes)
}

fn fill(machine: &mut Machine, volume: windrow_types::VolumeId, blocks: std::ops::Range<u64>) {
    for lba in blocks {
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: block(lba),
                fua: false,
            },
        );
        if lba % 32 == 31 {
            assert!(machine.wait_for(32), "{}", machine.engine.describe());
            machine.completions.clear();
        }
    }
    machine.flush(volume);
    machine.wait_for(1);
}

/// Continues until the root of a checkpoint is about to be written. False if none gets there.
fn until_root(machine: &mut Machine) -> bool {
    for _ in 0..400 {
        while !machine.events.is_empty() {
            machine.engine.apply(&mut machine.events, &mut machine.out);
            if machine.engine.describe().contains("Root") {
                return true;
            }
            std::mem::take(&mut machine.out.commands)
                .into_iter()
                .for_each(|command| machine.carry_out(command));
            for mut job in std::mem::take(&mut machine.out.jobs) {
                job.run();
                machine.events.push(Event::Job(job));
            }
        }
        machine.now_ns += 50_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
    }
    false
}

/// Pages written by a checkpoint before it was cut off were kept as if a root needed them, and the
/// stream continued after them. Only a completed checkpoint freed these segments. Every start after
/// a crash begins a checkpoint, so a service that crashed in each of them used up a pool without
/// any client. In the end no segment was left for the checkpoint that would have freed them, and
/// neither a trim nor a shutdown succeeded. The pool of this test stalled after 28 crashes.
#[test]
fn crashes_in_checkpoints_cost_no_segments() {
    let mut machine = Machine::new(3, 24, 30);
    let blocks = machine.engine.status().plan.usable_bytes / 4096 * 95 / 100;
    let volume = machine.volume(blocks * 4096);
    fill(&mut machine, volume, 0..blocks);
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(
        machine.command(Control::Checkpoint),
        Some(Ok(ControlReply::Done))
    );
    pass(&mut machine, 20);
    // Every page of the map changes.
    (0..blocks)
        .step_by(256)
        .for_each(|lba| machine.write(volume, lba, 1));
    machine.flush(volume);
    pass(&mut machine, 3);
    let mut machine = machine.crash();
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(7),
        command: Control::Checkpoint,
    }));
    let mut free = Vec::new();
    // More crashes than there are fences.
    for crash in 0..40 {
        assert!(
            until_root(&mut machine),
            "crash {crash}: {}",
            machine.engine.describe()
        );
        machine = machine.crash();
        free.push(machine.engine.status().free_segments);
        machine.events.push(Event::Tick(1));
    }
    assert!(free[39] + 2 >= free[0], "free segments: {free:?}");
    assert_eq!(machine.engine.self_check(), Ok(()));
    pass(&mut machine, 50);
    machine.completions.clear();
    machine.request(
        volume,
        Op::Trim {
            offset: 0,
            length: blocks * 4096 / 2,
            fua: true,
        },
    );
    assert!(machine.wait_for(1), "{}", machine.engine.describe());
    let last = blocks - 1;
    let mut machine = machine.crash();
    assert_eq!(
        machine.read(volume, last * 4096, 4096),
        block(last).to_vec()
    );
}
