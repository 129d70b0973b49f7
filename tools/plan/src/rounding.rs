//! Numbers in the format of the published tables.
//!
//! Tables round half up from the unrounded value. A value such as 1.005 is slightly less than that
//! in binary. So a value within a billionth of a half counts as a half, which is far more than the
//! arithmetic here loses and far less than any table prints.

/// Maximum relative distance below a half that still counts as a half.
const SLACK: f64 = 1e-9;

/// Rounds half up to `decimals` decimals.
pub fn half_up(value: f64, decimals: u32) -> f64 {
    let scale = 10f64.powi(decimals.min(15) as i32);
    let scaled = value * scale;
    (scaled + 0.5 + scaled.abs().max(1.0) * SLACK).floor() / scale
}

/// The number with `decimals` decimals and commas between thousands; `-` if it is not a number.
pub fn printed(value: f64, decimals: u32) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let decimals = decimals.min(15) as usize;
    let text = format!("{:.decimals$}", half_up(value, decimals as u32));
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits
        .split_once('.')
        .map_or((digits, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut grouped = String::with_capacity(text.len() + whole.len() / 3);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        Some(fraction) => format!("{sign}{grouped}.{fraction}"),
        None => format!("{sign}{grouped}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_up_also_where_binary_is_a_little_below() {
        assert_eq!(
            (printed(1.005, 2), printed(0.915, 2), printed(2.5, 0)),
            ("1.01".to_owned(), "0.92".to_owned(), "3".to_owned())
        );
        assert_eq!(
            (printed(1.00499, 2), printed(2.499_999, 0)),
            ("1.00".to_owned(), "2".to_owned())
        );
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!(
            (
                printed(999.0, 0),
                printed(1000.0, 0),
                printed(1_531_800.0, 0)
            ),
            ("999".to_owned(), "1,000".to_owned(), "1,531,800".to_owned())
        );
        assert_eq!(
            (
                printed(-12_345.678, 1),
                printed(f64::NAN, 2),
                printed(f64::INFINITY, 2)
            ),
            ("-12,345.7".to_owned(), "-".to_owned(), "-".to_owned())
        );
    }
}
