//! Messages of the command line's parser, in the form of all other failures: one line with an id
//! and a next step.

use crate::output::{Format, Output};
use clap::error::ErrorKind;
use std::process::ExitCode;
use windrow_host::Failure;
use windrow_host::failure::id;

/// Exit code of a command line that cannot be understood.
pub const USAGE: u8 = 2;

/// Prints help and version to standard output as they are. Everything else is a failure of the
/// program `at`, with the exit code that `code` gives for the words.
pub fn tell(
    error: &clap::Error,
    at: clap::Command,
    code: impl FnOnce(&[String]) -> u8,
) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            crate::output::print(&error.render().to_string());
            return ExitCode::from(crate::output::end(0, crate::FAILED));
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // The help is the answer to an incomplete command.
            crate::output::error_text(&error.render().to_string());
            return ExitCode::from(code(&words));
        }
        _ => {}
    }
    let failure = Failure::new(
        id::USAGE,
        "wrong usage",
        reason(&error.render().to_string()),
    )
    .remedy(format!("see `{} --help`", command(at, &words)));
    Output::new(if wants_json(&words) {
        Format::Json
    } else {
        Format::Text
    })
    .failure(&failure);
    ExitCode::from(code(&words))
}

/// The first paragraph, and the parser's suggestion.
fn reason(rendered: &str) -> String {
    let mut paragraphs = rendered.split("\n\n");
    let join = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let first = join(
        paragraphs
            .next()
            .unwrap_or_default()
            .trim_start_matches("error:"),
    );
    let tip = paragraphs
        .find_map(|text| text.trim().strip_prefix("tip:"))
        .map(join)
        .filter(|tip| !tip.starts_with("to pass"));
    tip.map_or(first.clone(), |tip| format!("{first} ({tip})"))
}

/// The intended command, as far as it has names.
fn command(mut at: clap::Command, words: &[String]) -> String {
    let mut name = at.get_name().to_owned();
    for word in without_output(words) {
        let Some(next) = at.find_subcommand(word).cloned() else {
            break;
        };
        name = format!("{name} {word}");
        at = next;
    }
    name
}

/// The words without the output option, which may precede the command.
pub fn without_output(words: &[String]) -> impl Iterator<Item = &str> {
    let is_option = |word: &str| matches!(word, "-o" | "--output");
    let is_whole = |word: &str| {
        word.starts_with("--output=") || (word.starts_with("-o") && !word.starts_with("--"))
    };
    let before = std::iter::once("").chain(words.iter().map(String::as_str));
    words
        .iter()
        .map(String::as_str)
        .zip(before)
        .filter(move |(word, before)| !is_option(word) && !is_option(before) && !is_whole(word))
        .map(|(word, _)| word)
}

fn wants_json(words: &[String]) -> bool {
    let is_pair =
        |pair: &[String]| matches!(pair[0].as_str(), "-o" | "--output") && pair[1] == "json";
    words.windows(2).any(is_pair)
        || words
            .iter()
            .any(|word| matches!(word.as_str(), "-ojson" | "-o=json" | "--output=json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    fn program() -> Command {
        let create = Command::new("create").arg(
            Arg::new("path")
                .value_name("PATH")
                .num_args(1..)
                .required(true),
        );
        let serve = Command::new("serve")
            .arg(Arg::new("pending").long("pending").num_args(1))
            .arg(Arg::new("pool"));
        Command::new("windrow")
            .subcommand(Command::new("pool").subcommand(create))
            .subcommand(serve)
    }

    #[test]
    fn one_line_names_the_mistake_and_the_command() {
        let error = |line: &str| {
            program()
                .try_get_matches_from(line.split(' '))
                .expect_err("wrong")
                .render()
                .to_string()
        };
        assert_eq!(
            reason(&error("windrow serve tank --pnding 5M")),
            "unexpected argument '--pnding' found (a similar argument exists: '--pending')"
        );
        assert_eq!(
            reason(&error("windrow pool create")),
            "the following required arguments were not provided: <PATH>..."
        );
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            command(program(), &words("pool create tank --frob")),
            "windrow pool create"
        );
        assert_eq!(command(program(), &words("frob")), "windrow");
        assert_eq!(
            (
                command(program(), &words("-o json pool create tank --frob")),
                command(program(), &words("pool -ojson create"))
            ),
            ("windrow pool create".into(), "windrow pool create".into())
        );
        assert!(
            wants_json(&words("pool status -o json")) && !wants_json(&words("pool status -o text"))
        );
    }
}
