//! The metrics page in the text format of Prometheus.

use crate::data::DataState;
use crate::histogram::LatencySummary;
use crate::report::PoolReport;
use std::fmt::Write as _;
use windrow_engine::{ScrubState, WrittenBytes};

/// The causes of written bytes with their names.
pub fn written_by_cause(written: &WrittenBytes) -> [(&'static str, u64); 11] {
    let WrittenBytes {
        user,
        header,
        parity,
        moved,
        padding,
        journal,
        checkpoint,
        index,
        superblock,
        repair,
        rebuild,
    } = *written;
    [
        ("user", user),
        ("header", header),
        ("parity", parity),
        ("moved", moved),
        ("padding", padding),
        ("journal", journal),
        ("checkpoint", checkpoint),
        ("index", index),
        ("superblock", superblock),
        ("repair", repair),
        ("rebuild", rebuild),
    ]
}

struct Page {
    text: String,
    pool: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        _ = writeln!(
            self.text,
            "# HELP windrow_{name} {help}\n# TYPE windrow_{name} {kind}"
        );
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        _ = write!(self.text, "windrow_{name}{{pool=\"{}\"", self.pool);
        for (key, text) in labels {
            _ = write!(self.text, ",{key}=\"{}\"", escape(text));
        }
        _ = writeln!(self.text, "}} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The text of the page.
pub fn render(report: &PoolReport) -> String {
    let mut page = Page {
        text: String::with_capacity(16 << 10),
        pool: escape(&report.name),
    };
    page.head(
        "pool_state",
        "gauge",
        "State of the pool: 1 for the current one.",
    );
    for state in ["online", "degraded", "stopped"] {
        page.sample(
            "pool_state",
            &[("state", state)],
            u8::from(report.state == state),
        );
    }
    page.head("data_state", "gauge", "State of data: 1 for the current one. Unknown: blocks were lost before the start, and no scrub has completed since.");
    for state in DataState::ALL {
        page.sample(
            "data_state",
            &[("state", state.name())],
            u8::from(report.data.state == state),
        );
    }
    page.single(
        "lost_blocks",
        "gauge",
        "Blocks that can neither be read nor be reconstructed, as far as they were found since the start.",
        report.data.lost_blocks,
    );
    page.single(
        "unverified_lost_blocks",
        "gauge",
        "Blocks that were lost before the start and have not been verified since.",
        report.data.unverified_blocks,
    );
    page.single(
        "pool_refuses_data",
        "gauge",
        "1 if writes of data are refused, as no segment becomes free.",
        u8::from(report.refuses_data),
    );
    gauges(&mut page, report);
    connections(&mut page, report);
    counters(&mut page, report);
    scrub(&mut page, report);
    rebuild(&mut page, report);
    members(&mut page, report);
    page.head("volume_size_bytes", "gauge", "Size of a volume.");
    for volume in &report.volumes {
        page.sample(
            "volume_size_bytes",
            &[("volume", &volume.name)],
            volume.size_bytes,
        );
    }
    page.head(
        "volume_mapped_bytes",
        "gauge",
        "Bytes of a volume that hold data.",
    );
    for volume in &report.volumes {
        page.sample(
            "volume_mapped_bytes",
            &[("volume", &volume.name)],
            volume.mapped_bytes,
        );
    }
    page.head(
        "volume_shared_bytes",
        "gauge",
        "Bytes of a volume that refer to shared content.",
    );
    for volume in &report.volumes {
        page.sample(
            "volume_shared_bytes",
            &[("volume", &volume.name)],
            volume.shared_bytes,
        );
    }
    page.head(
        "volume_stored_bytes",
        "gauge",
        "Bytes in which the blocks of a volume that are not shared are stored.",
    );
    for volume in &report.volumes {
        page.sample(
            "volume_stored_bytes",
            &[("volume", &volume.name)],
            volume.stored_bytes,
        );
    }
    page.head(
        "export_clients",
        "gauge",
        "Clients that have entered an export.",
    );
    for export in &report.exports {
        page.sample(
            "export_clients",
            &[("export", &export.name)],
            export.clients.len(),
        );
    }
    let operations = [
        ("read", report.latency.read),
        ("write", report.latency.write),
        ("flush", report.latency.flush),
        ("trim", report.latency.trim),
    ];
    page.head(
        "request_latency_nanoseconds",
        "summary",
        "Latency of requests since start.",
    );
    for (operation, summary) in operations {
        latency(
            &mut page,
            "request_latency_nanoseconds",
            ("operation", operation),
            &summary,
        );
    }
    page.head(
        "stage_latency_nanoseconds",
        "summary",
        "Time that stages of requests and of cleaning took since start.",
    );
    for shown in &report.stages {
        latency(
            &mut page,
            "stage_latency_nanoseconds",
            ("stage", &shown.stage),
            &shown.times,
        );
    }
    page.text
}

fn gauges(page: &mut Page, report: &PoolReport) {
    let capacity = &report.capacity;
    page.single(
        "usable_bytes",
        "gauge",
        "Bytes that user data may fill.",
        capacity.usable_bytes,
    );
    page.single(
        "used_bytes",
        "gauge",
        "Bytes that user data fills.",
        capacity.used_bytes,
    );
    let (space, dedup) = (&report.space, &report.counters.dedup);
    page.single(
        "provisioned_bytes",
        "gauge",
        "Sizes of all volumes.",
        space.provisioned_bytes,
    );
    page.single(
        "mapped_bytes",
        "gauge",
        "Bytes of blocks that hold data.",
        space.logical_bytes,
    );
    page.single(
        "unique_bytes",
        "gauge",
        "Bytes of blocks that hold data, shared ones counted once.",
        space.unique_bytes,
    );
    page.single(
        "stored_bytes",
        "gauge",
        "Bytes in which they are stored: payload alone.",
        space.stored_bytes,
    );
    page.single(
        "physical_bytes",
        "gauge",
        "Bytes on all members of segments that are not free, redundancy included.",
        space.physical_bytes,
    );
    page.single(
        "garbage_bytes",
        "gauge",
        "Bytes of closed data segments without live blocks.",
        space.garbage_bytes,
    );
    page.single(
        "filling_percent",
        "gauge",
        "Highest warning level that the fill level has passed; 0: none.",
        space.warned_percent,
    );
    page.single(
        "dedup_referred_bytes",
        "gauge",
        "Bytes of blocks that refer to shared content.",
        dedup.referred_bytes,
    );
    page.single(
        "dedup_unique_bytes",
        "gauge",
        "Bytes of that content, each counted once.",
        dedup.unique_bytes,
    );
    page.single(
        "dedup_stored_bytes",
        "gauge",
        "Bytes in which it is stored.",
        dedup.stored_bytes,
    );
    page.single(
        "dedup_index_entries",
        "gauge",
        "Fingerprints in the index.",
        dedup.index_entries,
    );
    page.single(
        "dedup_index_entries_max",
        "gauge",
        "Fingerprints that the index has room for.",
        dedup.index_entries_max,
    );
    page.single(
        "dedup_index_bytes",
        "gauge",
        "Memory of the index and of the state of its pages.",
        dedup.index_bytes,
    );
    page.single(
        "dedup_index_pages",
        "gauge",
        "Pages of the index on the members.",
        dedup.index_pages,
    );
    page.single(
        "dedup_index_pages_max",
        "gauge",
        "Most pages of the index.",
        dedup.index_pages_max,
    );
    page.single(
        "dedup_index_hooks",
        "gauge",
        "Fingerprints of which the page is known.",
        dedup.index_hooks,
    );
    page.single(
        "dedup_index_pages_scanned",
        "gauge",
        "Pages scanned since the start.",
        dedup.index_pages_scanned,
    );
    page.single(
        "dedup_index_pages_to_scan",
        "gauge",
        "Pages present at the start.",
        dedup.index_pages_to_scan,
    );
    page.single(
        "dedup_ids_bytes",
        "gauge",
        "Memory of the table of shared contents.",
        dedup.ids_bytes,
    );
    page.single(
        "segments",
        "gauge",
        "Segments of the pool.",
        capacity.segments,
    );
    page.single(
        "free_segments",
        "gauge",
        "Segments that are free.",
        capacity.free_segments,
    );
    page.single(
        "map_bytes",
        "gauge",
        "Memory of the map.",
        report.bounds.map_bytes,
    );
    page.single(
        "map_limit_bytes",
        "gauge",
        "Most memory of the map.",
        report.bounds.limits.map_bytes,
    );
    page.single(
        "map_full_bytes",
        "gauge",
        "Memory of the map when the pool is full. Where it is more than the limit, writes fail before that.",
        report.bounds.map_bytes_full,
    );
    page.single(
        "pending_bytes",
        "gauge",
        "Admitted writes that are not in the log yet.",
        report.bounds.pending_bytes,
    );
    page.single(
        "at_risk_bytes",
        "gauge",
        "Acknowledged bytes that are not durable yet.",
        report.bounds.at_risk_bytes,
    );
    page.single(
        "pending_limit_bytes",
        "gauge",
        "Limit of pending bytes.",
        report.bounds.limits.pending_bytes,
    );
    page.single(
        "held_commands",
        "gauge",
        "Member commands held back now.",
        report.bounds.held_commands,
    );
}

fn connections(page: &mut Page, report: &PoolReport) {
    let Some(nbd) = &report.nbd else { return };
    page.single(
        "connections",
        "gauge",
        "Clients that have entered an export.",
        nbd.connections,
    );
    page.single(
        "connections_limit",
        "gauge",
        "Most clients that may enter an export.",
        nbd.connections_max,
    );
    page.single(
        "handshakes",
        "gauge",
        "Connections that have not entered an export yet.",
        nbd.handshakes,
    );
    page.single(
        "handshakes_limit",
        "gauge",
        "Most connections that may not have entered an export yet.",
        nbd.handshakes_max,
    );
    page.single(
        "connections_refused_total",
        "counter",
        "Clients refused because a limit was reached.",
        nbd.refused,
    );
    page.single(
        "connections_displaced_total",
        "counter",
        "Connections closed for newer ones before they entered an export.",
        nbd.displaced,
    );
    page.single(
        "connections_timed_out_total",
        "counter",
        "Connections that did not enter an export in time.",
        nbd.timed_out,
    );
    page.single(
        "connections_stalled_total",
        "counter",
        "Connections closed because the client stalled.",
        nbd.stalled,
    );
    page.single(
        "request_memory_bytes",
        "gauge",
        "Memory that requests and replies of clients hold.",
        nbd.memory_bytes,
    );
    page.single(
        "request_memory_limit_bytes",
        "gauge",
        "Most such memory.",
        nbd.memory_bytes_max,
    );
    page.single(
        "request_memory_peak_bytes",
        "gauge",
        "Most that was held at one time since the start.",
        nbd.memory_peak_bytes,
    );
    page.single(
        "request_memory_waiting",
        "gauge",
        "Connections that wait for such memory.",
        nbd.memory_waiting,
    );
    page.single(
        "request_memory_waits_total",
        "counter",
        "Requests that waited for such memory.",
        nbd.memory_waits,
    );
}

fn counters(page: &mut Page, report: &PoolReport) {
    let counters = &report.counters;
    page.single(
        "user_written_bytes_total",
        "counter",
        "User bytes written.",
        counters.user_write_bytes,
    );
    page.single(
        "user_read_bytes_total",
        "counter",
        "User bytes read.",
        counters.user_read_bytes,
    );
    page.single(
        "fill_blocks_total",
        "counter",
        "Blocks of zeroes or ones that took no space.",
        counters.fill_blocks,
    );
    let reduction = &counters.reduction;
    page.single(
        "compression_tried_bytes_total",
        "counter",
        "Bytes of user blocks of volumes with compression.",
        reduction.tried_bytes,
    );
    page.single(
        "compression_kept_bytes_total",
        "counter",
        "Bytes of those that were compressed.",
        reduction.compressed_user_bytes,
    );
    page.single(
        "compression_codec_bytes_total",
        "counter",
        "Bytes of the codec's output for these.",
        reduction.codec_bytes,
    );
    page.single(
        "compression_stored_bytes_total",
        "counter",
        "Stored bytes of these, in units of 16 bytes.",
        reduction.stored_bytes,
    );
    page.single(
        "compression_area_bytes_total",
        "counter",
        "Blocks that these took in batches, gaps included.",
        reduction.area_bytes,
    );
    page.single(
        "recompression_tried_bytes_total",
        "counter",
        "Stored bytes of moved blocks that were tried with zstd.",
        reduction.repack_tried_bytes,
    );
    page.single(
        "recompression_from_bytes_total",
        "counter",
        "Stored bytes of those that became smaller, before that.",
        reduction.repacked_from_bytes,
    );
    page.single(
        "recompression_to_bytes_total",
        "counter",
        "Stored bytes of these after that.",
        reduction.repacked_to_bytes,
    );
    let dedup = &counters.dedup.sums;
    page.single(
        "dedup_looked_up_blocks_total",
        "counter",
        "Blocks whose fingerprint was looked up.",
        dedup.looked_up,
    );
    page.single(
        "dedup_found_blocks_total",
        "counter",
        "Those whose content was stored already.",
        dedup.found,
    );
    page.single(
        "dedup_compared_blocks_total",
        "counter",
        "Those that were compared with the block of the same fingerprint.",
        dedup.compared,
    );
    page.single(
        "dedup_mismatched_blocks_total",
        "counter",
        "Those that differed.",
        dedup.mismatched,
    );
    page.single(
        "dedup_evicted_entries_total",
        "counter",
        "Entries evicted from the index.",
        dedup.evicted,
    );
    page.single(
        "dedup_index_pages_written_total",
        "counter",
        "Pages of the index written.",
        dedup.pages_written,
    );
    page.single(
        "dedup_index_pages_dropped_total",
        "counter",
        "Pages of the index not written because there was no room.",
        dedup.pages_dropped,
    );
    page.single(
        "dedup_index_pages_read_total",
        "counter",
        "Pages of the index read.",
        dedup.pages_read,
    );
    page.single(
        "dedup_index_pages_void_total",
        "counter",
        "Pages of the index that were unreadable or too old.",
        dedup.pages_void,
    );
    page.single(
        "flushes_total",
        "counter",
        "Flush and FUA requests.",
        counters.flushes,
    );
    page.single(
        "checkpoints_total",
        "counter",
        "Checkpoints.",
        counters.checkpoints,
    );
    page.single(
        "segments_cleaned_total",
        "counter",
        "Segments cleaned.",
        counters.segments_cleaned,
    );
    page.single(
        "dropped_log_lines_total",
        "counter",
        "Lines of the log dropped because they were not read in time.",
        report.dropped_log_lines,
    );
    page.single(
        "dropped_events_total",
        "counter",
        "Events that the event command did not get.",
        report.dropped_events,
    );
    let placement = &report.placement;
    page.head(
        "placement_streams",
        "gauge",
        "Streams that the policy has, by what goes there.",
    );
    page.sample(
        "placement_streams",
        &[("of", "users")],
        u64::from(placement.user_streams),
    );
    page.sample(
        "placement_streams",
        &[("of", "moved")],
        u64::from(placement.moved_streams),
    );
    page.single(
        "placement_memory_bytes",
        "gauge",
        "Memory of the policy.",
        placement.memory_bytes,
    );
    page.single(
        "placement_further_blocks",
        "gauge",
        "Blocks that went to further streams since the policy was set.",
        placement.further_blocks,
    );
    page.single(
        "placement_overflowed_blocks",
        "gauge",
        "Blocks since then whose stream could not take them.",
        placement.overflowed_blocks,
    );
    page.head(
        "written_bytes_total",
        "counter",
        "Bytes written to members by cause.",
    );
    for (cause, bytes) in written_by_cause(&counters.written) {
        page.sample("written_bytes_total", &[("cause", cause)], bytes);
    }
}

fn rebuild(page: &mut Page, report: &PoolReport) {
    let rebuild = &report.rebuild;
    let reshape = &report.reshape;
    page.single(
        "reshape_segments_done",
        "gauge",
        "Segments of older layouts in which nothing is left, while a pool moves to new members.",
        reshape.segments_done,
    );
    page.single(
        "reshape_segments",
        "gauge",
        "Segments of older layouts.",
        reshape.segments_total,
    );
    page.single(
        "reshape_moved_bytes_total",
        "counter",
        "Bytes of live blocks moved only to be striped over other members.",
        reshape.moved_bytes,
    );
    page.single(
        "rebuild_members",
        "gauge",
        "Members that are being rebuilt.",
        rebuild.members.len(),
    );
    page.single(
        "rebuild_segments_done",
        "gauge",
        "Segments restored by the rebuild in progress, or the last one.",
        rebuild.segments_done,
    );
    page.single(
        "rebuild_segments",
        "gauge",
        "Segments to restore in all.",
        rebuild.segments_total,
    );
    page.single(
        "rebuild_read_bytes_total",
        "counter",
        "Bytes that rebuilds read from members.",
        rebuild.read_bytes,
    );
    page.single(
        "rebuild_written_bytes_total",
        "counter",
        "Bytes that rebuilds wrote.",
        rebuild.written_bytes,
    );
    page.single(
        "rebuild_total_bytes",
        "gauge",
        "Bytes that the rebuild in progress, or the last one, has written and has still to write.",
        rebuild.total_bytes,
    );
    page.single(
        "rebuild_left_bytes",
        "gauge",
        "Bytes that it has still to write.",
        rebuild.total_bytes.saturating_sub(rebuild.written_bytes),
    );
    page.single(
        "rebuild_rate_bytes",
        "gauge",
        "Bytes that it writes each second now.",
        rebuild.bytes_per_second,
    );
    page.head(
        "rebuild_left_seconds",
        "gauge",
        "Seconds until it ends at this rate; absent if nothing is rebuilt, or there is no progress.",
    );
    if let Some(seconds) = rebuild.left_seconds {
        page.sample("rebuild_left_seconds", &[], seconds);
    }
    page.single(
        "rebuild_damaged_batches_total",
        "counter",
        "Batches that could not be rebuilt.",
        rebuild.damaged_batches,
    );
}

fn scrub(page: &mut Page, report: &PoolReport) {
    let scrub = &report.scrub;
    page.head(
        "scrub_state",
        "gauge",
        "State of the scrub in progress, or of the last one: 1 for the current one.",
    );
    let states = [
        ("none", ScrubState::None),
        ("running", ScrubState::Running),
        ("paused", ScrubState::Paused),
        ("completed", ScrubState::Completed),
        ("stopped", ScrubState::Stopped),
    ];
    for (name, state) in states {
        page.sample(
            "scrub_state",
            &[("state", name)],
            u8::from(scrub.state == state),
        );
    }
    page.single(
        "scrub_started_seconds",
        "gauge",
        "Start of the scrub, seconds since 1970; 0 if there was none.",
        scrub.started_unix_s,
    );
    page.single(
        "scrub_ended_seconds",
        "gauge",
        "End of the scrub, seconds since 1970; 0 if it has not ended.",
        scrub.ended_unix_s,
    );
    page.single(
        "scrub_completed_seconds",
        "gauge",
        "Time when a scrub last completed, seconds since 1970; 0 if none has.",
        scrub.completed_unix_s,
    );
    page.single(
        "scrub_left_bytes",
        "gauge",
        "Bytes that the scrub still has to read from members, an estimate.",
        scrub.left_bytes,
    );
    page.single(
        "scrub_segments_done",
        "gauge",
        "Segments that the scrub has verified, of all segments.",
        scrub.segments_done,
    );
    // Each scrub starts at 0: to a reader of counters that is a restart.
    let active = format!("{}.{:03}", scrub.active_ms / 1000, scrub.active_ms % 1000);
    page.single(
        "scrub_active_seconds_total",
        "counter",
        "Seconds for which the scrub was running.",
        active,
    );
    page.single(
        "scrub_batches_total",
        "counter",
        "Batches that the scrub verified.",
        scrub.batches,
    );
    page.single(
        "scrub_read_bytes_total",
        "counter",
        "Bytes that the scrub read from members.",
        scrub.read_bytes,
    );
    page.single(
        "scrub_wrong_blocks_total",
        "counter",
        "Wrong or unreadable blocks of members.",
        scrub.wrong_blocks,
    );
    page.single(
        "scrub_moved_blocks_total",
        "counter",
        "Live blocks that the scrub rewrote to the log.",
        scrub.moved_blocks,
    );
    page.single(
        "scrub_unmoved_blocks_total",
        "counter",
        "Live blocks that it could not rewrite because there was no room.",
        scrub.unmoved_blocks,
    );
    page.single(
        "scrub_lost_blocks_total",
        "counter",
        "Live blocks that can neither be read nor be reconstructed.",
        scrub.lost_blocks,
    );
    page.single(
        "scrub_damaged_batches_total",
        "counter",
        "Batches whose tables can neither be read nor be reconstructed.",
        scrub.damaged_batches,
    );
}

/// States of slots of the member table.
const MEMBER_STATES: [&str; 7] = [
    "online",
    "missing",
    "faulted",
    "offline",
    "rebuilding",
    "spare",
    "removed",
];

fn members(page: &mut Page, report: &PoolReport) {
    let numbers: Vec<String> = report
        .members
        .iter()
        .map(|member| member.member.to_string())
        .collect();
    page.head(
        "member_online",
        "gauge",
        "1 if the member is online, 0 if it is not. Spares and slots without a member have none.",
    );
    for (member, number) in report
        .members
        .iter()
        .zip(&numbers)
        .filter(|(member, _)| !["spare", "removed"].contains(&member.state.as_str()))
    {
        page.sample(
            "member_online",
            &[("member", number), ("path", &member.last_path)],
            u8::from(member.state == "online"),
        );
    }
    page.head(
        "member_state",
        "gauge",
        "State of a slot of the member table: 1 for the current one.",
    );
    for (member, number) in report.members.iter().zip(&numbers) {
        for state in MEMBER_STATES {
            let labels = [
                ("member", number.as_str()),
                ("path", &member.last_path),
                ("serial", &member.serial),
                ("state", state),
            ];
            page.sample("member_state", &labels, u8::from(member.state == state));
        }
    }
    page.head(
        "member_slow",
        "gauge",
        "1 if many reads of the member have been late for a while.",
    );
    for (member, number) in report.members.iter().zip(&numbers) {
        page.sample("member_slow", &[("member", number)], u8::from(member.slow));
    }
    page.head("member_hangs_seconds", "gauge", "Seconds for which the member's oldest awaited command has been outstanding; 0 below ten seconds.");
    for (member, number) in report.members.iter().zip(&numbers) {
        page.sample(
            "member_hangs_seconds",
            &[("member", number)],
            member.hangs_ms / 1000,
        );
    }
    page.head(
        "member_written_bytes_total",
        "counter",
        "Bytes written to a member by cause.",
    );
    for (member, number) in report.members.iter().zip(&numbers) {
        for (cause, bytes) in written_by_cause(&member.counters.written) {
            page.sample(
                "member_written_bytes_total",
                &[("member", number), ("cause", cause)],
                bytes,
            );
        }
    }
    type Column = (
        &'static str,
        &'static str,
        fn(&crate::report::MemberCounters) -> u64,
    );
    let columns: [Column; 6] = [
        (
            "member_read_bytes_total",
            "Bytes read from a member.",
            |counters| counters.read_bytes,
        ),
        ("member_flushes_total", "Flushes of a member.", |counters| {
            counters.flushes
        }),
        (
            "member_discarded_bytes_total",
            "Bytes discarded on a member.",
            |counters| counters.discarded_bytes,
        ),
        (
            "member_errors_total",
            "Failed operations of a member.",
            |counters| counters.errors,
        ),
        (
            "member_wrong_blocks_total",
            "Blocks that a member returned with a wrong checksum.",
            |counters| counters.wrong_blocks,
        ),
        (
            "member_slow_reads_total",
            "User reads that a member answered late.",
            |counters| counters.slow_reads,
        ),
    ];
    for (name, help, value) in columns {
        page.head(name, "counter", help);
        for (member, number) in report.members.iter().zip(&numbers) {
            page.sample(name, &[("member", number)], value(&member.counters));
        }
    }
}

fn latency(page: &mut Page, name: &str, label: (&str, &str), summary: &LatencySummary) {
    let LatencySummary {
        count,
        mean_ns,
        p50_ns,
        p90_ns,
        p99_ns,
        p99_9_ns,
        p99_99_ns,
        max_ns,
    } = *summary;
    for (quantile, value) in [
        ("0.5", p50_ns),
        ("0.9", p90_ns),
        ("0.99", p99_ns),
        ("0.999", p99_9_ns),
        ("0.9999", p99_99_ns),
        ("1", max_ns),
    ] {
        page.sample(name, &[label, ("quantile", quantile)], value);
    }
    page.sample(
        &format!("{name}_sum"),
        &[label],
        u128::from(mean_ns) * u128::from(count),
    );
    page.sample(&format!("{name}_count"), &[label], count);
}

#[cfg(test)]
mod tests;
