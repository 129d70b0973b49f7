//! Fields of a line and the numbers in them.

use crate::request::Kind;

/// Iterator over fields.
pub struct Fields<'a> {
    rest: Option<&'a [u8]>,
    commas: bool,
}

impl<'a> Fields<'a> {
    /// Fields between commas.
    pub fn commas(line: &'a [u8]) -> Self {
        Self {
            rest: Some(line),
            commas: true,
        }
    }

    /// Fields between spaces and tabs.
    pub fn spaces(line: &'a [u8]) -> Self {
        Self {
            rest: Some(line),
            commas: false,
        }
    }

    /// The next field, without spaces around it.
    pub fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let rest = if self.commas {
            rest
        } else {
            rest.trim_ascii_start()
        };
        if !self.commas && rest.is_empty() {
            self.rest = None;
            return None;
        }
        let end = rest.iter().position(|byte| {
            if self.commas {
                *byte == b','
            } else {
                byte.is_ascii_whitespace()
            }
        });
        let field = match end {
            Some(end) => {
                self.rest = rest.get(end + 1..);
                &rest[..end]
            }
            None => {
                self.rest = None;
                rest
            }
        };
        Some(field.trim_ascii())
    }

    /// A required field.
    pub fn need(&mut self, name: &str) -> Result<&'a [u8], String> {
        self.next()
            .filter(|field| !field.is_empty())
            .ok_or_else(|| format!("there is no {name}"))
    }

    /// A required number.
    pub fn number(&mut self, name: &str) -> Result<u64, String> {
        let field = self.need(name)?;
        number(field).ok_or_else(|| format!("the {name} is '{}'", show(field)))
    }

    /// A required number of units, converted to small ones.
    pub fn scaled(&mut self, name: &str, unit: u64) -> Result<u64, String> {
        self.number(name)?
            .checked_mul(unit)
            .ok_or_else(|| format!("the {name} is too large"))
    }

    /// A time with a fraction, in units of this number of nanoseconds.
    pub fn time(&mut self, name: &str, unit_ns: u64) -> Result<u64, String> {
        let field = self.need(name)?;
        decimal(field, unit_ns).ok_or_else(|| format!("the {name} is '{}'", show(field)))
    }

    /// A word for a kind.
    pub fn kind(&mut self, name: &str) -> Result<Kind, String> {
        let field = self.need(name)?;
        kind(field).ok_or_else(|| format!("the {name} is '{}'", show(field)))
    }

    /// True if nothing follows.
    pub fn ended(&mut self) -> bool {
        self.next().is_none()
    }
}

/// The field, shortened for messages.
pub fn show(field: &[u8]) -> String {
    String::from_utf8_lossy(&field[..field.len().min(40)])
        .chars()
        .map(|shown| if shown.is_control() { '?' } else { shown })
        .collect()
}

/// A whole number of decimal digits.
pub fn number(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A whole number of hexadecimal digits, with or without 0x.
pub fn hexadecimal(field: &[u8]) -> Option<u64> {
    let digits = field.strip_prefix(b"0x").unwrap_or(field);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        Some(value << 4 | u64::from(char::from(*byte).to_digit(16)?))
    })
}

/// A decimal fraction of units, in whole parts of them; digits beyond the last part are dropped.
pub fn decimal(field: &[u8], unit: u64) -> Option<u64> {
    let (whole, fraction) = match field.iter().position(|byte| *byte == b'.') {
        Some(at) => (&field[..at], &field[at + 1..]),
        None => (field, &b"0"[..]),
    };
    let whole = if whole.is_empty() && !fraction.is_empty() {
        0
    } else {
        number(whole)?
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let kept = &fraction[..fraction.len().min(18)];
    let parts = if kept.is_empty() {
        0
    } else {
        u128::from(number(kept)?) * u128::from(unit) / 10u128.pow(kept.len() as u32)
    };
    whole
        .checked_mul(unit)?
        .checked_add(u64::try_from(parts).ok()?)
}

/// Words for the kinds: R, W, T or D, F, and full words that begin so.
pub fn kind(field: &[u8]) -> Option<Kind> {
    let is = |words: &[&str]| {
        words
            .iter()
            .any(|word| field.eq_ignore_ascii_case(word.as_bytes()))
    };
    match () {
        () if is(&["r", "rd", "read"]) => Some(Kind::Read),
        () if is(&["w", "wr", "write"]) => Some(Kind::Write),
        () if is(&["t", "d", "trim", "discard", "unmap"]) => Some(Kind::Trim),
        () if is(&["f", "s", "flush", "sync"]) => Some(Kind::Flush),
        () => None,
    }
}

/// True for a heading, as some tables have: no field begins with a digit, and there are several.
pub fn is_heading(line: &[u8]) -> bool {
    let words = line
        .split(|byte| matches!(byte, b',' | b' ' | b'\t' | b';'))
        .filter(|word| !word.is_empty());
    words.clone().count() >= 3
        && words.clone().all(|word| word[0].is_ascii_alphabetic())
        && words.clone().any(|word| word.len() > 2)
}
