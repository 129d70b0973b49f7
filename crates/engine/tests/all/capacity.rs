//! Stories of reduction as capacity: the savings of compression and deduplication take more data,
//! and refusals have the right reason.

use crate::machine;

use machine::{Machine, numbers::Numbers, pass};
use windrow_engine::*;
use windrow_format::checkpoint::{Compression, Dedup};
use windrow_format::superblock::{Features, Properties};
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{MemberId, VolumeId};

const MIB: u64 = 1 << 20;

/// A block of which the first `noise` bytes are incompressible; the same for the same seed.
fn block(noise: usize, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers::of(seed);
    let mut next = || (numbers.draw() >> 24) as u8;
    (0..4096)
        .map(|at| if at < noise { next() } else { 0x33 })
        .collect()
}

/// A small pool with a compressing volume that is much larger than the pool.
fn pool() -> (Machine, VolumeId) {
    let mut machine = Machine::with_rows(Redundancy::Single, 4, 16, 8, 16);
    let volume = machine.volume(256 * MIB);
    assert_eq!(
        machine.command(Control::VolumeCompression {
            volume,
            compression: Compression::Lz4
        }),
        Some(Ok(ControlReply::Done))
    );
    (machine, volume)
}

fn set(machine: &mut Machine, reduction: Reduction) -> Option<Result<ControlReply, ControlError>> {
    let properties = machine.engine.status().properties;
    machine.command(Control::SetProperties(Properties {
        reduction,
        ..properties
    }))
}

/// Writes a block; true if it was accepted.
fn put(machine: &mut Machine, volume: VolumeId, lba: u64, bytes: &[u8]) -> bool {
    machine.completions.clear();
    machine.request(
        volume,
        Op::Write {
            offset: lba * 4096,
            data: Payload::copy_of(bytes),
            fua: false,
        },
    );
    assert!(machine.wait_for(1), "{}", machine.engine.describe());
    match &machine.completions[0].result {
        Ok(_) => true,
        Err(RequestError::NoSpace) => false,
        other => panic!("a write was answered with {other:?}"),
    }
}

/// Writes blocks until one is refused; returns the number of accepted ones.
fn fill(machine: &mut Machine, volume: VolumeId, noise: usize) -> u64 {
    (0..)
        .find(|lba| !put(machine, volume, *lba, &block(noise, *lba)))
        .expect("an end")
}

fn trim(machine: &mut Machine, volume: VolumeId, lbas: std::ops::Range<u64>) {
    machine.completions.clear();
    machine.request(
        volume,
        Op::Trim {
            offset: lbas.start * 4096,
            length: (lbas.end - lbas.start) * 4096,
            fua: true,
        },
    );
    assert!(
        machine.wait_for(1) && machine.completions[0].result.is_ok(),
        "{}",
        machine.engine.describe()
    );
}

/// Trims and writes at the pool's limit until `cleaned` segments were cleaned. Each trimmed block
/// makes room for an equally compressible one; a refusal then is an error of the pool.
fn churn_full(
    machine: &mut Machine,
    volume: VolumeId,
    blocks: u64,
    noise: usize,
    goal: u64,
) -> Vec<u64> {
    let mut seeds: Vec<u64> = (0..blocks).collect();
    let mut numbers = Numbers::default();
    for round in 1.. {
        if machine.engine.status().segments_cleaned >= goal {
            break;
        }
        assert!(round < 20_000, "cleaning does not come");
        let first = numbers.below(blocks - 16);
        trim(machine, volume, first..first + 16);
        for lba in first..first + 16 {
            let seed = round * 1_000_000 + lba;
            seeds[lba as usize] = if put(machine, volume, lba, &block(noise, seed)) {
                seed
            } else {
                u64::MAX
            };
        }
    }
    seeds
}

fn verify(machine: &mut Machine, volume: VolumeId, seeds: &[u64], noise: usize) {
    for (lba, seed) in (0..).zip(seeds) {
        let expected = if *seed == u64::MAX {
            vec![0; 4096]
        } else {
            block(noise, *seed)
        };
        assert!(
            machine.read(volume, lba * 4096, 4096) == expected,
            "block {lba}"
        );
    }
}

