//! Reconstruction of lost columns: every lost column is a weighted sum of `k` present columns.
//!
//! 1. Take all present data columns, and as many redundancy columns as data columns are lost (P
//!    before Q).
//! 2. A lost data column follows from them. With one lost (`x`): `d_x = P + sum d_i`, or by Q
//!    `d_x = 2^-x (Q + sum 2^i d_i)`. With two lost (`x`, `y`), where `s = 2^x + 2^y`:
//!    `d_x = ((2^y P + Q) + sum (2^y + 2^i) d_i) / s`, and `d_y` with x and y exchanged.
//! 3. A lost redundancy column is a sum over all data columns; substitute 2 for the lost ones.
//!
//! The weights of steps 2 and 3 go to one kernel call per pair of outputs. When all weights are 1
//! the plain sum is used.

use crate::gf::{inverse, multiply, power_of_two};
use crate::{Kernel, Parity};

/// Maximum number of columns of a code word, data and redundancy together: the maximum number of
/// members of a pool.
pub const MAX_COLUMNS: usize = 64;

/// One column for [`reconstruct`].
#[derive(Debug)]
pub enum Column<'a> {
    /// Present and correct.
    Present(&'a [u8]),
    /// Lost; its content is written here.
    Lost(&'a mut [u8]),
    /// Lost or not read, and not wanted. Counts as lost for the tolerance.
    Absent,
}

/// More columns are lost than the code has redundancy columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyErasures {
    /// Number of columns that are not present.
    pub missing: usize,
    /// Number of columns that the code tolerates.
    pub tolerance: usize,
}

impl core::fmt::Display for TooManyErasures {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} columns are missing, the code can do without {}",
            self.missing, self.tolerance
        )
    }
}

impl std::error::Error for TooManyErasures {}

