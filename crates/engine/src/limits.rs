//! Bounds of the engine and the relations between them.

use windrow_types::{BLOCK_BYTES, MAX_STREAMS};

/// Stream of user blocks, trims and volume operations.
pub const STREAM_USER: usize = 0;
/// Stream of blocks moved by cleaning.
pub const STREAM_CLEANED: usize = 2;
/// Stream of checkpoint pages.
pub const STREAM_CHECKPOINT: usize = 3;
/// The streams that every pool has.
pub const BASE_STREAMS: [usize; 3] = [STREAM_USER, STREAM_CLEANED, STREAM_CHECKPOINT];
/// Streams of users' writes: the first one, which takes what the others can not, and those that a
/// policy may add.
pub const USER_STREAMS: [usize; 3] = [STREAM_USER, 1, 4];
/// Streams of moved blocks, likewise.
pub const CLEANED_STREAMS: [usize; 4] = [STREAM_CLEANED, 5, 6, 7];
/// All streams that there may be, in the order in which recovery follows them.
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
/// Segments that a further stream holds at most: the open one and the one that it goes on in.
pub const EXTRA_STREAM_SEGMENTS: u64 = 2;
/// There is one further stream for so many segments of spare space at most: what they hold is an
/// eighth of it.
pub const EXTRA_STREAM_SPARE: u64 = 8 * EXTRA_STREAM_SEGMENTS;
/// Smallest spare factor: below it cleaning would move nearly everything for every write.
pub const SPARE_PER_MILLE_MIN: u16 = 30;
/// Orders that users may be given while an open batch holds an older one, with several streams of
/// users.
pub const LSNS_OPEN_MAX: u64 = 16384;
/// What a placement keeps beside what it keeps for each block: tables of lives and plans.
pub const PLACEMENT_FIXED_BYTES: u64 = 2 << 20;

/// True if users' writes go to the stream.
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

/// Most volumes of a pool, deleted ones that are still being freed included.
pub const MAX_VOLUMES: usize = 4096;
/// Largest volume. Block numbers then fit in 36 bits, so that (volume, block) packs into 64 bits.
pub const MAX_VOLUME_BYTES: u64 = windrow_format::MAX_VOLUME_BYTES;
/// Bits of a block number in a packed key.
pub const LBA_BITS: u32 = 40;
/// Ids whose map pages are made sure of beyond those that are needed: a write with unaligned edges
/// is surveyed in three pieces.
pub const IDS_AHEAD: u64 = 8;
/// Room is kept for a page of the index of deduplication for so many blocks of the pool: it has 169
/// entries, of which some are of content that is gone.
pub const INDEX_PAGE_BLOCKS: u64 = 160;
/// Full pages of the index that wait for room in the log; beyond it the oldest is dropped.
pub const INDEX_PAGES_WAITING: usize = 4;
/// Pages of the index that are read at the same time for blocks that are written.
pub const INDEX_READS_MAX: usize = 16;
/// And at a start, to win back what is known of them.
pub const INDEX_SCAN_READS: usize = 4;
/// A page of which less than one entry in so many is of content that is still there is the next to
/// be written anew.
pub const INDEX_PAGE_RIPE: usize = 8;
/// Longest name of a pool or volume in bytes.
pub const MAX_NAME_BYTES: usize = 63;

