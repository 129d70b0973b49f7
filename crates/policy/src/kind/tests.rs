use super::*;

#[test]
fn names_and_numbers_lead_back() {
    for kind in PlacementKind::ALL {
        assert_eq!(PlacementKind::from_name(kind.name()), Some(kind));
        assert!(
            kind.code()
                .is_none_or(|code| PlacementKind::from_code(code) == Some(kind))
        );
        assert!(kind.bytes_per_block() <= 8, "{}", kind.name());
    }
    assert_eq!(
        (
            PlacementKind::from_code(8),
            PlacementKind::Oracle.code(),
            PlacementKind::Mixed.code()
        ),
        (None, None, None)
    );
    for rule in [
        Rule::Greedy,
        Rule::CostBenefit,
        Rule::AgeRoot,
        Rule::Fifo,
        Rule::Choices(7),
        Rule::Window(300),
        Rule::Gain,
    ] {
        let (code, number) = rule.code();
        assert_eq!(Rule::from_code(code, number), Some(rule));
        assert_eq!(Rule::from_name(&rule.name()), Some(rule));
    }
    assert_eq!(
        (
            Rule::from_code(7, 0),
            Rule::from_code(4, 0),
            Rule::from_name("choices:70000")
        ),
        (None, Some(Rule::Choices(10)), None)
    );
    assert!(Policy::from_name("learned+gain/8").is_ok() && Policy::from_name("best").is_err());
}
