//! Reconstruction of blocks of a row from its other blocks.
//!
//! Missing columns are known, silently wrong ones are not. A hypothesis names the columns to
//! distrust, and the caller decides (by a checksum, or by decoding) if the result is correct. Every
//! hypothesis that the code can still correct is tried: of `p` redundancy columns each missing
//! column takes one, and each distrusted column one.
//!
//! 1. [`search`] is for one block. It is missing or distrusted itself, so with P nothing else may
//!    be wrong, and with P and Q one more column. It leaves out each other column in turn. Of
//!    copies each may be the correct one.
//! 2. [`hypotheses`] is for several blocks that are correct or wrong together, as the head of a
//!    batch. It yields all sets of columns up to the tolerance. With P and Q and 64 columns there
//!    are 2081.
//!
//! Nothing here proves that bytes are correct: they must not be used without a check by the caller.

use windrow_geometry::{Code, Shape};
use windrow_parity::{Column, Parity};

/// Reconstructs column `wanted` from the others (all of the length of `out`), leaving out `suspect`
/// as well. The content read of the wanted column is ignored. Of copies it takes the first. False
/// if too much is missing.
pub(crate) fn rebuild(
    shape: &Shape,
    wanted: usize,
    columns: &[Option<&[u8]>],
    suspect: Option<usize>,
    out: &mut [u8],
) -> bool {
    let usable = |c: usize| {
        if c == wanted || Some(c) == suspect {
            None
        } else {
            columns[c]
        }
    };
    let data = usize::from(shape.data);
    let code = match shape.code {
        Code::None => return false,
        Code::Copies => {
            let copy = (wanted % data..columns.len())
                .step_by(data)
                .find_map(usable);
            copy.iter().for_each(|copy| out.copy_from_slice(copy));
            return copy.is_some();
        }
        Code::P => Parity::P,
        Code::PQ => Parity::PQ,
    };
    let mut of_code: Vec<Column<'_>> = (0..columns.len())
        .map(|c| usable(c).map_or(Column::Absent, Column::Present))
        .collect();
    of_code[wanted] = Column::Lost(out);
    windrow_parity::reconstruct(code, data, &mut of_code).is_ok()
}

/// Calls `accept` with each candidate for block `wanted` of a row until it returns true; `out`
/// holds the block then. The columns are those of one row, as far as readable; the block read
/// directly is the first candidate.
pub(crate) fn search(
    shape: &Shape,
    wanted: usize,
    columns: &[Option<&[u8]>],
    out: &mut [u8],
    mut accept: impl FnMut(&[u8]) -> bool,
) -> bool {
    let stride = if shape.code == Code::Copies {
        usize::from(shape.data)
    } else {
        columns.len()
    };
    let copies = (wanted % stride..columns.len())
        .step_by(stride)
        .filter(|c| *c != wanted);
    for found in std::iter::once(wanted)
        .chain(copies)
        .filter_map(|c| columns[c])
    {
        if accept(found) {
            out.copy_from_slice(found);
            return true;
        }
    }
    if !matches!(shape.code, Code::P | Code::PQ) {
        return false;
    }
    let others = (0..columns.len()).filter(|c| *c != wanted && columns[*c].is_some());
    std::iter::once(None)
        .chain(others.map(Some))
        .any(|suspect| rebuild(shape, wanted, columns, suspect, out) && accept(out))
}

/// Columns to distrust.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hypothesis {
    /// All copies except the one with this number.
    AllBut(usize),
    /// These columns of a code.
    Without(Option<usize>, Option<usize>),
}

/// All hypotheses about a run of rows, the likely ones first: only missing columns are wrong, one
/// more is, two are.
pub(crate) fn hypotheses(shape: &Shape) -> impl Iterator<Item = Hypothesis> + use<> {
    let (width, copies) = match shape.code {
        Code::None => (0, 0),
        Code::Copies => (0, usize::from(shape.width / shape.data)),
        Code::P | Code::PQ => (usize::from(shape.width), 0),
    };
    let singles = if width == 0 { 0 } else { width + 1 };
    let pairs = if shape.tolerance() > 1 { width } else { 0 };
    let single = (0..singles).map(|n| Hypothesis::Without(n.checked_sub(1), None));
    let pair = (0..pairs)
        .flat_map(move |a| (a + 1..pairs).map(move |b| Hypothesis::Without(Some(a), Some(b))));
    (0..copies)
        .map(Hypothesis::AllBut)
        .chain(single)
        .chain(pair)
}

/// Reconstructs block `wanted` of a row under a hypothesis; false if it is unrecoverable then.
pub(crate) fn suppose(
    shape: &Shape,
    wanted: usize,
    columns: &[Option<&[u8]>],
    hypothesis: Hypothesis,
    out: &mut [u8],
) -> bool {
    let found = match hypothesis {
        Hypothesis::AllBut(copy) => {
            columns[copy * usize::from(shape.data) + wanted % usize::from(shape.data)]
        }
        Hypothesis::Without(a, b)
            if a != Some(wanted) && b != Some(wanted) && columns[wanted].is_some() =>
        {
            columns[wanted]
        }
        Hypothesis::Without(None, other) | Hypothesis::Without(other, None) => {
            return rebuild(shape, wanted, columns, other, out);
        }
        Hypothesis::Without(Some(a), Some(b)) if a == wanted || b == wanted => {
            return rebuild(
                shape,
                wanted,
                columns,
                Some(if a == wanted { b } else { a }),
                out,
            );
        }
        // The block is missing, and two more would be: beyond what a code corrects.
        Hypothesis::Without(..) => return false,
    };
    found.iter().for_each(|found| out.copy_from_slice(found));
    found.is_some()
}

#[cfg(test)]
mod tests;
