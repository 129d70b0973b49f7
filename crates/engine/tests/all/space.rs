//! Room, space and cleaning: accepted requests can be completed, and clients do not wait longer
//! than needed.

use crate::machine;

use machine::{Machine, PROPERTIES, numbers::Numbers};
use windrow_engine::*;
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_io::*;

/// Bytes that differ from block to block and are never all the same.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    Numbers(seed * 2 + 1).bytes(length)
}

/// A write with unaligned ends was admitted in one piece however large it was, beyond the room in
/// the log: it was acknowledged although the log could not take it yet.
#[test]
fn a_large_unaligned_write_keeps_to_the_room() {
    let mut machine = Machine::new(4, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 0, 0x11);
    machine.write(volume, 5120, 0x22);
    machine.completions.clear();
    machine.held = Some(Vec::new());
    let bytes = noise(20 << 20, 1);
    machine.request(
        volume,
        Op::Write {
            offset: 512,
            data: Payload::copy_of(&bytes),
            fua: false,
        },
    );
    machine.settle();
    assert!(
        machine.completions.is_empty(),
        "acknowledged before its last part was admitted"
    );
    machine.release();
    assert!(machine.wait_for(1), "{}", machine.engine.describe());
    assert!(machine.completions[0].result.is_ok());
    let all = machine.read(volume, 0, (20 << 20) + 4096);
    assert!(
        all[..512] == [[!0x11, 0x11].as_slice(), &[0x11; 510]].concat()[..]
            && all[512..512 + bytes.len()] == bytes
            && all[512 + bytes.len()..] == [0x22; 3584]
    );
}

/// A larger spare factor came between the chunks of a write whose space was reserved: a later chunk
/// was refused, and the write ended in an error with its first chunks in effect.
#[test]
fn a_larger_spare_factor_waits_for_a_write_that_is_admitted_in_parts() {
    let mut machine = Machine::new(4, 64, 100);
    let volume = machine.volume(1 << 30);
    let usable = machine.engine.status().plan.usable_bytes;
    let fill = (usable >> 20) / 2;
    for mib in 0..fill {
        machine.request(
            volume,
            Op::Write {
                offset: mib << 20,
                data: Payload::copy_of(&noise(1 << 20, mib)),
                fua: false,
            },
        );
        assert!(
            machine.wait_for(mib as usize + 1),
            "{}",
            machine.engine.describe()
        );
    }
    machine.completions.clear();
    machine.held = Some(Vec::new());
    machine.request(
        volume,
        Op::Write {
            offset: fill << 20,
            data: Payload::copy_of(&noise(20 << 20, 99)),
            fua: false,
        },
    );
    machine.settle();
    assert!(machine.completions.is_empty(), "it is admitted in parts");
    // It leaves less than the space that is written and reserved.
    let answer = machine.command(Control::SetProperties(Properties {
        spare_per_mille: 500,
        ..PROPERTIES
    }));
    assert_eq!(answer, None, "it waits");
    machine.release();
    assert!(machine.wait_for(1), "{}", machine.engine.describe());
    assert!(
        machine.completions[0].result.is_ok(),
        "{:?}",
        machine.completions[0].result
    );
    assert_eq!(
        machine.read(volume, fill << 20, 20 << 20),
        noise(20 << 20, 99)
    );
    assert!(
        machine
            .control
            .pop()
            .is_some_and(|control| control.result.is_err()),
        "what is written leaves no room for it"
    );
}

