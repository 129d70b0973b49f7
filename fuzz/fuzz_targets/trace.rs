//! A trace of any format, detected or selected by the first byte; and as a compact trace with valid
//! checksums. The requests are summarized, written in the compact format and read again, which must
//! give the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windrow_trace::compact::Granule;
use windrow_trace::detect::FORMATS;
use windrow_trace::text::Columns;
use windrow_trace::{Format, Options, Reader, Request, Summary, Target, Writer};

fn read(bytes: &[u8], options: &Options) -> (Vec<Request>, Vec<String>) {
    let Ok(mut reader) = Reader::new(bytes, options) else {
        return Default::default();
    };
    let requests: Vec<Request> = reader
        .by_ref()
        .take(100_000)
        .filter_map(Result::ok)
        .collect();
    (requests, reader.devices().to_vec())
}

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    let format = usize::from(*first)
        .checked_sub(1)
        .map(|number| FORMATS[number % FORMATS.len()].1);
    let columns = (format == Some(Format::Columns))
        .then(|| Columns::parse("op,lba,sectors,time_us,device").expect("columns"));
    let options = Options {
        format,
        columns,
        skip_bad: *first >= 128,
        ..Options::default()
    };
    let (requests, names) = read(bytes, &options);
    let mut summary = Summary::default();
    requests.iter().for_each(|request| summary.add(request));
    let _ = summary.figures();
    let mut writer =
        Writer::new(Vec::new(), Target::Compact(Granule::Byte), false).expect("memory");
    requests
        .iter()
        .for_each(|request| writer.add(request, &names).expect("memory"));
    let again = writer.finish().expect("memory").0;
    let compact = Options {
        format: Some(Format::Compact),
        ..Options::default()
    };
    assert_eq!(read(&again, &compact).0, requests);

    let mut signed = bytes.to_vec();
    signing::sign_trace(&mut signed);
    let _ = read(&signed, &compact);
});