/// With `spare` a pool takes the same number of blocks as of random data, however well they
/// compress. With `capacity` it takes what fits: here more than twice the number. At its limit it
/// cleans, trims, takes trimmed data again, and is the same after a crash.
#[test]
fn compressible_data_fills_a_pool_of_capacity_with_more() {
    let (mut machine, volume) = pool();
    let spare = fill(&mut machine, volume, 1000);
    assert_eq!(spare, machine.engine.status().plan.usable_bytes / 4096);
    let (mut machine, volume) = pool();
    assert_eq!(
        set(&mut machine, Reduction::Capacity),
        Some(Ok(ControlReply::Done))
    );
    assert!(
        machine.memory.superblock().features.incompatible & Features::CAPACITY != 0,
        "older software would fill it by blocks"
    );
    let capacity = fill(&mut machine, volume, 1000);
    assert!(
        capacity > spare * 2,
        "{capacity} blocks of capacity, {spare} with spare"
    );
    let status = machine.engine.status();
    let left = status.plan.usable_bytes - status.used_bytes;
    assert!(
        left < 2 * 4096 + status.pending_bytes
            && status.reduction_use.blocks_bytes == capacity * 4096,
        "{left} bytes left, {:?}",
        status.reduction_use
    );
    assert_eq!(status.warned_percent, 95, "warnings go by what is stored");
    let seeds = churn_full(&mut machine, volume, capacity, 1000, 30);
    machine.flush(volume);
    verify(&mut machine, volume, &seeds, 1000);
    let mut machine = machine.crash();
    verify(&mut machine, volume, &seeds, 1000);
    assert_eq!(
        machine.engine.status().properties.reduction,
        Reduction::Capacity
    );
    // All blocks are trimmed, and their space is available again.
    trim(&mut machine, volume, 0..capacity);
    pass(&mut machine, 20);
    assert_eq!(machine.engine.status().used_bytes, 0);
    assert!(fill(&mut machine, volume, 1000) + 64 > capacity);
}

/// Payloads of three units each: entries and checksums take more space than they do. The pool is
/// full of them, and each victim still gains.
#[test]
fn a_pool_full_of_tiny_payloads_makes_progress() {
    let (mut machine, volume) = pool();
    assert_eq!(
        set(&mut machine, Reduction::Capacity),
        Some(Ok(ControlReply::Done))
    );
    let blocks = (0..60_000)
        .find(|lba| !put(&mut machine, volume, *lba, &block(8, *lba)))
        .unwrap_or(60_000);
    let status = machine.engine.status();
    // Map pages run out before the payload space does: three times the blocks that fit
    // uncompressed.
    assert!(
        blocks * 4096 > status.plan.usable_bytes * 2
            && status.refused_map_pages + status.refused_space > 0,
        "{blocks} blocks, {status:?}"
    );
    let seeds = churn_full(&mut machine, volume, blocks, 8, 10);
    machine.flush(volume);
    verify(&mut machine, volume, &seeds[..2000], 8);
}

/// An overwrite of a compressed block needs a whole one until it is committed. In a full pool it is
/// refused, with nothing changed; a trim of another block makes room for it. For incompressible new
/// content enough blocks have to be trimmed for its size.
#[test]
fn an_overwrite_in_a_full_pool_needs_what_the_block_lacks_of_a_whole_one() {
    let (mut machine, volume) = pool();
    set(&mut machine, Reduction::Capacity);
    let blocks = fill(&mut machine, volume, 1000);
    machine.flush(volume);
    pass(&mut machine, 4);
    // Blocks in flight are compressed now, and a few more fit.
    let more = (blocks..)
        .find(|lba| !put(&mut machine, volume, *lba, &block(1000, *lba)))
        .expect("an end");
    assert!(
        !put(&mut machine, volume, 3, &block(4096, 77)),
        "random bytes over a compressed block"
    );
    assert!(machine.read(volume, 3 * 4096, 4096) == block(1000, 3));
    let refused = machine.engine.status().refused_space;
    assert!(
        put(&mut machine, volume, 3, &vec![0; 4096]),
        "zeroes need nothing"
    );
    trim(&mut machine, volume, more - 8..more);
    assert!(
        put(&mut machine, volume, 4, &block(4096, 78)),
        "{:?}",
        machine.engine.status().reduction_use
    );
    assert_eq!(machine.engine.status().refused_space, refused);
    assert!(machine.read(volume, 4 * 4096, 4096) == block(4096, 78));
}

