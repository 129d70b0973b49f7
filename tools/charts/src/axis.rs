//! Axes: from values to pixels, and round numbers at the ticks.

/// Kind of values, for the text at ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Numbers; large ones as thousands, millions, ...
    Number,
    /// Factors near one, with three decimals.
    Factor,
    /// Bytes, in powers of 1024.
    Bytes,
    /// Seconds, from nanoseconds to days.
    Seconds,
    /// Shares of one, shown in per cent.
    Percent,
}

/// Distribution of values over the axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm; all values are above 0.
    Log,
}

/// Parameters of an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) scale: Scale,
    pub(crate) from: Option<f64>,
    pub(crate) to: Option<f64>,
}

impl Axis {
    /// A linear axis whose ends are derived from the values.
    pub fn new(title: impl Into<String>, unit: Unit) -> Self {
        Self {
            title: title.into(),
            unit,
            scale: Scale::Linear,
            from: None,
            to: None,
        }
    }

    /// Makes it logarithmic.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.scale = Scale::Log;
        self
    }

    /// Sets its start; lower values extend it.
    #[must_use]
    pub fn from(mut self, from: f64) -> Self {
        self.from = Some(from);
        self
    }

    /// Sets its end; higher values extend it.
    #[must_use]
    pub fn to(mut self, to: f64) -> Self {
        self.to = Some(to);
        self
    }

    /// Axis for values between `least` and `most`. With `exact` it ends where they do, else at a
    /// tick.
    pub(crate) fn resolve(&self, least: f64, most: f64, ticks: usize, exact: bool) -> Resolved {
        let good = |value: f64, other: f64| if value.is_finite() { value } else { other };
        let low = self
            .from
            .unwrap_or(f64::INFINITY)
            .min(good(least, f64::INFINITY));
        let high = self
            .to
            .unwrap_or(f64::NEG_INFINITY)
            .max(good(most, f64::NEG_INFINITY));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        match self.scale {
            Scale::Linear => self.linear(low, high, ticks.max(2), exact),
            Scale::Log => self.log_ticks(low, high),
        }
    }

    fn linear(&self, low: f64, high: f64, ticks: usize, exact: bool) -> Resolved {
        let high = if high > low {
            high
        } else {
            low + low.abs().max(1.0)
        };
        let unit = unit_of(self.unit, low.abs().max(high.abs()));
        let step = round_up((high - low) / unit.0 / ticks as f64) * unit.0;
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        // A given start stays, with a tick of its own, unless values are below it.
        let fixed = self.from.filter(|from| *from <= low);
        let begin = fixed.unwrap_or(if exact { low } else { first * step });
        let (low, high) = (begin, if exact { high } else { last * step });
        let within = (high - low) * 1e-6;
        let all = (0..=((last - first) as usize)).map(|at| (first + at as f64) * step);
        let near = fixed.map_or(low - within, |from| from + step * 0.3);
        let places = fixed
            .into_iter()
            .chain(all.filter(|value| *value >= near && *value <= high + within));
        let ticks = places
            .map(|value| {
                (
                    value,
                    if value == 0.0 {
                        "0".to_owned()
                    } else {
                        text(value / unit.0, step / unit.0, unit.1)
                    },
                )
            })
            .collect();
        Resolved {
            scale: Scale::Linear,
            low,
            high,
            ticks,
        }
    }

    fn log_ticks(&self, low: f64, high: f64) -> Resolved {
        let low = low.max(f64::MIN_POSITIVE);
        let high = if high > low { high } else { low * 10.0 };
        let base: f64 = if self.unit == Unit::Bytes { 16.0 } else { 10.0 };
        let power = |value: f64| value.ln() / base.ln();
        let (first, last) = (
            (power(low) + 1e-9).floor() as i32,
            (power(high) - 1e-9).ceil() as i32,
        );
        let (low, high) = (base.powi(first), base.powi(last));
        let powers = (first..=last).map(|exponent| base.powi(exponent));
        let plain = |text: String| {
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        };
        let ticks = powers
            .map(|value| {
                (
                    value,
                    if matches!(self.unit, Unit::Number | Unit::Factor) {
                        plain(self.tick(value))
                    } else {
                        self.tick(value)
                    },
                )
            })
            .collect();
        Resolved {
            scale: Scale::Log,
            low,
            high,
            ticks,
        }
    }

    /// A single value in tick format.
    pub(crate) fn tick(&self, value: f64) -> String {
        show(self.unit, value)
    }
}

