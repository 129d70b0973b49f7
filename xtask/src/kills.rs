//! `kill-loop`: the tests that kill the production server, for a given number of kills.

use crate::tools;
use std::path::Path;

const DAY_S: u32 = 24 * 3600;

/// Runs `[--kills N] [--seed N]`: under a ledger, fio and ext4 at once, half of the kills on
/// members with a volatile cache.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (mut kills, mut seed) = ("300".to_owned(), "1".to_owned());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = match word.as_str() {
            "--kills" => &mut kills,
            "--seed" => &mut seed,
            other => return Err(format!("there is no option `{other}`: --kills N, --seed N")),
        };
        let text = words
            .next()
            .ok_or_else(|| format!("{word} needs a number"))?;
        text.parse::<u32>()
            .map_err(|error| format!("{word} {text}: {error}"))?;
        value.clone_from(text);
    }
    let mut command = tools::cargo(root);
    command.args([
        "test",
        "--package",
        "windrow",
        "--test",
        "all",
        "--",
        "--nocapture",
        "file_system_kills::ext4_and_a_ledger",
    ]);
    // A run requested by name must not report skipped work as passed.
    let note = std::env::temp_dir().join(format!("windrow-kill-loop-{}", std::process::id()));
    command
        .env("WINDROW_KILLS", kills)
        .env("WINDROW_KILL_SEED", seed)
        .env("WINDROW_SKIPPED", &note);
    let ended = tools::run(command, DAY_S);
    let skipped = std::fs::read_to_string(&note).ok();
    drop(std::fs::remove_file(&note));
    match skipped {
        Some(why) => Err(format!("kill-loop cannot run here: {why}")),
        None => ended,
    }
}
