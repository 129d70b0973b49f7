//! Steps: every decision of a run has a number, so that some can be left out.
//!
//! A step is drawn whether it is done or not, so that leaving one out changes other draws as little
//! as possible. (If a draw depends on the state, it changes all the same: a run with steps left out
//! is another run. Any such run stays within the redundancy, so a failure is always genuine.)

use super::Run;
use std::fmt;
use std::ops::Range;

/// Numbers of the steps to leave out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Ascending; neighbours are not adjacent.
    ranges: Vec<Range<u64>>,
}

impl LeftOut {
    /// True if the step is left out.
    pub fn contains(&self, step: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= step);
        self.ranges
            .get(at)
            .is_some_and(|range| range.contains(&step))
    }

    /// True if all of these are left out.
    pub fn covers(&self, steps: &Range<u64>) -> bool {
        let at = self.ranges.partition_point(|range| range.end < steps.end);
        self.ranges
            .get(at)
            .is_some_and(|range| range.start <= steps.start)
    }

    /// Adds these steps.
    pub fn and(&self, steps: Range<u64>) -> Self {
        let mut ranges = self.ranges.clone();
        let (first, last) = (
            ranges.partition_point(|range| range.end < steps.start),
            ranges.partition_point(|range| range.start <= steps.end),
        );
        let start = ranges[first..last]
            .first()
            .map_or(steps.start, |range| range.start.min(steps.start));
        let end = ranges[first..last]
            .last()
            .map_or(steps.end, |range| range.end.max(steps.end));
        ranges.splice(first..last, std::iter::once(start..end));
        Self { ranges }
    }

    /// Parses the displayed form.
    ///
    /// # Errors
    /// It is not of the form `3..7,9..20`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no list of steps: it should look like 3..7,9..20");
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
        text.split(',')
            .try_fold(Self::default(), |left_out, range| {
                let (start, end) = range.split_once("..").ok_or_else(bad)?;
                let range = number(start)?..number(end)?;
                if range.is_empty() {
                    Err(bad())
                } else {
                    Ok(left_out.and(range))
                }
            })
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self
            .ranges
            .iter()
            .map(|range| format!("{}..{}", range.start, range.end))
            .collect();
        f.write_str(&ranges.join(","))
    }
}

/// The steps of a run.
pub(super) struct Steps {
    left_out: LeftOut,
    /// Number of steps drawn.
    pub(super) drawn: u64,
    /// Steps done, if a script is wanted.
    script: Option<Vec<String>>,
}

impl Steps {
    pub(super) fn new(left_out: LeftOut, story: bool) -> Self {
        Self {
            left_out,
            drawn: 0,
            script: story.then(Vec::new),
        }
    }

    pub(super) fn take_script(&mut self) -> Vec<String> {
        self.script.take().unwrap_or_default()
    }
}

impl Run {
    /// Draws a step. True if it is to be done.
    pub(super) fn is_done(&mut self, what: impl FnOnce() -> String) -> bool {
        let number = self.steps.drawn;
        self.steps.drawn += 1;
        if self.steps.left_out.contains(number) {
            return false;
        }
        if let Some(script) = &mut self.steps.script {
            let line = format!("step {number}: {}", what());
            script.push(line.clone());
            self.world.trace.tell(|| line);
        }
        true
    }

    /// Records an event that is not optional.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(script) = &mut self.steps.script {
            script.push(what());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_a_set() {
        let mut left_out = LeftOut::default();
        let mut model = [false; 40];
        for range in [5..9, 20..21, 21..25, 1..3, 3..5, 30..35, 8..31] {
            left_out = left_out.and(range.clone());
            range.for_each(|step| model[step as usize] = true);
            assert!(
                (0..40).all(|step| left_out.contains(step) == model[step as usize]),
                "{left_out}"
            );
            for (start, end) in
                (0..40).flat_map(|start| (start + 1..41).map(move |end| (start, end)))
            {
                assert_eq!(
                    left_out.covers(&(start..end)),
                    (start..end).all(|step| model[step as usize]),
                    "{start}..{end} of {left_out}"
                );
            }
            assert_eq!(LeftOut::parse(&left_out.to_string()), Ok(left_out.clone()));
        }
        assert_eq!(left_out.to_string(), "1..35");
        for bad in ["", "3", "3..", "7..3", "3..7,,9..20", "a..b"] {
            assert!(LeftOut::parse(bad).is_err(), "{bad}");
        }
    }
}
