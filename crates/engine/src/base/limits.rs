//! Limits of the engine and the relations between them.

use windrow_types::{BLOCK_BYTES, MAX_STREAMS};

/// Stream of user blocks, trims and volume operations.
pub const STREAM_USER: usize = 0;
/// Stream of blocks moved by cleaning.
pub const STREAM_CLEANED: usize = 2;
/// Stream of checkpoint pages.
pub const STREAM_CHECKPOINT: usize = 3;
/// Streams of every pool.
pub const BASE_STREAMS: [usize; 3] = [STREAM_USER, STREAM_CLEANED, STREAM_CHECKPOINT];
/// User streams: the first one, which takes everything that the others cannot, and those that a
/// policy may add.
pub const USER_STREAMS: [usize; 3] = [STREAM_USER, 1, 4];
/// Streams of moved blocks: the first one, and those that a policy may add.
pub const CLEANED_STREAMS: [usize; 4] = [STREAM_CLEANED, 5, 6, 7];
/// All possible streams, in the order in which recovery follows them.
pub const STREAMS: [usize; MAX_STREAMS] = [
    STREAM_USER,
    STREAM_CLEANED,
    STREAM_CHECKPOINT,
    1,
    4,
    5,
    6,
    7,
];
/// Limit of segments that a further stream holds: the open one and its successor.
pub const EXTRA_STREAM_SEGMENTS: u64 = 2;
/// Segments of spare space per further stream: the streams hold at most an eighth of the spare.
pub const EXTRA_STREAM_SPARE: u64 = 8 * EXTRA_STREAM_SEGMENTS;
/// Smallest spare factor: below it cleaning would move nearly everything for every write.
pub const SPARE_PER_MILLE_MIN: u16 = 30;
/// Limit of LSNs given to user writes while an open batch holds an older one, with several user
/// streams.
pub const LSNS_OPEN_MAX: u64 = 16384;
/// Bytes that a placement keeps in addition to its state per block: tables of lifetimes and plans.
pub const PLACEMENT_FIXED_BYTES: u64 = 2 << 20;

/// True if user writes go to the stream.
#[inline]
pub const fn is_user(stream: usize) -> bool {
    matches!(stream, 0 | 1 | 4)
}

/// True if moved blocks go to the stream.
#[inline]
pub const fn is_cleaned(stream: usize) -> bool {
    matches!(stream, 2 | 5..=7)
}

/// Index of a stream of moved blocks in [`CLEANED_STREAMS`].
#[inline]
pub const fn cleaned_slot(stream: usize) -> usize {
    if stream == STREAM_CLEANED {
        0
    } else {
        stream - 4
    }
}

/// Limit of volumes of a pool, including deleted ones that are still being freed.
pub const MAX_VOLUMES: usize = 4096;
/// Largest volume. Block numbers then fit in 36 bits, so that (volume, block) packs into 64 bits.
pub const MAX_VOLUME_BYTES: u64 = windrow_format::MAX_VOLUME_BYTES;
/// Bits of a block number in a packed key.
pub const LBA_BITS: u32 = 40;
/// Number of ids whose map pages are ensured in addition to the needed ones: a write with unaligned
/// edges is checked in three pieces.
pub const IDS_AHEAD: u64 = 8;
/// Blocks of the pool per page of the deduplication index: a page has 169 entries, some of which
/// are of dead content.
pub const INDEX_PAGE_BLOCKS: u64 = 160;
/// Limit of full index pages that wait for room in the log; beyond it the oldest is dropped.
pub const INDEX_PAGES_WAITING: usize = 4;
/// Limit of concurrent reads of index pages for blocks being written.
pub const INDEX_READS_MAX: usize = 16;
/// The same for the scan at a start that restores the hooks.
pub const INDEX_SCAN_READS: usize = 4;
/// Threshold for a rewrite: an index page is rewritten next if less than one entry in this many is
/// of live content.
pub const INDEX_PAGE_RIPE: usize = 8;
/// Longest name of a pool or volume in bytes.
pub const MAX_NAME_BYTES: usize = 63;

