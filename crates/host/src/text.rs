//! Names in text: names given by users (pools, volumes, paths, labels of devices) reach a terminal
//! or shell only as text.

use std::fmt::Write;
use std::path::Path;

/// True for terminal control characters, and for characters that change the direction of the
/// following text.
pub(crate) fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name as it may appear within a line: line feeds and terminal control characters are escaped.
pub fn shown(name: &str) -> String {
    name.chars()
        .fold(String::with_capacity(name.len()), |mut text, c| {
            // Writing to a string does not fail.
            _ = if is_command(c) {
                write!(text, "{}", c.escape_default())
            } else {
                text.write_char(c)
            };
            text
        })
}

/// As [`shown`], for a path.
pub fn shown_path(path: &Path) -> String {
    shown(&path.to_string_lossy())
}

/// Lines for people, without terminal control characters: as [`shown`], but line feeds and tabs
/// stay.
pub fn plain_lines(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut plain, c| {
            _ = if is_command(c) && c != '\n' && c != '\t' {
                write!(plain, "{}", c.escape_default())
            } else {
                plain.write_char(c)
            };
            plain
        })
}

/// A word of a command that can be copied into a shell (bash, zsh, ksh), whatever it contains.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.chars().any(is_command) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let mut text = "$'".to_owned();
    let mut bytes = [0; 4];
    for c in word.chars() {
        match c {
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\'' | '\\' => text.extend(['\\', c]),
            c if is_command(c) => c
                .encode_utf8(&mut bytes)
                .bytes()
                .for_each(|byte| _ = write!(text, "\\x{byte:02x}")),
            c => text.push(c),
        }
    }
    text.push('\'');
    text
}

/// As [`quoted`], for a path.
pub fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell reads a printed command back as the intended words.
    #[test]
    fn a_quoted_word_is_one_word_to_a_shell() {
        let words = [
            "tank",
            "",
            "a b",
            "it's",
            "$(reboot)",
            "a\nb",
            "a\\n'\n",
            "x\u{1b}[2Jy",
            "ü",
            "\u{202e}abc",
            "a;b&c|d",
            "`x`",
            "\"q\"",
            "*",
            "~",
            "a\u{85}b",
        ];
        let line = format!("printf '%s\\0' {}", words.map(quoted).join(" "));
        let output = std::process::Command::new("bash")
            .arg("-c")
            .arg(&line)
            .output();
        let Ok(output) = output else {
            return eprintln!("skipped: there is no bash");
        };
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            said.split_terminator('\0').collect::<Vec<_>>(),
            words,
            "{line}"
        );
        assert!(!line.chars().any(is_command), "{line}");
    }

    #[test]
    fn a_name_is_no_command_for_a_terminal() {
        assert_eq!(shown("a\x1b[2Jb\nc\u{202e}"), "a\\u{1b}[2Jb\\nc\\u{202e}");
        assert_eq!(plain_lines("a\x1b\nb\tc"), "a\\u{1b}\nb\tc");
        assert_eq!(shown_path(Path::new("/a b/ü")), "/a b/ü");
    }
}
