//! Columns of text, aligned.

/// Rows of cells; numbers are aligned to the right.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a heading.
    pub fn new(heading: &[&str]) -> Self {
        Self {
            rows: vec![heading.iter().map(|cell| (*cell).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(
            cells
                .into_iter()
                .map(|cell| windrow_host::text::shown(&cell))
                .collect(),
        );
    }

    /// The text, one line for each row.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|at| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(at))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        // The heading does not affect the alignment of a column.
        let numeric: Vec<bool> = (0..columns)
            .map(|at| {
                self.rows
                    .iter()
                    .skip(1)
                    .filter_map(|row| row.get(at))
                    .all(|cell| is_number(cell))
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row
                .iter()
                .zip(&widths)
                .zip(&numeric)
                .map(|((cell, width), numeric)| {
                    if *numeric {
                        format!("{cell:>width$}")
                    } else {
                        format!("{cell:<width$}")
                    }
                });
            let line: Vec<String> = cells.collect();
            text.push_str(line.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

fn is_number(cell: &str) -> bool {
    let plain = cell.strip_prefix('-').unwrap_or(cell);
    plain.is_empty() || plain.starts_with(|first: char| first.is_ascii_digit())
}