/// Segments that a stream holds without filling them: the open one and its successor.
pub const SEGMENTS_PER_STREAM: u32 = 2;
/// Victims that may be cleaned at the same time.
pub const MAX_VICTIMS: usize = 4;
/// Segments that user writes leave to the cleaner in addition to the need of two checkpoints.
/// Segments that it frees become usable only after a flush.
pub const CLEANER_RESERVE: u32 = 3;
/// Number of segments above the need of a checkpoint below which the cleaner empties one victim at
/// a time.
pub const CHECKPOINT_RESERVE: u32 = 2;
/// Segments that neither user writes nor checkpoints take: trims and changes of volumes get them if
/// nothing else can proceed (`path/write/exhausted.rs`).
pub const RELIEF_RESERVE: u32 = 2;
/// Segments that not even the deletion of a volume gets when damage has stalled the pool
/// (`path/write/exhausted.rs`). One is for the need of a victim, one for a checkpoint that has next
/// to nothing to write.
pub const LAST_SEGMENTS: u32 = 2;
/// Number of victims that are emptied at the same time only for a reshape.
pub const RESHAPE_VICTIMS: u32 = 2;
/// Number of batches of a victim being read at the same time.
pub const VICTIM_BATCHES_AHEAD: usize = 4;
/// A range that touches at most this number of map pages is applied to the map at once.
pub const SMALL_RANGE_PAGES: u64 = 4;
/// Limit of large ranges being applied to the map; further ones wait for admission.
pub const WALKS_MAX: usize = 64;
/// Limit of segments with discards in flight.
pub const DISCARDING_MAX: u32 = 64;
/// Bytes that a scrub or a rebuild has in flight without foreground I/O, or two batches if that is
/// more; each takes that memory twice. Enough for eight members with two commands of 256 KiB each,
/// and for data in the workers.
pub const AHEAD_BYTES: u64 = 32 << 20;
/// Limit of batches that it has in flight: those of a pool with many flushes are small.
pub const AHEAD_BATCHES: usize = 64;
/// Time after each client request during which foreground I/O counts as active.
pub const USERS_ABOUT_NS: u64 = 1_000_000_000;
/// Rows of a piece. With foreground I/O a scrub or rebuild reads and writes columns in consecutive
/// pieces, so that a foreground read waits for at most one.
pub const VERIFY_PIECE_ROWS: u32 = 16;
/// Pause of a scrub or rebuild with foreground I/O, as a multiple of the time of its last batch.
pub const GIVE_WAY: u64 = 4;
/// Longest time for which a missed rate is made up.
pub const CATCH_UP_NS: u64 = 20_000_000;
/// Resolution of time.
pub const TICK_NS: u64 = 1_000_000;
/// Period of a reported rate; the period before it counts half.
pub const METER_NS: u64 = 2_000_000_000;
/// Time after which a scrub that gives way verifies a batch in any case.
pub const SCRUB_PAUSE_NS: u64 = 1_000_000_000;
/// A read is late after this multiple of the time that reads usually take at most.
pub const SLOW_FACTOR: u64 = 4;
/// Long-term limit of hedged reads: one read in this many.
pub const AROUND_SHARE: u32 = 4;
/// Burst limit of hedged reads.
pub const AROUND_BURST: u32 = 64;
/// Interval of one further hedged read: if all clients wait for one member nothing else restores
/// the budget.
pub const AROUND_EVERY_NS: u64 = 10_000_000;
/// A member with this number of outstanding reads that others have answered gets no avoidable
/// command: commands that it never answers must not pile up.
pub const OUTSTANDING_LATE_READS_MAX: u32 = 64;
// When the full budget is spent on an unresponsive member it has this number outstanding, so
// requests that wait for the budget proceed without it.
const _: () = assert!(OUTSTANDING_LATE_READS_MAX <= AROUND_BURST);
/// Length of the spans in which late reads of a member are counted.
pub const SLOW_SPAN_NS: u64 = 5_000_000_000;
/// Number of consecutive spans after which a member counts as slow, or as slow no longer.
pub const SLOW_SPANS: u32 = 3;
/// A span with fewer late reads does not count against a member.
pub const SLOW_LEAST: u32 = 16;
/// Nor does one in which less than one read in this many was late.
pub const SLOW_SHARE: u32 = 4;
/// Time without an answer after which a member is unresponsive: longer than a drive takes to wake
/// up, or to retry a bad sector.
pub const HANGS_NS: u64 = 10_000_000_000;
/// The same for a discard.
pub const DISCARD_HANGS_NS: u64 = 120_000_000_000;
/// Interval of checks for unresponsive members.
pub const HANG_LOOK_NS: u64 = 5_000_000_000;
/// Cost of a small member command in a window (`store/member/scheduler.rs`): it keeps a drive about
/// as busy as this number of bytes.
pub const COMMAND_COST_BYTES: u64 = 32 << 10;
/// Cost of a discard, whatever its length.
pub const DISCARD_COST_BYTES: u64 = 256 << 10;
/// Commands of each class that are always sent to a member, so that it never waits for the next
/// one.
pub const LANE_COMMANDS_LEAST: u32 = 2;
/// User batch bytes in flight at a member above which further commands of them are held while reads
/// or flushes are pending. With two chunks of the default size at the drive and two queued it never
/// runs dry.
pub const FOREGROUND_BESIDE_BYTES: u64 = 1 << 20;
/// The same for cleaning, checkpoints, rebuild, scrub and discards with foreground I/O.
pub const BACKGROUND_BESIDE_BYTES: u64 = 512 << 10;
/// Smallest rate of a rebuild, in bytes per second and member.
pub const REBUILD_RATE_MIN: u64 = 64 << 10;
/// Largest rate of a property.
pub const RATE_MAX: u64 = 1 << 50;
/// Number of rebuilt segments after which a flush is requested.
pub const REBUILD_FLUSH_SEGMENTS: usize = 16;
/// Interval of flushes for a rebuild with foreground I/O: members that flush answer no reads
/// meanwhile.
pub const REBUILD_FLUSH_NS: u64 = 10_000_000_000;
/// Time until a rebuild retries unreadable segments.
pub const REBUILD_RETRY_NS: u64 = 60_000_000_000;
/// Interval of checks of dead segments that could not be rebuilt and wait to become free.
pub const REBUILD_LOOK_NS: u64 = 500_000_000;
/// Limit of checkpoints that a rebuild requests between two tries.
pub const REBUILD_CHECKPOINTS: u32 = 6;
/// Number of segments without live data that a scrub skips in one step.
pub const SCRUB_SEGMENTS_PER_STEP: usize = 4096;
/// Number of unreadable batches above which a scrub searches the map for them at once, and not at
/// its end.
pub const SCRUB_DOUBTS_MAX: usize = 256;
/// Map pages visited in one step of a search for live blocks in a segment or batch with unreadable
/// tables.
pub const MAP_PAGES_PER_STEP: u32 = 256;
/// Number of victims with lost blocks, not compensated by others, after which such victims are
/// begun one at a time while space is short.
pub const FUTILE_VICTIMS: u32 = 2;
/// Checkpoints that repairs without room request before they are abandoned: after two the log
/// before them can be cleaned and reused.
pub const REPAIR_CHECKPOINTS: u32 = 3;
/// Limit of concurrent block reads in such a search: above it no further page is visited.
pub const MAP_READS: usize = 64;
/// Per cent by which use must fall below a warning threshold before the warning is repeated.
pub const FILLING_HYSTERESIS: u64 = 2;
/// Limit of lost blocks that a scrub lists; all are counted.
pub const SCRUB_LOST_MAX: usize = 1024;
/// Limit of ranges of lost blocks; blocks without room are counted.
pub const DAMAGE_RANGES_MAX: usize = 4096;
/// Limit of ranges that the status shows.
pub const DAMAGE_SHOWN_RANGES: usize = 256;
/// Limit of ranges that a checkpoint keeps.
pub const DAMAGE_SAVED_RANGES: usize = 8;
/// Map pages touched by one step of a range walk.
pub const WALK_PAGES_PER_STEP: usize = 64;
/// Map pages that a survey visits in one step: 16 384 entries, some tens of microseconds.
pub const SURVEY_PAGES_PER_STEP: u32 = 64;
/// Contents that a survey records in one round, 4 bytes each: 64 MiB.
pub const SURVEY_IDS: u64 = 16 << 20;
/// Limit of blocks with lost content that one walk names; further ones are counted.
pub const SURVEY_NAMED_MAX: u64 = 1024;
/// Limit of lost contents in one start whose referring blocks are named.
pub const SURVEY_LOST_MAX: usize = 65536;
/// Limit of blocks that one answer about the status of blocks reads in the map (a missing page
/// counts as one): some tens of microseconds.
pub const STATUS_BLOCKS: u64 = 1 << 14;
/// Fill byte of an unreadable block among readable ones. Not zero: padding is zero, and an
/// unreadable block would pass for it.
pub const UNREAD: u8 = 0xA7;
/// Limit of blocks verified inline on the engine's thread; more go to a job.
pub const INLINE_VERIFY_BLOCKS: usize = 8;

