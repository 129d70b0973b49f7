use super::*;

#[test]
fn stops_at_the_first_failure_and_counts() {
    let mut steps = Steps::new(&[]);
    steps.step("one", passed);
    steps.step("two", || Ok(Done::Skipped("no tool".to_owned())));
    steps.step("three", || Err("broken\nsecond line".to_owned()));
    steps.step("four", || panic!("must not run"));
    assert!(steps.failed());
    let table = steps.table();
    assert!(
        table.contains("three")
            && table.contains("broken")
            && !table.contains("second line")
            && !table.contains("four")
    );
    assert!(
        table.ends_with("\n1 passed, 1 failed, 1 skipped"),
        "{table}"
    );
}

#[test]
fn runs_only_what_was_asked_for() {
    let mut steps = Steps::new(&["two".to_owned()]);
    steps.step("one", || panic!("must not run"));
    steps.step("two", passed);
    assert!(!steps.failed());
    assert!(steps.table().ends_with("\n1 passed, 0 failed"));
}