/// Segments a stream holds without filling them: the open one and its successor.
pub const SEGMENTS_PER_STREAM: u32 = 2;
/// Victims that may be cleaned at the same time.
pub const MAX_VICTIMS: usize = 4;
/// Segments that users leave to the cleaner beyond what two checkpoints may need: what it frees
/// comes back only after a flush.
pub const CLEANER_RESERVE: u32 = 3;
/// Segments beyond what a checkpoint may need, below which the cleaner empties one victim at a
/// time.
pub const CHECKPOINT_RESERVE: u32 = 2;
/// Segments that neither users nor checkpoints take: trims and changes of volumes get them if
/// nothing else moves any more (`write/exhausted.rs`).
pub const RELIEF_RESERVE: u32 = 2;
/// Segments that not even the delete of a volume gets where damage has brought the pool to a
/// standstill (`write/exhausted.rs`): one for what a victim needs, one for a checkpoint that has
/// next to nothing to write.
pub const LAST_SEGMENTS: u32 = 2;
/// Victims that are emptied at the same time only to be striped anew.
pub const RESTRIPE_VICTIMS: u32 = 2;
/// Batches of a victim being read at the same time.
pub const VICTIM_BATCHES_AHEAD: usize = 4;
/// A range that touches at most so many map pages is applied to the map at once.
pub const SMALL_RANGE_PAGES: u64 = 4;
/// Large ranges whose effect on the map is under way; further ones wait for admission.
pub const WALKS_MAX: usize = 64;
/// Segments whose discards are under way at the same time.
pub const DISCARDING_MAX: u32 = 64;
/// Bytes that a scrub or a rebuild has under way at the same time while no user is about, or two
/// batches; each of them takes that memory twice. Enough for eight members to have two commands of
/// 256 KiB each, and something in the hands of the workers.
pub const AHEAD_BYTES: u64 = 32 << 20;
/// Batches that it has under way at most: those of a pool with many flushes are small.
pub const AHEAD_BATCHES: usize = 64;
/// Users are about for so long after each of their requests.
pub const USERS_ABOUT_NS: u64 = 1_000_000_000;
/// While users are about, a scrub or rebuild reads and writes columns in pieces of so many rows,
/// one after the other: a user's read that comes meanwhile waits for one.
pub const VERIFY_PIECE_ROWS: u32 = 16;
/// While users are about, a scrub or rebuild pauses for so many times what its last batch took.
pub const GIVE_WAY: u64 = 4;
/// Most time for which a rate is made up for.
pub const CATCH_UP_NS: u64 = 20_000_000;
/// The grain of time.
pub const TICK_NS: u64 = 1_000_000;
/// A rate is shown as that of this time, and half of it of the time before.
pub const METER_NS: u64 = 2_000_000_000;
/// A scrub that gives way examines a batch after this time at the latest.
pub const SCRUB_PAUSE_NS: u64 = 1_000_000_000;
/// A read is late after so many times what reads usually take at most.
pub const SLOW_FACTOR: u64 = 4;
/// One read in so many may be done around its member for long.
pub const AROUND_SHARE: u32 = 4;
/// And so many at once.
pub const AROUND_BURST: u32 = 64;
/// Besides, one in this time: where all clients wait for one member nothing else would bring the
/// budget back.
pub const AROUND_EVERY_NS: u64 = 10_000_000;
/// A member that owes so many reads which others have answered is asked for nothing that can be had
/// without it: what it never answers must not pile up.
pub const OUTSTANDING_LATE_READS_MAX: u32 = 64;
// When a full budget has been spent on a mute member it owes enough, so what waits for the budget
// goes on without.
const _: () = assert!(OUTSTANDING_LATE_READS_MAX <= AROUND_BURST);
/// Late reads of a member are counted in spans of this length.
pub const SLOW_SPAN_NS: u64 = 5_000_000_000;
/// It takes so many spans one after the other to call a member slow, or not slow any more.
pub const SLOW_SPANS: u32 = 3;
/// A span with fewer late reads says nothing against a member.
pub const SLOW_LEAST: u32 = 16;
/// Nor does one in which less than one read in so many was late.
pub const SLOW_SHARE: u32 = 4;
/// A member hangs if a command has had no answer for so long: longer than a drive takes that wakes
/// up, or tries hard to read a sector.
pub const HANGS_NS: u64 = 10_000_000_000;
/// The same for a discard.
pub const DISCARD_HANGS_NS: u64 = 120_000_000_000;
/// Members that hang are looked for after this time.
pub const HANG_LOOK_NS: u64 = 5_000_000_000;
/// What a small member command takes of a window (`member/scheduler.rs`): it keeps a drive about as
/// busy as so many bytes.
pub const COMMAND_COST_BYTES: u64 = 32 << 10;
/// What a discard takes of it, whatever its length.
pub const DISCARD_COST_BYTES: u64 = 256 << 10;
/// Commands of each class that are always let go at a member, so that it never waits for the next
/// one.
pub const LANE_COMMANDS_LEAST: u32 = 2;
/// Beyond this much of users' batches under way at a member, further commands for them are held
/// back while somebody reads or flushes: with two chunks of the default size at the drive and two
/// behind them it never runs dry.
pub const FOREGROUND_BESIDE_BYTES: u64 = 1 << 20;
/// The same of cleaning, checkpoints, rebuild, scrub and discards while users are about.
pub const BACKGROUND_BESIDE_BYTES: u64 = 512 << 10;
/// Smallest rate that a rebuild can be given, bytes per second and member.
pub const REBUILD_RATE_MIN: u64 = 64 << 10;
/// Largest rate that a property can name.
pub const RATE_MAX: u64 = 1 << 50;
/// Segments that are rebuilt before a flush is asked for.
pub const REBUILD_FLUSH_SEGMENTS: usize = 16;
/// Beside users a rebuild asks for a flush only if none began for so long: they read from members
/// that flush meanwhile.
pub const REBUILD_FLUSH_NS: u64 = 10_000_000_000;
/// A rebuild tries what it could not have again after this time.
pub const REBUILD_RETRY_NS: u64 = 60_000_000_000;
/// While dead segments that could not be rebuilt wait to be free, they are looked at this often.
pub const REBUILD_LOOK_NS: u64 = 500_000_000;
/// Checkpoints that a rebuild asks for between two tries.
pub const REBUILD_CHECKPOINTS: u32 = 6;
/// Segments without live data that a scrub passes over in one step.
pub const SCRUB_SEGMENTS_PER_STEP: usize = 4096;
/// Batches that a scrub can not have, above which it looks them up in the map at once, and not at
/// its end.
pub const SCRUB_DOUBTS_MAX: usize = 256;
/// Map pages that are looked at in one step of a search for what lives in a segment or batch whose
/// tables can not be had.
pub const MAP_PAGES_PER_STEP: u32 = 256;
/// Victims that left lost blocks behind, and for which others have not made up, after which they
/// are begun one at a time while space is short.
pub const FUTILE_VICTIMS: u32 = 2;
/// Checkpoints that repairs without room ask for before they are given up: after two the log before
/// them can be cleaned and used again.
pub const REPAIR_CHECKPOINTS: u32 = 3;
/// Blocks that are read at the same time in such a search: above it no further page is looked at.
pub const MAP_READS: usize = 64;
/// Per cent by which use must have fallen below a warning before that is told again.
pub const FILLING_HYSTERESIS: u64 = 2;
/// Lost blocks that a scrub lists; all are counted.
pub const SCRUB_LOST_MAX: usize = 1024;
/// Ranges of lost blocks that are kept; blocks without room are counted.
pub const DAMAGE_RANGES_MAX: usize = 4096;
/// Those that the status shows.
pub const DAMAGE_SHOWN_RANGES: usize = 256;
/// Those that a checkpoint keeps.
pub const DAMAGE_SAVED_RANGES: usize = 8;
/// Map pages touched by one step of a range walk.
pub const WALK_PAGES_PER_STEP: usize = 64;
/// Map pages that a survey looks at in one step: 16 384 entries, some tens of microseconds.
pub const SURVEY_PAGES_PER_STEP: u32 = 64;
/// Contents that a survey notes in one round, 4 bytes each: 64 MiB.
pub const SURVEY_IDS: u64 = 16 << 20;
/// Blocks that refer to lost content and are named by one walk; of the others the number is told.
pub const SURVEY_NAMED_MAX: u64 = 1024;
/// Lost contents of which it is told who refers to them, in one start.
pub const SURVEY_LOST_MAX: usize = 65536;
/// Blocks that one answer about the status of blocks looks at in the map (a page that is not there
/// counts as one): some tens of microseconds.
pub const STATUS_BLOCKS: u64 = 1 << 14;
/// Bytes of a block that could not be read, where its neighbours could. (Not zero: padding is, and
/// would be taken for read.)
pub const UNREAD: u8 = 0xA7;
/// Blocks verified inline on the engine's thread; more go to a job.
pub const INLINE_VERIFY_BLOCKS: usize = 8;

