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