/// The change back to `spare` is accepted only with a number of blocks that it permits; the refusal
/// states the excess. The change to `capacity` is accepted only where the larger map has room.
#[test]
fn both_directions_are_refused_with_figures() {
    let (mut machine, volume) = pool();
    set(&mut machine, Reduction::Capacity);
    let blocks = fill(&mut machine, volume, 1000);
    let usable = machine.engine.status().plan.usable_bytes;
    let Some(Err(ControlError::NoSpace(why))) = set(&mut machine, Reduction::Spare) else {
        panic!("more blocks than spare allows")
    };
    assert!(
        why.starts_with(&format!("{} bytes of blocks hold data", blocks * 4096))
            && why.contains("trim or delete"),
        "{why}"
    );
    assert_eq!(
        (
            machine.engine.status().properties.reduction,
            machine.engine.status().plan.usable_bytes
        ),
        (Reduction::Capacity, usable),
        "nothing changed"
    );
    trim(&mut machine, volume, blocks / 4..blocks);
    assert_eq!(
        set(&mut machine, Reduction::Spare),
        Some(Ok(ControlReply::Done))
    );
    assert!(
        machine.engine.status().plan.usable_bytes > usable,
        "fewer pages of the map, and no ends of columns"
    );
    let spare = machine.engine.status().plan.usable_bytes / 4096;
    assert_eq!(machine.engine.status().used_bytes, blocks / 4 * 4096);
    let mut machine = machine.crash();
    assert_eq!(
        (
            machine.engine.status().properties.reduction,
            machine.engine.status().plan.usable_bytes / 4096
        ),
        (Reduction::Spare, spare)
    );
    // Full of incompressible data: nothing is left for the larger map.
    let lbas: Vec<u64> = (0..)
        .take_while(|lba| put(&mut machine, volume, *lba, &block(4096, lba + 9)))
        .collect();
    let Some(Err(ControlError::NoSpace(why))) = set(&mut machine, Reduction::Capacity) else {
        panic!("full: {} blocks", lbas.len())
    };
    assert!(
        why.contains("would be usable with reduction=capacity"),
        "{why}"
    );
    assert_eq!(
        machine.engine.status().properties.reduction,
        Reduction::Spare
    );
}

/// An empty pool that has room for its map and reserve with `spare`, but not for those of
/// `capacity`: the change is refused with the reason, and the pool stays as it was.
#[test]
fn a_pool_too_small_for_the_larger_map_is_refused() {
    let mut machine = Machine::with_rows(Redundancy::Single, 3, 5, 8, 16);
    let volume = machine.volume(256 * MIB);
    let before = machine.engine.status();
    let why = match set(&mut machine, Reduction::Capacity) {
        Some(Err(ControlError::NoSpace(why))) => why,
        other => panic!("{} usable: {other:?}", before.plan.usable_bytes),
    };
    assert!(why.contains("48 segments fit, 51 are needed"), "{why}");
    let after = machine.engine.status();
    assert_eq!(
        (after.properties, after.plan.usable_bytes),
        (before.properties, before.plan.usable_bytes),
        "nothing changed"
    );
    assert_eq!(
        machine.memory.superblock().features.incompatible & Features::CAPACITY,
        0,
        "older software may still open it"
    );
    assert!(put(&mut machine, volume, 0, &block(4096, 1)));
    let mut machine = machine.crash();
    assert_eq!(
        machine.engine.status().properties.reduction,
        Reduction::Spare
    );
    assert!(put(&mut machine, volume, 1, &block(4096, 2)));
}

/// Shared content is charged once, and a reference is free; but each overwrite of a reference needs
/// a whole block.
#[test]
fn shared_content_is_charged_once() {
    let (mut machine, volume) = pool();
    assert_eq!(
        machine.command(Control::VolumeDedup {
            volume,
            dedup: Dedup::Verify
        }),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(
        set(&mut machine, Reduction::Capacity),
        Some(Ok(ControlReply::Done))
    );
    let spare = machine.engine.status().plan.usable_bytes / 4096;
    for lba in 0..spare + 200 {
        assert!(
            put(&mut machine, volume, lba, &block(4096, lba % 7)),
            "block {lba}"
        );
    }
    machine.flush(volume);
    pass(&mut machine, 4);
    assert_eq!(machine.engine.status().used_bytes, 7 * 4096);
    let mut machine = machine.crash();
    assert_eq!(machine.engine.status().used_bytes, 7 * 4096);
    let taken = (0..spare + 200)
        .filter(|lba| put(&mut machine, volume, *lba, &block(4096, 1000 + lba)))
        .count() as u64;
    assert!(
        taken < spare && taken + 16 > spare,
        "{taken} of {spare}: the rest still refers to what is shared"
    );
    trim(&mut machine, volume, 0..spare + 200);
    pass(&mut machine, 20);
    assert_eq!(machine.engine.status().used_bytes, 0);
}

/// Power loss while the superblock with `capacity` is in flight: until it is in force, admitted
/// data fits either way.
#[test]
fn until_the_property_is_in_force_both_ways_count() {
    let (mut machine, volume) = pool();
    let spare = fill(&mut machine, volume, 1000);
    machine.flush(volume);
    let properties = machine.engine.status().properties;
    machine.held = Some(Vec::new());
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(1),
        command: Control::SetProperties(Properties {
            reduction: Reduction::Capacity,
            ..properties
        }),
    }));
    machine.settle();
    assert!(machine.control.is_empty());
    assert!(
        !put(&mut machine, volume, spare + 1, &block(1000, 5)),
        "by blocks the pool is full"
    );
    machine.release();
    assert!(matches!(
        machine.control.pop().map(|done| done.result),
        Some(Ok(ControlReply::Done))
    ));
    assert!(put(&mut machine, volume, spare + 1, &block(1000, 5)));
}