/// Blocks that a worker packs in one go.
pub const REDUCE_BLOCKS: usize = 32;

/// After so many blocks of a group that could not be packed, those that look random are not tried,
pub const REDUCE_WITHOUT_PROGRESS: u32 = 2;

/// but for each one of so many.
pub const REDUCE_TRY_AGAIN: usize = 8;

/// A whole block that has been moved before is packed anew at one move in so many.
pub const REPACK_AGAIN: u32 = 8;

/// Packed blocks that are unpacked where they come; more of them by a job.
pub const INLINE_DECOMPRESS_BLOCKS: usize = 4;
/// Segments that the user stream holds in advance, in the reckoning of the reserve; more if they
/// are very small (`write/room.rs`).
pub const RESERVED_AHEAD: u32 = 3;
/// Segments that cleaning keeps coming free beyond what users need at once, so that one member
/// flush serves several segments: 1/128 of the pool, within these bounds.
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
/// A pool aims at this many segments at least: then one segment is at most 0.05 % of the space, so
/// that the reserve and the graininess of cleaning stay small beside the spare.
pub const SEGMENTS_WANTED: u64 = 2000;
/// Fewest segments of a pool: reserve, one victim and one segment of user data.
pub const MIN_SEGMENTS: u32 = 16;

/// Where what reduction saves is capacity, pages of the map are kept for so many times the blocks
/// that fit unpacked: part of the format, as it says how many pages a checkpoint may have.
pub const CAPACITY_MAP_FACTOR: u64 = 3;
/// Most units of a packed payload.
pub const COMPRESSED_UNITS_MAX: u32 = 224;

