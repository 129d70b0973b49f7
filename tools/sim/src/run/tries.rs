//! Operations that may be refused: an engine that always finds a reason would violate nothing. So
//! over many runs each kind must have succeeded once.

use std::collections::BTreeMap;

/// Number of runs with requests, in some of which one must succeed. (Removals are refused most
/// often: in every second run they never succeed.)
const RUNS_TO_BE_SURE: u64 = 30;

/// For each kind of operation: number of answers and of successes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tries(BTreeMap<&'static str, (u64, u64)>);

impl Tries {
    /// Counts an answer.
    pub fn note(&mut self, kind: &'static str, has_succeeded: bool) {
        let (answered, succeeded) = self.0.entry(kind).or_default();
        (*answered, *succeeded) = (*answered + 1, *succeeded + u64::from(has_succeeded));
    }

    /// Kinds that were refused in all of many runs, with the number of runs.
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
    fn operations_that_many_runs_never_complete_are_named() {
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
