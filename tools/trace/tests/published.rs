//! Published traces, if available: the folder in `WINDROW_TRACES` contains some of them. Counts
//! published by others must be reproduced.

use std::fs::File;
use std::path::PathBuf;
use windrow_trace::compact::Granule;
use windrow_trace::summary::Figures;
use windrow_trace::{Format, Options, Reader, Request, Summary, Target, Writer};

/// File, format, reads, writes, trims, blocks of 4 KiB written, and number of distinct ones (0:
/// unknown for this file).
type Known = (&'static str, Format, [u64; 3], u64, u64);

const KNOWN: [Known; 8] = [
    (
        "cloudPhysicsIO.vscsi.zst",
        Format::Vscsi,
        [46_974, 66_898, 0],
        0,
        0,
    ),
    (
        "ssdsim_example.ascii",
        Format::Mqsim,
        [4_077, 5_923, 0],
        12_406,
        3_734,
    ),
    (
        "ssd_iozone.csv.zst",
        Format::Csv,
        [0, 100_000, 0],
        8_997_978,
        271_320,
    ),
    (
        "sqlite_wal_xfs.csv.zst",
        Format::Csv,
        [180, 830_857, 10],
        2_133_438,
        118_383,
    ),
    (
        "mqsim_tpcc-small.trace",
        Format::Mqsim,
        [4_381, 2_618, 0],
        7_995,
        7_879,
    ),
    (
        "disksim_valid_ascii.trace.zst",
        Format::DiskSim,
        [79_634, 20_366, 0],
        44_124,
        38_533,
    ),
    (
        "blkparseout_f2fs.txt.zst",
        Format::Blkparse,
        [4_722, 1_005, 0],
        107_385,
        101_756,
    ),
    (
        "cloudphysics.csv.zst",
        Format::Csv,
        [46_974, 66_898, 0],
        0,
        0,
    ),
];

fn folder() -> Option<PathBuf> {
    std::env::var_os("WINDROW_TRACES").map(PathBuf::from)
}

fn read(bytes: impl std::io::Read) -> (Vec<Request>, Format, Figures, Vec<String>) {
    let mut reader = Reader::new(bytes, &Options::default()).expect("known");
    let mut summary = Summary::default();
    let requests: Vec<Request> = reader
        .by_ref()
        .map(|request| request.expect("readable"))
        .inspect(|request| summary.add(request))
        .collect();
    (
        requests,
        reader.format(),
        summary.figures(),
        reader.devices().to_vec(),
    )
}

#[test]
fn published_traces_are_read_as_others_read_them() {
    let Some(folder) = folder() else { return };
    for (name, format, counts, written, footprint) in KNOWN {
        let Ok(file) = File::open(folder.join(name)) else {
            continue;
        };
        let (requests, found, figures, names) = read(file);
        assert_eq!(found, format, "{name}");
        assert_eq!(
            [
                figures.read.requests,
                figures.write.requests,
                figures.trim.requests
            ],
            counts,
            "{name}"
        );
        if written > 0 {
            assert_eq!(
                (figures.written_blocks, figures.written_set_bytes / 4096),
                (written, footprint),
                "{name}"
            );
        }
        // Through the compact format and back.
        let mut writer =
            Writer::new(Vec::new(), Target::Compact(Granule::Byte), false).expect("memory");
        requests
            .iter()
            .for_each(|request| writer.add(request, &names).expect("memory"));
        let bytes = writer.finish().expect("memory").0;
        println!(
            "{name}: {} requests, {:.2} bytes each",
            requests.len(),
            bytes.len() as f64 / requests.len() as f64
        );
        let (again, _, _, names_again) = read(&bytes[..]);
        assert!(
            again == requests && names_again == names,
            "{name}: the compact format gives something else back"
        );
    }
}

/// The volume of a virtual machine, whose raw trace was also converted to CSV by others.
#[test]
fn two_forms_of_one_trace_agree() {
    let Some(folder) = folder() else { return };
    let (Ok(raw), Ok(csv)) = (
        File::open(folder.join("cloudPhysicsIO.vscsi.zst")),
        File::open(folder.join("cloudphysics.csv.zst")),
    ) else {
        return;
    };
    let (raw, csv) = (read(raw).0, read(csv).0);
    assert_eq!(raw.len(), csv.len());
    let shift = csv[0].offset.wrapping_sub(raw[0].offset);
    let differ = raw.iter().zip(&csv).position(|(raw, csv)| {
        (raw.kind, raw.offset.wrapping_add(shift), raw.length) != (csv.kind, csv.offset, csv.length)
    });
    assert_eq!(differ, None, "shifted by {}", shift as i64);
}
