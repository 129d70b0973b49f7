//! Shares in calculations. Those of pools are per mille, as pools store them; here any share is
//! allowed.

use std::fmt;
use std::str::FromStr;
use windrow_host::Failure;
use windrow_host::failure::id;

/// A share from 0 to 1, written as `99.99%` or `0.9999`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Part(f64);

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("'{text}' is not a share of 0 to 100%; write it as 10%, 12.5% or 0.1");
        let (digits, scale) = text
            .strip_suffix('%')
            .map_or((text, 1.0), |digits| (digits, 100.0));
        let digits = digits.trim();
        // No sign, exponent or name of a number: `-0`, `1e-3`, `inf` and `nan` would parse as
        // floating-point numbers, too.
        if digits.is_empty()
            || !digits
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
        {
            return Err(wrong());
        }
        let value = digits.parse::<f64>().map_err(|_| wrong())? / scale;
        (0.0..=1.0)
            .contains(&value)
            .then_some(Self(value))
            .ok_or_else(wrong)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.9}", self.0 * 100.0);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Part {
    /// Value as a number.
    pub fn value(self) -> f64 {
        self.0
    }

    /// Value, which must be above 0.
    pub fn above_nothing(self, option: &str, why: &str) -> Result<f64, Failure> {
        if self.0 > 0.0 {
            Ok(self.0)
        } else {
            Err(refused(option, self, "more than 0", why))
        }
    }

    /// Value, which must be below 1.
    pub fn below_all(self, option: &str, why: &str) -> Result<f64, Failure> {
        if self.0 < 1.0 {
            Ok(self.0)
        } else {
            Err(refused(option, self, "less than 100%", why))
        }
    }
}

fn refused(option: &str, part: Part, bound: &str, why: &str) -> Failure {
    Failure::new(
        id::USAGE,
        format!("{option} {part} cannot be computed"),
        why,
    )
    .remedy(format!("{option} must be {bound}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact_and_nothing_else_is_one() {
        for (text, value, shown) in [
            ("99.99%", 0.9999, "99.99%"),
            ("0.9999", 0.9999, "99.99%"),
            ("0", 0.0, "0%"),
            ("100%", 1.0, "100%"),
            ("12.5 %", 0.125, "12.5%"),
        ] {
            let part: Part = text.parse().expect(text);
            assert!(
                (part.value() - value).abs() < 1e-12 && part.to_string() == shown,
                "{text}: {part}"
            );
        }
        for text in [
            "", "%", "-1%", "-0%", "100.01%", "1.01", "nan", "NaN%", "inf", "1e-3", "+1%", ".",
            "1.2.3", "1%%",
        ] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
        let of = |text: &str| text.parse::<Part>().expect("a share");
        assert!(
            of("0").above_nothing("--x", "y").is_err()
                && of("100%").above_nothing("--x", "y").is_ok()
        );
        assert!(
            of("100%").below_all("--x", "y").is_err()
                && of("99.9999%").below_all("--x", "y").is_ok()
        );
    }
}