/// Number of blocks that a worker compresses in one go.
pub const REDUCE_BLOCKS: usize = 32;

/// Number of incompressible blocks of a group after which blocks that look random are skipped,
pub const REDUCE_WITHOUT_PROGRESS: u32 = 2;

/// except one of this many.
pub const REDUCE_TRY_AGAIN: usize = 8;

/// A whole block that was moved before is compressed again at one move in this many.
pub const REPACK_AGAIN: u32 = 8;

/// Limit of compressed blocks decompressed inline; more go to a job.
pub const INLINE_DECOMPRESS_BLOCKS: usize = 4;
/// Segments that the user stream reserves ahead, for the computation of the reserve; more if they
/// are very small (`path/write/room.rs`).
pub const RESERVED_AHEAD: u32 = 3;
/// Segments that cleaning keeps becoming free in addition to the immediate need of user writes, so
/// that one member flush serves several. It is 1/128 of the pool, within these limits.
pub const CLEANING_AHEAD_MIN: u32 = 2;
/// See [`CLEANING_AHEAD_MIN`].
pub const CLEANING_AHEAD_MAX: u32 = 64;
/// Smallest and largest segment extent in rows.
pub const MIN_SEGMENT_ROWS: u32 = 8;
/// 64 MiB on each member.
pub const MAX_SEGMENT_ROWS: u32 = 16384;
/// Largest chunk in rows (1 MiB on each member).
pub const MAX_CHUNK_ROWS: u32 = 256;
/// Default chunk in rows: 256 KiB on each member.
pub const DEFAULT_CHUNK_ROWS: u32 = 64;
/// Target number of segments. One segment is then at most 0.05 % of the space, so that the reserve
/// and the granularity of cleaning stay small compared to the spare.
pub const SEGMENTS_WANTED: u64 = 2000;
/// Fewest segments of a pool: reserve, one victim and one segment of user data.
pub const MIN_SEGMENTS: u32 = 16;

