//! Rounds: all compared items run once in each round, in turn, every second round in reverse order,
//! so that neither drift of the machine nor the preceding item favours one side.

use clap::Args;
use std::time::{Duration, Instant};
use windrow_console::figures::median;
use windrow_console::progress::Progress;
use windrow_console::values::count_within;
use windrow_host::Failure;

/// Number and duration of rounds.
#[derive(Args, Clone, Debug)]
pub struct RoundArguments {
    /// Rounds; medians are shown.
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    pub rounds: usize,
    /// Seconds of each measurement; the default depends on the benchmark.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
}

impl RoundArguments {
    /// Duration of a measurement.
    pub fn time(&self, default_seconds: u64) -> Duration {
        self.seconds.unwrap_or(Duration::from_secs(default_seconds))
    }
}

/// Parses seconds with a fraction: more than zero, at most a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text
        .parse()
        .map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if value > 0.0 && value <= 86_400.0 {
        Ok(Duration::from_secs_f64(value))
    } else {
        Err(format!("'{text}' seconds are too few or too many"))
    }
}

/// Limit of a count of rounds or requests.
const COUNT_MAX: u64 = 1_000_000_000;
/// Limit of writers, each of which is a thread.
const WRITERS_MAX: u64 = 1024;
/// Limit of requests in flight.
const DEPTH_MAX: u64 = 65_536;

/// Parses a count that is not 0.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    count_within(1, COUNT_MAX)(text)
}

/// Parses a number of writers.
pub fn writers(text: &str) -> Result<usize, String> {
    count_within(1, WRITERS_MAX)(text)
}

/// Parses a number of requests in flight.
pub fn depth(text: &str) -> Result<usize, String> {
    count_within(1, DEPTH_MAX)(text)
}

/// Position in a run of rounds; part of every progress line.
pub struct Step<'a> {
    /// Round, from 0.
    pub round: usize,
    done: usize,
    all: usize,
    name: &'a str,
    begin: Instant,
}

impl Step<'_> {
    /// Current item, progress of all rounds, and remaining time.
    pub fn label(&self) -> String {
        let left = self.begin.elapsed().as_secs_f64() / self.done.max(1) as f64
            * (self.all - self.done) as f64;
        let left = if self.done == 0 {
            String::new()
        } else {
            format!(", {left:.0} s to go for all")
        };
        format!("[{} of {}{left}] {}", self.done + 1, self.all, self.name)
    }

    /// A progress line that starts with the label.
    pub fn progress(&self) -> Progress {
        Progress::new(self.label())
    }
}

/// Runs every case in every round; returns the results by case, then by round.
pub fn alternate<T>(
    names: &[String],
    rounds: usize,
    run: &mut dyn FnMut(usize, &Step<'_>) -> Result<T, Failure>,
) -> Result<Vec<Vec<T>>, Failure> {
    let mut results: Vec<Vec<T>> = names.iter().map(|_| Vec::with_capacity(rounds)).collect();
    let begin = Instant::now();
    for round in 0..rounds {
        for place in 0..names.len() {
            let case = if round % 2 == 0 {
                place
            } else {
                names.len() - 1 - place
            };
            let step = Step {
                round,
                done: round * names.len() + place,
                all: rounds * names.len(),
                name: &names[case],
                begin,
            };
            results[case].push(run(case, &step)?);
        }
    }
    Ok(results)
}

/// Median of a figure over the rounds.
pub fn middle<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    median(&rounds.iter().map(figure).collect::<Vec<_>>())
}

/// Median of the ratios of a figure, round by round.
pub fn ratio<A, B>(
    mine: &[A],
    others: &[B],
    figure: impl Fn(&A) -> f64,
    other_figure: impl Fn(&B) -> f64,
) -> f64 {
    median(
        &mine
            .iter()
            .zip(others)
            .map(|(mine, other)| figure(mine) / other_figure(other).max(1e-9))
            .collect::<Vec<_>>(),
    )
}

/// A ratio in millionths, for JSON.
pub fn ppm(value: f64) -> u64 {
    (value * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_round_runs_backwards() {
        let names = ["a".to_owned(), "b".to_owned()];
        let mut order = Vec::new();
        let results = alternate(&names, 3, &mut |case, step| {
            order.push(case);
            Ok(step.round * 10 + case)
        });
        assert_eq!(
            (order, results.unwrap()),
            (
                vec![0, 1, 1, 0, 0, 1],
                vec![vec![0, 10, 20], vec![1, 11, 21]]
            )
        );
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // A machine that is ten times slower in one round changes no ratio.
        assert_eq!(
            ratio(
                &[10.0, 1.0, 10.0],
                &[20.0, 2.0, 20.0],
                |rate| *rate,
                |rate| *rate
            ),
            0.5
        );
        assert_eq!(middle(&[1.0, 5.0, 2.0], |value| *value), 2.0);
    }

    #[test]
    fn times_and_counts() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(
            seconds("0").is_err()
                && seconds("-1").is_err()
                && seconds("nan").is_err()
                && seconds("1e9").is_err()
        );
        assert!(at_least_one("0").is_err() && at_least_one("3") == Ok(3));
        assert!(writers("1025").is_err() && depth("65537").is_err());
    }
}
