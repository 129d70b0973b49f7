//! A nearly full pool in which unreadable blocks hold the space of many segments: it refuses data,
//! and lets clients make room.

use crate::machine;

use machine::{Machine, PROPERTIES, numbers::Numbers};
use windrow_engine::*;
use windrow_format::superblock::Properties;
use windrow_geometry::Redundancy;
use windrow_io::*;
use windrow_types::{MemberId, VolumeId};

/// Every n-th block of a range is damaged: about each in a segment of its own.
#[derive(Clone, Copy)]
struct Damage {
    apart: u64,
    count: u64,
}

const MANY: Damage = Damage {
    apart: 150,
    count: 40,
};

impl Damage {
    fn has(self, lba: u64) -> bool {
        lba.is_multiple_of(self.apart) && lba < self.count * self.apart
    }
}

fn noise(seed: u64) -> Payload {
    Payload::copy_of(&Numbers(seed * 2 + 1).bytes(4096))
}

/// Answer to one request; `None` if the pool makes no progress any more.
fn answer(machine: &mut Machine, volume: VolumeId, op: Op) -> Option<Result<Reply, RequestError>> {
    machine.completions.clear();
    machine.request(volume, op);
    machine
        .wait_for(1)
        .then(|| machine.completions.pop().expect("an answer").result)
}

fn put(
    machine: &mut Machine,
    volume: VolumeId,
    lba: u64,
    seed: u64,
) -> Option<Result<Reply, RequestError>> {
    answer(
        machine,
        volume,
        Op::Write {
            offset: lba * 4096,
            data: noise(seed),
            fua: false,
        },
    )
}

fn trim(
    machine: &mut Machine,
    volume: VolumeId,
    lba: u64,
    fua: bool,
) -> Option<Result<Reply, RequestError>> {
    answer(
        machine,
        volume,
        Op::Trim {
            offset: lba * 4096,
            length: 4096,
            fua,
        },
    )
}

/// A full pool in which many segments hold an unreadable block.
fn damage(mut machine: Machine, damage: Damage) -> (Machine, VolumeId, u64) {
    machine.command(Control::SetProperties(Properties {
        spare_per_mille: 30,
        ..PROPERTIES
    }));
    let usable = machine.engine.status().plan.usable_bytes / 4096;
    let volume = machine.volume(usable * 4096);
    for lba in 0..usable {
        assert!(
            matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))),
            "block {lba}: {}",
            machine.engine.describe()
        );
    }
    machine.flush(volume);
    let lost: std::collections::HashSet<Vec<u8>> = (0..usable)
        .filter(|lba| damage.has(*lba))
        .map(|lba| noise(lba).to_vec())
        .collect();
    for (member, data) in machine.memory.data.iter().enumerate() {
        let at = (0..data.len())
            .step_by(4096)
            .filter(|at| lost.contains(&data[*at..*at + 4096]));
        machine.memory.bad.extend(at.map(|at| (member, at)));
    }
    assert!(machine.memory.bad.len() >= lost.len());
    (machine, volume, usable)
}

fn damaged() -> (Machine, VolumeId, u64) {
    damage(
        Machine::with_rows_only(Redundancy::None, 2, 64, 64, 64),
        MANY,
    )
}

/// Overwrites until the answer is not an acknowledgement; `None` if there was room all the time.
fn overwrite(
    machine: &mut Machine,
    volume: VolumeId,
    usable: u64,
    damage: Damage,
    rounds: u64,
) -> Option<RequestError> {
    let mut numbers = Numbers::default();
    for _ in 0..rounds * usable {
        let lba = numbers.below(usable);
        if damage.has(lba) {
            continue;
        }
        match put(machine, volume, lba, 1_000_000) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Some(error),
            None => panic!("it waits for ever: {}", machine.engine.describe()),
        }
    }
    None
}

fn told(machine: &Machine) -> usize {
    machine
        .out
        .notices
        .iter()
        .filter(|notice| matches!(notice, Notice::Exhausted { .. }))
        .count()
}

