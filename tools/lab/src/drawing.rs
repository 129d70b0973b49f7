//! Charts of workloads and traces: writes by address and time, and request lengths.

use windrow_charts::{Axis, Bars, Group, Heat, Picture, Unit};
use windrow_trace::summary::{Figures, OfKind};

/// Number of cells of a heat map to the right, and upwards.
pub const COLUMNS: usize = 240;
/// See [`COLUMNS`].
pub const ROWS: usize = 120;

/// Sums bytes by address and time, in memory of fixed size.
pub struct Grid {
    cells: Vec<f64>,
    begin: u64,
    end: u64,
    last: u64,
}

/// Horizontal axis of a heat map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Along {
    /// Time, nanoseconds.
    Time,
    /// Requests in sequence.
    Requests,
    /// Bytes written.
    Written,
}

/// `at` of `whole` as one of `steps`.
pub fn scaled(at: u64, whole: u64, steps: usize) -> usize {
    let step = u128::from(at) * steps as u128 / u128::from(whole.max(1));
    (step as usize).min(steps - 1)
}

impl Grid {
    /// A grid for addresses from `begin` to `end` (bytes) and times from 0 to below `last`.
    pub fn new(begin: u64, end: u64, last: u64) -> Self {
        Self {
            cells: vec![0.0; COLUMNS * ROWS],
            begin,
            end: end.max(begin.saturating_add(1)),
            last: last.max(1),
        }
    }

    /// Adds a request's bytes to the cells that it touches.
    pub fn add(&mut self, at: u64, offset: u64, length: u64) {
        if length == 0 || offset < self.begin {
            return;
        }
        let span = self.end - self.begin;
        let column = scaled(at, self.last, COLUMNS);
        let row = |place: u64| scaled(place - self.begin, span, ROWS);
        let (first, last) = (row(offset), row(offset.saturating_add(length) - 1));
        let share = length as f64 / (last - first + 1) as f64;
        for row in first..=last {
            self.cells[row * COLUMNS + column] += share;
        }
    }

    /// The chart. `kind` names the requests, such as "writes"; `whose` their origin.
    pub fn picture(self, kind: &str, whose: &str, along: Along) -> Picture {
        let all: f64 = self.cells.iter().sum();
        // Share of the space that gets half of the bytes.
        let mut rows: Vec<f64> = self
            .cells
            .chunks(COLUMNS)
            .map(|row| row.iter().sum())
            .collect();
        rows.sort_unstable_by(|a, b| b.total_cmp(a));
        let mut sum = 0.0;
        let half = rows
            .iter()
            .take_while(|row| {
                sum += **row;
                sum < all / 2.0
            })
            .count()
            + 1;
        let last = self.last as f64;
        let (x, when) = match along {
            Along::Time => (Axis::new("time", Unit::Seconds).to(last / 1e9), "time"),
            Along::Requests => (
                Axis::new("requests, one after the other", Unit::Number).to(last),
                "number of the request",
            ),
            Along::Written => (
                Axis::new("written", Unit::Bytes).to(last),
                "what was written before",
            ),
        };
        Heat {
            title: format!("Where and when: {kind} of {whose}"),
            about: format!(
                "Heat map of {kind} over address (upwards) and {when} (to the right); shades follow the logarithm of the bytes in a cell. Half of the bytes \
                 go to {:.1} % of the address range.",
                half as f64 * 100.0 / ROWS as f64
            ),
            x: x.from(0.0),
            y: Axis::new("address", Unit::Bytes).from(self.begin as f64).to(self.end as f64),
            unit: Unit::Bytes,
            what: "bytes in a cell".into(),
            columns: COLUMNS,
            cells: self.cells,
        }
        .picture()
    }
}

/// A size in table format.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Request sizes by number and by bytes: of writes, and of reads and trims if there are any.
pub fn sizes(figures: &Figures, whose: &str) -> Vec<(&'static str, Picture)> {
    let kinds = [
        ("sizes-writes", "writes", &figures.write),
        ("sizes-reads", "reads", &figures.read),
        ("sizes-trims", "trims", &figures.trim),
    ];
    kinds
        .into_iter()
        .filter(|(_, _, of)| of.requests > 0)
        .map(|(file, name, of)| (file, sizes_of(name, of, whose)))
        .collect()
}

fn sizes_of(name: &str, of: &OfKind, whose: &str) -> Picture {
    let classes = of.sizes.len();
    let used = |class: &usize| of.sizes[*class] > 0;
    let (first, last) = (
        (0..classes).find(used).unwrap_or(0),
        (0..classes).rev().find(used).unwrap_or(0),
    );
    let label = |class: usize| {
        if class + 1 == classes {
            "more".to_owned()
        } else {
            size(512 << class)
        }
    };
    let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
    let small: u64 = (0..=6).map(|class| of.sizes[class]).sum();
    let small_bytes: u64 = (0..=6).map(|class| of.size_bytes[class]).sum();
    let about = format!(
        "{} {name}, {:.2} KiB in the mean. Up to 32 KiB: {:.0} % of the {name} and {:.0} % of their bytes.",
        of.requests,
        of.bytes as f64 / of.requests.max(1) as f64 / 1024.0,
        share(small, of.requests) * 100.0,
        share(small_bytes, of.bytes) * 100.0
    );
    let groups = (first..=last).map(|class| {
        Group::new(
            label(class),
            [
                share(of.sizes[class], of.requests),
                share(of.size_bytes[class], of.bytes),
            ],
        )
    });
    Bars::new(
        format!("Sizes of {name} of {whose}"),
        about,
        "size of a request, up to",
        Axis::new(format!("share of all {name}"), Unit::Percent),
        &["by number", "by bytes"],
    )
    .with_all(groups)
    .picture()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_at_the_edges() {
        assert_eq!(
            (
                scaled(0, 10, 5),
                scaled(9, 10, 5),
                scaled(10, 10, 5),
                scaled(u64::MAX, u64::MAX, 240),
                scaled(0, 0, 3)
            ),
            (0, 4, 4, 239, 0)
        );
        let mut grid = Grid::new(100, 1300, 10);
        grid.add(9, 100, 1200);
        assert_eq!(
            (
                grid.cells.iter().sum::<f64>(),
                grid.cells.iter().filter(|cell| **cell == 10.0).count()
            ),
            (1200.0, ROWS)
        );
        let picture = grid.picture("writes", "a test", Along::Time);
        assert!(
            picture.about().contains("50.0 % of the address range"),
            "{}",
            picture.about()
        );
    }

    #[test]
    fn sizes_by_number_and_by_bytes() {
        let mut summary = windrow_trace::Summary::default();
        for (length, times) in [(4096, 3), (65_536, 1)] {
            (0..times).for_each(|_| {
                summary.add(&windrow_trace::Request::new(
                    windrow_trace::Kind::Write,
                    0,
                    0,
                    length,
                    0,
                ))
            });
        }
        let pictures = sizes(&summary.figures(), "a test");
        assert_eq!(pictures.len(), 1, "no reads, no trims");
        assert_eq!(
            pictures[0].1.about(),
            "4 writes, 19.00 KiB in the mean. Up to 32 KiB: 75 % of the writes and 16 % of their bytes."
        );
    }
}