/// Factor of the blocks that fit uncompressed for which map pages are reserved with
/// reduction=capacity. Part of the format, as it limits the pages of a checkpoint.
pub const CAPACITY_MAP_FACTOR: u64 = 3;
/// Limit of units of a compressed payload.
pub const COMPRESSED_UNITS_MAX: u32 = 224;

/// Part of the present garbage that pacing keeps free under a lasting load (`path/write/pace.rs`):
/// free space is not available to cleaning. With 1/64 cleaning was measured to cost 0 to 0.8 % more
/// (docs/internals/decisions/0005-pacing.md).
pub const PACE_GARBAGE_SHARE: u64 = 64;
/// Least target of pacing, as a part of a segment. A pool with so little garbage that the target is
/// smaller has no pacing. Space becomes free in whole segments, and smoothing that keeps half a
/// segment free. That would cost cleaning more than 1 %.
pub const PACE_LEAST_PART: u64 = 2;
/// Limit of the pacing target in segments: space becomes free in whole segments, and two smooth
/// that.
pub const PACE_REST_SEGMENTS: u64 = 2;
/// Number of moves that count as a gain of at least one block, whatever their victim gains.
pub const PACE_MOVES_MAX: u64 = 64;
/// Limits of the number of user blocks per block gained by cleaning: at most this many, and at
/// least one part in this many. Beyond that there is practically no brake.
pub const PACE_GAIN_MAX: u64 = 64;

/// A checkpoint begins when the log has grown by this multiple of the cost of its dirty pages,
/// 1/0.035. With parity, leaves and roots on top the cost stays below 0.05 of the user bytes
/// (docs/internals/reserve.md).
pub const CHECKPOINT_COST_RATIO: u64 = 29;
/// A checkpoint begins when cleaning has moved this multiple of its cost only because there was
/// none. Near the minimum of the writes of cleaning and checkpoints together, on uniform and skewed
/// writes and those of a journal (docs/internals/reserve.md).
pub const OPPORTUNITY_COST_RATIO: u64 = 8;
/// Least growth of the log between checkpoints requested because there are no victims, as a part of
/// the pool.
pub const VICTIMS_LOG_SHARE: u64 = 16;
/// Pages of a checkpoint in addition to map pages: tables, leaves, list, and the padding of their
/// batches.
pub const CHECKPOINT_FIXED_PAGES: u64 = 64;
/// Number of young segments sampled for each victim, evenly spaced, to estimate the cost of waiting
/// for a checkpoint.
pub const YOUNG_SAMPLES: usize = 256;
/// Least user bytes (or an eighth of a small pool) between checkpoints requested for their cost:
/// each costs two rounds of member flushes. A replay of 1 GiB reads the ends of some 700 batches.
pub const CHECKPOINT_MIN_LOG_BYTES: u64 = 1 << 30;