/// Reconstructs the lost columns of a code word. `columns` are the `data_columns` data columns,
/// then the redundancy columns of `code`.
///
/// Nothing is written if it fails.
///
/// # Errors
/// [`TooManyErasures`] if more columns are lost or absent than the code tolerates.
///
/// # Panics
/// If the number of columns does not fit the code, is larger than [`MAX_COLUMNS`], or the lengths
/// differ.
pub fn reconstruct(
    code: Parity,
    data_columns: usize,
    columns: &mut [Column<'_>],
) -> Result<(), TooManyErasures> {
    reconstruct_with(Kernel::best(), code, data_columns, columns)
}

pub(crate) fn reconstruct_with(
    kernel: Kernel,
    code: Parity,
    data_columns: usize,
    columns: &mut [Column<'_>],
) -> Result<(), TooManyErasures> {
    assert_eq!(
        columns.len(),
        data_columns + code.columns(),
        "columns do not fit the code"
    );
    assert!(
        columns.len() <= MAX_COLUMNS,
        "{} columns, at most {MAX_COLUMNS}",
        columns.len()
    );
    let missing = columns
        .iter()
        .filter(|column| !matches!(column, Column::Present(_)))
        .count();
    if missing > code.columns() {
        return Err(TooManyErasures {
            missing,
            tolerance: code.columns(),
        });
    }
    let plan = Plan::new(data_columns, columns);
    let mut sources: [&[u8]; MAX_COLUMNS] = [&[]; MAX_COLUMNS];
    let mut indexes = [0; MAX_COLUMNS];
    let mut outs: [Option<(usize, &mut [u8])>; 2] = [None, None];
    let (mut used, mut wanted) = (0, 0);
    for (index, column) in columns.iter_mut().enumerate() {
        match column {
            Column::Present(bytes) if plan.uses(index) => {
                sources[used] = bytes;
                indexes[used] = index;
                used += 1;
            }
            Column::Lost(bytes) => {
                outs[wanted] = Some((index, bytes));
                wanted += 1;
            }
            Column::Present(_) | Column::Absent => {}
        }
    }
    let mut weights = [[0; MAX_COLUMNS]; 2];
    for (weights, out) in weights.iter_mut().zip(&outs) {
        if let Some((target, _)) = out {
            for (weight, source) in weights.iter_mut().zip(&indexes[..used]) {
                *weight = plan.weight(*source, *target);
            }
        }
    }
    let (sources, weights) = (
        &sources[..used],
        weights.each_ref().map(|weights| &weights[..used]),
    );
    match outs {
        [Some((_, out)), None] if weights[0].iter().all(|weight| *weight == 1) => {
            kernel.encode_p(sources, out)
        }
        [Some((_, out)), None] => kernel.weighted_sum(sources, weights[0], out),
        [Some((_, first)), Some((_, second))] => {
            kernel.weighted_sums(sources, weights, [first, second])
        }
        [None, _] => {}
    }
    Ok(())
}

/// Derivation of the lost data columns from the present columns.
struct Plan {
    data_columns: usize,
    case: Case,
}

#[derive(Clone, Copy)]
enum Case {
    /// All data columns are present.
    Data,
    /// This data column is lost, P is present.
    ByP(usize),
    /// This data column and P are lost.
    ByQ(usize),
    /// These two data columns are lost.
    ByBoth(usize, usize),
}

impl Plan {
    fn new(data_columns: usize, columns: &[Column<'_>]) -> Self {
        let present = |index: usize| matches!(columns[index], Column::Present(_));
        let mut lost = (0..data_columns).filter(|index| !present(*index));
        let case = match (lost.next(), lost.next()) {
            (None, _) => Case::Data,
            (Some(x), Some(y)) => Case::ByBoth(x, y),
            (Some(x), None) if present(data_columns) => Case::ByP(x),
            (Some(x), None) => Case::ByQ(x),
        };
        Self { data_columns, case }
    }

    /// True if the sums use this column (which is present).
    fn uses(&self, index: usize) -> bool {
        let (p, q) = (self.data_columns, self.data_columns + 1);
        index < p
            || match self.case {
                Case::Data => false,
                Case::ByP(_) => index == p,
                Case::ByQ(_) => index == q,
                Case::ByBoth(..) => true,
            }
    }

    /// Weight of column `source` in the sum for column `target`.
    fn weight(&self, source: usize, target: usize) -> u8 {
        let (p, q) = (self.data_columns, self.data_columns + 1);
        if target < p {
            return self.weight_in_data(source, target);
        }
        // A redundancy column: the source's own share, plus its shares in the lost data columns.
        let share = |index: usize| if target == q { power_of_two(index) } else { 1 };
        let own = if source < p { share(source) } else { 0 };
        match self.case {
            Case::Data => own,
            Case::ByP(x) | Case::ByQ(x) => own ^ multiply(share(x), self.weight_in_data(source, x)),
            Case::ByBoth(x, y) => {
                own ^ multiply(share(x), self.weight_in_data(source, x))
                    ^ multiply(share(y), self.weight_in_data(source, y))
            }
        }
    }

    /// Weight of column `source` in the sum for the lost data column `target`.
    fn weight_in_data(&self, source: usize, target: usize) -> u8 {
        let p = self.data_columns;
        // Weights of the source in `P + sum d_i` and in `Q + sum 2^i d_i` over the present columns.
        let in_p = u8::from(source <= p);
        let in_q = match source {
            _ if source < p => power_of_two(source),
            _ => u8::from(source == p + 1),
        };
        match self.case {
            Case::Data | Case::ByP(_) => in_p,
            Case::ByQ(x) => multiply(inverse(power_of_two(x)), in_q),
            Case::ByBoth(x, y) => {
                let other = power_of_two(if target == x { y } else { x });
                let divisor = inverse(power_of_two(x) ^ power_of_two(y));
                multiply(divisor, multiply(other, in_p) ^ in_q)
            }
        }
    }
}

#[cfg(test)]
mod tests;
