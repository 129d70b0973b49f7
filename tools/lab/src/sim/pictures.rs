//! Charts and reports of simulations: comparison of policies, write amplification over time,
//! victims, emptiness by age; graph 1, the tables, the client test.

use super::jedec;
use crate::report::Report;
use windrow_charts::{Axis, Bars, Group, Lines, Picture, Series, Table, Unit};
use windrow_wa_sim::wa::run::Outcome;
use windrow_wa_sim::wa::study::{Burst, Curve, Emptiness, Step};

/// A run, for charts.
pub struct Run<'a> {
    /// Policy.
    pub policy: &'a str,
    /// Spare share of all space.
    pub spare: f64,
    /// The main figure.
    pub waf: f64,
    /// Full outcome.
    pub outcome: &'a Outcome,
}

/// Common properties of the runs.
pub struct Frame<'a> {
    /// Origin of the runs.
    pub whose: &'a str,
    /// Name of the main figure.
    pub figure: &'a str,
    /// Size of the space in blocks.
    pub blocks: f64,
    /// Number of blocks in a window.
    pub window: f64,
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 1000.0).round() / 10.0)
}

fn waf_axis() -> Axis {
    Axis::new("write amplification", Unit::Factor)
}

/// Distinct policies and spares of runs, in order.
fn both<'a>(runs: &'a [Run<'a>]) -> (Vec<&'a str>, Vec<f64>) {
    let (mut policies, mut spares) = (Vec::new(), Vec::new());
    for run in runs {
        if !policies.contains(&run.policy) {
            policies.push(run.policy);
        }
        if !spares.contains(&run.spare) {
            spares.push(run.spare);
        }
    }
    (policies, spares)
}