/// A value with its unit, few digits.
pub(crate) fn show(unit: Unit, value: f64) -> String {
    let (size, name) = unit_of(unit, value.abs());
    let scaled = value / size;
    let digits = match scaled.abs() {
        ..10.0 if unit == Unit::Factor => 3,
        0.0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    // 1.295 is slightly less in binary, but must be shown as 1.30.
    let number = format!("{:.digits$}", scaled * (1.0 + 1e-12));
    // Numbers and factors have equal digits in a row; sizes and times stand alone.
    let number = if number.contains('.') && !matches!(unit, Unit::Number | Unit::Factor) {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        &number
    };
    format!("{number}{name}")
}

/// An axis with its ends and ticks.
pub(crate) struct Resolved {
    scale: Scale,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Resolved {
    /// Position of a value, 0 at the start and 1 at the end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        share.clamp(0.0, 1.0)
    }

    /// Width of the widest tick.
    pub(crate) fn widest(&self, size: f64) -> f64 {
        self.ticks
            .iter()
            .map(|(_, text)| crate::measure::width(text, size))
            .fold(0.0, f64::max)
    }
}

/// 1, 2 or 5 times a power of ten, at least as large.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= value * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// Unit of a value: its size and its name with the separator.
fn unit_of(unit: Unit, most: f64) -> (f64, &'static str) {
    const BYTES: [(f64, &str); 6] = [
        (1.0, " B"),
        (1024.0, " KiB"),
        (1_048_576.0, " MiB"),
        (1_073_741_824.0, " GiB"),
        (1_099_511_627_776.0, " TiB"),
        (1.125_899_906_842_624e15, " PiB"),
    ];
    const SECONDS: [(f64, &str); 7] = [
        (1e-9, " ns"),
        (1e-6, " µs"),
        (1e-3, " ms"),
        (1.0, " s"),
        (60.0, " min"),
        (3600.0, " h"),
        (86_400.0, " d"),
    ];
    const NUMBERS: [(f64, &str); 5] = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];
    let largest = |units: &[(f64, &'static str)], times: f64| {
        let fits = |unit: &&(f64, &'static str)| most >= unit.0 * times;
        *units.iter().rev().find(fits).unwrap_or(&units[0])
    };
    match unit {
        Unit::Percent => (0.01, " %"),
        Unit::Bytes => largest(&BYTES, 1.0),
        // Two minutes are "120 s"; seven are "7 min". Zero is 0 s.
        Unit::Seconds if most == 0.0 => (1.0, " s"),
        Unit::Seconds if most < 300.0 => largest(&SECONDS[..4], 1.0),
        Unit::Seconds => largest(&SECONDS, 3.0),
        // Thousands from ten thousand on.
        Unit::Number | Unit::Factor if most < 10_000.0 => NUMBERS[0],
        Unit::Number | Unit::Factor => largest(&NUMBERS, 1.0),
    }
}

/// A multiple of a step, with as many digits as the step needs.
fn text(value: f64, step: f64, unit: &str) -> String {
    // A value that is not a multiple of the step has its own digits.
    let step = if ((value / step).round() * step - value).abs() > step * 1e-6 {
        value.abs().min(step)
    } else {
        step
    };
    let digits = (0..6)
        .find(|digits| {
            ((step * 10f64.powi(*digits)).round() / 10f64.powi(*digits) / step - 1.0).abs() < 1e-6
        })
        .unwrap_or(6) as usize;
    let number = format!("{value:.digits$}");
    // No minus before zero.
    let number = if number.trim_start_matches(['-', '0', '.']).is_empty() {
        number.trim_start_matches('-').to_owned()
    } else {
        number
    };
    format!("{number}{unit}")
}
