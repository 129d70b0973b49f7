use super::*;
use std::collections::BTreeMap;

const KIB: u64 = 1 << 10;
const ALONE: Load = Load {
    users: false,
    prompt: false,
    short: false,
};
const WRITERS: Load = Load {
    users: true,
    prompt: false,
    short: false,
};
const READERS: Load = Load {
    users: true,
    prompt: true,
    short: false,
};
const SHORT: Load = Load {
    users: true,
    prompt: true,
    short: true,
};
const MEMBER: MemberId = MemberId(0);

fn with(load: Load) -> Scheduler<u32> {
    let mut scheduler = Scheduler::new(&Limits::default());
    scheduler.set_load(load);
    scheduler
}

/// Sends `count` commands of a cost; returns the number that may be sent at once.
fn ask(scheduler: &mut Scheduler<u32>, class: Class, cost: u64, count: u32) -> u32 {
    let mut gone = 0;
    for item in 0..count {
        if scheduler.begin(MEMBER, class, cost) {
            gone += 1;
        } else {
            scheduler.hold(MEMBER, class, cost, 5, item);
        }
    }
    gone
}

/// Numbers of the commands that are sent now.
fn go(scheduler: &mut Scheduler<u32>) -> Vec<u32> {
    std::iter::from_fn(|| scheduler.next())
        .map(|(number, ..)| number)
        .collect()
}

#[test]
fn each_class_has_its_window() {
    let went = |load, class, cost| ask(&mut with(load), class, cost, 100);
    for load in [ALONE, WRITERS, READERS, SHORT] {
        assert_eq!(
            (
                went(load, Class::Read, 1 << 30),
                went(load, Class::Journal, 1 << 30)
            ),
            (100, 100),
            "never held back"
        );
    }
    let chunk = 256 * KIB;
    assert_eq!(
        [ALONE, WRITERS, READERS, SHORT].map(|load| went(load, Class::Foreground, chunk)),
        [100, 100, 4, 4]
    );
    assert_eq!(
        [ALONE, WRITERS, READERS, SHORT].map(|load| went(load, Class::Background, chunk)),
        [100, 2, 2, 4]
    );
    assert_eq!(
        went(
            Load {
                prompt: false,
                ..SHORT
            },
            Class::Background,
            chunk
        ),
        100,
        "no client notices, and a request waits for it"
    );
    assert_eq!(went(READERS, Class::Background, 32 * KIB), 16);
    assert_eq!(
        went(READERS, Class::Background, 16 << 20),
        2,
        "two go whatever their size"
    );
}

#[test]
fn costs_of_commands() {
    use windrow_io::Buf;
    let read = |bytes| MemberOp::Read {
        offset: 0,
        buf: Buf::unpooled(bytes),
    };
    assert_eq!(
        (cost(&read(4096)), cost(&read(64 << 10))),
        (32 * KIB, 64 * KIB)
    );
    assert_eq!(
        cost(&MemberOp::Write {
            offset: 0,
            buf: Buf::unpooled(1 << 20)
        }),
        1 << 20
    );
    assert_eq!(
        (
            cost(&MemberOp::Flush),
            cost(&MemberOp::Discard {
                offset: 0,
                length: 64 << 20
            })
        ),
        (32 * KIB, 256 * KIB)
    );
}

#[test]
fn a_small_command_does_not_overtake_a_large_one_of_its_class() {
    let mut scheduler = with(READERS);
    assert_eq!(ask(&mut scheduler, Class::Background, 200 * KIB, 2), 2);
    assert!(!scheduler.begin(MEMBER, Class::Background, 256 * KIB));
    scheduler.hold(MEMBER, Class::Background, 256 * KIB, 7, 1);
    assert!(
        !scheduler.begin(MEMBER, Class::Background, 32 * KIB),
        "there would be room for it"
    );
    scheduler.hold(MEMBER, Class::Background, 32 * KIB, 8, 2);
    assert!(
        scheduler.begin(MEMBER, Class::Foreground, 256 * KIB)
            && scheduler.begin(MemberId(1), Class::Background, 256 * KIB),
        "lanes of their own"
    );
    assert_eq!(scheduler.next(), None);
    scheduler.end(MEMBER, Class::Background, 200 * KIB);
    assert_eq!(
        (scheduler.next(), scheduler.next(), scheduler.next()),
        (
            Some((1, Class::Background, 7)),
            Some((2, Class::Background, 8)),
            None
        )
    );
    assert_eq!((scheduler.held(), scheduler.self_check()), (0, Ok(())));
}

#[test]
fn without_foreground_io_everything_is_sent() {
    let mut scheduler = with(READERS);
    ask(&mut scheduler, Class::Background, 256 * KIB, 10);
    assert_eq!((scheduler.next(), scheduler.held()), (None, 8));
    scheduler.set_load(ALONE);
    assert_eq!(go(&mut scheduler), (2..10).collect::<Vec<_>>());
}

#[test]
fn cancelled_commands_are_returned_once_and_those_in_flight_stay() {
    let mut scheduler = with(SHORT);
    assert_eq!(
        (
            ask(&mut scheduler, Class::Foreground, 1 << 20, 5),
            ask(&mut scheduler, Class::Background, 1 << 20, 4)
        ),
        (2, 2)
    );
    assert_eq!(
        (
            scheduler.cancel(MemberId(3)).len(),
            scheduler.cancel(MEMBER),
            scheduler.cancel(MEMBER).len()
        ),
        (0, vec![2, 3, 4, 2, 3], 0)
    );
    assert_eq!(
        (scheduler.held(), scheduler.next(), scheduler.self_check()),
        (0, None, Ok(()))
    );
    assert!(
        !scheduler.begin(MEMBER, Class::Foreground, 1 << 20),
        "two are under way still"
    );
}

