use super::*;
use clap::CommandFactory;

fn each_command(command: &clap::Command, path: &str, visit: &mut dyn FnMut(&str, &clap::Command)) {
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let path = format!("{path} {}", sub.get_name());
        visit(&path, sub);
        each_command(sub, &path, visit);
    }
}

#[test]
fn the_command_line_is_consistent_and_every_command_has_examples() {
    Arguments::command().debug_assert();
    each_command(&Arguments::command(), "windrow", &mut |path, command| {
        if command.has_subcommands() {
            return;
        }
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Examples:") && help.contains(path), "{path} --help shows no example");
        assert!(command.get_about().is_some(), "{path} says nothing of itself");
    });
}

/// Options that any number is right for, or that name something which is looked up.
const UNBOUNDED: [&str; 6] = ["seed", "volatile-cache", "client", "segment", "row", "chunk"];

/// `--workers 100000` panicked, and a depth of 2^64 - 1 asked for as much memory.
#[test]
fn every_number_has_bounds_and_names_them() {
    use std::any::TypeId;
    let numbers = [TypeId::of::<u8>(), TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()];
    let mut checked = 0;
    each_command(&Arguments::command(), "windrow", &mut |path, command| {
        for option in command.get_arguments() {
            let Some(name) = option.get_long().filter(|name| !UNBOUNDED.contains(name)) else { continue };
            if !numbers.iter().any(|number| option.get_value_parser().type_id() == *number) {
                continue;
            }
            // A value is looked at before what else is missing or wrong.
            let ask = |value: &str| {
                let words = path.split(' ').map(str::to_owned).chain([format!("--{name}={value}")]);
                Arguments::try_parse_from(words).err()
            };
            for value in ["18446744073709551615", "18446744073709551616", "x", ""] {
                let said = ask(value).map(|error| (error.kind(), error.to_string()));
                let is_refused =
                    said.as_ref().is_some_and(|(kind, _)| matches!(kind, clap::error::ErrorKind::ValueValidation | clap::error::ErrorKind::InvalidValue));
                assert!(is_refused, "{path} --{name}={value}: {said:?}");
            }
            let said = ask("18446744073709551615").map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains("between "), "{path} --{name} names no bounds: {said}");
            checked += 1;
        }
    });
    assert!(checked > 40, "{checked} options");
}

#[test]
fn examples_of_the_help_parse() {
    let mut checked = 0;
    each_command(&Arguments::command(), "windrow", &mut |path, command| {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter_map(|line| line.strip_prefix("  windrow ")) {
            // An example ends where two spaces begin its explanation, or a shell operator.
            let line = line.split("  ").next().unwrap_or(line).split(" | ").next().unwrap_or(line).split(" > ").next().unwrap_or(line);
            let words = std::iter::once("windrow").chain(line.split_whitespace());
            assert!(Arguments::try_parse_from(words).is_ok(), "an example of {path} does not parse: windrow {line}");
            checked += 1;
        }
    });
    assert!(checked > 20, "{checked} examples");
}
