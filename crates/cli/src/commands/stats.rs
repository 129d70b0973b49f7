//! `stats`: written bytes by cause, latencies, use of limits.

use clap::Args;
use windrow_console::context::{self, PoolPlace};
use windrow_console::figures::{factor, nanoseconds};
use windrow_console::output::Output;
use windrow_console::table::Table;
use windrow_console::values::Size;
use windrow_engine::limits::UNFLUSHED_LOG_BYTES;
use windrow_host::metrics::written_by_cause;
use windrow_host::report::{BoundsReport, CapacityReport, PlacementReport, PoolReport};
use windrow_host::{ConnectionReport, Failure, LatencySummary};

/// Arguments of `stats`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow stats tank\n  windrow stats tank -o json\n  windrow stats tank --prometheus"
)]
pub struct StatsArguments {
    /// Pool. Counters are those since the daemon started.
    pool: String,
    #[command(flatten)]
    place: PoolPlace,
    /// Print the page of the metrics endpoint.
    #[arg(long)]
    prometheus: bool,
}

/// Runs it.
pub fn run(arguments: &StatsArguments, output: &Output) -> Result<u8, Failure> {
    let report = context::status(&arguments.pool, &arguments.place)?;
    if arguments.prometheus {
        windrow_console::output::print(&windrow_host::metrics::render(&report));
    } else {
        output.result("stats", &report, || describe(&report));
    }
    Ok(0)
}

/// The figures as text.
pub fn describe(report: &PoolReport) -> String {
    [
        amplification(report),
        reduction(&report.capacity),
        placement(&report.placement),
        members(report),
        latencies(report),
        stages(report),
        bounds(&report.bounds),
        connections(report.nbd.as_ref()),
    ]
    .join("\n")
        + &super::pool::rebuild(&report.rebuild)
        + &super::pool::reshape(report)
}

/// Bytes by cause, as a share of user writes.
pub fn amplification(report: &PoolReport) -> String {
    let (counters, factors) = (&report.counters, &report.amplification);
    let mut table = Table::new(&["WRITTEN FOR", "BYTES", "PER USER BYTE"]);
    let base = counters.user_write_bytes;
    for (cause, bytes) in written_by_cause(&counters.written)
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
    {
        let ppm = (u128::from(bytes) * 1_000_000)
            .checked_div(u128::from(base))
            .unwrap_or(0);
        table.row([
            cause.to_owned(),
            Size(bytes).to_string(),
            factor(ppm as u64),
        ]);
    }
    table.row([
        "all causes".to_owned(),
        Size(counters.written.total()).to_string(),
        factor(factors.total_ppm),
    ]);
    let reduced = if factors.stored_ppm == 1_000_000 || base == 0 {
        String::new()
    } else {
        let (stored, each) = (factor(factors.stored_ppm), factor(factors.per_stored_ppm));
        format!(
            "of each byte that users wrote {stored} was stored; {each} bytes were written to members for each stored one\n"
        )
    };
    format!(
        "users wrote {} and read {}; write amplification {}, of cleaning alone {}\n{reduced}{}",
        Size(base),
        Size(counters.user_read_bytes),
        factor(factors.total_ppm),
        factor(factors.cleaning_ppm),
        table.render()
    )
}

/// Use of the space saved by compression and deduplication. Cleaning's writes for each user byte
/// under uniform overwrites come from the closed form, not from a measurement.
fn reduction(capacity: &CapacityReport) -> String {
    let shown = &capacity.reduction;
    let when_full = |way: &str, ppm: u64| {
        if ppm == 0 {
            String::new()
        } else {
            format!(", {} in a pool full by {way}", factor(ppm))
        }
    };
    format!(
        "reduction {}: {} of blocks count as {} of {} that live data and garbage share; uniform overwrites would settle at a cleaning WAF of {} now{}{}\n",
        shown.way.name(),
        Size(shown.blocks_bytes),
        Size(shown.charged_bytes),
        Size(shown.room_bytes),
        factor(shown.cleaning_now_ppm),
        when_full("spare", shown.cleaning_full_spare_ppm),
        when_full("capacity", shown.cleaning_full_capacity_ppm)
    )
}

/// Effect of the policy in use.
fn placement(report: &PlacementReport) -> String {
    let streams = |count: u8, of: &str| {
        format!(
            "{count} {} of {of}",
            if count == 1 { "stream" } else { "streams" }
        )
    };
    let mut text = format!(
        "placement {}, victims by {}: {} and {}",
        report.placement,
        report.victim_policy,
        streams(report.user_streams, "users' writes"),
        streams(report.moved_streams, "moved blocks")
    );
    if report.memory_bytes > 0 {
        text += &format!(", {} of memory", Size(report.memory_bytes));
    }
    if report.further_blocks + report.overflowed_blocks > 0 {
        text += &format!(
            "; {} blocks went to further streams, {} could not go to theirs",
            report.further_blocks, report.overflowed_blocks
        );
    }
    text + "\n"
}

