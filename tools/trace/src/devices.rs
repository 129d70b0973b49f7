//! Names of devices, as numbers in the order of appearance. Different devices have different
//! display texts, whatever bytes their names have.

use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of devices of a trace. Published traces of whole clusters have some thousands.
pub const DEVICES_MOST: usize = 1 << 16;
/// Maximum length of a name in bytes; longer ones are cut.
const NAME_BYTES_MOST: usize = 255;

/// The devices of a trace.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    names: Vec<String>,
    numbers: BTreeMap<Vec<u8>, u32>,
    taken: BTreeSet<String>,
    /// The last one looked up: most traces repeat the same name.
    last: Option<(Vec<u8>, u32)>,
}

impl Devices {
    /// Number of a name.
    pub fn number(&mut self, name: &[u8]) -> Result<u32, String> {
        if let Some((last, number)) = &self.last
            && last == name
        {
            return Ok(*number);
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.names.len() >= DEVICES_MOST => {
                return Err(format!("more than {DEVICES_MOST} devices"));
            }
            None => {
                let number = self.names.len() as u32;
                let text = self.text(name, number);
                self.taken.insert(text.clone());
                self.names.push(text);
                self.numbers.insert(name.to_vec(), number);
                number
            }
        };
        self.last = Some((name.to_vec(), number));
        Ok(number)
    }

    /// Display text of a device: its name, if that is text, not too long, and not used by another
    /// one; else with its number.
    fn text(&self, name: &[u8], number: u32) -> String {
        let lossy = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MOST)]).into_owned();
        let cut = |most: usize| {
            &lossy[..(0..=most.min(lossy.len()))
                .rev()
                .find(|at| lossy.is_char_boundary(*at))
                .unwrap_or(0)]
        };
        let mut text = cut(NAME_BYTES_MOST).to_owned();
        let mut tail = format!("#{number}");
        while self.taken.contains(&text) {
            text = format!("{}{tail}", cut(NAME_BYTES_MOST - tail.len()));
            tail.insert(0, '#');
        }
        text
    }

    /// All names.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two names that differ only in bytes that are not text, or after the maximum length, must
    /// remain two devices in the output and in a converted trace.
    #[test]
    fn devices_that_differ_are_shown_by_different_texts() {
        let long = [b'x'; 300];
        let names: [&[u8]; 8] = [
            b"sda",
            b"\xff",
            b"\xfe",
            &long,
            &long[..255],
            "\u{fffd}#2".as_bytes(),
            b"\xfd",
            &[0xff; 255],
        ];
        let mut devices = Devices::default();
        for (number, name) in names.iter().enumerate() {
            assert_eq!(devices.number(name), Ok(number as u32));
        }
        assert_eq!(
            (0..8)
                .map(|at| devices.number(names[at]))
                .collect::<Vec<_>>(),
            (0..8).map(Ok).collect::<Vec<_>>()
        );
        let shown: BTreeSet<&String> = devices.names().iter().collect();
        assert_eq!(shown.len(), names.len(), "{:?}", devices.names());
        assert!(
            devices
                .names()
                .iter()
                .all(|name| name.len() <= NAME_BYTES_MOST)
        );
        assert_eq!(devices.names()[0], "sda");
    }
}
