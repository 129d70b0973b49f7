//! Tests of a command line, for the programs: examples, bounds of numbers, consistency.

use clap::Command;
use clap::error::ErrorKind;
use std::any::TypeId;

/// Calls `visit` with the path and the definition of each command, parents first.
pub fn each_command(command: &Command, path: &str, visit: &mut dyn FnMut(&str, &Command)) {
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        let path = format!("{path} {}", sub.get_name());
        visit(&path, sub);
        each_command(sub, &path, visit);
    }
}

/// Every command has a description and an example.
pub fn every_command_has_examples(program: &Command) {
    program.clone().debug_assert();
    each_command(program, program.get_name(), &mut |path, command| {
        if command.has_subcommands() {
            return;
        }
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(
            help.contains("Examples:") && help.contains(path),
            "{path} --help shows no example"
        );
        assert!(command.get_about().is_some(), "{path} has no description");
    });
}

/// Every option that takes a number refuses values out of its range, and names the range; returns
/// their number. `unbounded`: options that accept any number, or that name something which is
/// looked up.
pub fn every_number_has_bounds(program: &Command, unbounded: &[&str]) -> usize {
    let numbers = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
    ];
    let mut checked = 0;
    each_command(program, program.get_name(), &mut |path, command| {
        for option in command.get_arguments() {
            let Some(name) = option.get_long().filter(|name| !unbounded.contains(name)) else {
                continue;
            };
            if !numbers
                .iter()
                .any(|number| option.get_value_parser().type_id() == *number)
            {
                continue;
            }
            // A value is parsed before other errors are reported.
            let ask = |value: &str| {
                let words = path
                    .split(' ')
                    .map(str::to_owned)
                    .chain([format!("--{name}={value}")]);
                program.clone().try_get_matches_from(words).err()
            };
            for value in ["18446744073709551615", "18446744073709551616", "x", ""] {
                let said = ask(value).map(|error| (error.kind(), error.to_string()));
                let is_refused = said.as_ref().is_some_and(|(kind, _)| {
                    matches!(kind, ErrorKind::ValueValidation | ErrorKind::InvalidValue)
                });
                assert!(is_refused, "{path} --{name}={value}: {said:?}");
            }
            let said = ask("18446744073709551615")
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(
                said.contains("between "),
                "{path} --{name} names no bounds: {said}"
            );
            checked += 1;
        }
    });
    checked
}

/// The examples in the help of all commands parse; returns their number.
pub fn examples_parse(program: &Command) -> usize {
    let mut checked = 0;
    let prefix = format!("  {} ", program.get_name());
    each_command(program, program.get_name(), &mut |path, command| {
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        for line in help.lines().filter_map(|line| line.strip_prefix(&prefix)) {
            // An example ends where two spaces begin its explanation, or a shell operator.
            let line = line
                .split("  ")
                .next()
                .unwrap_or(line)
                .split(" | ")
                .next()
                .unwrap_or(line)
                .split(" > ")
                .next()
                .unwrap_or(line);
            let words = std::iter::once(program.get_name()).chain(line.split_whitespace());
            let outcome = program.clone().try_get_matches_from(words);
            assert!(
                outcome.is_ok(),
                "an example of {path} does not parse: {}{line}",
                prefix.trim_start()
            );
            checked += 1;
        }
    });
    checked
}
