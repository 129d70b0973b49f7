use super::*;
use windrow_console::testing;

#[test]
fn the_command_line_is_consistent_and_every_command_has_examples() {
    testing::every_command_has_examples(&Arguments::command());
}

#[test]
fn every_number_has_bounds_and_names_them() {
    let checked =
        testing::every_number_has_bounds(&Arguments::command(), &["seed", "volatile-cache"]);
    assert!(checked > 10, "{checked} options");
}

#[test]
fn examples_of_the_help_parse() {
    let checked = testing::examples_parse(&Arguments::command());
    assert!(checked > 10, "{checked} examples");
}
