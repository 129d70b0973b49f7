//! A pool with blocks that a salvage declared lost.

use super::{Machine, Memory, numbers::Numbers, pass};
use windrow_engine::*;
use windrow_format::checkpoint::Dedup;
use windrow_geometry::Redundancy;
use windrow_io::{BufPool, MemberIo, Op, Payload};
use windrow_types::VolumeId;

/// The blocks, in two runs.
pub const GIVEN_UP: [u64; 5] = [0, 1, 2, 3, 10];

pub fn rebuild(memory: &mut dyn MemberIo, write: bool) -> RebuildReport {
    Engine::rebuild_map(
        memory,
        BufPool::new(64 << 20),
        &Machine::options(),
        RebuildWork {
            write,
            ..Default::default()
        },
        &mut |_| {},
    )
    .expect("a rebuild")
}

fn write(machine: &mut Machine, volume: VolumeId, lba: u64, contents: std::ops::Range<u64>) {
    let mut bytes = vec![0; (contents.end - contents.start) as usize * 4096];
    contents
        .zip(bytes.chunks_exact_mut(4096))
        .for_each(|(n, block)| Numbers::of(n).fill(block));
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

/// The batch with their last version is lost, and the content of their previous references has been
/// replaced since. Returns the pool after its salvage, the volume, and the report.
pub fn pool() -> (Memory, VolumeId, RebuildReport) {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let volume = machine.volume(16 << 20);
    let Some(Ok(ControlReply::Volume(plain))) = machine.command(Control::VolumeCreate {
        name: "plain".into(),
        size_bytes: 1 << 20,
    }) else {
        panic!("a volume")
    };
    assert_eq!(
        machine.command(Control::VolumeDedup {
            volume,
            dedup: Dedup::Hash
        }),
        Some(Ok(ControlReply::Done))
    );
    for first in [500, 10] {
        write(&mut machine, volume, 0, first..first + 4);
        write(&mut machine, volume, 10, first + 4..first + 5);
        machine.flush(volume);
    }
    let lost = machine
        .memory
        .headers()
        .into_iter()
        .rfind(|(_, _, header)| header.stream.0 == 0)
        .expect("a batch");
    // Later data is in another segment: a salvage continues there.
    write(&mut machine, plain, 0, 2000..2100);
    machine.flush(volume);
    write(&mut machine, volume, 50, 600..605);
    machine.flush(volume);
    pass(&mut machine, 20);
    assert_eq!(
        machine.engine.content_ids(volume, 50..55),
        (0..5).map(Some).collect::<Vec<_>>(),
        "used again"
    );
    assert_eq!(
        machine.command(Control::Shutdown { export: false }),
        Some(Ok(ControlReply::Done))
    );
    let mut memory = machine.memory;
    for (segment, row, header) in memory
        .headers()
        .into_iter()
        .filter(|(_, _, header)| header.stream.0 == 3)
        .chain([lost])
    {
        memory.overwrite(segment, row..row + header.rows, 0xee);
    }
    let report = rebuild(&mut memory, true);
    (memory, volume, report)
}

/// Writes some of the blocks, and trims the others.
pub fn make_good(machine: &mut Machine, volume: VolumeId) {
    (0..2).for_each(|lba| machine.write(volume, lba, 9));
    for (lba, blocks) in [(2, 2), (10, 1)] {
        machine.request(
            volume,
            Op::Trim {
                offset: lba * 4096,
                length: blocks * 4096,
                fua: false,
            },
        );
    }
}