/// Comparison of policies.
fn comparison(frame: &Frame<'_>, runs: &[Run<'_>]) -> Picture {
    let (policies, spares) = both(runs);
    let names: Vec<String> = spares
        .iter()
        .map(|spare| format!("{} spare", percent(*spare)))
        .collect();
    let of = |policy: &str, spare: f64| {
        runs.iter()
            .find(|run| run.policy == policy && run.spare == spare)
            .map(|run| run.waf)
    };
    let groups = policies.iter().map(|policy| Group {
        label: (*policy).to_owned(),
        values: spares.iter().map(|spare| of(policy, *spare)).collect(),
    });
    let best = |spare: f64| {
        runs.iter()
            .filter(|run| run.spare == spare)
            .min_by(|a, b| a.waf.total_cmp(&b.waf))
    };
    let about = spares.iter().filter_map(|spare| {
        best(*spare).map(|run| {
            format!(
                "{} at {} spare ({:.3})",
                run.policy,
                percent(*spare),
                run.waf
            )
        })
    });
    Bars::new(
        format!("Policies: {} under {}", frame.figure, frame.whose),
        format!(
            "Bars of write amplification for each policy and spare share. Least: {}.",
            about.collect::<Vec<_>>().join(", ")
        ),
        "placement+victim rule/streams",
        waf_axis(),
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .with_all(groups)
    .mark(1.0, "nothing moved")
    .picture()
}

fn lines_at(
    runs: &[Run<'_>],
    spare: f64,
    chart: Lines,
    points: impl Fn(&Outcome) -> Vec<(f64, f64)>,
) -> Picture {
    runs.iter()
        .filter(|run| run.spare == spare)
        .fold(chart, |chart, run| {
            chart.with(Series::new(run.policy, points(run.outcome)))
        })
        .picture()
}

fn over_time(frame: &Frame<'_>, runs: &[Run<'_>], spare: f64) -> Picture {
    let chart = Lines::new(
        format!("Write amplification over time, {} spare", percent(spare)),
        format!(
            "Lines by policy: write amplification of each {:.2} of the space written, from the beginning.",
            frame.window / frame.blocks
        ),
        Axis::new("written, in sizes of the space", Unit::Number).from(0.0),
        waf_axis().from(1.0),
    );
    lines_at(runs, spare, chart, |outcome| {
        outcome
            .windows
            .iter()
            .enumerate()
            .map(|(at, waf)| ((at + 1) as f64 * frame.window / frame.blocks, *waf))
            .collect()
    })
}

/// Points in the middle of equal parts.
fn parts(values: &[f64]) -> Vec<(f64, f64)> {
    values
        .iter()
        .enumerate()
        .map(|(at, value)| ((at as f64 + 0.5) / values.len() as f64, *value))
        .collect()
}

fn victims(runs: &[Run<'_>], spare: f64) -> Picture {
    let chart = Lines::new(
        format!("How empty victims are, {} spare", percent(spare)),
        "Lines by policy: share of the cleaned segments in each twentieth of emptiness. The further to the right, the less is moved.",
        Axis::new("emptiness when cleaned", Unit::Percent)
            .from(0.0)
            .to(1.0),
        Axis::new("share of victims", Unit::Percent).from(0.0),
    );
    lines_at(runs, spare, chart, |outcome| parts(&outcome.victims))
}

fn by_age(runs: &[Run<'_>], spare: f64) -> Picture {
    let chart = Lines::new(
        format!("Emptiness by age, {} spare", percent(spare)),
        "Lines by policy: mean emptiness of written segments by their age, youngest on the left, in twentieths of their number, at the end of the run.",
        Axis::new("segments by age, youngest first", Unit::Percent)
            .from(0.0)
            .to(1.0),
        Axis::new("mean emptiness", Unit::Percent).from(0.0),
    );
    lines_at(runs, spare, chart, |outcome| parts(&outcome.emptiness))
}

/// Adds the table and all charts of runs.
pub fn add_runs(mut report: Report, frame: &Frame<'_>, runs: &[Run<'_>]) -> Report {
    let (policies, spares) = both(runs);
    let mut table = Table::new(
        frame.figure,
        std::iter::once("policy".to_owned()).chain(
            spares
                .iter()
                .map(|spare| format!("{} spare", percent(*spare))),
        ),
    );
    for policy in &policies {
        let of = runs.iter().filter(|run| run.policy == *policy);
        table.row(
            std::iter::once((*policy).to_owned()).chain(of.map(|run| format!("{:.3}", run.waf))),
        );
    }
    report = report
        .section("Policies")
        .table(&table)
        .picture("policies", &comparison(frame, runs));
    for spare in spares {
        let name = |what: &str| format!("{what}-{:.0}", spare * 1000.0);
        report = report
            .section(&format!("{} spare", percent(spare)))
            .picture(&name("over-time"), &over_time(frame, runs, spare))
            .picture(&name("victims"), &victims(runs, spare))
            .picture(&name("emptiness"), &by_age(runs, spare));
    }
    report
}

/// Graph 1.
pub fn graph(curves: &[Curve]) -> Report {
    let chart = Lines::new(
        "Graph 1: write amplification over time by free space",
        "Lines by free share of all space: write amplification after a full pool begins to be overwritten at random. It rises twice before it is steady.",
        Axis::new("overwrites of the whole space", Unit::Number).from(0.0),
        waf_axis().from(1.0),
    );
    let line = |curve: &Curve| {
        Series::new(
            format!("{} free", percent(curve.spare)),
            curve
                .windows
                .iter()
                .enumerate()
                .map(|(at, waf)| ((at + 1) as f64 / 50.0, *waf)),
        )
    };
    let picture = curves
        .iter()
        .fold(chart, |chart, curve| chart.with(line(curve)))
        .picture();
    let mut table = Table::new(
        "Steady state and humps (overwrites after the fill)",
        ["free", "steady", "first hump", "second hump"],
    );
    let hump = |hump: Option<(usize, f64)>| {
        hump.map_or("-".to_owned(), |(at, waf)| {
            format!("{waf:.2} at {:.2}", (at + 1) as f64 / 50.0)
        })
    };
    for curve in curves {
        table.row([
            percent(curve.spare),
            format!("{:.2}", curve.steady),
            hump(curve.first_hump),
            hump(curve.second_hump),
        ]);
    }
    Report::new(
        "Graph 1 of the 2017 source",
        "Uniform random overwrites of a full pool, greedy cleaning, one stream, metadata included.",
    )
    .picture("graph-1", &picture)
    .table(&table)
}

/// Tables 1 and 2.
pub fn emptiness(number: u8, found: &Emptiness) -> Report {
    let linear = |share: f64| found.source.1 * share;
    let picture = Lines::new(
        format!(
            "Table {number}: emptiness by age, {} free, {} static",
            percent(found.spare),
            percent(found.static_share)
        ),
        format!(
            "Emptiness of write blocks rises with their age; {} in the mean, {} when cleaned.",
            percent(found.average),
            percent(found.victims)
        ),
        Axis::new("write blocks by age, youngest first", Unit::Percent)
            .from(0.0)
            .to(1.0),
        Axis::new("emptiness", Unit::Percent).from(0.0),
    )
    .with(Series::new("simulated", parts(&found.by_age)).dots())
    .with(Series::new(
        "the source's straight line",
        [(0.0, 0.0), (1.0, linear(1.0))],
    ))
    .mark(found.victims, "when cleaned")
    .picture();
    let lead = format!(
        "Uniform overwrites; steady write amplification {:.2}.",
        found.steady
    );
    Report::new(&format!("Table {number} of the 2017 source"), &lead)
        .picture("emptiness-by-age", &picture)
}

/// Table 3.
pub fn steps(steps: &[Step]) -> Report {
    let picture = Bars::new(
        "Table 3: what reduces write amplification",
        "Bars for four steps from uniform overwrites to trims: the source's figure, one stream with greedy cleaning, placement by learned lifetimes.",
        "",
        waf_axis(),
        &["source", "one stream, greedy", "learned"],
    )
    .with_all(steps.iter().map(|step| Group::new(step.what.clone(), [step.source, step.one_stream, step.learned])))
    .picture();
    let mut table = Table::new(
        "Write amplification by step",
        ["step", "source", "one stream, greedy", "learned"],
    );
    for step in steps {
        table.row([
            step.what.clone(),
            format!("{:.2}", step.source),
            format!("{:.2}", step.one_stream),
            format!("{:.2}", step.learned),
        ]);
    }
    Report::new(
        "Table 3 of the 2017 source",
        "The decomposition of write amplification.",
    )
    .picture("table-3", &picture)
    .table(&table)
}

/// The client test.
pub fn client(lines: &[jedec::Line]) -> Report {
    let cases: Vec<String> = lines
        .iter()
        .take(5)
        .map(|line| {
            format!(
                "{}{}",
                percent(line.spare),
                if line.trims { "" } else { ", no trim" }
            )
        })
        .collect();
    let of = |policy: &[jedec::Line]| policy.iter().map(|line| line.waf).collect::<Vec<f64>>();
    let mut series = vec![(
        "published (ESS)".to_owned(),
        lines
            .iter()
            .take(5)
            .map(|line| line.published)
            .collect::<Vec<f64>>(),
    )];
    series.extend(
        lines
            .chunks(5)
            .map(|policy| (policy[0].policy.clone(), of(policy))),
    );
    let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
    let group = |at: usize| {
        Group::new(
            cases[at].clone(),
            series.iter().map(|(_, values)| values[at]),
        )
    };
    let picture = Bars::new(
        "JEDEC client test: write amplification by spare",
        "Bars for four spare shares and one without trims: published figures of the original trace, and policies on a stream like it.",
        "spare share of all space",
        waf_axis(),
        &names,
    )
    .with_all((0..cases.len()).map(group))
    .mark(1.0, "nothing moved")
    .picture();
    let mut table = Table::new(
        "Write amplification after the fill, headers included",
        std::iter::once("policy".to_owned()).chain(cases.iter().cloned()),
    );
    for (name, values) in &series {
        table
            .row(std::iter::once(name.clone()).chain(values.iter().map(|waf| format!("{waf:.3}"))));
    }
    let lead = "A stream with the published totals, means and static share of the client trace of JESD219A, which is not the trace itself.";
    Report::new("JEDEC client test", lead)
        .picture("jedec", &picture)
        .table(&table)
}

/// Bursts of writes: cost of cleaning in the pauses, and its gain for writers.
pub fn bursts(lines: &[Burst], policy: &str, load: &str, burst: u32) -> Report {
    let lead = format!(
        "{load} overwrites in bursts of {burst} blocks, with a pause after each that is long enough for eight times as many."
    );
    add_pauses(
        Report::new("Bursty load: cleaning on demand or in the pauses", &lead),
        lines,
        policy,
        "",
    )
}

/// Adds charts and table of cleaning in pauses; `file` is appended to the names of the charts.
pub fn add_pauses(report: Report, lines: &[Burst], policy: &str, file: &str) -> Report {
    let names: Vec<String> = lines
        .iter()
        .map(|line| {
            if line.idle_free == 0 {
                "on demand".to_owned()
            } else {
                line.idle_free.to_string()
            }
        })
        .collect();
    let bars = |title: &str, about: &str, y: Axis, value: fn(&Burst) -> f64| {
        let groups = lines
            .iter()
            .zip(&names)
            .map(|(line, name)| Group::new(name.clone(), [value(line)]));
        Bars::new(
            title,
            about,
            "free segments that pauses clean up to",
            y,
            &[policy],
        )
        .with_all(groups)
        .picture()
    };
    let costs = bars(
        &format!("What cleaning in pauses costs: {policy}"),
        "Bars of write amplification by how much is cleaned in pauses.",
        waf_axis(),
        |line| line.steady,
    );
    let waits = bars(
        &format!("What users wait for: {policy}"),
        "Bars of blocks that are moved while users wait, for each block they write, by how much is cleaned in pauses.",
        Axis::new("blocks moved in the way, per write", Unit::Number).from(0.0),
        |line| line.in_the_way,
    );
    let mut table = Table::new(
        "Cleaning on demand and in pauses",
        [
            "free segments",
            "WAF",
            "moved in users' way, per write",
            "longest wait, blocks",
        ],
    );
    for (line, name) in lines.iter().zip(names) {
        table.row([
            name,
            format!("{:.3}", line.steady),
            format!("{:.4}", line.in_the_way),
            line.longest_wait.to_string(),
        ]);
    }
    report
        .picture(&format!("bursts-costs{file}"), &costs)
        .picture(&format!("bursts-waits{file}"), &waits)
        .table(&table)
}

/// Speed of the simulator with a policy.
pub struct Speed {
    /// Policy.
    pub policy: String,
    /// Million user blocks written per second of processor time.
    pub written: f64,
    /// Million blocks placed, including moved ones.
    pub placed: f64,
    /// The rest of the table's cells: seconds, write amplification, bytes for each block.
    pub cells: [f64; 3],
}

/// Speed of the simulator.
pub fn speed(lines: &[Speed], lead: &str) -> Report {
    let picture = Bars::new(
        "Block writes simulated in a second of processor time",
        "Bars by policy: million blocks that users wrote, and million blocks placed, moved ones counted.",
        "placement+victim rule/streams",
        Axis::new("million blocks", Unit::Number).from(0.0),
        &["users' writes", "placed"],
    )
    .with_all(lines.iter().map(|line| Group::new(line.policy.clone(), [line.written, line.placed])))
    .picture();
    let mut table = Table::new(
        "Speed",
        [
            "policy",
            "million user writes",
            "million placed",
            "seconds",
            "WAF",
            "bytes/block",
        ],
    );
    for line in lines {
        let numbers = [line.written, line.placed]
            .into_iter()
            .chain(line.cells)
            .map(|value| format!("{value:.2}"));
        table.row(std::iter::once(line.policy.clone()).chain(numbers));
    }
    Report::new("Speed of the simulator", lead)
        .picture("speed", &picture)
        .table(&table)
}
