//! Values of the command line: sizes, shares and names, parsed exactly.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use windrow_host::failure::{Failure, id};
use windrow_types::Uuid;

/// Range of memory for maps, in bytes.
pub const MAP_MEMORY: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 40;

/// A size in bytes, written as `512`, `4K`, `1.5M`, `10G`, `2T` (powers of 1024). A fraction must
/// come out as whole bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("'{text}' is not a size; write it as 4096, 4K, 256M, 1.5G or 2T");
        let upper = text.trim().to_ascii_uppercase();
        let plain = upper
            .strip_suffix("IB")
            .or_else(|| upper.strip_suffix('B'))
            .unwrap_or(&upper);
        let (digits, shift) = match UNITS.iter().find(|(unit, _)| plain.ends_with(*unit)) {
            Some((unit, shift)) => (plain.trim_end_matches(*unit), *shift),
            None => (plain, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty()
            || fraction.len() > 18
            || !whole
                .bytes()
                .chain(fraction.bytes())
                .all(|byte| byte.is_ascii_digit())
        {
            return Err(wrong());
        }
        let scale = 10u128.pow(fraction.len() as u32);
        let number: u128 = format!("{whole}{fraction}").parse().map_err(|_| wrong())?;
        let scaled = number.checked_mul(1 << shift).ok_or_else(wrong)?;
        if scaled % scale != 0 {
            return Err(format!("'{text}' is not a whole number of bytes"));
        }
        u64::try_from(scaled / scale)
            .map(Self)
            .map_err(|_| format!("'{text}' is too large"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((unit, shift)) = UNITS.iter().rev().find(|(_, shift)| self.0 >> shift > 0) else {
            return write!(f, "{} B", self.0);
        };
        let whole = self.0 >> shift;
        if self.0.trailing_zeros() >= *shift {
            return write!(f, "{whole} {unit}iB");
        }
        write!(f, "{:.2} {unit}iB", self.0 as f64 / (1u64 << shift) as f64)
    }
}

/// A parser of sizes within a range.
pub fn size_within(
    min: u64,
    max: u64,
) -> impl Fn(&str) -> Result<Size, String> + Clone + Send + Sync + 'static {
    move |text| {
        let size: Size = text.parse()?;
        if (min..=max).contains(&size.0) {
            Ok(size)
        } else {
            Err(format!(
                "it must be between {} and {}",
                Size(min),
                Size(max)
            ))
        }
    }
}

/// A parser of whole numbers within a range, which its errors name. The range fits the type.
pub fn within<T: TryFrom<u64> + 'static>(
    min: u64,
    max: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text
            .parse()
            .ok()
            .filter(|number| is_number && (min..=max).contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("it must be a whole number between {min} and {max}"))
    }
}

/// A parser of whole numbers within a range.
pub fn number_within(
    min: u64,
    max: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    within(min, max)
}

/// A parser of counts in memory within a range.
pub fn count_within(
    min: u64,
    max: u64,
) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    within(min, max)
}

/// A share in thousandths, written as `10%`, `12.5%` or `0.1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share(pub u16);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("'{text}' is not a share; write it as 10%, 12.5% or 0.1");
        let (digits, per_unit) = match text.strip_suffix('%') {
            Some(digits) => (digits, 10.0),
            None => (text, 1000.0),
        };
        let value: f64 = digits.trim().parse().map_err(|_| wrong())?;
        let scaled = value * per_unit;
        let rounded = scaled.round();
        if !(0.0..=1000.0).contains(&rounded) || (scaled - rounded).abs() > 1e-6 {
            return Err(wrong());
        }
        Ok(Self(rounded as u16))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}%", self.0 / 10),
            tenth => write!(f, "{}.{tenth}%", self.0 / 10),
        }
    }
}

/// Place of a journal: bytes of each member, or a separate device. A value that begins with a digit
/// is a size; a path that does is written as `./1`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalPlace {
    /// Bytes of each member.
    OnMembers(Size),
    /// A device or file.
    Device(PathBuf),
}

impl FromStr for JournalPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if ["none", "off", "no"].contains(&text) {
            return Err(format!(
                "'{text}' is no device: without a journal on members it is 0; a device of this name: ./{text}"
            ));
        }
        match text.bytes().next() {
            None => Err("a journal is a size, such as 4M, or a device".to_owned()),
            Some(byte) if byte.is_ascii_digit() => text
                .parse()
                .map(Self::OnMembers)
                .map_err(|error| format!("{error}; a device of this name: ./{text}")),
            Some(_) => Ok(Self::Device(PathBuf::from(text))),
        }
    }
}

/// `POOL/VOLUME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumePath {
    /// Pool.
    pub pool: String,
    /// Volume.
    pub volume: String,
}

impl FromStr for VolumePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((pool, volume)) if !pool.is_empty() && !volume.is_empty() => Ok(Self {
                pool: pool.to_owned(),
                volume: volume.to_owned(),
            }),
            _ => Err(format!(
                "'{text}' does not name a volume; write it as POOL/VOLUME"
            )),
        }
    }
}

/// `POOL` or `POOL/EXPORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportPath {
    /// Pool.
    pub pool: String,
    /// Export; `None`: all of them.
    pub export: Option<String>,
}

impl FromStr for ExportPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pool, export) = text
            .split_once('/')
            .map_or((text, None), |(pool, export)| (pool, Some(export)));
        if pool.is_empty() || export == Some("") {
            return Err(format!(
                "'{text}' names no pool or export; write it as POOL or POOL/EXPORT"
            ));
        }
        Ok(Self {
            pool: pool.to_owned(),
            export: export.map(str::to_owned),
        })
    }
}

/// `property=value`.
pub fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' sets nothing; write it as PROPERTY=VALUE")),
    }
}

/// Refuses names that cannot be written as `POOL/VOLUME`, or that commands would take for an option
/// or an identifier. Existing pools with such a name stay usable.
pub fn check_pool_name(name: &str) -> Result<(), Failure> {
    let why = if name.contains('/') || !windrow_format::name_is_valid(name) {
        "a pool name has 1 to 63 bytes and no '/'"
    } else if name.starts_with('-') {
        "what begins with '-' is an option"
    } else if name.parse::<Uuid>().is_ok() {
        "it has the form of an identifier, and commands take either"
    } else {
        return Ok(());
    };
    Err(Failure::new(
        id::USAGE,
        format!("'{name}' cannot be the name of a pool"),
        why,
    )
    .remedy("choose another name"))
}

#[cfg(test)]
mod tests;