/// Log bytes after which a member flush begins without a request. Recovery reads batches without a
/// known flush to the last byte, so this limits the largest part of its time. At 1 GB/s it is one
/// flush in a quarter of a second.
pub const UNFLUSHED_LOG_BYTES: u64 = 256 << 20;
/// Least bytes of a journal on each member by default.
pub const JOURNAL_BYTES_MIN: u64 = 256 << 10;
/// Most bytes of a journal on each member by default.
pub const JOURNAL_BYTES_MAX: u64 = 16 << 20;
/// Largest chunk of a new journal.
pub const JOURNAL_CHUNK_DEFAULT: u64 = 256 << 10;
/// Limit of journal devices of a pool: each holds a copy of every record.
pub const JOURNAL_DEVICES_MAX: usize = 4;
/// Limit of bytes in the journal that the log lacks: a start reads all of them into memory.
pub const JOURNAL_LIVE_BYTES_MAX: u64 = 64 << 20;
/// Limit of bytes used of a journal device: a few times its possible content, so that it wears
/// evenly and a start has little to read.
pub const JOURNAL_DEVICE_AREA_MAX: u64 = 4 * JOURNAL_LIVE_BYTES_MAX;
/// Records up to this size go to journal devices whatever their cost: a request of 256 KiB with its
/// head, and a few small ones with it.
pub const JOURNAL_DEVICE_BYTES: u64 = 320 << 10;
/// Limit of the payload of admitted, not yet durable writes that is kept for the journal while
/// flushes are expected. More payload makes full rows anyway.
pub const JOURNAL_BACKLOG_BYTES: u64 = 8 << 20;
/// Time after a flush during which the next one is expected.
pub const JOURNAL_LISTEN_NS: u64 = 1_000_000_000;
/// Cost of a write and a flush of one member, in bytes that it could have written meanwhile
/// (docs/internals/journal.md).
pub const FLUSH_COST_BYTES: u64 = 16 << 10;
/// Encoded tables of replayed batches that recovery keeps in memory between its passes: some 20
/// bytes for an entry, so about 12 million entries. Tables beyond it are re-read. In addition
/// recovery holds 150 bytes for each batch, and the moves of [`REPLAY_MOVES_AT_ONCE`].
pub const REPLAY_TABLE_BYTES: usize = 256 << 20;
/// Moved blocks that recovery handles in one pass over the user entries, 32 bytes each.
pub const REPLAY_MOVES_AT_ONCE: u64 = 2 << 20;

const _: () = assert!(STREAM_CHECKPOINT < MAX_STREAMS);
const _: () = assert!(USER_STREAMS.len() + CLEANED_STREAMS.len() + 1 == STREAMS.len());
const _: () = assert!(
    USER_STREAMS.len() == windrow_policy::any::USER_STREAMS_MAX
        && CLEANED_STREAMS.len() == windrow_policy::any::MOVED_STREAMS_MAX
);
const _: () = assert!(MAX_VOLUME_BYTES / BLOCK_BYTES <= 1 << LBA_BITS);
const _: () = assert!((MAX_VOLUMES as u64) < 1 << (64 - LBA_BITS));
const _: () =
    assert!(MAX_SEGMENT_ROWS.is_multiple_of(MAX_CHUNK_ROWS) && MAX_SEGMENT_ROWS.is_multiple_of(64));
// A victim's blocks need at most one segment each of the cleaned stream; the segments for
// MAX_VICTIMS are among those that user writes cannot take.
const _: () = assert!(CLEANER_RESERVE >= 2);
// Two commands of the largest default size fit into each window: the window, and not the number of
// commands, is the usual limit.
const _: () = assert!(
    BACKGROUND_BESIDE_BYTES >= LANE_COMMANDS_LEAST as u64 * DEFAULT_CHUNK_ROWS as u64 * BLOCK_BYTES
);
const _: () = assert!(BACKGROUND_BESIDE_BYTES <= FOREGROUND_BESIDE_BYTES);
// Victims that free nothing stop before they take a checkpoint's segments.
const _: () = assert!(FUTILE_VICTIMS <= CHECKPOINT_RESERVE);