fn end(machine: &mut Machine) {
    machine.control.clear();
    machine.events.push(Event::Control(ControlRequest {
        id: ControlId(1),
        command: Control::Shutdown { export: false },
    }));
    machine.settle();
    machine::pass(machine, 20);
    assert_eq!(
        machine.control.pop().map(|answer| answer.result),
        Some(Ok(ControlReply::Done)),
        "{}",
        machine.engine.describe()
    );
}

/// Regression: writes waited for ever, with trims and the shutdown of the pool after them. Trims
/// restore the pool, both of unreadable blocks and of others.
#[test]
fn an_exhausted_pool_refuses_data_and_lets_users_make_room() {
    for fua in [true, false] {
        let (mut machine, volume, usable) = damaged();
        assert_eq!(
            overwrite(&mut machine, volume, usable, MANY, 6),
            Some(RequestError::NoSpace)
        );
        assert_eq!(told(&machine), 1);
        // An unaligned write, and a large one.
        let unaligned = Op::Write {
            offset: 512,
            data: noise(5).slice(0, 1024),
            fua: false,
        };
        assert!(matches!(
            answer(&mut machine, volume, unaligned),
            Some(Err(RequestError::NoSpace))
        ));
        let large = Op::Write {
            offset: 0,
            data: Payload::copy_of(&vec![7; 8 << 20]),
            fua: true,
        };
        assert!(matches!(
            answer(&mut machine, volume, large),
            Some(Err(RequestError::NoSpace))
        ));
        let lbas: Vec<u64> = (0..usable).step_by(MANY.apart as usize).collect();
        let tried = lbas.iter().position(|lba| {
            assert!(
                matches!(trim(&mut machine, volume, *lba, fua), Some(Ok(_))),
                "{}",
                machine.engine.describe()
            );
            matches!(put(&mut machine, volume, 1, 5), Some(Ok(_)))
        });
        assert!(
            tried.is_some_and(|tried| (tried as u64) < MANY.count),
            "there is no room: {}",
            machine.engine.describe()
        );
        // All unreadable blocks are gone: the pool is normal again.
        for lba in lbas.iter().filter(|lba| MANY.has(**lba)) {
            assert!(
                matches!(trim(&mut machine, volume, *lba, fua), Some(Ok(_))),
                "{}",
                machine.engine.describe()
            );
        }
        for lba in (0..usable).filter(|lba| !lbas.contains(lba)) {
            assert!(
                matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))),
                "block {lba}: {}",
                machine.engine.describe()
            );
        }
        end(&mut machine);
    }
}

/// Trims of whole blocks next to unreadable ones, a part of each segment: no segment dies by that,
/// so cleaning has to free the room.
#[test]
fn trims_of_a_part_of_each_segment_make_room() {
    for restarts in [false, true] {
        let (mut machine, volume, usable) = damaged();
        assert_eq!(
            overwrite(&mut machine, volume, usable, MANY, 6),
            Some(RequestError::NoSpace)
        );
        if restarts {
            machine = machine.crash();
        }
        for lba in (1..usable - 60).step_by(60) {
            let answer = answer(
                &mut machine,
                volume,
                Op::Trim {
                    offset: lba * 4096,
                    length: 20 * 4096,
                    fua: false,
                },
            );
            assert!(
                matches!(answer, Some(Ok(_))),
                "block {lba}: {answer:?} {}",
                machine.engine.describe()
            );
        }
        machine::pass(&mut machine, 100);
        for lba in (50..usable).step_by(60).filter(|lba| !MANY.has(*lba)) {
            assert!(
                matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))),
                "block {lba}: {}",
                machine.engine.describe()
            );
        }
        end(&mut machine);
    }
}