/// Ids of shared content never change. In a pool that had been much larger some were above the
/// highest id that a start accepts as possible, and the blocks were lost with them.
#[test]
fn members_stay_as_long_as_a_start_without_them_would_take_ids_for_damage() {
    let mut machine = Machine::with_rows(Redundancy::None, 8, 12, 16, 64);
    let volume = machine.volume(1 << 30);
    assert_eq!(
        machine.command(Control::VolumeCompression {
            volume,
            compression: Compression::Lz4
        }),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(
        machine.command(Control::VolumeDedup {
            volume,
            dedup: Dedup::Hash
        }),
        Some(Ok(ControlReply::Done))
    );
    assert_eq!(
        set(&mut machine, Reduction::Capacity),
        Some(Ok(ControlReply::Done))
    );
    let mut blocks = 0;
    while put(&mut machine, volume, blocks, &block(16, blocks)) && blocks < 60_000 {
        blocks += 1;
    }
    machine.flush(volume);
    let last = blocks - 1;
    trim(&mut machine, volume, 0..last);
    pass(&mut machine, 60);
    machine.command(Control::Checkpoint);
    pass(&mut machine, 60);
    let mut machine = machine.crash();
    let mut refused = String::new();
    for member in 0..6 {
        match machine.command(Control::Remove {
            member: MemberId(member),
        }) {
            Some(Ok(_)) => {}
            answer => {
                refused = format!("{answer:?}");
                break;
            }
        }
        for _ in 0..500 {
            if !machine.engine.status().reshape.active {
                break;
            }
            pass(&mut machine, 3);
        }
        assert!(
            !machine.engine.status().reshape.active,
            "{}",
            machine.engine.describe()
        );
    }
    let mut machine = machine.crash();
    machine.completions.clear();
    machine.request(
        volume,
        Op::Read {
            offset: last * 4096,
            length: 4096,
        },
    );
    assert!(machine.wait_for(1));
    assert!(
        matches!(&machine.completions[0].result, Ok(Reply::Data(parts)) if parts[0][..] == block(16, last)[..]),
        "{:?}",
        machine.completions[0].result
    );
    assert!(
        refused.contains("shared content has numbers up to"),
        "{refused}"
    );
}

/// The deduplication index fills the pages that a pool has for it, and no command shrinks it:
/// without a limit such a pool could not release a member. Pages beyond the room of the smaller
/// pool count as data until the next start, which discards them.
#[test]
fn an_index_that_is_too_large_for_what_is_left_does_not_hold_a_member() {
    let mut machine = Machine::with_rows(Redundancy::None, 8, 12, 16, 64);
    let volume = machine.volume(1 << 30);
    assert_eq!(
        machine.command(Control::VolumeDedup {
            volume,
            dedup: Dedup::Hash
        }),
        Some(Ok(ControlReply::Done))
    );
    for round in 0..8 {
        (0..3800).for_each(|lba| {
            assert!(put(
                &mut machine,
                volume,
                lba,
                &block(16, lba + round * 3800)
            ))
        });
    }
    machine.flush(volume);
    pass(&mut machine, 60);
    let pages = machine.engine.status().dedup.index_pages;
    assert_eq!(pages, machine.engine.status().plan.index_pages);
    assert_eq!(
        machine.command(Control::Remove {
            member: MemberId(3)
        }),
        Some(Ok(ControlReply::Done))
    );
    for _ in 0..1000 {
        if !machine.engine.status().reshape.active {
            break;
        }
        pass(&mut machine, 3);
    }
    let status = machine.engine.status();
    assert!(
        !status.reshape.active
            && status.plan.index_pages < pages
            && status.dedup.index_pages >= pages,
        "{status:?}"
    );
    let beyond = (status.dedup.index_pages - status.plan.index_pages) * 4096;
    let mut blocks = 3800;
    while put(&mut machine, volume, blocks, &block(4096, blocks + 50_000)) {
        blocks += 1;
    }
    assert_eq!(
        machine.engine.status().used_bytes + beyond,
        machine.engine.status().plan.usable_bytes
    );
    machine.flush(volume);
    let mut machine = machine.crash();
    let status = machine.engine.status();
    assert!(
        status.dedup.index_pages <= status.plan.index_pages,
        "{:?}",
        status.dedup
    );
    assert!(
        put(&mut machine, volume, blocks, &block(4096, 1)),
        "there is room again"
    );
    pass(&mut machine, 60);
    assert_eq!(machine.engine.self_check(), Ok(()));
    for lba in [0, 3799, 3800, blocks - 1] {
        let (noise, seed) = if lba < 3800 {
            (16, lba + 7 * 3800)
        } else {
            (4096, lba + 50_000)
        };
        assert_eq!(
            machine.read(volume, lba * 4096, 4096),
            block(noise, seed),
            "{lba}"
        );
    }
}
