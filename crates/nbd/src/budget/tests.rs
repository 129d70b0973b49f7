use super::*;
use proptest::prelude::*;

const MIB: u32 = 1 << 20;
const LARGEST: u32 = LARGEST_CHARGE as u32;

fn account(budget: &Arc<Budget>, connection: u64, process: i32) -> Account {
    Account::new(
        budget.clone(),
        connection,
        Peer::Process(process),
        Arc::new(Bell::new().unwrap()),
    )
}

/// Charges one size to the accounts until none gets more; returns the count.
fn fill(accounts: &[Account], charge: u32) -> u64 {
    accounts
        .iter()
        .map(|account| (0..1000).take_while(|_| account.take(charge)).count() as u64)
        .sum::<u64>()
        * u64::from(charge)
}

#[test]
fn one_peer_with_any_number_of_connections_leaves_room_for_another() {
    for charge in [64 << 10, MIB, 8 * MIB, 16 * MIB, LARGEST] {
        let budget = Budget::new(256 << 20);
        let greedy: Vec<Account> = (0..200).map(|number| account(&budget, number, 1)).collect();
        let taken = fill(&greedy, charge);
        assert!(
            (100 << 20..=(128 << 20) + 200 * OWN_BYTES).contains(&taken),
            "{taken} bytes in pieces of {charge}"
        );
        for wanted in [4096, 256 << 10, MIB, charge] {
            let decent = account(&budget, 1000, 2);
            assert!(decent.take(wanted), "{wanted} next to pieces of {charge}");
        }
        drop(greedy);
        assert_eq!(budget.usage().bytes, 0);
        assert_eq!(budget.held_by(), HashMap::new());
    }
}

#[test]
fn sixty_greedy_peers_leave_room_for_a_small_request_and_others_of_their_size_get_a_turn() {
    for charge in [MIB, 8 * MIB, LARGEST] {
        let budget = Budget::new(256 << 20);
        let greedy: Vec<Account> = (0..60)
            .map(|number| account(&budget, number, number as i32))
            .collect();
        fill(&greedy, charge);
        assert!(budget.usage().bytes <= 256 << 20);
        let decent = account(&budget, 1000, 1000);
        assert!(decent.take(256 << 10), "next to pieces of {charge}");
        let waiting = budget.usage().waiting;
        assert_eq!(waiting, 60, "each of them has asked for more than it gets");
        // A charge that one of them releases goes to another one.
        let first = greedy
            .iter()
            .find(|account| {
                let held = account.held();
                held.large + held.of_budget > 0
            })
            .unwrap();
        first.leave();
        let held = std::mem::take(&mut *first.held());
        first.give_to_budget(held.of_budget, held.large);
        assert!(
            budget.usage().waiting < waiting - 1,
            "another one continues"
        );
    }
}

#[test]
fn the_largest_request_is_served_when_small_ones_fill_their_lane_and_the_other_way_round() {
    for bytes in [MEMORY_BYTES_MIN, 256 << 20, 1 << 40] {
        let budget = Budget::new(bytes);
        let small: Vec<Account> = (0..64)
            .map(|number| account(&budget, number, number as i32))
            .collect();
        fill(&small, 4 * MIB);
        let large: Vec<Account> = (100..164)
            .map(|number| account(&budget, number, number as i32))
            .collect();
        assert!(large[0].take(LARGEST));
        fill(&large, LARGEST);
        drop(small);
        let one = account(&budget, 1000, 1000);
        assert!(
            one.take(LARGE_CHARGE as u32),
            "the large ones do not fill everything"
        );
        assert!(budget.usage().peak <= bytes);
    }
}

#[test]
fn a_waiting_request_is_not_passed_by_those_that_hold_more() {
    let budget = Budget::new(MEMORY_BYTES_MIN);
    let (busy, other, patient) = (
        account(&budget, 1, 1),
        account(&budget, 2, 2),
        account(&budget, 3, 3),
    );
    fill(std::slice::from_ref(&busy), MIB);
    fill(std::slice::from_ref(&other), MIB);
    assert!(!patient.take(8 * MIB));
    let mut rounds = 0;
    while !patient.take(8 * MIB) {
        // The busy ones have something to send at all times.
        for account in [&busy, &other] {
            account.give(Charges::of(MIB));
            account.take(MIB);
        }
        rounds += 1;
        assert!(rounds < 100, "it waits for good");
    }
}

#[test]
fn small_requests_need_nothing_of_the_budget() {
    let budget = Budget::new(MEMORY_BYTES_MIN);
    let account = account(&budget, 1, 1);
    for _ in 0..OWN_BYTES / 8192 {
        assert!(account.take(8192));
    }
    assert_eq!(budget.usage().bytes, 0);
    assert!(account.take(8192));
    assert_eq!((budget.usage().bytes, budget.usage().peak), (8192, 8192));
    account.give(Charges::of(8192));
    assert_eq!(budget.usage().bytes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever connections do, no memory is lost or held twice, and each waiting one gets its turn
    /// when the others have ended.
    #[test]
    fn the_books_balance(steps in prop::collection::vec((0usize..12, 0usize..5, any::<bool>()), 1..400)) {
        let sizes = [4096, 96 << 10, 3 * MIB, 12 * MIB, LARGEST];
        let budget = Budget::new(MEMORY_BYTES_MIN);
        let accounts: Vec<Account> = (0..12).map(|number| account(&budget, number, number as i32 / 3)).collect();
        let mut held: Vec<Vec<u32>> = vec![Vec::new(); 12];
        let mut waits: Vec<Option<u32>> = vec![None; 12];
        for (at, size, gives) in steps {
            if gives {
                held[at].pop().into_iter().for_each(|charge| accounts[at].give(Charges::of(charge)));
            } else {
                let charge = waits[at].unwrap_or(sizes[size]);
                waits[at] = (!accounts[at].take(charge)).then_some(charge);
                if waits[at].is_none() {
                    held[at].push(charge);
                }
            }
            let usage = budget.usage();
            prop_assert!(usage.bytes <= usage.bytes_max);
            prop_assert_eq!(budget.held_by().values().sum::<u64>(), usage.bytes);
        }
        // All replies leave; all waiting requests are served, one after the other.
        for _ in 0..24 {
            for at in 0..12 {
                held[at].drain(..).for_each(|charge| accounts[at].give(Charges::of(charge)));
                if let Some(charge) = waits[at].filter(|charge| accounts[at].take(*charge)) {
                    waits[at] = None;
                    held[at].push(charge);
                }
            }
        }
        prop_assert!(waits.iter().all(Option::is_none), "{:?}", waits);
        held.iter_mut().zip(&accounts).for_each(|(held, account)| held.drain(..).for_each(|charge| account.give(Charges::of(charge))));
        prop_assert_eq!(budget.usage().bytes, 0);
    }
}
