//! Pages of the deduplication index (`docs/internals/format.md`, section 8a). They are hints: a
//! wrong page loses duplicates, never data.

use super::*;
use windrow_format::index_page::{
    INDEX_PAGES_MAX, IndexEntry, IndexPage, NO_INDEX_PAGE, decode_index_page,
};

impl Owner {
    /// True if its loss loses no user data.
    pub(super) fn is_hint(self) -> bool {
        matches!(
            self,
            Self::Block {
                volume: VolumeId::INDEX,
                ..
            }
        )
    }

    /// Severity of its loss.
    pub(super) fn severity_of_loss(self) -> Severity {
        if self.is_hint() {
            Severity::Repairable
        } else {
            Severity::Error
        }
    }
}

/// Severity of the loss of all these.
pub(super) fn severity_of_loss(references: &[Reference]) -> Severity {
    references
        .iter()
        .map(|reference| reference.owner.severity_of_loss())
        .max()
        .unwrap_or(Severity::Note)
}

impl SegmentCheck<'_, '_, '_> {
    /// Decodes a page whose bytes are verified.
    pub(super) fn index_page(&mut self, rows: &Rows, reference: &Reference) {
        let Owner::Block {
            volume: VolumeId::INDEX,
            lba,
        } = reference.owner
        else {
            return;
        };
        let mut entries = Vec::new();
        let head = decode_index_page(rows.bytes(self.block_in(rows, reference)), &mut entries);
        match judge(lba, head, self.report.recovery_lsn) {
            Ok(()) => {
                self.report.index_entries += entries.len() as u64;
                self.report.index_entries_in_use +=
                    entries.iter().filter(|entry| self.is_in_use(entry)).count() as u64;
            }
            Err(why) => {
                let message = format!(
                    "{}: {why}; it finds no duplicates, and no data depends on it",
                    reference.owner
                );
                let at = rows.row + rows.position(self.block_in(rows, reference)).1;
                let finding =
                    Finding::new(Severity::Repairable, FindingKind::IndexPageWrong, message)
                        .at(self.segment, at);
                self.add(reference.owner.mark(finding));
            }
        }
    }

    /// True if the entry's id still has the content that its LSN gave it. (Other entries are of
    /// released contents: a page is not rewritten for that.)
    fn is_in_use(&self, entry: &IndexEntry) -> bool {
        let content = self.tables.get(VolumeId::SHARED, Lba(u64::from(entry.id)));
        content.has_payload() && content.incarnation() == entry.lsn.0 as u32
    }
}

/// Checks that a page is what the format allows, and that its LSNs are in effect.
fn judge(lba: Lba, head: Option<IndexPage>, accepted: Lsn) -> Result<(), &'static str> {
    match head {
        _ if lba.0 >= INDEX_PAGES_MAX => Err("there is no page of this number"),
        None => Err("it does not decode"),
        Some(head)
            if head.previous != NO_INDEX_PAGE && u64::from(head.previous) >= INDEX_PAGES_MAX =>
        {
            Err("it names an impossible preceding page")
        }
        Some(head) if head.last > accepted => {
            Err("it names content of LSNs that are not in effect")
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
