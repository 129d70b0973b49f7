//! Case table of `docs/internals/format.md` section 12.3: the content of one chain position, and
//! its meaning.
//!
//! The match below has one arm for each row of the document's table and no catch-all. So the
//! compiler proves that every case has exactly one row.

/// Content of the position where a chain expects its next batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The checkpoint has no segment for the stream: it was never opened.
    NeverOpened,
    /// No expected header (H is no).
    Nothing,
    /// The expected header, of an epoch that a fence ended before this batch (V).
    Void,
    /// The expected header, but the rest does not verify (A is no).
    Unverified,
    /// All of it verifies; parts are missing or wrong on members (A, not C).
    Incomplete,
    /// All of it verifies and is complete (A and C).
    Whole,
}

/// Row of the document's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Case {
    /// 1: nothing was written, or not enough of it arrived.
    End,
    /// 2: it was durable and is missing.
    LostWhole,
    /// 3: refused by a later recovery.
    EndAtVoid,
    /// 4: a fence voids a batch that something else proves durable.
    FenceContradicted,
    /// 5: a torn tail.
    Torn,
    /// 6: it was durable; its header is there, its entries are not.
    LostEntries,
    /// 7: accepted.
    Accepted,
    /// 8: accepted; its missing parts are to be rewritten.
    AcceptedIncomplete,
    /// 9: a stream that does not exist yet.
    EndUnopened,
    /// 10: a stream that does not exist has durable batches.
    UnopenedContradicted,
}

/// Returns the row. `durable`: something on the members proves that the batch was durable (D).
pub(super) fn judge(found: Found, durable: bool) -> Case {
    match (found, durable) {
        (Found::Nothing, false) => Case::End,
        (Found::Nothing, true) => Case::LostWhole,
        (Found::Void, false) => Case::EndAtVoid,
        (Found::Void, true) => Case::FenceContradicted,
        (Found::Unverified, false) => Case::Torn,
        (Found::Unverified, true) => Case::LostEntries,
        (Found::Whole, false | true) => Case::Accepted,
        (Found::Incomplete, false | true) => Case::AcceptedIncomplete,
        (Found::NeverOpened, false) => Case::EndUnopened,
        (Found::NeverOpened, true) => Case::UnopenedContradicted,
    }
}

impl Case {
    /// Reason that the case is damage; `None` if it is none.
    pub(super) fn damage(self) -> Option<&'static str> {
        match self {
            Self::LostWhole => Some("it is missing"),
            Self::FenceContradicted => Some("a fence voids it"),
            Self::LostEntries => {
                Some("its header is readable, but its entries cannot be read or reconstructed")
            }
            Self::UnopenedContradicted => Some("the checkpoint does not know its stream"),
            Self::End
            | Self::EndAtVoid
            | Self::Torn
            | Self::Accepted
            | Self::AcceptedIncomplete
            | Self::EndUnopened => None,
        }
    }
}

#[cfg(test)]
mod tests;