fn members(report: &PoolReport) -> String {
    let mut table = Table::new(&[
        "MEMBER",
        "WRITTEN",
        "READ",
        "DISCARDED",
        "FLUSHES",
        "ERRORS",
        "WRONG BLOCKS",
        "SLOW READS",
    ]);
    for member in &report.members {
        let counters = &member.counters;
        table.row([
            member.member.to_string(),
            Size(counters.written.total()).to_string(),
            Size(counters.read_bytes).to_string(),
            Size(counters.discarded_bytes).to_string(),
            counters.flushes.to_string(),
            counters.errors.to_string(),
            counters.wrong_blocks.to_string(),
            counters.slow_reads.to_string(),
        ]);
    }
    table.render()
}

fn latencies(report: &PoolReport) -> String {
    let latency = &report.latency;
    times(
        "REQUESTS",
        [
            ("read", latency.read),
            ("write", latency.write),
            ("flush", latency.flush),
            ("trim", latency.trim),
        ]
        .into_iter(),
    )
}

/// Durations of stages; unused stages are omitted.
fn stages(report: &PoolReport) -> String {
    times(
        "STAGES",
        report
            .stages
            .iter()
            .filter(|shown| shown.times.count > 0)
            .map(|shown| (&*shown.stage, shown.times)),
    )
}

fn times<'a>(what: &str, rows: impl Iterator<Item = (&'a str, LatencySummary)>) -> String {
    let mut table = Table::new(&[
        what, "COUNT", "MEAN", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "LONGEST",
    ]);
    for (name, summary) in rows {
        let times = [
            summary.mean_ns,
            summary.p50_ns,
            summary.p90_ns,
            summary.p99_ns,
            summary.p99_9_ns,
            summary.p99_99_ns,
            summary.max_ns,
        ];
        table.row(
            [name.to_owned(), summary.count.to_string()]
                .into_iter()
                .chain(times.map(nanoseconds)),
        );
    }
    table.render()
}

fn bounds(bounds: &BoundsReport) -> String {
    let mut table = Table::new(&["BOUND", "NOW", "MOST"]);
    let mut row = |name: &str, now: String, most: String| table.row([name.to_owned(), now, most]);
    row(
        "writes waiting or in flight",
        Size(bounds.pending_bytes).to_string(),
        Size(bounds.limits.pending_bytes).to_string(),
    );
    row(
        "map memory",
        Size(bounds.map_bytes).to_string(),
        Size(bounds.limits.map_bytes).to_string(),
    );
    if bounds.dedup_bytes > 0 {
        row(
            "deduplication memory in addition",
            Size(bounds.dedup_bytes).to_string(),
            Size(bounds.dedup_bytes_max).to_string(),
        );
    }
    row(
        "map pages",
        bounds.map_pages.to_string(),
        bounds.map_pages_max.to_string(),
    );
    row(
        "requests waiting for admission",
        "-".to_owned(),
        bounds.limits.waiting_requests.to_string(),
    );
    row(
        "batches of a stream in flight",
        "-".to_owned(),
        bounds.limits.batches_in_flight.to_string(),
    );
    // No limit: a flush starts at this much, and more is written while the members flush.
    row(
        "acknowledged but not durable",
        Size(bounds.at_risk_bytes).to_string(),
        format!("flushed from {} on", Size(UNFLUSHED_LOG_BYTES)),
    );
    row(
        "member commands held back",
        bounds.held_commands.to_string(),
        "-".to_owned(),
    );
    let pace = bounds
        .users_per_1024_gained
        .map_or("no limit".to_owned(), |blocks| blocks.to_string());
    row(
        "blocks admitted for 1024 that cleaning gains",
        pace,
        "-".to_owned(),
    );
    table.render()
}

/// Client connections, and the memory that they hold.
fn connections(nbd: Option<&ConnectionReport>) -> String {
    let Some(nbd) = nbd else { return String::new() };
    let mut table = Table::new(&["CONNECTIONS", "NOW", "MOST"]);
    let mut row = |name: &str, now: String, most: String| table.row([name.to_owned(), now, most]);
    row(
        "clients in exports",
        nbd.connections.to_string(),
        nbd.connections_max.to_string(),
    );
    row(
        "of one client",
        "-".to_owned(),
        nbd.connections_per_peer.to_string(),
    );
    row(
        "of one export",
        "-".to_owned(),
        nbd.connections_per_export.to_string(),
    );
    row(
        "not in an export yet",
        nbd.handshakes.to_string(),
        nbd.handshakes_max.to_string(),
    );
    row(
        "memory for requests and replies",
        Size(nbd.memory_bytes).to_string(),
        Size(nbd.memory_bytes_max).to_string(),
    );
    row(
        "connections that wait for it",
        nbd.memory_waiting.to_string(),
        "-".to_owned(),
    );
    let mut text = table.render();
    text += &format!(
        "since the start: {} clients refused, {} displaced before they named an export, {} too late for that, {} closed as stalled; {} requests waited for memory\n",
        nbd.refused, nbd.displaced, nbd.timed_out, nbd.stalled, nbd.memory_waits
    );
    if !nbd.peers.is_empty() {
        let mut peers = Table::new(&["CLIENT", "CONNECTIONS", "MEMORY"]);
        for peer in &nbd.peers {
            peers.row([
                peer.peer.clone(),
                peer.connections.to_string(),
                Size(peer.memory_bytes).to_string(),
            ]);
        }
        text += &format!("\n{}", peers.render());
    }
    text
}

#[cfg(test)]
mod tests;