/// A write that does not fit is refused as a whole, before any part of it is admitted.
#[test]
fn a_large_unaligned_write_that_does_not_fit_changes_nothing() {
    let mut machine = Machine::new(4, 64, 100);
    let usable = machine.engine.status().plan.usable_bytes;
    let volume = machine.volume(1 << 30);
    let fill = (usable >> 20) - 8;
    for mib in 0..fill {
        machine.request(
            volume,
            Op::Write {
                offset: mib << 20,
                data: Payload::copy_of(&noise(1 << 20, mib)),
                fua: false,
            },
        );
        assert!(
            machine.wait_for(mib as usize + 1),
            "{}",
            machine.engine.describe()
        );
    }
    machine.completions.clear();
    let before = machine.engine.status();
    machine.request(
        volume,
        Op::Write {
            offset: (fill << 20) - 512,
            data: Payload::copy_of(&noise(16 << 20, 99)),
            fua: false,
        },
    );
    machine.settle();
    assert_eq!(
        machine.completions.pop().and_then(|c| c.result.err()),
        Some(RequestError::NoSpace)
    );
    let after = machine.engine.status();
    assert_eq!(
        (after.used_bytes, after.lsn),
        (before.used_bytes, before.lsn)
    );
    assert_eq!(
        machine.read(volume, (fill - 1) << 20, 1 << 20),
        noise(1 << 20, fill - 1)
    );
}

/// Fills the pool, then overwrites `writes` random blocks; returns the status before and after the
/// overwrites.
fn overwrite_full_pool(machine: &mut Machine, writes: u64) -> (PoolStatus, PoolStatus) {
    let usable = machine.engine.status().plan.usable_bytes / 4096;
    let volume = machine.volume(usable * 4096);
    let block = Payload::copy_of(&noise(4096, 7));
    let mut numbers = Numbers::default();
    let mut full = machine.engine.status();
    for n in 0..usable + writes {
        let state = numbers.draw();
        if n == usable {
            full = machine.engine.status();
        }
        let lba = if n < usable { n } else { state % usable };
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: block.clone(),
                fua: false,
            },
        );
        if n % 32 == 31 {
            assert!(machine.wait_for(32), "{}", machine.engine.describe());
            machine.completions.clear();
        }
    }
    (full, machine.engine.status())
}

/// Segments that the oldest kept checkpoint may replay were cleaned, and gave nothing back before
/// two more checkpoints. On a full pool with the least spare every third victim forced one: 5 600
/// for 160 000 writes, four times the bytes of the user writes.
#[test]
fn a_full_pool_with_the_least_spare_makes_few_checkpoints() {
    for (spare, most) in [(30, 90), (100, 45)] {
        let mut machine = Machine::new(4, 48, spare);
        let (full, end) = overwrite_full_pool(&mut machine, 40_000);
        assert!(
            end.checkpoints - full.checkpoints <= most,
            "{} checkpoints with {spare} thousandths spare",
            end.checkpoints - full.checkpoints
        );
    }
}

