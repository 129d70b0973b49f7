//! Reads and writes that share a drive's time (2017 paper, "Read Performance in ESS").
//!
//! A share `x` of reads at `R` a second and the rest writes at `W` a second take
//! `x / R + (1 - x) / W` seconds each on average. Slow writes thus reduce the time for reads:
//! 10,000 reads and 1,000 writes a second make 2,703 operations at 70 % reads.

use serde::Serialize;

/// Rates of a mix, operations a second.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Mix {
    /// Reads and writes.
    pub combined: f64,
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// Share of the time used by writes.
    pub write_time_share: f64,
}

/// The mix of `read_share` reads at `reads` a second and writes at `writes` a second. `None` unless
/// both rates are more than 0 and the share is 0 to 1.
pub fn mix(reads: f64, writes: f64, read_share: f64) -> Option<Mix> {
    let valid = reads > 0.0
        && writes > 0.0
        && reads.is_finite()
        && writes.is_finite()
        && (0.0..=1.0).contains(&read_share);
    valid.then(|| {
        let (read_time, write_time) = (read_share / reads, (1.0 - read_share) / writes);
        let combined = 1.0 / (read_time + write_time);
        Mix {
            combined,
            reads: combined * read_share,
            writes: combined * (1.0 - read_share),
            write_time_share: write_time * combined,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounding::printed;

    fn figures(writes: f64) -> [String; 4] {
        let mix = mix(10_000.0, writes, 0.7).expect("valid");
        [
            printed(mix.combined, 0),
            printed(mix.reads, 0),
            printed(mix.writes, 0),
            printed(mix.write_time_share * 1000.0, 0),
        ]
    }

    /// 2017, "Read Performance": printed are 11,765 combined and "over 8,230" reads. For slow
    /// writes the text prints "1,900 combined, 1,330 reads, 867 milliseconds", which uses the read
    /// rate as the combined one and multiplies by 0.7 once more: it should be 2,703, 1,892 and 811.
    #[test]
    fn the_sources_example() {
        assert_eq!(figures(20_000.0)[..2], ["11,765", "8,235"]);
        assert_eq!(figures(1000.0), ["2,703", "1,892", "811", "811"]);
        // "6.2 times" is 11,765 over the misprinted 1,900.
        assert_eq!(
            printed(
                mix(1e4, 2e4, 0.7).expect("valid").combined
                    / mix(1e4, 1e3, 0.7).expect("valid").combined,
                2
            ),
            "4.35"
        );
    }

    #[test]
    fn the_ends_are_the_plain_rates() {
        assert_eq!(
            mix(5.0, 7.0, 1.0).map(|mix| (mix.combined, mix.writes)),
            Some((5.0, 0.0))
        );
        assert_eq!(
            mix(5.0, 7.0, 0.0).map(|mix| (mix.combined, mix.reads)),
            Some((7.0, 0.0))
        );
        assert_eq!(
            (
                mix(0.0, 1.0, 0.5),
                mix(1.0, f64::NAN, 0.5),
                mix(1.0, 1.0, 1.1)
            ),
            (None, None, None)
        );
    }
}
