//! Nearly full pools whose maps are spread over the address space: each page in a leaf of its own.

use crate::machine;

use machine::{Machine, numbers::Numbers, pass};
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::VolumeId;

/// Blocks of one leaf of the map.
const LEAF_BLOCKS: u64 = 256 * 256;

/// A pool filled to its last block, with the maximum number of map pages.
struct Full {
    volume: VolumeId,
    lbas: Vec<u64>,
    numbers: Numbers,
}

impl Full {
    fn fill(machine: &mut Machine) -> Self {
        let status = machine.engine.status();
        let blocks = status.plan.usable_bytes / 4096;
        let run = blocks.div_ceil(status.map_pages_max);
        let address = |block: u64| block / run * LEAF_BLOCKS + block % run * (255 / run);
        let mut numbers = Numbers::of(1);
        let mut lbas: Vec<u64> = (0..blocks).map(address).collect();
        (1..lbas.len())
            .rev()
            .for_each(|at| lbas.swap(at, numbers.below(at as u64 + 1) as usize));
        let mut full = Self {
            volume: machine.volume(256 << 40),
            lbas,
            numbers,
        };
        for at in 0..full.lbas.len() {
            let lba = full.lbas[at];
            full.write(machine, lba)
                .unwrap_or_else(|error| panic!("block {at} of the first filling: {error}"));
            if at % 500 == 0 {
                machine.flush(full.volume);
                pass(machine, 1);
            }
        }
        full
    }

    fn write(&mut self, machine: &mut Machine, lba: u64) -> Result<(), String> {
        machine.completions.clear();
        let data = Payload::copy_of(&self.numbers.bytes(4096));
        machine.request(
            self.volume,
            Op::Write {
                offset: lba * 4096,
                data,
                fua: false,
            },
        );
        if !machine.wait_for(1) {
            return Err(format!("no answer; {}", machine.engine.describe()));
        }
        machine.completions[0]
            .result
            .as_ref()
            .map(|_| ())
            .map_err(|error| format!("{error:?}; {}", machine.engine.describe()))
    }

    /// Overwrites existing blocks.
    fn overwrite(&mut self, machine: &mut Machine, count: u64) {
        for number in 0..count {
            let lba = self.lbas[self.numbers.below(self.lbas.len() as u64) as usize];
            self.write(machine, lba)
                .unwrap_or_else(|error| panic!("overwrite {number}: {error}"));
            if self.numbers.below(100) == 0 {
                machine.flush(self.volume);
            }
        }
    }
}

/// An image of a spread map was twice as large as its reserve. After some restarts, which require
/// two checkpoints one after the other, the second one got no segment. Then writes, trims, deletes
/// and the shutdown were not answered any more.
#[test]
fn a_full_pool_with_a_spread_map_answers_after_every_restart() {
    let geometries = [
        (Redundancy::Single, 4, [4, 16]),
        (Redundancy::Double, 6, [4, 8]),
        (Redundancy::Copies(2), 3, [8, 16]),
        (Redundancy::None, 3, [8, 32]),
    ];
    for (redundancy, members, rows) in geometries {
        let mut machine = Machine::with_rows_and_spare(redundancy, members, 20, rows, 30);
        let mut full = Full::fill(&mut machine);
        for _ in 0..6 {
            full.overwrite(&mut machine, 1000);
            machine = machine.crash();
        }
    }
}

/// Tables of many volumes were not counted in a checkpoint's pages at all.
#[test]
fn a_full_pool_with_as_many_volumes_as_there_is_room_for_answers_after_every_restart() {
    let mut machine = Machine::with_rows_and_spare(Redundancy::Single, 4, 20, [4, 16], 30);
    let pages = machine.engine.status().map_pages_max;
    // The last slot of their last table page is for the volume that is filled.
    for number in 1..pages / 8 * 32 {
        let command = windrow_engine::Control::VolumeCreate {
            name: format!("empty-{number}"),
            size_bytes: 4096,
        };
        assert!(
            matches!(machine.command(command), Some(Ok(_))),
            "volume {number}"
        );
    }
    let left = machine.engine.status().map_pages_max;
    assert!(
        left < pages,
        "{left} of {pages} pages of the map are left beside their tables"
    );
    let mut full = Full::fill(&mut machine);
    for _ in 0..8 {
        full.overwrite(&mut machine, 1000);
        machine = machine.crash();
    }
}

/// The reserve is too small, as by a fault of the engine: the pool reports it, refuses data,
/// continues to read and free, and shuts down.
#[test]
fn a_pool_whose_reserve_is_used_up_reports_it_and_ends() {
    let mut machine = Machine::with_rows_and_spare(Redundancy::Single, 4, 20, [4, 16], 30);
    let mut full = Full::fill(&mut machine);
    let refused = (0..40).find_map(|_| {
        machine = std::mem::replace(&mut machine, Machine::new(3, 24, 30)).crash();
        machine
            .engine
            .inject(windrow_engine::InjectedBug::ShortReserve);
        (0..1000).find_map(|_| {
            let lba = full.lbas[full.numbers.below(full.lbas.len() as u64) as usize];
            full.write(&mut machine, lba).err()
        })
    });
    let refused = refused.expect("the reserve is never used up");
    assert!(refused.starts_with("NoSpace"), "{refused}");
    assert!(machine.engine.status().refuses_data);
    let lba = full.lbas[0];
    assert_eq!(
        machine.read(full.volume, lba * 4096, 4096).len(),
        4096,
        "reads are answered"
    );
    machine.completions.clear();
    machine.request(
        full.volume,
        Op::Trim {
            offset: 0,
            length: LEAF_BLOCKS * 4096 * 20,
            fua: true,
        },
    );
    assert!(
        machine.wait_for(1) && machine.completions[0].result.is_ok(),
        "a trim: {:?}; {}",
        machine.completions,
        machine.engine.describe()
    );
    // Without a flush it is only in the open batch, and a shutdown without a checkpoint once
    // dropped that.
    let late = *full
        .lbas
        .iter()
        .find(|lba| **lba > LEAF_BLOCKS * 20)
        .expect("a block after the trimmed ones");
    machine.completions.clear();
    machine.request(
        full.volume,
        Op::Trim {
            offset: late * 4096,
            length: 4096,
            fua: false,
        },
    );
    assert!(
        machine.wait_for(1) && machine.completions[0].result.is_ok(),
        "a trim: {:?}",
        machine.completions
    );
    assert_eq!(
        machine
            .command(windrow_engine::Control::Shutdown { export: false })
            .map(|answer| answer.is_ok()),
        Some(true),
        "{}",
        machine.engine.describe()
    );
    let mut machine = machine.crash();
    assert_eq!(
        machine.read(full.volume, lba * 4096, 4096).len(),
        4096,
        "what was flushed is there"
    );
    assert!(
        machine
            .read(full.volume, late * 4096, 4096)
            .iter()
            .all(|byte| *byte == 0),
        "what was acknowledged before the end is there"
    );
}