/// Address of a block of noise with this number: (member, offset) of each copy.
fn copies(machine: &Machine, number: u64) -> Vec<(usize, usize)> {
    let wanted = noise(4096, number);
    let found = |member: usize| move |at: &usize| (member, *at);
    (0..machine.memory.data.len())
        .flat_map(|member| {
            let data = &machine.memory.data[member];
            (0..data.len() / 4096)
                .map(|block| block * 4096)
                .filter(|at| data[*at..*at + 4096] == wanted[..])
                .map(|at| found(member)(&at))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Cleaning reads live blocks in runs, with the dead ones between them. An unreadable dead block
/// made the whole run fail: its intact live neighbours were declared lost.
#[test]
fn an_unreadable_dead_block_does_not_take_its_neighbours_along() {
    let mut machine = Machine::new(3, 24, 100);
    let volume = machine.volume(1 << 30);
    let block = |number: u64| Payload::copy_of(&noise(4096, number));
    let put = |machine: &mut Machine, lba: u64, number: u64| {
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: block(number),
                fua: false,
            },
        );
        assert!(machine.wait_for(1), "{}", machine.engine.describe());
        machine.completions.clear();
    };
    (0..120).for_each(|lba| put(&mut machine, lba, 1000 + lba));
    machine.flush(volume);
    // A dead block between live ones, and its row on both other members: it cannot be
    // reconstructed.
    let (_, row) = copies(&machine, 1020)[0];
    let in_row: Vec<u64> = (0..120)
        .filter(|lba| copies(&machine, 1000 + lba)[0].1 == row)
        .collect();
    assert!(in_row.len() == 2, "{in_row:?}");
    let kept = |lba: u64| {
        in_row
            .iter()
            .any(|dead| lba + 1 == *dead || lba == dead + 1)
    };
    (0..120)
        .filter(|lba| !kept(*lba))
        .for_each(|lba| put(&mut machine, lba, 2000 + lba));
    machine
        .memory
        .data
        .iter_mut()
        .for_each(|data| data[row..row + 4096].fill(0x5a));
    let usable = machine.engine.status().plan.usable_bytes / 4096;
    let mut state = 1u64;
    for n in 200.. {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        put(
            &mut machine,
            if n < usable {
                n
            } else {
                200 + (state >> 33) % (usable - 200)
            },
            10_000,
        );
        if n % 500 == 0 && copies(&machine, 1000 + in_row[0] + 1).len() > 1 {
            break;
        }
        assert!(n < 10 * usable, "the segment was never cleaned");
    }
    let lost: Vec<_> = machine
        .out
        .notices
        .iter()
        .filter(|notice| matches!(notice, Notice::Unrecoverable { .. }))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    (0..120).filter(|lba| kept(*lba)).for_each(|lba| {
        assert_eq!(
            machine.read(volume, lba * 4096, 4096),
            noise(4096, 1000 + lba)
        )
    });
}

/// Bad sectors in the best victims of a nearly full pool without redundancy: each victim took space
/// for its moved data and gave none back. After four of them no victim was begun any more, however
/// much garbage the others held. Writes stalled without an error, with trims after them.
#[test]
fn damaged_victims_do_not_end_cleaning() {
    let mut machine = Machine::with_rows_only(Redundancy::None, 2, 64, 64, 64);
    machine.command(Control::SetProperties(Properties {
        spare_per_mille: 30,
        ..PROPERTIES
    }));
    let usable = machine.engine.status().plan.usable_bytes / 4096;
    let volume = machine.volume(usable * 4096);
    let put = |machine: &mut Machine, lba: u64, number: u64| {
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&noise(4096, number)),
                fua: false,
            },
        );
        assert!(
            machine.wait_for(1),
            "block {lba}: {}",
            machine.engine.describe()
        );
        machine.completions.clear();
    };
    (0..usable).for_each(|lba| put(&mut machine, lba, lba));
    // Unreadable blocks, each in a segment of its own, which has more garbage than any other.
    let (damaged, apart) = (6, 300);
    let lost = |number: u64| (number + 2) * apart;
    let of_damaged = |lba: u64| lba < (damaged + 3) * apart;
    let mut numbers = Numbers::default();
    let mut overwrite = |machine: &mut Machine| {
        let lba = numbers.below(usable);
        if !of_damaged(lba) {
            put(machine, lba, 10_001);
        }
    };
    while machine.engine.status().segments_cleaned == 0 {
        overwrite(&mut machine);
    }
    for number in 0..damaged {
        let bad = copies(&machine, lost(number));
        assert_eq!(bad.len(), 1);
        machine.memory.bad.extend(bad);
        machine.request(
            volume,
            Op::Trim {
                offset: (lost(number) + 1) * 4096,
                length: 24 * 4096,
                fua: true,
            },
        );
        assert!(machine.wait_for(1), "{}", machine.engine.describe());
        machine.completions.clear();
    }
    (0..2 * usable).for_each(|_| overwrite(&mut machine));
    for notice in &machine.out.notices {
        let Notice::Unrecoverable { lba, blocks, .. } = notice else {
            continue;
        };
        assert!(
            *blocks == 1 && (0..damaged).any(|number| lost(number) == *lba),
            "block {lba} is not damaged"
        );
    }
    machine.request(
        volume,
        Op::Trim {
            offset: lost(0) * 4096,
            length: 4096,
            fua: true,
        },
    );
    assert!(machine.wait_for(1), "{}", machine.engine.describe());
}