/// Whatever the pattern of damage: no request waits for ever, admitted data is written, checkpoints
/// and the shutdown complete.
#[test]
fn no_request_waits_for_ever_whatever_the_damage() {
    let mut exhausted = 0;
    // Members, MiB, rows of chunk and segment; pattern of damage. (In the last one each checkpoint
    // brought a victim in reach that gave less than the checkpoint took.)
    let large = (2, 32, 64, 64);
    let pools = [
        (large, 130, 100),
        (large, 252, 60),
        (large, 252, 20),
        (large, 300, 9),
        (large, 137, 60),
        ((3, 32, 16, 64), 190, 80),
        ((1, 32, 8, 8), 28, 133),
    ];
    for ((members, mib, chunk, segment), apart, count) in pools {
        let spread = Damage { apart, count };
        let (mut machine, volume, usable) = damage(
            Machine::with_rows_only(Redundancy::None, members, mib, chunk, segment),
            spread,
        );
        // One write at a time, and several large ones.
        let refused = overwrite(&mut machine, volume, usable, spread, 2);
        assert!(
            matches!(refused, None | Some(RequestError::NoSpace)),
            "{refused:?}"
        );
        for round in 0..6 {
            machine.completions.clear();
            let large = |n: u64| Op::Write {
                offset: (n * 700 % (usable - 600)) * 4096,
                data: Payload::copy_of(&Numbers(n + 1).bytes(600 * 4096)),
                fua: n.is_multiple_of(2),
            };
            (0..4).for_each(|n| machine.request(volume, large(round * 4 + n)));
            assert!(
                machine.wait_for(4),
                "({apart}, {count}): {}",
                machine.engine.describe()
            );
        }
        exhausted += told(&machine);
        // Trims of blocks without data, until they are refused or all are done: none makes room.
        for lba in 0..200 {
            assert!(
                matches!(
                    trim(&mut machine, volume, lba % 4, true),
                    Some(Ok(_) | Err(RequestError::NoSpace))
                ),
                "({apart}, {count}): {}",
                machine.engine.describe()
            );
        }
        for _ in 0..8 {
            machine.command(Control::Checkpoint);
            machine::pass(&mut machine, 10);
            assert!(trim(&mut machine, volume, 1, true).is_some());
        }
        end(&mut machine);
        let mut machine = machine.crash();
        machine::pass(&mut machine, 20);
        machine.control.clear();
        machine.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command: Control::VolumeDelete { volume },
        }));
        machine.settle();
        machine::pass(&mut machine, 100);
        assert_eq!(
            machine.control.pop().map(|answer| answer.result),
            Some(Ok(ControlReply::Done)),
            "({apart}, {count}): {}",
            machine.engine.describe()
        );
        let volume = machine.volume(usable * 4096);
        for lba in 0..usable {
            assert!(
                matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))),
                "({apart}, {count}) block {lba}: {}",
                machine.engine.describe()
            );
        }
    }
    assert!(exhausted >= 3, "{exhausted} pools were exhausted");
}

/// Trims that only the journal had at the power loss, after segments that were lent for them.
#[test]
fn an_exhausted_pool_can_be_started_after_a_crash() {
    let machine = Machine::with_rows(Redundancy::None, 2, 66, 64, 64);
    let (mut machine, volume, usable) = damage(machine, MANY);
    assert_eq!(
        overwrite(&mut machine, volume, usable, MANY, 6),
        Some(RequestError::NoSpace)
    );
    for lba in 0..300 {
        assert!(
            matches!(
                trim(
                    &mut machine,
                    volume,
                    MANY.apart * MANY.count + lba % 20,
                    true
                ),
                Some(Ok(_) | Err(RequestError::NoSpace))
            ),
            "{}",
            machine.engine.describe()
        );
        if lba % 100 == 99 {
            machine = machine.crash();
            machine::pass(&mut machine, 20);
            let result = put(&mut machine, volume, 1, 7);
            assert!(
                matches!(result, Some(Ok(_) | Err(RequestError::NoSpace))),
                "{result:?} {}",
                machine.engine.describe()
            );
        }
    }
    // The last resort, in segments reserved for it: its record is only in the journal at the power
    // loss.
    assert_eq!(
        machine.command(Control::VolumeDelete { volume }),
        Some(Ok(ControlReply::Done)),
        "{}",
        machine.engine.describe()
    );
    let mut machine = machine.crash();
    machine::pass(&mut machine, 20);
    let volume = machine.volume(usable * 4096);
    for lba in 0..usable {
        assert!(
            matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))),
            "block {lba}: {}",
            machine.engine.describe()
        );
    }
    end(&mut machine);
}

