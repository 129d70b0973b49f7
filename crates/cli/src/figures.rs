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
        assert_eq!((factor(1_234_567), factor(40_000)), ("1.234".to_owned(), "0.040".to_owned()));
        assert_eq!((nanoseconds(999), nanoseconds(1500), nanoseconds(2_500_000)), ("999 ns".to_owned(), "1.5 us".to_owned(), "2.5 ms".to_owned()));
        assert_eq!((median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (0.0, 2.0, 2.5));
        assert_eq!(megabytes(1.5e9), "1500 MB/s");
    }
}