/// Each trim, however small, became a walk of its own in a plain list that every other operation
/// searched.
#[test]
fn small_trims_are_applied_at_once() {
    let mut machine = Machine::new(4, 64, 100);
    let volume = machine.volume(1 << 30);
    for mib in 0..64u64 {
        machine.request(
            volume,
            Op::Write {
                offset: mib << 20,
                data: Payload::copy_of(&noise(1 << 20, mib)),
                fua: false,
            },
        );
    }
    assert!(machine.wait_for(64), "{}", machine.engine.describe());
    machine.flush(volume);
    for n in 0..10_000 {
        machine.request(
            volume,
            Op::Trim {
                offset: (n * 7919 % (64 * 256)) * 4096,
                length: 4096,
                fua: false,
            },
        );
    }
    machine.engine.apply(&mut machine.events, &mut machine.out);
    assert!(
        machine.out.wake_at_ns.is_none_or(|at| at > machine.now_ns),
        "walks are left to do"
    );
    machine.events.push(Event::Tick(machine.now_ns));
    assert!(
        machine.wait_for(64 + 1 + 10_000),
        "{}",
        machine.engine.describe()
    );
    assert_eq!(
        machine.engine.status().used_bytes,
        (64 << 20) - 10_000 * 4096
    );
}

/// The delete of a large volume sent the discards of all its segments at once.
#[test]
fn discards_in_flight_are_bounded() {
    let mut machine = Machine::new(3, 64, 100);
    machine.command(Control::SetProperties(Properties {
        discard: true,
        ..PROPERTIES
    }));
    let volume = machine.volume(1 << 30);
    for mib in 0..96u64 {
        machine.request(
            volume,
            Op::Write {
                offset: mib << 20,
                data: Payload::copy_of(&noise(1 << 20, mib)),
                fua: false,
            },
        );
        assert!(
            machine.wait_for(mib as usize + 1),
            "{}",
            machine.engine.describe()
        );
    }
    machine.command(Control::VolumeDelete { volume });
    let (mut most, mut all) = (0, 0);
    for _ in 0..2 {
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command: Control::Checkpoint,
        }));
        while !machine.events.is_empty() {
            machine.engine.apply(&mut machine.events, &mut machine.out);
            let discards = machine
                .out
                .commands
                .iter()
                .filter(|c| matches!(c.op, MemberOp::Discard { .. }))
                .count();
            (most, all) = (most.max(discards), all + discards);
            std::mem::take(&mut machine.out.commands)
                .into_iter()
                .for_each(|command| machine.carry_out(command));
            for mut job in std::mem::take(&mut machine.out.jobs) {
                job.run();
                machine.events.push(Event::Job(job));
            }
        }
    }
    assert!(
        all > 3 * 64 && most <= 3 * 64,
        "{most} of {all} discards at once"
    );
}

/// Every block in its own megabyte takes a map page. A write refused because there was no map page
/// left empty pages, and pages of zeroes could take all of them. Nothing showed why a nearly empty
/// pool was full.
#[test]
fn map_pages_are_counted_refused_by_name_and_given_back() {
    let mut machine = Machine::new(3, 24, 100);
    let volume = machine.volume(1 << 40);
    let most = machine.engine.status().map_pages_max;
    machine.request(
        volume,
        Op::WriteZeroes {
            offset: 0,
            length: (2 * most) << 20,
            no_hole: true,
            fua: true,
        },
    );
    assert!(machine.wait_for(1));
    assert!(
        machine.engine.status().map_pages <= most * 3 / 4,
        "zeroes took all pages"
    );
    let mut lba = 4 * most * 256;
    while machine.engine.status().map_pages < most - 2 {
        machine.write(volume, lba, 1);
        lba += 256;
    }
    // Needs five more pages, two are left.
    machine.completions.clear();
    let data = Payload::copy_of(&noise(4 << 20, 5));
    machine.request(
        volume,
        Op::Write {
            offset: (lba + 128) * 4096,
            data,
            fua: false,
        },
    );
    machine.settle();
    assert_eq!(
        machine.completions.pop().and_then(|c| c.result.err()),
        Some(RequestError::NoSpace)
    );
    let status = machine.engine.status();
    assert_eq!(
        (
            status.map_pages,
            status.refused_map_pages,
            status.refused_space
        ),
        (most - 2, 1, 0)
    );
    machine.write(volume, lba, 1);
    machine.write(volume, lba + 256, 1);
    machine.write(volume, lba + 512, 1);
    assert!(machine.out.notices.contains(&Notice::MapFull {
        pages: most,
        by_memory: false
    }));
}

