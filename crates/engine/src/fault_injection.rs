//! Bugs that are planted on purpose. Kill loops and simulator must notice each of these canaries,
//! or their silence means nothing.

use crate::Engine;

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InjectedFault {
    /// None.
    #[default]
    None,
    /// Segments are discarded and written again before the flush that made what superseded their
    /// blocks durable.
    EarlyReuse,
    /// Of the first batch of each segment a rebuild writes nothing, and calls the segment whole all
    /// the same.
    HollowRebuild,
    /// A chunk of the journal is taken again when what it holds is promised, whether the log has it
    /// or not.
    EarlyChunk,
    /// Users leave nothing for checkpoints, so a nearly full pool runs out of segments.
    ShortReserve,
    /// Every other page of the map that holds nothing any more keeps its memory.
    KeptPages,
    /// A member that was taken out of service is said to be at rest while commands of it are on
    /// their way.
    EarlySettle,
    /// What a member has got when it is taken out of service is waited for.
    KeptWaiting,
    /// A device that is to replace a member is called a copy of it before anything was copied.
    EarlySwitch,
}

impl Engine {
    /// Plants a bug.
    #[doc(hidden)]
    pub fn inject(&mut self, bug: InjectedFault) {
        self.observe.fault = bug;
    }
}
