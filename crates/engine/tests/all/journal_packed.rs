//! Stories of compressed records: a compressible block takes less of the journal, and returns
//! unchanged.

use crate::machine;

use machine::{Machine, numbers::Numbers, pass};
use windrow_engine::*;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::VolumeId;

const MIB: u64 = 1 << 20;

/// RAID-6 over six members with sectors of this size, with compressed records; flushes have
/// arrived.
fn pool(granule: u32) -> (Machine, VolumeId) {
    let mut machine = Machine::journalled_with(
        Redundancy::Double,
        6,
        24,
        JournalSpec::internal(Some(MIB), granule),
    );
    let limits = Limits {
        compresses_records: true,
        ..Machine::options().limits
    };
    machine = Machine::open_with(
        machine.memory,
        &OpenOptions {
            limits,
            ..Machine::options()
        },
    );
    let volume = machine.volume(16 * MIB);
    machine.write(volume, 4000, 1);
    machine.flush(volume);
    (machine, volume)
}

/// A block with this number of random bytes.
fn block(random: usize, seed: u64) -> Vec<u8> {
    let mut block = vec![seed as u8; 4096];
    Numbers(seed | 1).fill(&mut block[..random]);
    block
}

fn sync(machine: &mut Machine, volume: VolumeId, lba: u64, random: usize) {
    machine.request(
        volume,
        Op::Write {
            offset: lba * 4096,
            data: Payload::copy_of(&block(random, lba + 77)),
            fua: false,
        },
    );
    machine.settle();
    machine.flush(volume);
}

/// Record bytes, each counted once, for a block with this number of random bytes.
fn taken(machine: &mut Machine, volume: VolumeId, lba: u64, random: usize) -> u64 {
    let before = machine.engine.status().journal.record_bytes;
    sync(machine, volume, lba, random);
    machine.engine.status().journal.record_bytes - before
}

#[test]
fn a_compressed_block_takes_only_its_stored_bytes() {
    let (mut machine, volume) = pool(512);
    assert_eq!(taken(&mut machine, volume, 0, 0), 512, "beside the table");
    assert_eq!(taken(&mut machine, volume, 1, 2000), 2560);
    assert_eq!(
        taken(&mut machine, volume, 2, 4096),
        512 + 4096,
        "kept as it is"
    );
    let (mut machine, volume) = pool(4096);
    assert_eq!(
        (
            taken(&mut machine, volume, 0, 3000),
            taken(&mut machine, volume, 1, 4096)
        ),
        (4096, 8192),
        "head and block in one sector"
    );
}

#[test]
fn compressed_records_survive_a_crash() {
    for granule in [512, 4096] {
        let (mut machine, volume) = pool(granule);
        let random = |lba: u64| (lba as usize * 131) % 4097;
        (0..40).for_each(|lba| sync(&mut machine, volume, lba, random(lba)));
        let status = machine.engine.status().journal;
        assert!(
            status.records >= 40
                && status.record_bytes < status.records * (4096 + u64::from(granule)) * 3 / 4,
            "{status:?}"
        );
        machine.memory.present[3] = false;
        let mut machine = machine.crash();
        for lba in 0..40 {
            assert_eq!(
                machine.read(volume, lba * 4096, 4096),
                block(random(lba), lba + 77),
                "block {lba}"
            );
        }
        pass(&mut machine, 60);
        let mut machine = machine.crash();
        assert!(
            (0..40)
                .all(|lba| machine.read(volume, lba * 4096, 4096) == block(random(lba), lba + 77))
        );
    }
}

/// Records become shorter by compression after their room was reserved. The next one must begin
/// where they end, or it could not be reached.
#[test]
fn records_follow_one_another_without_a_gap() {
    let (mut machine, volume) = pool(512);
    let used = |machine: &Machine| machine.engine.status().journal.chunks_used;
    (0..100).for_each(|lba| sync(&mut machine, volume, lba, 64));
    assert!(
        used(&machine) <= 2,
        "a hundred compressed records fit into a chunk or two: {}",
        used(&machine)
    );
    let mut machine = machine.crash();
    assert!((0..100).all(|lba| machine.read(volume, lba * 4096, 4096) == block(64, lba + 77)));
}