/// Requests that stepped aside for a held block were not counted, and could exceed the limit of
/// waiting requests.
#[test]
fn requests_that_step_aside_count_as_waiting() {
    let mut machine = Machine::new(3, 24, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 0, 7);
    machine.flush(volume);
    machine.completions.clear();
    let most = machine.engine.status().limits.waiting_requests as usize;
    // The read of the edge does not end, so its block stays held.
    machine.held = Some(Vec::new());
    let bytes = Payload::copy_of(&noise(512, 1));
    for _ in 0..most + 11 {
        machine.request(
            volume,
            Op::Write {
                offset: 512,
                data: bytes.clone(),
                fua: false,
            },
        );
    }
    machine.settle();
    assert_eq!(
        machine
            .completions
            .iter()
            .filter(|c| c.result.is_err())
            .count(),
        10
    );
}

/// A pool without a block to spare, in which block 0 is all ones: no payload, until a part of it
/// becomes zeroes.
fn full_to_the_last_block() -> (Machine, windrow_types::VolumeId) {
    let mut machine = Machine::new(3, 24, 100);
    let usable = machine.engine.status().plan.usable_bytes / 4096;
    let volume = machine.volume((usable + 64) * 4096);
    machine.request(
        volume,
        Op::Write {
            offset: 0,
            data: Payload::copy_of(&[0xff; 3 * 4096]),
            fua: false,
        },
    );
    for lba in 3..usable + 3 {
        machine.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&noise(4096, lba)),
                fua: false,
            },
        );
        if lba % 32 == 0 {
            assert!(machine.wait_for(1), "{}", machine.engine.describe());
            machine.completions.clear();
        }
    }
    machine.flush(volume);
    machine.wait_for(usize::MAX);
    machine.completions.clear();
    assert_eq!(machine.engine.status().used_bytes, usable * 4096);
    (machine, volume)
}

fn answer(
    machine: &mut Machine,
    volume: windrow_types::VolumeId,
    op: Op,
) -> Result<Reply, RequestError> {
    machine.completions.clear();
    machine.request(volume, op);
    assert!(machine.wait_for(1), "{}", machine.engine.describe());
    machine
        .completions
        .pop()
        .map_or(Err(RequestError::Stopped), |c| c.result)
}

/// A trim that cut into a block of ones needed space for the rest of it. In a full pool it was
/// refused, together with the whole blocks that it would have freed.
#[test]
fn an_unaligned_trim_works_in_a_full_pool() {
    let (mut machine, volume) = full_to_the_last_block();
    // Only parts of blocks of ones: nothing can be done, which is no error.
    assert!(matches!(
        answer(
            &mut machine,
            volume,
            Op::Trim {
                offset: 512,
                length: 1024,
                fua: true
            }
        ),
        Ok(Reply::Done)
    ));
    assert!(matches!(
        answer(
            &mut machine,
            volume,
            Op::Trim {
                offset: 512,
                length: 4096,
                fua: false
            }
        ),
        Ok(Reply::Done)
    ));
    assert_eq!(machine.read(volume, 0, 3 * 4096), [0xff; 3 * 4096]);
    // A write of zeroes is not advisory: it is refused, with nothing done.
    let zeroes = Op::WriteZeroes {
        offset: 2 * 4096 + 512,
        length: 4 * 4096,
        no_hole: false,
        fua: false,
    };
    assert!(matches!(
        answer(&mut machine, volume, zeroes),
        Err(RequestError::NoSpace)
    ));
    assert_eq!(machine.read(volume, 3 * 4096, 4096), noise(4096, 3));
    // Whole blocks in the middle, an edge in a block of ones, and one in a block that has its space
    // already.
    assert!(matches!(
        answer(
            &mut machine,
            volume,
            Op::Trim {
                offset: 2 * 4096 + 512,
                length: 4 * 4096,
                fua: true
            }
        ),
        Ok(Reply::Done)
    ));
    let mut expected = vec![0xff; 3 * 4096];
    expected.extend([0; 3 * 4096]);
    expected.extend([[0; 512].as_slice(), &noise(4096, 6)[512..]].concat());
    assert!(machine.read(volume, 0, 7 * 4096) == expected);
    // Now there is room, and the same trim takes the edge as well.
    assert!(matches!(
        answer(
            &mut machine,
            volume,
            Op::Trim {
                offset: 2 * 4096 + 512,
                length: 4 * 4096,
                fua: true
            }
        ),
        Ok(Reply::Done)
    ));
    expected[2 * 4096 + 512..3 * 4096].fill(0);
    assert!(machine.read(volume, 0, 7 * 4096) == expected);
    let mut machine = machine.crash();
    assert!(machine.read(volume, 0, 7 * 4096) == expected);
}