/// Under a lasting load users rest at one part in so many of the garbage there is
/// (`write/pace.rs`): what is kept free is missing to cleaning. With 1/64 cleaning was measured to
/// cost 0 to 0.8 % more (docs/internals/decisions/0005-pacing.md).
pub const PACE_GARBAGE_SHARE: u64 = 64;
/// A pool with so little garbage that users would rest below one part in so many of a segment has
/// no pace: space comes back in whole segments, and smoothing that keeps half a segment free, which
/// would cost cleaning more than 1 %.
pub const PACE_LEAST_PART: u64 = 2;
/// Segments at which users rest at most: space comes back in whole segments, and two hide that.
pub const PACE_REST_SEGMENTS: u64 = 2;
/// So many moves count as a gain of one block at least, whatever their victim gains.
pub const PACE_MOVES_MAX: u64 = 64;
/// User blocks that one block gained by cleaning is worth at most, and at least one part in so
/// many: beyond it there is as good as no brake.
pub const PACE_GAIN_MAX: u64 = 64;

/// A checkpoint begins when the log has grown by this many times what its dirty pages will cost
/// (1/0.035: with parity, leaves and roots on top the cost stays below 0.05 of the user's bytes,
/// DESIGN.md section 2).
pub const CHECKPOINT_COST_RATIO: u64 = 29;
/// A checkpoint begins when cleaning has moved so many times its cost in vain for want of one: near
/// the least of what cleaning and checkpoints write together, on uniform and skewed writes and
/// those of a journal (docs/internals/reserve.md).
pub const OPPORTUNITY_COST_RATIO: u64 = 8;
/// No checkpoint for want of victims before the log has grown by one part in so many of the pool
/// since the last one began.
pub const VICTIMS_LOG_SHARE: u64 = 16;
/// Pages of a checkpoint beside map pages: tables, leaves, list, and the padding of their batches.
pub const CHECKPOINT_FIXED_PAGES: u64 = 64;
/// Young segments that are looked at for each victim, evenly spaced, to see what waiting for a
/// checkpoint costs.
pub const YOUNG_SAMPLES: usize = 256;
/// No checkpoint for its cost's sake before users have written this much (or an eighth of a small
/// pool): each costs two rounds of member flushes. A replay of 1 GiB reads the ends of some 700
/// batches.
pub const CHECKPOINT_MIN_LOG_BYTES: u64 = 1 << 30;

