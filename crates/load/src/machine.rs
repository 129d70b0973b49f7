//! Conditions of a measurement apart from the program: the machine, and its use by other processes
//! meanwhile.

use serde_json::{Value, json};

/// Clock ticks of processor time in a second, the same on every Linux.
const TICKS: f64 = 100.0;

/// Fields of `/proc/PID/stat` after the command's name: user and system time, then the same of
/// children that were waited for.
fn process_ticks(process: &str) -> [f64; 4] {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = text
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>())
        .unwrap_or_default();
    [11, 12, 13, 14].map(|at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse().ok())
            .unwrap_or(0.0)
    })
}

/// Processor time of this process so far, in seconds.
pub fn cpu_seconds() -> f64 {
    let [user, system, ..] = process_ticks("self");
    (user + system) / TICKS
}

/// Processor time of another process so far, in seconds; 0 if it is gone.
pub fn cpu_seconds_of(process: u32) -> f64 {
    let [user, system, ..] = process_ticks(&process.to_string());
    (user + system) / TICKS
}

/// Busy ticks of all processors, and all their ticks.
fn machine_ticks(text: &str) -> (f64, f64) {
    let line = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal
    let ticks: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    let all: f64 = ticks.iter().sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    (all - idle, all)
}

/// Measures the share of the machine that other processes took.
pub struct Meter {
    own: f64,
    busy: f64,
    all: f64,
}

impl Meter {
    /// Starts the measurement.
    pub fn start() -> Self {
        let (busy, all) = Self::machine();
        Self {
            own: process_ticks("self").iter().sum(),
            busy,
            all,
        }
    }

    fn machine() -> (f64, f64) {
        machine_ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The share of all processor time that other processes took since the start, in millionths.
    /// Children count as others until they have ended.
    pub fn others_ppm(&self) -> u64 {
        let (busy, all) = Self::machine();
        let own: f64 = process_ticks("self").iter().sum::<f64>() - self.own;
        let others = (busy - self.busy - own).max(0.0);
        (others / (all - self.all).max(1.0) * 1e6) as u64
    }

    /// The conditions of a run.
    pub fn conditions(&self) -> Value {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let model = processors.lines().find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, name)| name.trim().to_owned())
        });
        json!({
            "processors": std::thread::available_parallelism().map_or(1, usize::from),
            "processor": model.unwrap_or_default(),
            "kernel": read("/proc/sys/kernel/osrelease").trim(),
            "others_cpu_ppm": self.others_ppm(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_the_machine() {
        assert_eq!(
            machine_ticks("cpu  10 1 5 80 4 0 0 0 7 7\ncpu0 1"),
            (16.0, 100.0)
        );
        assert_eq!(machine_ticks(""), (0.0, 0.0));
        assert!(
            Meter::start().others_ppm() <= 1_000_000
                && cpu_seconds() >= 0.0
                && cpu_seconds_of(u32::MAX) == 0.0
        );
    }
}