/// A change of properties waits for a large write in chunked admission. Any arriving request makes
/// the write continue. So a change that arrived just when the write was done was executed before
/// the first one, and the older value prevailed (simulator, seed 504006).
#[test]
fn of_two_changes_of_properties_the_later_one_stays() {
    let spare = |spare_per_mille| {
        Control::SetProperties(Properties {
            spare_per_mille,
            ..PROPERTIES
        })
    };
    let mut waited = 0;
    for turns in 0..60 {
        let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
        let volume = machine.volume(48 << 20);
        machine.request(
            volume,
            Op::Write {
                offset: 0,
                data: Payload::copy_of(&vec![7; 24 << 20]),
                fua: false,
            },
        );
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(50),
            command: spare(200),
        }));
        for _ in 0..turns {
            machine.turn();
        }
        waited += u32::from(
            !machine
                .control
                .iter()
                .any(|answer| answer.id == ControlId(50)),
        );
        machine.request(
            volume,
            Op::Write {
                offset: 40 << 20,
                data: Payload::copy_of(&[8; 4096]),
                fua: false,
            },
        );
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(51),
            command: spare(150),
        }));
        machine.settle();
        machine::pass(&mut machine, 5);
        assert_eq!(
            machine
                .control
                .iter()
                .filter(|answer| answer.result == Ok(ControlReply::Done))
                .count(),
            2,
            "after {turns} turns: {:?}",
            machine.control
        );
        assert_eq!(
            machine.engine.status().spare_per_mille,
            150,
            "after {turns} turns"
        );
    }
    assert!(
        (2..60).contains(&waited),
        "{waited} times the first one was not answered yet"
    );
}

