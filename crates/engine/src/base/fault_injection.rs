//! Bugs injected on purpose. Kill loops and simulator must detect each of these canaries, or their
//! silence means nothing.

/// An injected bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InjectedBug {
    /// None.
    #[default]
    None,
    /// Segments are discarded and rewritten before the flush that made the superseding blocks
    /// durable.
    EarlyReuse,
    /// A rebuild skips the first batch of each segment, and declares the segment whole all the
    /// same.
    HollowRebuild,
    /// A chunk of the journal is reused when its records are durable, even if the log lacks them.
    EarlyChunk,
    /// User writes leave nothing for checkpoints, so a nearly full pool runs out of segments.
    ShortReserve,
    /// Every other empty map page keeps its memory.
    KeptPages,
    /// A member that was taken out of service is reported as settled while commands to it are in
    /// flight.
    EarlySettle,
    /// Commands that a member had when it was taken out of service are waited for.
    KeptWaiting,
    /// A device that is to replace a member is declared its copy before anything was copied.
    EarlySwitch,
}
