//! Names of devices, as numbers in the order in which they appear.

use std::collections::BTreeMap;

/// Most devices of a trace. Published traces of whole clusters have some thousands.
pub const DEVICES_MOST: usize = 1 << 16;
/// Longest name, bytes; what is longer is cut.
const NAME_BYTES_MOST: usize = 255;

/// The devices of a trace.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    names: Vec<String>,
    numbers: BTreeMap<Vec<u8>, u32>,
    /// The one asked for last: most traces name the same again and again.
    last: Option<(Vec<u8>, u32)>,
}

impl Devices {
    /// The number of a name.
    pub fn number(&mut self, name: &[u8]) -> Result<u32, String> {
        if let Some((last, number)) = &self.last
            && last == name
        {
            return Ok(*number);
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.names.len() >= DEVICES_MOST => return Err(format!("more than {DEVICES_MOST} devices")),
            None => {
                let number = self.names.len() as u32;
                self.names.push(String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MOST)]).into_owned());
                self.numbers.insert(name.to_vec(), number);
                number
            }
        };
        self.last = Some((name.to_vec(), number));
        Ok(number)
    }

    /// All names.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}
