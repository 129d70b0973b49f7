use super::*;
use windrow_console::testing;

#[test]
fn the_command_line_is_consistent_and_every_command_has_examples() {
    testing::every_command_has_examples(&Arguments::command());
}

/// `--workers 100000` must not panic, nor a depth of 2^64 - 1 allocate as much memory.
#[test]
fn every_number_has_bounds_and_names_them() {
    let checked = testing::every_number_has_bounds(
        &Arguments::command(),
        &[
            "seed",
            "volatile-cache",
            "client",
            "segment",
            "row",
            "chunk",
        ],
    );
    assert!(checked >= 15, "{checked} options");
}

#[test]
fn examples_of_the_help_parse() {
    let checked = testing::examples_parse(&Arguments::command());
    assert!(checked > 20, "{checked} examples");
}

#[test]
fn exit_codes_of_wrong_usage() {
    let code = |line: &str| usage_code(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(
        (
            code("pool status --exit-code --frob"),
            code("pool status --frob")
        ),
        (4, 2)
    );
    assert_eq!(
        (
            code("check tank --frob"),
            code("pool scrub --frob"),
            code("frob check")
        ),
        (16, 16, 2)
    );
    assert_eq!(
        (
            code("-o json check tank --frob"),
            code("--output=json pool scrub --frob")
        ),
        (16, 16)
    );
}
