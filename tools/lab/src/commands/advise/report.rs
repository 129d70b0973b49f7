//! Report of the advice: policies by spare factor, lifetime of the drives, the reasons and the
//! commands.

use super::{Advice, percent};
use crate::report::Report;
use windrow_charts::{Axis, Bars, Group, Picture, Table, Unit};
use windrow_console::values::Size;

const BLOCK: u64 = 4096;

/// Tried spare factors, in order.
fn spares(advice: &Advice) -> Vec<u64> {
    let mut spares: Vec<u64> = advice.grid.iter().map(|one| one.spare_ppm).collect();
    spares.sort_unstable();
    spares.dedup();
    spares
}

/// Predicted write amplification of each policy by spare factor, as names and figures.
fn rows(advice: &Advice) -> Vec<(String, Vec<f64>)> {
    let of_policy = |row: &[super::Tried]| {
        (
            format!("{}+{}", row[0].policy, row[0].victim_policy),
            row.iter().map(|one| one.waf).collect(),
        )
    };
    advice
        .grid
        .chunk_by(|a, b| (&a.policy, &a.victim_policy) == (&b.policy, &b.victim_policy))
        .map(of_policy)
        .collect()
}

fn policies(advice: &Advice) -> Picture {
    let names: Vec<String> = spares(advice)
        .iter()
        .map(|spare| format!("{} spare", percent(*spare)))
        .collect();
    let best = &advice.best;
    Bars::new(
        "Predicted write amplification of cleaning and checkpoints by policy",
        format!(
            "Bars for each policy and spare factor. Advised: {}+{} at {} spare, {:.3}.",
            best.policy,
            best.victim_policy,
            percent(best.spare_ppm),
            best.waf
        ),
        "policy",
        Axis::new("write amplification", Unit::Factor),
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .with_all(
        rows(advice)
            .into_iter()
            .map(|(name, values)| Group::new(name, values)),
    )
    .mark(1.0, "nothing moved")
    .picture()
}

/// Bars of one figure for each way to use the drives, if any is known.
fn drives(
    advice: &Advice,
    title: &str,
    axis: Axis,
    figure: impl Fn(&super::Used) -> Option<f64>,
) -> Option<Picture> {
    let groups: Vec<Group> = advice
        .drives
        .iter()
        .filter_map(|used| figure(used).map(|value| Group::new(used.name.clone(), [value])))
        .collect();
    let about = format!(
        "{title}: bars for one drive alone, the array in place, and the array under Windrow with the advised policy."
    );
    (!groups.is_empty()).then(|| {
        Bars::new(title, about, "", axis, &["predicted"])
            .with_all(groups)
            .picture()
    })
}

/// Builds the report.
pub(super) fn page(advice: &Advice) -> Report {
    let best = &advice.best;
    let lead = format!(
        "{}: {} written to {} of blocks, {} trims, gone through {} times{}. Predicted figures are of the second half. {}",
        advice.source,
        Size(advice.written_blocks * u64::from(advice.repeat) * BLOCK),
        Size(u64::from(advice.blocks) * BLOCK),
        advice.trims,
        advice.repeat,
        if advice.filled { ", after a fill" } else { "" },
        advice.trace.remarks().trim_end()
    );
    let title = format!(
        "Advice: {}+{} with {} spare",
        best.policy,
        best.victim_policy,
        percent(best.spare_ppm)
    );
    let mut table = Table::new(
        "Write amplification of cleaning and checkpoints",
        std::iter::once("policy".to_owned())
            .chain(spares(advice).iter().map(|spare| percent(*spare))),
    );
    for (name, values) in rows(advice) {
        table.row(std::iter::once(name).chain(values.iter().map(|waf| format!("{waf:.3}"))));
    }
    let mut report = Report::new(&title, &lead)
        .section("Policies")
        .picture("advice-policies", &policies(advice))
        .table(&table)
        .section("Drives");
    let years = drives(
        advice,
        "Years that the drives last under this load",
        Axis::new("years", Unit::Number).from(0.0),
        |used| used.years,
    );
    let writes = drives(
        advice,
        "Random writes a second",
        Axis::new("writes of 4 KiB a second", Unit::Number).from(0.0),
        |used| used.plan.random_write_iops,
    );
    for (name, picture) in [("advice-years", years), ("advice-writes", writes)] {
        report = picture
            .into_iter()
            .fold(report, |report, picture| report.picture(name, &picture));
    }
    report = advice
        .reasons
        .iter()
        .fold(report.section("Reasons"), |report, reason| {
            report.text(reason)
        });
    advice
        .commands
        .iter()
        .fold(report.section("Commands"), |report, command| {
            report.command(command)
        })
}
