//! The table of cases of `docs/internals/format.md` section 12.3: what a chain met at one position,
//! and what that means.
//!
//! The match below has one arm for each row of the document's table. It has no catch-all, so that
//! the compiler proves that every case has exactly one row.

/// What was found at the position where a chain expects its next batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The checkpoint names no segment for the stream: it was never opened.
    NeverOpened,
    /// No header that is the expected one (H is no).
    Nothing,
    /// The expected header, but of an epoch that a fence ended before this batch (V).
    Void,
    /// The expected header, but the rest does not verify (A is no).
    Unverified,
    /// All of it verifies; parts are missing or wrong on members (A, not C).
    Incomplete,
    /// All of it verifies and is as it should be (A and C).
    Whole,
}

/// The row of the document's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Case {
    /// 1: nothing was written, or not enough of it arrived.
    End,
    /// 2: it was durable and is not there.
    LostWhole,
    /// 3: refused by a later recovery.
    EndAtVoid,
    /// 4: a fence calls void what something else calls durable.
    FenceContradicted,
    /// 5: a torn tail.
    Torn,
    /// 6: it was durable; its header is there, its entries are not.
    LostEntries,
    /// 7: accepted.
    Accepted,
    /// 8: accepted; its missing parts are to be written again.
    AcceptedIncomplete,
    /// 9: a stream that does not exist yet.
    EndUnopened,
    /// 10: a stream that does not exist has durable batches.
    UnopenedContradicted,
}

/// Finds the row. `durable`: something on the members says that the batch was durable (D).
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
    /// Why the case is damage; `None` if it is not.
    pub(super) fn damage(self) -> Option<&'static str> {
        match self {
            Self::LostWhole => Some("it is not there"),
            Self::FenceContradicted => Some("a fence calls it void"),
            Self::LostEntries => {
                Some("its header is there, but its entries can not be read or rebuilt")
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