/// Regression: unreadable blocks held their segments until the next start, even if they became
/// readable again.
#[test]
fn data_that_is_readable_again_is_moved() {
    let (mut machine, volume, usable) = damaged();
    assert_eq!(
        overwrite(&mut machine, volume, usable, MANY, 6),
        Some(RequestError::NoSpace)
    );
    machine.memory.bad.clear();
    let start = ScrubCommand::Start {
        unix_s: 1_800_000_000,
        bytes_per_second: 0,
    };
    assert_eq!(
        machine.command(Control::Scrub(start)),
        Some(Ok(ControlReply::Done))
    );
    machine::pass(&mut machine, 400);
    assert!(
        machine
            .out
            .notices
            .iter()
            .any(|notice| matches!(notice, Notice::ScrubEnded { lost_blocks: 0, .. })),
        "{}",
        machine.engine.describe()
    );
    for lba in (0..usable).filter(|lba| !MANY.has(*lba)) {
        assert!(
            matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))),
            "block {lba}: {}",
            machine.engine.describe()
        );
    }
    (0..usable).for_each(|lba| {
        assert!(
            machine.read(volume, lba * 4096, 4096) == noise(lba)[..],
            "block {lba}"
        )
    });
}

/// An exhausted pool takes a further member as soon as there is room for the tables of two layouts.
/// The old layout ends when lost blocks have been trimmed, and nothing else is lost by that.
#[test]
fn an_exhausted_pool_grows_when_what_is_lost_is_trimmed() {
    let (mut machine, volume, usable) = damaged();
    assert_eq!(
        overwrite(&mut machine, volume, usable, MANY, 6),
        Some(RequestError::NoSpace)
    );
    machine.add_spare(32);
    let grow = |machine: &mut Machine| {
        machine.command(Control::Grow {
            members: vec![MemberId(2)],
        })
    };
    let mut left = usable;
    loop {
        let answer = grow(&mut machine);
        if answer == Some(Ok(ControlReply::Done)) {
            break;
        }
        assert!(
            matches!(answer, Some(Err(ControlError::NoSpace(_)))) && left > usable * 9 / 10,
            "{answer:?} {}",
            machine.engine.describe()
        );
        left -= 100;
        assert!(
            matches!(
                self::answer(
                    &mut machine,
                    volume,
                    Op::Trim {
                        offset: left * 4096,
                        length: 100 * 4096,
                        fua: false
                    }
                ),
                Some(Ok(_))
            ),
            "{}",
            machine.engine.describe()
        );
    }
    machine::pass(&mut machine, 400);
    assert!(
        machine.engine.status().reshape.active,
        "what is lost is still there"
    );
    // Not on its own: quarantined segments after a trial hold more than the new layout gives.
    let refused = overwrite(&mut machine, volume, left, MANY, 1);
    assert!(
        matches!(refused, None | Some(RequestError::NoSpace)),
        "{refused:?}"
    );
    for lba in (0..usable).filter(|lba| MANY.has(*lba)) {
        assert!(
            matches!(trim(&mut machine, volume, lba, false), Some(Ok(_))),
            "{}",
            machine.engine.describe()
        );
    }
    for lba in (0..left).filter(|lba| !MANY.has(*lba)) {
        assert!(
            matches!(put(&mut machine, volume, lba, lba), Some(Ok(_))),
            "block {lba}: {}",
            machine.engine.describe()
        );
    }
    machine.flush(volume);
    machine::pass(&mut machine, 400);
    assert!(
        !machine.engine.status().reshape.active,
        "{:?} {}",
        machine.engine.status().reshape,
        machine.engine.describe()
    );
    (0..left).filter(|lba| !MANY.has(*lba)).for_each(|lba| {
        assert!(
            machine.read(volume, lba * 4096, 4096) == noise(lba)[..],
            "block {lba}"
        )
    });
    end(&mut machine);
}
