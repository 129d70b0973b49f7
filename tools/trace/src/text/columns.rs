//! Lines with user-defined columns: for unknown formats.

use super::fields::{self, Fields, show};
use crate::devices::Devices;
use crate::request::{Kind, Request};

const SECTOR: u64 = 512;

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// R, W, T or F, or the full words.
    Operation,
    /// Byte offset.
    Offset,
    /// Sector of 512 bytes.
    Lba,
    /// Block of 4 KiB.
    Block,
    /// Bytes.
    Length,
    /// Sectors of 512 bytes.
    Sectors,
    /// Blocks of 4 KiB.
    Blocks,
    /// Time in units of this number of nanoseconds.
    Time(u64),
    /// Device.
    Device,
    /// Ignored.
    Skip,
}

/// Names of the columns.
const NAMES: [(&str, Column); 13] = [
    ("op", Column::Operation),
    ("offset", Column::Offset),
    ("lba", Column::Lba),
    ("block", Column::Block),
    ("length", Column::Length),
    ("sectors", Column::Sectors),
    ("blocks", Column::Blocks),
    ("time_s", Column::Time(1_000_000_000)),
    ("time_ms", Column::Time(1_000_000)),
    ("time_us", Column::Time(1000)),
    ("time_ns", Column::Time(1)),
    ("device", Column::Device),
    ("skip", Column::Skip),
];

/// Columns in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    columns: Vec<Column>,
}

impl Columns {
    /// Parses a list such as `op,lba,sectors,time_us`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = || NAMES.map(|(name, _)| name).join(", ");
        let find = |word: &str| {
            NAMES
                .iter()
                .find(|(name, _)| *name == word.trim())
                .map(|(_, column)| *column)
                .ok_or_else(|| format!("'{word}' is no column; there are {}", known()))
        };
        let columns: Vec<Column> = text.split(',').map(find).collect::<Result<_, _>>()?;
        let count = |wanted: &[Column]| {
            columns
                .iter()
                .filter(|column| wanted.contains(column))
                .count()
        };
        let places = count(&[Column::Offset, Column::Lba, Column::Block]);
        let sizes = count(&[Column::Length, Column::Sectors, Column::Blocks]);
        if count(&[Column::Operation]) != 1 || places != 1 || sizes != 1 {
            return Err("it takes one op, one of offset, lba and block, and one of length, sectors and blocks".to_owned());
        }
        Ok(Self { columns })
    }

    /// Columns of the client trace of JESD219A, as described in the standard: commands with their
    /// address and length in sectors.
    pub fn jesd219() -> Self {
        Self {
            columns: vec![Column::Operation, Column::Lba, Column::Sectors],
        }
    }

    /// Parses a line. A flush may end after its name.
    pub fn line(&self, line: &[u8], devices: &mut Devices) -> Result<Request, String> {
        let commas = line.contains(&b',');
        let mut fields = if commas {
            Fields::commas(line)
        } else {
            Fields::spaces(line)
        };
        let (mut kind, mut offset, mut length, mut time, mut device) = (None, None, None, 0, None);
        for column in &self.columns {
            if kind == Some(Kind::Flush)
                && matches!(
                    column,
                    Column::Offset
                        | Column::Lba
                        | Column::Block
                        | Column::Length
                        | Column::Sectors
                        | Column::Blocks
                )
            {
                fields.next();
                continue;
            }
            match column {
                Column::Operation => kind = Some(operation(fields.need("operation")?)?),
                Column::Offset => offset = Some(fields.number("offset")?),
                Column::Lba => offset = Some(fields.scaled("sector", SECTOR)?),
                Column::Block => offset = Some(fields.scaled("block", 8 * SECTOR)?),
                Column::Length => length = Some(fields.number("length")?),
                Column::Sectors => length = Some(fields.scaled("size", SECTOR)?),
                Column::Blocks => length = Some(fields.scaled("size", 8 * SECTOR)?),
                Column::Time(unit) => time = fields.time("time", *unit)?,
                Column::Device => device = Some(fields.need("device")?),
                Column::Skip => drop(fields.next()),
            }
        }
        let device = devices.number(device.unwrap_or(b"0"))?;
        match (kind, offset, length) {
            (Some(Kind::Flush), ..) => Ok(Request::new(Kind::Flush, device, 0, 0, time)),
            (Some(kind), Some(offset), Some(length)) => {
                Ok(Request::new(kind, device, offset, length, time))
            }
            // `parse` ensures that all three are present.
            _ => Err("it has no operation, address or size".to_owned()),
        }
    }
}

fn operation(field: &[u8]) -> Result<Kind, String> {
    fields::kind(field).ok_or_else(|| format!("the operation is '{}'", show(field)))
}
