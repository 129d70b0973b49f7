//! Operations that may be refused: an engine that always finds a reason would break no promise. So
//! over many runs each kind must have succeeded once.

use std::collections::BTreeMap;

/// Runs that ask for something, in some of which it must succeed. (Removals are refused most of
/// all: in every second run they never succeed.)
const RUNS_TO_BE_SURE: u64 = 30;

/// How often each kind of operation was answered, and how often it had succeeded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tries(BTreeMap<&'static str, (u64, u64)>);

impl Tries {
    /// An answer.
    pub fn note(&mut self, kind: &'static str, has_succeeded: bool) {
        let (answered, succeeded) = self.0.entry(kind).or_default();
        (*answered, *succeeded) = (*answered + 1, *succeeded + u64::from(has_succeeded));
    }

    /// Kinds that were refused in all of many runs, and in how many.
    pub fn never_succeeded<'a>(runs: impl Iterator<Item = &'a Self>) -> Vec<(&'static str, u64)> {
        let mut kinds: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
        for (kind, (_, succeeded)) in runs.flat_map(|tries| &tries.0) {
            let (runs, successes) = kinds.entry(kind).or_default();
            (*runs, *successes) = (*runs + 1, *successes + succeeded);
        }
        kinds
            .into_iter()
            .filter(|(_, (runs, successes))| *runs >= RUNS_TO_BE_SURE && *successes == 0)
            .map(|(kind, (runs, _))| (kind, runs))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_runs_asked_for_in_vain_is_named() {
        let mut refused = Tries::default();
        refused.note("growth", false);
        refused.note("removal", false);
        let mut worked = refused.clone();
        worked.note("removal", true);
        let runs = |many| std::iter::repeat_n(&refused, many).chain([&worked]);
        assert_eq!(Tries::never_succeeded(runs(28)), []);
        assert_eq!(Tries::never_succeeded(runs(29)), [("growth", 30)]);
    }
}
