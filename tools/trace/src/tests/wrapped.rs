//! Properties of downloads: byte order marks, truncated or padded compression, and unsupported
//! wrappings.

use super::*;
use std::io::Write;

const MARK: &str = "\u{feff}";

fn lines(count: u64) -> String {
    (0..count)
        .map(|at| format!("3,W,{},4096,{}\n", at * 4096, 1000 + at))
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(bytes).expect("memory");
    packer.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Requests, whether the end is missing, and the reason.
fn skipping(bytes: &[u8]) -> (Vec<Request>, bool, Option<String>) {
    let mut reader = Reader::new(
        bytes,
        &Options {
            skip_bad: true,
            ..Options::default()
        },
    )
    .expect("known");
    let requests = reader
        .by_ref()
        .map(|found| found.expect("readable"))
        .collect();
    (
        requests,
        reader.is_cut(),
        reader.damage().map(str::to_owned),
    )
}

#[test]
fn a_mark_in_front_belongs_to_no_field() {
    for (format, text) in [
        (Format::Alibaba, "3,W,0,4096,1000\n3,W,4096,4096,1001\n"),
        (
            Format::Msr,
            "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\r\n128166372003061629,hm,0,Read,383496192,32768,113736\r\n",
        ),
        (
            Format::Fio,
            "fio version 2 iolog\n/dev/sdb add\n/dev/sdb write 0 4096\n",
        ),
        (Format::Csv, "W,0,4096,0\n"),
        (Format::Mqsim, "938513000 4 264719034 16 0\n"),
        (
            Format::Fiu,
            "89966522969723 4270 rpc.mountd 18579576 8 W 6 0 d6c7\n",
        ),
        (
            Format::Blkparse,
            "8,16 1 1 0.0 5314 Q W 1611592 + 8 [java]\n",
        ),
        (Format::Jesd219, "W 1000 8\n"),
    ] {
        let plain = read(text.as_bytes(), &Options::default()).expect("readable");
        let marked = format!("{MARK}{text}");
        for bytes in [
            marked.as_bytes().to_vec(),
            gzip(marked.as_bytes()),
            zstd(marked.as_bytes()),
        ] {
            let mut reader = Reader::new(&bytes[..], &Options::default()).expect("known");
            assert_eq!(
                (
                    reader.format(),
                    reader
                        .by_ref()
                        .map(|found| found.expect("readable"))
                        .collect::<Vec<_>>()
                ),
                (format, plain.clone())
            );
            assert_eq!(
                reader.devices().len(),
                1,
                "{format:?}: {:?}",
                reader.devices()
            );
        }
    }
    // Concatenated files have one in their middle.
    let joined = format!("{MARK}W,0,4096,0\n{MARK}W,4096,4096,1\n");
    assert_eq!(
        read(joined.as_bytes(), &Options::default())
            .expect("readable")
            .len(),
        2
    );
}

#[test]
fn padding_after_compressed_payload_is_ignored() {
    let (text, padding) = (lines(2000), vec![0; 70_000]);
    let plain = read(text.as_bytes(), &Options::default()).expect("readable");
    for packed in [gzip(text.as_bytes()), zstd(text.as_bytes())] {
        let padded = [&packed[..], &padding].concat();
        assert_eq!(read(&padded, &Options::default()).expect("readable"), plain);
        // Several, with padding between.
        let twice = [&packed[..], &padding[..512], &packed].concat();
        assert_eq!(
            read(&twice, &Options::default()).expect("readable").len(),
            4000
        );
        // Anything else is damage, and the part before it is read.
        let followed = [&packed[..], b"\0\0else"].concat();
        assert!(matches!(
            read(&followed, &Options::default()),
            Err(TraceError::Damaged { .. })
        ));
        let (found, cut, damage) = skipping(&followed);
        assert!(found == plain && cut && damage.is_some());
    }
}

#[test]
fn what_is_before_a_cut_can_be_read() {
    let text = lines(20_000);
    let plain = read(text.as_bytes(), &Options::default()).expect("readable");
    for packed in [gzip(text.as_bytes()), zstd(text.as_bytes())] {
        for kept in [packed.len() - 1, packed.len() - 300, packed.len() / 2] {
            let cut = &packed[..kept];
            // The whole available part is returned before the error.
            let mut reader = Reader::new(cut, &Options::default()).expect("known");
            let before = reader.by_ref().take_while(Result::is_ok).count();
            assert!(
                matches!(
                    read(cut, &Options::default()),
                    Err(TraceError::Damaged { .. })
                ),
                "{kept}"
            );
            let (found, is_cut, damage) = skipping(cut);
            assert!(
                is_cut && damage.is_some_and(|why| why.contains("cannot be decompressed")),
                "{kept}"
            );
            // Half a line does not count. zstd returns whole blocks of 128 KiB of text.
            assert!(
                found == plain[..found.len()] && found.len() == before,
                "{kept}: {} requests",
                found.len()
            );
            assert!(
                kept < packed.len() - 1 || found.len() > plain.len() / 2,
                "{kept}: {} requests",
                found.len()
            );
        }
    }
}

#[test]
fn what_is_before_damage_of_any_format_can_be_read() {
    // The compact format: a byte in the middle.
    let requests: Vec<Request> = (0..40_000)
        .map(|at| request(Kind::Write, 0, at * 7919 % 100_000 * 4096, 4096, at * 1000))
        .collect();
    let mut bytes = compact(&requests, Granule::Block);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    assert!(matches!(
        read(&bytes, &Options::default()),
        Err(TraceError::Damaged { .. })
    ));
    let (found, cut, damage) = skipping(&bytes);
    assert!(
        !found.is_empty()
            && found == requests[..found.len()]
            && cut
            && damage.is_some_and(|why| why.contains("checksum"))
    );
    // The start of the next record of a blktrace is unknown after a bad one.
    let record =
        |at: u64| super::samples::blktrace_record(false, 1 | 1 << 17, at * 8, 4096, at, b"");
    let bytes = [record(0), record(1), vec![0; 96], record(2)].concat();
    assert!(matches!(
        read(&bytes, &Options::default()),
        Err(TraceError::Record {
            place: Place::Offset(96),
            ..
        })
    ));
    let (found, cut, damage) = skipping(&bytes);
    assert_eq!((found.len(), cut, damage.is_some()), (2, true, true));
    // A line without an end is skipped like any other bad one.
    let text = format!("W,0,4096,0\n{}\nW,4096,4096,1\n", "x".repeat(200_000));
    let mut reader = Reader::new(
        text.as_bytes(),
        &Options {
            format: Some(Format::Csv),
            skip_bad: true,
            ..Options::default()
        },
    )
    .expect("named");
    assert_eq!(
        (
            reader.by_ref().filter(Result::is_ok).count(),
            reader.skipped(),
            reader.is_cut()
        ),
        (2, 1, false)
    );
}

#[test]
fn other_packings_are_named_with_what_to_do() {
    let wide = |text: &str, big: bool| -> Vec<u8> {
        text.encode_utf16()
            .flat_map(|unit| {
                if big {
                    unit.to_be_bytes()
                } else {
                    unit.to_le_bytes()
                }
            })
            .collect()
    };
    let mut tar = vec![0; 1024];
    tar[..5].copy_from_slice(b"a.csv");
    tar[257..263].copy_from_slice(b"ustar\0");
    let text = lines(20);
    for (bytes, name, says) in [
        (
            b"BZh91AY&SYabc".to_vec(),
            "compressed with bzip2",
            "bzip2 -dc",
        ),
        (b"\xfd7zXZ\0\0\x04".to_vec(), "compressed with xz", "xz -dc"),
        (
            b"\x04\x22\x4d\x18\x64@".to_vec(),
            "compressed with lz4",
            "lz4 -dc",
        ),
        (
            b"7z\xbc\xaf\x27\x1c\0\x04".to_vec(),
            "a 7z archive",
            "7z x -so",
        ),
        (
            b"PK\x03\x04\x14\0".to_vec(),
            "a zip archive (or a spreadsheet, which is one)",
            "unzip -p",
        ),
        (tar.clone(), "a tar archive", "tar -xOf"),
        (gzip(&tar), "a tar archive", "tar -xOf"),
        (zstd(&tar), "a tar archive", "tar -xOf"),
        (
            gzip(&gzip(text.as_bytes())),
            "compressed with gzip",
            "gzip -dc",
        ),
        (
            zstd(&zstd(text.as_bytes())),
            "compressed with zstd",
            "zstd -dc",
        ),
        (
            wide(&format!("{MARK}{text}"), false),
            "UTF-16 text",
            "iconv -f UTF-16",
        ),
        (
            wide(&format!("{MARK}{text}"), true),
            "UTF-16 text",
            "iconv -f UTF-16",
        ),
        (wide(&text, false), "UTF-16 text", "iconv -f UTF-16"),
    ] {
        for format in [
            None,
            Some(Format::Csv),
            Some(Format::Blkparse),
            Some(Format::Vscsi),
        ] {
            match read(
                &bytes,
                &Options {
                    format,
                    ..Options::default()
                },
            ) {
                Err(TraceError::Wrapped { what, remedy }) => {
                    assert!(what == name && remedy.contains(says), "{what}: {remedy}")
                }
                other => panic!("{name}, {format:?}: {other:?}"),
            }
        }
    }
}