/// In service a map page without entries is freed. A start kept all pages that it had met, so it
/// needed more than the limit. The pool could not be started at all (simulator, seed 601476).
#[test]
fn a_start_needs_no_more_map_pages_than_there_were() {
    let mut machine = Machine::with(Redundancy::Single, 4, 24, 100);
    let most = machine.engine.status().map_pages_max;
    let volume = machine.volume(64 << 30);
    let create = Control::VolumeCreate {
        name: "short-lived".into(),
        size_bytes: 64 << 30,
    };
    let Some(Ok(ControlReply::Volume(short_lived))) = machine.command(create) else {
        panic!("no second volume")
    };
    let page = |number: u64| number * 256;
    // The maximum number of pages, with a block each, and again and again others: no checkpoint
    // comes between.
    let kept = 20;
    (0..kept).for_each(|number| machine.write(volume, page(number), 1));
    for round in 1..6 {
        let pages = round * 1000..round * 1000 + most - kept - 2;
        pages
            .clone()
            .for_each(|number| machine.write(volume, page(number), 2));
        machine.flush(volume);
        machine.request(
            volume,
            Op::Trim {
                offset: page(pages.start) * 4096,
                length: (page(pages.end) - page(pages.start)) * 4096,
                fua: false,
            },
        );
        machine.settle();
        machine::pass(&mut machine, 3);
    }
    // Pages of zeroes are created while there are plenty, and are no reason to refuse data.
    machine.request(
        volume,
        Op::WriteZeroes {
            offset: page(9000) * 4096,
            length: 256 * 4096 * (most / 2),
            no_hole: true,
            fua: false,
        },
    );
    (0..most / 4).for_each(|number| machine.write(short_lived, page(number), 3));
    machine.flush(volume);
    assert_eq!(
        machine.command(Control::VolumeDelete {
            volume: short_lived
        }),
        Some(Ok(ControlReply::Done))
    );
    machine::pass(&mut machine, 5);
    let mut machine = machine.crash();
    let status = machine.engine.status();
    assert!(
        status.map_pages >= kept && status.map_pages <= kept + most / 2 + 1,
        "{} of {most}",
        status.map_pages
    );
    (0..kept).for_each(|number| assert_eq!(machine.byte(volume, page(number)), 1));
    assert_eq!(
        (
            machine.byte(volume, page(5000)),
            machine.byte(volume, page(9001))
        ),
        (0, 0)
    );
    assert_eq!(machine.engine.self_check(), Ok(()));
    // Freed pages are available to others, and the next checkpoint drops the images.
    (0..most / 4).for_each(|number| machine.write(volume, page(20_000 + number), 4));
    machine.flush(volume);
    machine.settle();
    machine.command(Control::Checkpoint);
    let mut machine = machine.crash();
    (0..most / 4).for_each(|number| assert_eq!(machine.byte(volume, page(20_000 + number)), 4));
}

/// Pages of blocks that were trimmed in flight stayed until the next start. Each took a map page
/// for nothing, until an almost empty pool refused writes.
#[test]
fn blocks_trimmed_in_flight_leave_no_page() {
    let mut machine = Machine::journalled(Redundancy::Single, 4, 24, 1 << 20);
    let volume = machine.volume(1 << 40);
    let (before, most) = (
        machine.engine.status().map_pages,
        machine.engine.status().map_pages_max,
    );
    for lba in (0..most * 2).map(|number| number * 256) {
        machine.write(volume, lba, 1);
        machine.request(
            volume,
            Op::Trim {
                offset: lba * 4096,
                length: 4096,
                fua: false,
            },
        );
        machine.settle();
    }
    machine.flush(volume);
    machine::pass(&mut machine, 5);
    assert!(machine.completions.iter().all(|c| c.result.is_ok()));
    assert_eq!(machine.engine.status().map_pages, before);
    let mut machine = machine.crash();
    assert_eq!(
        (machine.byte(volume, 256), machine.engine.status().map_pages),
        (0, before)
    );
}

/// The directory of a thin volume has a node for each GiB with a page. Nodes were neither counted
/// nor freed: a block written and trimmed in each GiB of 256 TiB left 1 GiB of them, and each trim
/// and block status walked them all.
#[test]
fn trims_free_the_memory_of_the_directory() {
    let mut machine = Machine::new(3, 24, 100);
    let volume = machine.volume(1 << 48);
    machine.write(volume, 0, 1);
    let before = machine.engine.status().map_bytes;
    for round in 0..3u64 {
        let lbas = (1..=20).map(|gib| ((round * 20 + gib) << 30) / 4096);
        lbas.clone().for_each(|lba| machine.write(volume, lba, 1));
        machine.flush(volume);
        let with_nodes = machine.engine.status().map_bytes;
        assert!(
            (before + 20 * 4096..before + 24 * 4096).contains(&with_nodes),
            "{before} and then {with_nodes}"
        );
        for lba in lbas {
            machine.request(
                volume,
                Op::Trim {
                    offset: lba * 4096,
                    length: 4096,
                    fua: false,
                },
            );
        }
        machine.flush(volume);
        // The metadata of each page is kept for later pages.
        assert!((before..before + 4096).contains(&machine.engine.status().map_bytes));
    }
    let mut machine = machine.crash();
    let after = machine.engine.status().map_bytes;
    let mut other = Machine::new(3, 24, 100);
    let volume_of_other = other.volume(1 << 48);
    machine::write(&mut other, volume_of_other, 0..1, 1);
    let other = other.crash().engine.status().map_bytes;
    assert!(
        after < other + 4 * 4096,
        "{after} after a start, {other} of a pool without trims"
    );
    assert_eq!(
        (
            machine.byte(volume, 0),
            machine.byte(volume, (1 << 30) / 4096)
        ),
        (1, 0)
    );
}