/// Reference model: one list of all unsent commands, searched from its beginning for each.
#[derive(Default)]
struct Model {
    /// Number, member, class and cost, the oldest first.
    waiting: Vec<(u32, MemberId, Class, u64)>,
    under_way: BTreeMap<u32, (MemberId, Class, u64)>,
}

impl Model {
    fn goes(&self, at: usize, load: Load) -> bool {
        let (_, member, class, cost) = self.waiting[at];
        if self.waiting[..at]
            .iter()
            .any(|(_, m, c, _)| (*m, *c) == (member, class))
        {
            return false;
        }
        let mine = || {
            self.under_way
                .values()
                .filter(|(m, c, _)| (*m, *c) == (member, class))
        };
        // The windows are restated here independently.
        let window = match (class, load.prompt, load.users || load.prompt, load.short) {
            (Class::Foreground, true, ..) | (Class::Background, true, _, true) => 1024 * KIB,
            (Class::Background, _, true, false) => 512 * KIB,
            _ => return true,
        };
        mine().count() < 2 || mine().map(|(.., cost)| cost).sum::<u64>() + cost <= window
    }

    /// Numbers of the commands that are sent now.
    fn go(&mut self, load: Load) -> Vec<u32> {
        let mut gone = Vec::new();
        while let Some(at) = (0..self.waiting.len()).find(|at| self.goes(*at, load)) {
            let (number, member, class, cost) = self.waiting.remove(at);
            self.under_way.insert(number, (member, class, cost));
            gone.push(number);
        }
        gone
    }
}

/// Scheduler and model in parallel.
struct Both {
    scheduler: Scheduler<u32>,
    model: Model,
    load: Load,
}

impl Both {
    /// A command arrives.
    fn send(&mut self, number: u32, member: MemberId, class: Class, cost: u64) {
        self.model.waiting.push((number, member, class, cost));
        let goes = self.model.goes(self.model.waiting.len() - 1, self.load);
        assert_eq!(
            self.scheduler.begin(member, class, cost),
            goes,
            "command {number} of {class:?} on {member}"
        );
        if goes {
            self.model.waiting.pop();
            self.model.under_way.insert(number, (member, class, cost));
        } else {
            self.scheduler.hold(member, class, cost, 0, number);
        }
    }

    /// One command in flight ends; false if there is none.
    fn end(&mut self, which: u64) -> bool {
        let at = which as usize % self.model.under_way.len().max(1);
        let Some(number) = self.model.under_way.keys().nth(at).copied() else {
            return false;
        };
        if let Some((member, class, cost)) = self.model.under_way.remove(&number) {
            self.scheduler.end(member, class, cost);
        }
        true
    }

    /// Cancels all commands for a member; returns the number that were held for it.
    fn cancel(&mut self, member: MemberId) -> usize {
        let mut given_back = self.scheduler.cancel(member);
        given_back.sort_unstable();
        let expected: Vec<u32> = self
            .model
            .waiting
            .extract_if(.., |(_, m, ..)| *m == member)
            .map(|(number, ..)| number)
            .collect();
        assert_eq!(given_back, expected);
        expected.len()
    }

    /// Sends what may be sent: the same in both, and of each class on each member the oldest first.
    fn go(&mut self) {
        let went = go(&mut self.scheduler);
        let lane = |number: &u32| {
            self.model
                .waiting
                .iter()
                .find(|(n, ..)| n == number)
                .map(|(_, member, class, _)| (*member, *class))
        };
        for (at, number) in went.iter().enumerate() {
            assert!(
                went[..at]
                    .iter()
                    .all(|earlier| earlier < number || lane(earlier) != lane(number)),
                "{went:?}"
            );
        }
        let (mut went, mut expected) = (went, self.model.go(self.load));
        went.sort_unstable();
        expected.sort_unstable();
        assert_eq!((went, self.scheduler.self_check()), (expected, Ok(())));
    }
}

/// Random commands, completions, loads and losses of members. At each moment the same commands are
/// sent as in the model, of each class on each member in order of arrival. None is lost, none is
/// sent twice, and in the end everything has ended.
#[test]
fn it_does_what_the_model_does() {
    let mut most_held = 0;
    for seed in 1..300u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |count: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % count
        };
        let mut both = Both {
            scheduler: with(ALONE),
            model: Model::default(),
            load: ALONE,
        };
        let mut ended = 0;
        for number in 0..300 {
            both.send(
                number,
                MemberId(below(3) as u8),
                Class::ALL[below(4) as usize],
                (32 << below(6)) * KIB,
            );
            for _ in 0..below(3) {
                ended += usize::from(both.end(below(1 << 32)));
            }
            if below(20) == 0 {
                both.load = Load {
                    users: below(2) == 0,
                    prompt: below(2) == 0,
                    short: below(2) == 0,
                };
                both.scheduler.set_load(both.load);
            }
            if below(60) == 0 {
                ended += both.cancel(MemberId(below(3) as u8));
            }
            both.go();
            most_held = most_held.max(both.scheduler.held());
        }
        while both.end(below(1 << 32)) {
            ended += 1;
            both.go();
        }
        assert_eq!(
            (both.scheduler.held(), ended),
            (0, 300),
            "seed {seed}: each command ended once"
        );
    }
    assert!(most_held > 10, "{most_held}: the lanes were never full");
}
