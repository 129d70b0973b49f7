//! Parts of a row other than live payload: dead payload, padding, and the agreement of the
//! redundancy.

use super::*;

impl SegmentCheck<'_, '_, '_> {
    /// Verifies dead payload: if it is wrong, its row cannot reconstruct its live blocks. Also
    /// covers live blocks that no reference has verified.
    pub(super) fn other_blocks(
        &mut self,
        rows: &mut Rows,
        batch: &DecodedBatch,
        references: &[Reference],
        live_rows: &BTreeSet<u32>,
    ) -> Vec<u32> {
        let live: BTreeSet<u32> = references
            .iter()
            .flat_map(|r| self.blocks_in(rows, r))
            .collect();
        let mut wrong = Vec::new();
        for (block, checksum) in batch.payload_blocks() {
            let found = rows.find_checksum(self.reader, block, checksum);
            if matches!(found, Some(Origin::Member | Origin::Missing)) {
                continue;
            }
            wrong.push(block);
            if live.contains(&block) {
                let within: Vec<Reference> = references
                    .iter()
                    .filter(|r| self.blocks_in(rows, r).contains(&block))
                    .copied()
                    .collect();
                self.live_block(rows, batch, block, &within);
                continue;
            }
            let (severity, words) = match live_rows.contains(&rows.position(block).1) {
                true => (
                    Severity::Repairable,
                    "not in use any more, but wrong: its row lacks redundancy",
                ),
                false => (
                    Severity::Note,
                    "not in use any more, and wrong: nothing in its row is in use",
                ),
            };
            self.wrong_block(rows, block, severity, None, words);
        }
        wrong
    }

    /// Reports what a wrong block holds, unless another finding does. Part of it may be right, and
    /// losses found by the replay are already reported.
    fn live_block(
        &mut self,
        rows: &mut Rows,
        batch: &DecodedBatch,
        block: u32,
        within: &[Reference],
    ) {
        if self.options.verify_payload {
            return;
        }
        for reference in within
            .iter()
            .filter(|reference| !self.replayed.lost.contains(&reference.address))
        {
            let (severity, words) = match self.find_payload(rows, Some(batch), reference) {
                Some(_) => (
                    Severity::Repairable,
                    "in a block that is wrong on its member, but recoverable",
                ),
                None => (
                    reference.owner.severity_of_loss(),
                    "lost: wrong on its member, and unrecoverable from its row",
                ),
            };
            self.wrong_block(rows, block, severity, Some(reference.owner), words);
        }
    }

    /// Padding is zeroes: if it is not, or cannot be read, its row lacks redundancy.
    pub(super) fn padding(
        &mut self,
        rows: &mut Rows,
        batch: &DecodedBatch,
        live_rows: &BTreeSet<u32>,
    ) -> Vec<u32> {
        let mut wrong = Vec::new();
        for block in batch.frame.head_blocks + batch.frame.payload_blocks..batch.frame.tail_block()
        {
            let origin = rows.origin(block);
            if origin == Origin::Member && rows.bytes(block).iter().all(|byte| *byte == 0) {
                continue;
            }
            rows.correct(block, &[0; BLOCK_SIZE]);
            if origin != Origin::Missing {
                let severity = if live_rows.contains(&rows.position(block).1) {
                    Severity::Repairable
                } else {
                    Severity::Note
                };
                self.wrong_block(
                    rows,
                    block,
                    severity,
                    None,
                    "padding: not zeroes, or not readable",
                );
                wrong.push(block);
            }
        }
        wrong
    }

    /// Verifies redundancy; rows with a wrong data block have been reported already.
    pub(super) fn redundancy(
        &mut self,
        rows: &mut Rows,
        flawed: &[u32],
        live_rows: &BTreeSet<u32>,
    ) {
        let (compared, wrong) = rows.compare_redundancy(self.reader);
        self.report.parity_rows_verified += compared;
        if self.replayed.incomplete.contains(&(self.segment, rows.row)) {
            return;
        }
        let reported: Vec<u32> = flawed.iter().map(|block| rows.position(*block).1).collect();
        for (at, column) in wrong {
            if !reported.contains(&at) {
                let member = rows.member(self.reader, column);
                let message = format!("redundancy column {column} does not agree with the data");
                let severity = if live_rows.contains(&at) {
                    Severity::Repairable
                } else {
                    Severity::Note
                };
                self.add(
                    Finding::new(severity, FindingKind::ParityWrong, message)
                        .at(self.segment, rows.row + at)
                        .member(member),
                );
            }
        }
    }
}