/// With one write in flight, each block status of a thin volume walked its holes block by block, on
/// the engine's thread.
#[test]
fn status_skips_absent_pages_also_with_writes_in_flight() {
    let mut machine = Machine::new(3, 24, 100);
    let volume = machine.volume(1 << 40);
    machine.held = Some(Vec::new());
    machine.write(volume, 0, 1);
    machine.completions.clear();
    machine.request(
        volume,
        Op::BlockStatus {
            offset: 0,
            length: 1 << 40,
            max_extents: 8,
        },
    );
    machine.settle();
    let Some(Ok(Reply::Extents(extents))) = machine.completions.pop().map(|c| c.result) else {
        panic!("no status")
    };
    let expected = [
        (4096, ExtentState::Data),
        ((1 << 40) - 4096, ExtentState::Hole),
    ];
    assert_eq!(
        extents
            .iter()
            .map(|e| (e.length, e.state))
            .collect::<Vec<_>>(),
        expected
    );
}

/// A block status of 4 GiB walked a million blocks in one step of the engine.
#[test]
fn one_answer_looks_at_a_bounded_part_of_the_map() {
    let mut machine = Machine::new(4, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.request(
        volume,
        Op::WriteZeroes {
            offset: 0,
            length: 100 << 20,
            no_hole: true,
            fua: true,
        },
    );
    assert!(machine.wait_for(1));
    let (mut at, mut answers) = (0, 0);
    while at < 1 << 30 {
        machine.completions.clear();
        machine.request(
            volume,
            Op::BlockStatus {
                offset: at,
                length: (1 << 30) - at,
                max_extents: 8,
            },
        );
        machine.settle();
        let Some(Ok(Reply::Extents(extents))) = machine.completions.pop().map(|c| c.result) else {
            panic!("no status")
        };
        for extent in extents {
            assert_eq!(
                extent.state,
                if at < 100 << 20 {
                    ExtentState::Zero
                } else {
                    ExtentState::Hole
                }
            );
            at += extent.length;
        }
        answers += 1;
    }
    assert_eq!((at, answers), (1 << 30, 2), "64 MiB and the rest");
}

/// The rest of a block was read, the block was cut off, and the volume grew over it again: the
/// write restored the old bytes.
#[test]
fn blocks_cut_off_do_not_return_with_a_waiting_write() {
    let mut machine = Machine::new(3, 24, 100);
    let volume = machine.volume(10 * 4096);
    machine.write(volume, 7, 9);
    machine.flush(volume);
    machine.completions.clear();
    machine.held = Some(Vec::new());
    machine.request(
        volume,
        Op::Write {
            offset: 7 * 4096 + 512,
            data: Payload::copy_of(&[5; 512]),
            fua: false,
        },
    );
    machine.settle();
    let read = machine.held.take().unwrap_or_default();
    assert_eq!(read.len(), 1, "the rest of the block");
    for blocks in [5, 10] {
        assert_eq!(
            machine.command(Control::VolumeResize {
                volume,
                size_bytes: blocks * 4096,
                shrink: true
            }),
            Some(Ok(ControlReply::Done))
        );
    }
    read.into_iter()
        .for_each(|command| machine.carry_out(command));
    machine.settle();
    assert!(machine.completions.iter().all(|c| c.result.is_ok()));
    let bytes = machine.read(volume, 7 * 4096, 4096);
    assert!(
        bytes[512..1024].iter().all(|byte| *byte == 5)
            && bytes[..512]
                .iter()
                .chain(&bytes[1024..])
                .all(|byte| *byte == 0)
    );
}
