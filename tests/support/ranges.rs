//! Numeric options at the ends of their ranges.

use super::{World, both};

/// A quick command, an option of it, and the ends of its range. An option that ends with `=` is
/// followed by its value at once.
pub type RangedOption = (&'static str, &'static str, u64, u64);

/// Runs a command that must end by itself; returns its standard error if it failed.
fn ends_in_order(world: &World, line: &str) -> Option<String> {
    let output = world.bounded(line);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| code != 101 && code < 128) && !error.contains("panicked"),
        "{line}: {}: {}",
        output.status,
        both(&output)
    );
    if code == Some(0) {
        return None;
    }
    assert!(
        error.starts_with("windrow: ") && error.lines().count() == 1,
        "{line}: {}",
        both(&output)
    );
    Some(error)
}

pub fn the_ends_of_ranges_are_answered(world: &World, options: &[RangedOption]) {
    for &(command, option, least, most) in options {
        for value in [0, 1, least, most, u64::MAX] {
            let line = if option.ends_with('=') {
                format!("{command} {option}{value}")
            } else {
                format!("{command} {option} {value}")
            };
            let said = ends_in_order(world, &line);
            let is_outside = value < least || value > most;
            assert!(
                !is_outside || said.is_some_and(|said| said.contains(option)),
                "{line} is outside of the range"
            );
        }
    }
}

pub fn refuses_with_the_bounds(world: &World, lines: &[&str]) {
    for line in lines {
        let said = ends_in_order(world, line).expect("refused");
        assert!(said.contains("between "), "{line}: {said}");
    }
}
