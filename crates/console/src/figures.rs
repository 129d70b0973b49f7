//! Numbers for people, and medians.

/// Millionths as a factor with three decimals.
pub fn factor(ppm: u64) -> String {
    format!("{}.{:03}", ppm / 1_000_000, ppm % 1_000_000 / 1000)
}

/// A time with its unit.
pub fn nanoseconds(time: u64) -> String {
    match time {
        0..1_000 => format!("{time} ns"),
        1_000..1_000_000 => format!("{:.1} us", time as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", time as f64 / 1e6),
        _ => format!("{:.2} s", time as f64 / 1e9),
    }
}

/// Bytes per second in MB/s (10^6).
pub fn megabytes(bytes_per_second: f64) -> String {
    format!("{:.0} MB/s", bytes_per_second / 1e6)
}

/// Seconds as hours, minutes and seconds.
pub fn clock(seconds: u64) -> String {
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// Seconds since 1970 as a date and time of day. Times beyond the year 9999 are shown as its end.
pub fn utc(unix_s: u64) -> String {
    const LAST: u64 = 253_402_300_799;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let unix_s = unix_s.min(LAST);
    let (mut year, mut day) = (1970, unix_s / 86_400);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let days = [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while day >= days[month] {
        day -= days[month];
        month += 1;
    }
    format!(
        "{year}-{:02}-{:02} {:02}:{:02} UTC",
        month + 1,
        day + 1,
        unix_s / 3600 % 24,
        unix_s / 60 % 60
    )
}

/// The median; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        assert_eq!(
            (factor(1_234_567), factor(40_000)),
            ("1.234".to_owned(), "0.040".to_owned())
        );
        assert_eq!(
            (nanoseconds(999), nanoseconds(1500), nanoseconds(2_500_000)),
            (
                "999 ns".to_owned(),
                "1.5 us".to_owned(),
                "2.5 ms".to_owned()
            )
        );
        assert_eq!(
            (
                median(&[]),
                median(&[3.0, 1.0, 2.0]),
                median(&[4.0, 1.0, 2.0, 3.0])
            ),
            (0.0, 2.0, 2.5)
        );
        assert_eq!(megabytes(1.5e9), "1500 MB/s");
    }

    #[test]
    fn times() {
        assert_eq!(
            (clock(0), clock(761), clock(360_000)),
            (
                "0:00:00".to_owned(),
                "0:12:41".to_owned(),
                "100:00:00".to_owned()
            )
        );
        for (unix_s, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (68_169_600, "1972-02-29 00:00 UTC"),
            (951_868_799, "2000-02-29 23:59 UTC"),
            (1_700_000_000, "2023-11-14 22:13 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
            (u64::MAX, "9999-12-31 23:59 UTC"),
        ] {
            assert_eq!(utc(unix_s), text);
        }
    }
}
