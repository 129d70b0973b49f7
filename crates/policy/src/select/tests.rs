use super::*;

fn candidate(segment: u32, live: u32, age: u32, rate: f32) -> Candidate {
    Candidate {
        place: Place {
            segment,
            tag: 0,
            age,
        },
        live,
        capacity: 100,
        rate,
    }
}

#[test]
fn the_price_of_gain_is_that_at_which_waiting_and_cleaning_cost_the_same() {
    // Memoryless lifetimes, chance 1 per time, price p: a segment is best cleaned at the age t that
    // minimises the cost of a live block per time, p (t / (1 - e^-t) - 1) + e^-t / (1 - e^-t). The
    // price of a segment at that age must be p.
    for price in [0.5f64, 5.0, 90.0] {
        let cost = |t: f64| price * (t / -(-t).exp_m1() - 1.0) + (-t).exp() / -(-t).exp_m1();
        let best = (1..400_000)
            .map(|step| f64::from(step) * 1e-5)
            .min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
            .expect("some");
        let capacity = 1_000_000u32;
        let live = (f64::from(capacity) * (-best).exp()) as u32;
        let found = gain_price(live, capacity, 1.0);
        assert!(
            (found / price - 1.0).abs() < 0.01,
            "price {price}: {found} at age {best}"
        );
    }
}

#[test]
fn static_blocks_are_gathered_first_and_dying_ones_waited_for() {
    assert!(
        gain_price(90, 100, 1e-9) < gain_price(50, 100, 1e-3),
        "nearly static, though it gains less"
    );
    assert!(
        gain_price(50, 100, 1e-3) < gain_price(50, 100, 1e-2),
        "the hotter of equals waits"
    );
    assert_eq!(gain_price(0, 100, 1.0), 0.0);
    assert_eq!(gain_price(100, 100, 0.0), f64::INFINITY);
    assert!(
        (gain_price(999_999, 1_000_000, 1.0) / 2e12 - 1.0).abs() < 1e-3,
        "no loss of digits near full"
    );
}

/// 40 segments: live 99 down to 60, ages 1 to 40, the live ones of odd numbers colder.
fn look(number: u32) -> Option<Candidate> {
    (!number.is_multiple_of(5)).then(|| {
        candidate(
            number,
            99 - number,
            number + 1,
            if number % 2 == 1 { 1e-9 } else { 1e-3 },
        )
    })
}

#[test]
fn each_rule_takes_what_it_says() {
    let pick = |rule: Rule| Shortlist::new(7).pick(rule, 40, &mut look).expect("some").0;
    assert_eq!(pick(Rule::Greedy), 39);
    assert_eq!(pick(Rule::Fifo), 39, "the oldest is also the emptiest here");
    assert_eq!(pick(Rule::Gain), 39, "cold and emptiest");
    let among_oldest = |rule: Rule| {
        // The oldest three are 0, 1, 2; of them the emptiest is 1.
        let mut look = |number: u32| {
            (number < 10).then(|| {
                candidate(
                    number,
                    if number == 1 { 50 } else { 60 - number },
                    100 - number,
                    1.0,
                )
            })
        };
        Shortlist::new(7).pick(rule, 10, &mut look).expect("some").0
    };
    assert_eq!(among_oldest(Rule::Window(3)), 1);
    assert_eq!(among_oldest(Rule::Fifo), 0);
    let mut seen = std::collections::BTreeSet::new();
    let mut list = Shortlist::new(7);
    for _ in 0..200 {
        seen.insert(list.pick(Rule::Choices(2), 40, &mut look).expect("some").0);
    }
    assert!(
        seen.len() > 10 && !seen.contains(&1),
        "two choices are often wrong, but never take the fullest: {seen:?}"
    );
}

#[test]
fn a_shortlist_takes_what_changed_since_it_was_made_into_account() {
    let mut gone = std::collections::BTreeSet::new();
    let mut list = Shortlist::new(1);
    let segments = 4096;
    let mut taken = Vec::new();
    for _ in 0..200 {
        let found = list
            .pick(Rule::Greedy, segments, &mut |number| {
                (!gone.contains(&number)).then(|| candidate(number, number % 97, 1, 1.0))
            })
            .expect("some")
            .0;
        assert!(gone.insert(found), "{found} twice");
        taken.push(found % 97);
    }
    // 42 or 43 segments of each live count: 200 victims are the emptiest five classes.
    assert!(taken.iter().all(|live| *live <= 4), "{taken:?}");
}

#[test]
fn names_of_rules_lead_back() {
    for rule in [
        Rule::Greedy,
        Rule::CostBenefit,
        Rule::AgeRoot,
        Rule::Fifo,
        Rule::Choices(3),
        Rule::Window(9),
        Rule::Gain,
    ] {
        assert_eq!(Rule::from_name(&rule.name()), Some(rule));
    }
    assert_eq!(
        [
            Rule::from_name("choices:0"),
            Rule::from_name("fifo:2"),
            Rule::from_name("best")
        ],
        [None; 3]
    );
    // A pool's properties have 16 bits for the number: a larger one must be refused, not stored as
    // 65535.
    assert_eq!(
        (
            Rule::from_name("window:65535"),
            Rule::from_name("window:65536")
        ),
        (Some(Rule::Window(65_535)), None)
    );
}
