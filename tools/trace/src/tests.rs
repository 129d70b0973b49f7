//! Small traces of every format, written here according to its public description, and properties
//! for any bytes.

use super::*;
use crate::compact::Granule;
use crate::text::{Columns, Event};

mod any_bytes;
mod beginnings;
mod samples;
mod torn;
mod wrapped;

/// All requests of a trace, or its error.
fn read(bytes: &[u8], options: &Options) -> Result<Vec<Request>, TraceError> {
    Reader::new(bytes, options)?.collect()
}

fn detected(bytes: &[u8]) -> Format {
    Reader::new(bytes, &Options::default())
        .expect("known")
        .format()
}

fn request(kind: Kind, device: u32, offset: u64, length: u64, time_ns: u64) -> Request {
    Request::new(kind, device, offset, length, time_ns)
}

/// Writes requests in the compact format.
fn compact(requests: &[Request], granule: Granule) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Target::Compact(granule), false).expect("memory");
    let names: Vec<String> = (0..=requests
        .iter()
        .map(|request| request.device)
        .max()
        .unwrap_or(0))
        .map(|number| format!("disk{number}"))
        .collect();
    for request in requests {
        writer.add(request, &names).expect("memory");
    }
    writer.finish().expect("memory").0
}