/// Log after which a member flush is begun although nobody asked for one. Recovery reads batches
/// that no flush is known to cover to the last byte, so this bounds the largest part of its time;
/// at 1 GB/s it is one flush in a quarter of a second.
pub const UNFLUSHED_LOG_BYTES: u64 = 256 << 20;
/// Least that a journal takes of each member unless something else is asked for.
pub const JOURNAL_BYTES_MIN: u64 = 256 << 10;
/// Most.
pub const JOURNAL_BYTES_MAX: u64 = 16 << 20;
/// Largest chunk that a new journal gets.
pub const JOURNAL_CHUNK_DEFAULT: u64 = 256 << 10;
/// Most journal devices of a pool: each holds a copy of every record.
pub const JOURNAL_DEVICES_MAX: usize = 4;
/// What the journal holds and the log does not have yet, at most: a start reads all of it into
/// memory.
pub const JOURNAL_LIVE_BYTES_MAX: u64 = 64 << 20;
/// Most that is used of a journal device: a few times what may be in it, so that it wears evenly
/// and a start has not much to look at.
pub const JOURNAL_DEVICE_AREA_MAX: u64 = 4 * JOURNAL_LIVE_BYTES_MAX;
/// Records up to this size go to journal devices whatever they cost: a request of 256 KiB with its
/// head, and a few small ones beside it.
pub const JOURNAL_DEVICE_BYTES: u64 = 320 << 10;
/// Payload of admitted and not yet durable writes that is kept for the journal while flushes come.
/// What is more makes full rows anyway.
pub const JOURNAL_BACKLOG_BYTES: u64 = 8 << 20;
/// For so long after a flush the next one is expected.
pub const JOURNAL_LISTEN_NS: u64 = 1_000_000_000;
/// What a write and a flush of one member cost, in bytes that it could have written meanwhile
/// (docs/internals/journal.md).
pub const FLUSH_COST_BYTES: u64 = 16 << 10;
/// Encoded tables of replayed batches that recovery keeps in memory between its passes: some 20
/// bytes for an entry, so about 12 million entries. Tables beyond it are read again. Beside them
/// recovery holds 150 bytes for each batch, and what [`REPLAY_MOVES_AT_ONCE`] says.
pub const REPLAY_TABLE_BYTES: usize = 256 << 20;
/// Moved blocks that recovery looks at in one pass over the user entries, 32 bytes each.
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
// A victim's blocks need at most one segment each of the cleaned stream; what MAX_VICTIMS may need
// is drawn from segments that user writes can not take.
const _: () = assert!(CLEANER_RESERVE >= 2);
// Two commands of the largest default size fit into each window: it, and not the number of
// commands, is the usual bound.
const _: () = assert!(
    BACKGROUND_BESIDE_BYTES >= LANE_COMMANDS_LEAST as u64 * DEFAULT_CHUNK_ROWS as u64 * BLOCK_BYTES
);
const _: () = assert!(BACKGROUND_BESIDE_BYTES <= FOREGROUND_BESIDE_BYTES);
// Victims that give nothing back stop before they take a checkpoint's segments.
const _: () = assert!(FUTILE_VICTIMS <= CHECKPOINT_RESERVE);
