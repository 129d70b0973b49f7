//! Scanner of Rust source that separates comments, literals and code.
//!
//! The masked views have the same length and the same lines as the source, so that positions carry
//! over. A full parser would be a heavy dependency for questions as simple as "does the word
//! `unsafe` occur in code".

/// Source split into two views of equal length; parts of the other view are blank.
#[derive(Debug)]
pub struct Views {
    /// Code: comments and the insides of literals are blank.
    pub code: String,
    /// Comments only.
    pub comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    Literal,
}

/// Splits source into its views. Total: unfinished comments and literals extend to the end.
pub fn split(source: &str) -> Views {
    let bytes = source.as_bytes();
    let mut classes = vec![Class::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (class, end) = next_token(bytes, at);
        let end = end.clamp(at + 1, bytes.len());
        classes[at..end].fill(class);
        at = end;
    }
    let view = |wanted: Class| {
        let masked = bytes.iter().zip(&classes).map(|(&byte, &class)| {
            if byte == b'\n' || (class == wanted && byte.is_ascii()) {
                byte as char
            } else {
                ' '
            }
        });
        masked.collect()
    };
    Views {
        code: view(Class::Code),
        comments: view(Class::Comment),
    }
}

fn next_token(bytes: &[u8], at: usize) -> (Class, usize) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return (
            Class::Comment,
            at + rest
                .iter()
                .position(|&byte| byte == b'\n')
                .unwrap_or(rest.len()),
        );
    }
    if rest.starts_with(b"/*") {
        return (Class::Comment, at + block_comment_length(rest));
    }
    match rest[0] {
        b'"' => (Class::Literal, at + string_length(rest)),
        b'\'' => match char_length(rest) {
            Some(length) => (Class::Literal, at + length),
            None => (Class::Code, at + 1),
        },
        byte if is_word(byte) => {
            let word = rest
                .iter()
                .position(|&byte| !is_word(byte))
                .unwrap_or(rest.len());
            match (&rest[..word], raw_string_length(&rest[word..])) {
                (b"r" | b"br" | b"cr", Some(length)) => (Class::Literal, at + word + length),
                _ => (Class::Code, at + word),
            }
        }
        _ => (Class::Code, at + 1),
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0usize);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of `#"..."#` (any number of hashes, including none), `None` if this is something else,
/// such as a raw identifier.
fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(hashes + 1, b'#');
    let body = &rest[hashes + 1..];
    let close = body.windows(end.len()).position(|window| window == end);
    Some(close.map_or(rest.len(), |close| hashes + 1 + close + end.len()))
}

/// Length of a character literal, `None` if the quote begins a lifetime.
fn char_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return rest[3.min(rest.len())..]
            .iter()
            .position(|&byte| byte == b'\'')
            .map(|close| close + 4);
    }
    let width = match *rest.get(1)? {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(2 + width)
}

/// True for bytes of identifiers.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Line number (from 1) of a byte position.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at]
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count()
        + 1
}

/// Positions at which `word` occurs as a whole word.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let before = at
                .checked_sub(1)
                .is_none_or(|before| !is_word(bytes[before]));
            let after = bytes
                .get(at + word.len())
                .is_none_or(|&after| !is_word(after));
            before && after
        })
}

/// A function with a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`.
    pub line: usize,
    /// Lines from there to its closing brace.
    pub lines: usize,
}

/// All functions with a body in masked code.
pub fn functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let name: String = code[at + 2..]
            .trim_start()
            .bytes()
            .take_while(|&byte| is_word(byte))
            .map(char::from)
            .collect();
        let Some(open) = body_start(bytes, at) else {
            continue;
        };
        if name.is_empty() {
            continue;
        }
        let close = body_end(bytes, open);
        let line = line_of(code, at);
        found.push(Function {
            name,
            line,
            lines: line_of(code, close) - line + 1,
        });
    }
    found
}

/// The `{` that opens the body of the function at `at`; `None` for a declaration without one.
fn body_start(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (offset, &byte) in bytes[at..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at + offset),
            b';' | b'}' if depth == 0 => return None,
            _ if depth < 0 => return None,
            _ => {}
        }
    }
    None
}

fn body_end(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0usize;
    for (offset, &byte) in bytes[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return open + offset;
                }
            }
            _ => {}
        }
    }
    bytes.len()
}

/// All paths that begin with `std::` or `core::` in masked code, groups expanded:
/// `use std::{fs, time::Instant}` yields `std::fs` and `std::time::Instant`. With each, its
/// position.
pub fn std_paths(code: &str) -> Vec<(usize, String)> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for root in ["std", "core"] {
        for at in words(code, root) {
            // `other::std::...` is not the standard library, `::std::...` is.
            let qualified = code[..at]
                .trim_end()
                .strip_suffix("::")
                .is_some_and(|before| before.ends_with(|c: char| is_word(c as u8)));
            let mut cursor = at + root.len();
            if !qualified && skip(bytes, &mut cursor, b"::") {
                tree(bytes, &mut cursor, "std", at, &mut found);
            }
        }
    }
    found
}

fn tree(
    bytes: &[u8],
    cursor: &mut usize,
    prefix: &str,
    start: usize,
    found: &mut Vec<(usize, String)>,
) {
    if skip(bytes, cursor, b"{") {
        loop {
            tree(bytes, cursor, prefix, start, found);
            if !skip(bytes, cursor, b",") {
                break;
            }
        }
        skip(bytes, cursor, b"}");
        return;
    }
    blanks(bytes, cursor);
    let begin = *cursor;
    while bytes
        .get(*cursor)
        .is_some_and(|&byte| is_word(byte) || byte == b'*')
    {
        *cursor += 1;
    }
    if begin == *cursor {
        return;
    }
    let segment = String::from_utf8_lossy(&bytes[begin..*cursor]);
    let path = if segment == "self" {
        prefix.to_owned()
    } else {
        format!("{prefix}::{segment}")
    };
    if skip(bytes, cursor, b"::") {
        tree(bytes, cursor, &path, start, found);
    } else {
        if skip(bytes, cursor, b"as ") {
            tree(bytes, cursor, "", start, &mut Vec::new());
        }
        found.push((start, path));
    }
}

fn blanks(bytes: &[u8], cursor: &mut usize) {
    while bytes.get(*cursor).is_some_and(u8::is_ascii_whitespace) {
        *cursor += 1;
    }
}

fn skip(bytes: &[u8], cursor: &mut usize, token: &[u8]) -> bool {
    blanks(bytes, cursor);
    let found = bytes[*cursor..].starts_with(token);
    if found {
        *cursor += token.len();
    }
    found
}

#[cfg(test)]
mod tests;
