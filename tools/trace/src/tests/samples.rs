//! A few lines or records of each format, detected and read.

use super::*;
use Kind::{Flush, Read, Trim, Write};

/// Reads without a given format, and checks the detected one.
fn sample(format: Format, bytes: &[u8], expected: &[Request]) {
    assert_eq!(detected(bytes), format);
    assert_eq!(
        read(bytes, &Options::default()).expect("readable"),
        expected,
        "{format:?}"
    );
    // The given format has the same result.
    assert_eq!(
        read(
            bytes,
            &Options {
                format: Some(format),
                ..Options::default()
            }
        )
        .expect("readable"),
        expected
    );
}

#[test]
fn blkparse() {
    let text = "  8,16   1        1     0.000000000  5314  Q   W 1611592 + 8 [java]
  8,16   1        2     0.000010000  5314  G   W 1611592 + 8 [java]
  8,16   1        3     0.000020000  5314  D   W 1611592 + 8 [java]
  8,16   1        4     0.000100000  5314  Q FWFS 16 + 8 [jbd2/sdb]
  8,16   1        5     0.000200000  5314  Q  FN [fsync]
  8,0    1        6     1.500000000  5314  Q   D 2048 + 4096 [fstrim]
  8,16   1        7     1.500000000  5314  Q  RA 0 + 256 [cat]
  8,16   1        8     1.500000000  5314  Q   N 4096 + 8 [blkdiscard]
  8,16   1        8     1.500000000  5314  Q  WZ 4104 + 8 [blkdiscard]
  8,16   1        8     1.500000000  5314  Q   N [kworker]
  8,16   1        8     1.500000000  5314  Q   N 36 (12 00 00 00 24 00) [smartd]
  8,16   1        8     1.500000000  5314  Q  ZR 0 + 524288 [mkfs.xfs]
  8,16   1        8     1.500000000  5314  Q ZAS 0 + 8 [kworker]
  8,16   1        8     1.500000000     0  m   N cfq 5314 something
  8,16   1        9     1.600000000     0  C   W 1611592 + 8 [0]
CPU0 (8,16):
 Reads Queued:           1,       128KiB\t Writes Queued:           2,        8KiB
Throughput (R/W): 0KiB/s / 0KiB/s
Events (8,16): 9 entries
Skips: 0 forward (0 -   0.0%)
";
    let durable = Request {
        fua: true,
        ..request(Write, 0, 16 * 512, 4096, 100_000)
    };
    let queued = [
        request(Write, 0, 1_611_592 * 512, 4096, 0),
        request(Flush, 0, 0, 0, 100_000),
        durable,
        request(Flush, 0, 0, 0, 200_000),
        request(Trim, 1, 2048 * 512, 4096 * 512, 1_500_000_000),
        request(Read, 0, 0, 131_072, 1_500_000_000),
        // Write-zeroes by either name; they take no space.
        request(Trim, 0, 4096 * 512, 4096, 1_500_000_000),
        request(Trim, 0, 4104 * 512, 4096, 1_500_000_000),
    ];
    sample(Format::Blkparse, text.as_bytes(), &queued);
    // Completions must be selected; issues count where nothing was queued.
    let completed = Options {
        event: Some(Event::Completed),
        ..Options::default()
    };
    assert_eq!(
        read(text.as_bytes(), &completed).expect("readable"),
        [request(Write, 0, 1_611_592 * 512, 4096, 0)]
    );
    let issued: String = text
        .lines()
        .filter(|line| !line.contains(" Q "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(
        read(issued.as_bytes(), &Options::default())
            .expect("readable")
            .len(),
        1
    );
}

#[test]
fn fio() {
    let two = b"fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 0 4096\n/dev/sdb wait 250 0\n/dev/sdb read 8192 512\n\
        /dev/sdb wait 50 0\n/dev/sdb sync 0 0\n/dev/sdb trim 4096 4096\n/dev/sdb close\n";
    let expected = [
        request(Write, 0, 0, 4096, 0),
        request(Read, 0, 8192, 512, 250_000),
        request(Flush, 0, 0, 0, 300_000),
        request(Trim, 0, 4096, 4096, 300_000),
    ];
    sample(Format::Fio, two, &expected);
    let three = b"fio version 3 iolog\n2 a add\n3 b add\n872 a open\n1000 a write 0 16384\n1250 b datasync 0 0\n1300 a wait 5 0\n1500 b write 16384 16384\n1600 a close\n";
    sample(
        Format::Fio,
        three,
        &[
            request(Write, 0, 0, 16384, 0),
            request(Flush, 1, 0, 0, 250_000),
            request(Write, 1, 16384, 16384, 500_000),
        ],
    );
}

#[test]
fn published_tables() {
    let msr = b"128166372003061629,hm,0,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,1023\n";
    sample(
        Format::Msr,
        msr,
        &[
            request(Read, 0, 383_496_192, 32_768, 0),
            request(Write, 1, 2_822_144, 4096, 1_332_052_600),
        ],
    );
    let alibaba = b"419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n419,W,0,4096,1577808144360813\n";
    let expected = [
        request(Write, 0, 8_792_731_648, 16_384, 0),
        request(Read, 1, 59_110_326_272, 360_448, 46_000),
        request(Write, 0, 0, 4096, 46_000),
    ];
    sample(Format::Alibaba, alibaba, &expected);
    let tencent = b"1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n";
    sample(
        Format::Tencent,
        tencent,
        &[
            request(Read, 0, 12_910_952 * 512, 65_536, 0),
            request(Write, 1, 6_338_688 * 512, 4096, 1_000_000_000),
        ],
    );
    let spc = b"0,20941264,8192,W,0.551706,own,fields\n0,20939840,8192,w,0.554041\n1,3436288,15872,r,1.011732\n";
    let expected = [
        request(Write, 0, 20_941_264 * 512, 8192, 0),
        request(Write, 0, 20_939_840 * 512, 8192, 2_335_000),
        request(Read, 1, 3_436_288 * 512, 15_872, 460_026_000),
    ];
    sample(Format::Spc, spc, &expected);
    let csv = b"R,536805376,4096,0\nWF,0,512,5417.25\nT,0,1048576,5496,b\nF,0,0,5520\n";
    let durable = Request {
        fua: true,
        ..request(Write, 0, 0, 512, 5_417_250)
    };
    sample(
        Format::Csv,
        csv,
        &[
            request(Read, 0, 536_805_376, 4096, 0),
            durable,
            request(Trim, 1, 0, 1 << 20, 5_496_000),
            request(Flush, 0, 0, 0, 5_520_000),
        ],
    );
    let fiu = b"89966522969723 4270 rpc.mountd 18579576 8 W 6 0 d6c75ba46e82326fefa545b57a12e221\n89966522969725 4253 nfsd 508516672 8 R 6 1 88b9\n";
    sample(
        Format::Fiu,
        fiu,
        &[
            request(Write, 0, 18_579_576 * 512, 4096, 0),
            request(Read, 1, 508_516_672 * 512, 4096, 2),
        ],
    );
}

#[test]
fn simulators() {
    let disksim = b"13.191135\t30\t0\t5\t1\n25.911729 18 28601 12 0\n";
    sample(
        Format::DiskSim,
        disksim,
        &[
            request(Read, 0, 0, 2560, 0),
            request(Write, 1, 28_601 * 512, 6144, 12_720_594),
        ],
    );
    // 0 writes here, where Tencent's 0 reads.
    let mqsim = b"938513000 4 264719034 16 0\n938828000 3 197570570 16 1\n";
    sample(
        Format::Mqsim,
        mqsim,
        &[
            request(Write, 0, 264_719_034 * 512, 8192, 0),
            request(Read, 1, 197_570_570 * 512, 8192, 315_000),
        ],
    );
}

/// The client trace of JESD219A is not freely available; its commands are writes, trims and flushes
/// of sectors. Another order of columns is given.
#[test]
fn client_trace_and_columns() {
    sample(
        Format::Jesd219,
        b"W 1000 8\nT 2048 640\nF\nF 0 0\n",
        &[
            request(Write, 0, 512_000, 4096, 0),
            request(Trim, 0, 1 << 20, 640 * 512, 0),
            request(Flush, 0, 0, 0, 0),
            request(Flush, 0, 0, 0, 0),
        ],
    );
    let columns = Columns::parse("time_ms,skip,block,blocks,op,device").expect("columns");
    let options = Options {
        columns: Some(columns),
        ..Options::default()
    };
    let expected = [
        request(Write, 0, 40_960, 8192, 0),
        request(Trim, 1, 0, 4096, 1_500_000),
    ];
    assert_eq!(
        read(b"1.0,x,10,2,write,a\n2.5,y,0,1,trim,b\n", &options).expect("readable"),
        expected
    );
    assert_eq!(
        read(b"1.0 x 10 2 write a\n2.5\ty 0 1 trim  b\n", &options).expect("readable"),
        expected
    );
    for wrong in ["op,lba", "op,lba,offset,length", "op,lba,sectors,bogus", ""] {
        assert!(Columns::parse(wrong).is_err(), "{wrong}");
    }
}

/// One record of the kernel's binary trace.
pub fn blktrace_record(
    big: bool,
    action: u32,
    sector: u64,
    bytes: u32,
    time: u64,
    after: &[u8],
) -> Vec<u8> {
    let fields: [(u64, usize); 11] = [
        (0x6561_7407, 4),
        (1, 4),
        (time, 8),
        (sector, 8),
        (bytes.into(), 4),
        (action.into(), 4),
        (7, 4),
        (8 << 20 | 16, 4),
        (0, 4),
        (0, 2),
        (after.len() as u64, 2),
    ];
    let mut record = Vec::new();
    for (value, size) in fields {
        let bytes = if big {
            value.to_be_bytes()[8 - size..].to_vec()
        } else {
            value.to_le_bytes()[..size].to_vec()
        };
        record.extend(bytes);
    }
    record.extend_from_slice(after);
    record
}

#[test]
fn blktrace() {
    // Flags in the upper half: 2 write, 4 preceding flush, 0x400 note, 0x2000 discard, 0x8000 FUA;
    // events below: 1 queued, 7 issued.
    for big in [false, true] {
        let record = |action, sector, bytes, time, after: &[u8]| {
            blktrace_record(big, action, sector, bytes, time, after)
        };
        let bytes = [
            record(0x400 << 16, 0, 0, 1, b"a process"),
            record(2 << 16 | 1, 100, 4096, 1000, b""),
            record(2 << 16 | 7, 100, 4096, 1500, b""),
            record(0x8006 << 16 | 1, 8, 512, 2000, b"cgroup"),
            record(0x2002 << 16 | 1, 0, 1 << 20, 3000, b""),
            record(4 << 16 | 1, 0, 0, 4000, b""),
            record(1 << 16 | 1, 16, 8192, 5000, b""),
            record(0x202 << 16 | 1, 16, 8192, 6000, b""),
        ]
        .concat();
        let expected = [
            request(Write, 0, 51_200, 4096, 0),
            request(Flush, 0, 0, 0, 1000),
            Request {
                fua: true,
                ..request(Write, 0, 4096, 512, 1000)
            },
            request(Trim, 0, 0, 1 << 20, 2000),
            request(Flush, 0, 0, 0, 3000),
            request(Read, 0, 8192, 8192, 4000),
        ];
        sample(Format::Blktrace, &bytes, &expected);
        let mut reader = Reader::new(&bytes[..], &Options::default()).expect("known");
        assert!(reader.by_ref().all(|found| found.is_ok()) && !reader.is_cut());
        assert_eq!(reader.devices(), ["8,16"]);
        // A file that ends within a record is read up to it.
        let mut reader =
            Reader::new(&bytes[..bytes.len() - 1], &Options::default()).expect("known");
        assert_eq!(
            (
                reader.by_ref().filter(|found| found.is_ok()).count(),
                reader.is_cut()
            ),
            (6, true)
        );
    }
}

#[test]
fn vscsi() {
    let one = |command: u16, length: u32, block: u64, time: u64| {
        let mut record = Vec::new();
        record.extend(7u32.to_le_bytes());
        record.extend(length.to_le_bytes());
        record.extend(1u32.to_le_bytes());
        record.extend(command.to_le_bytes());
        record.extend(0x0100u16.to_le_bytes());
        record.extend(block.to_le_bytes());
        record.extend(time.to_le_bytes());
        record
    };
    let two = |command: u16, length: u32, block: u64, time: u64| {
        let mut record = Vec::new();
        record.extend(command.to_le_bytes());
        record.extend(0x0200u16.to_le_bytes());
        record.extend(7u32.to_le_bytes());
        record.extend(length.to_le_bytes());
        record.extend(1u32.to_le_bytes());
        record.extend(block.to_le_bytes());
        record.extend(time.to_le_bytes());
        record.extend(99u64.to_le_bytes());
        record
    };
    let expected = [
        request(Write, 0, 51_200, 4096, 0),
        request(Read, 0, 0, 512, 5000),
        request(Flush, 0, 0, 0, 6000),
    ];
    let ones = [
        one(0x2a, 4096, 100, 10),
        one(0x28, 512, 0, 15),
        one(0x42, 24, 0, 15),
        one(0x35, 0, 0, 16),
    ]
    .concat();
    sample(Format::Vscsi, &ones, &expected);
    let twos = [
        two(0x8a, 4096, 100, 10),
        two(0x88, 512, 0, 15),
        two(0x12, 36, 0, 15),
        two(0x91, 0, 0, 16),
    ]
    .concat();
    sample(Format::Vscsi, &twos, &expected);
    // A record of another version in the middle is reported with its position, or skipped and
    // counted.
    let broken = [
        one(0x2a, 4096, 100, 10),
        two(0x28, 512, 0, 15)[..32].to_vec(),
        one(0x28, 512, 0, 15),
    ]
    .concat();
    let named = Options {
        format: Some(Format::Vscsi),
        ..Options::default()
    };
    let error = read(&broken, &named).expect_err("broken").to_string();
    assert!(error.starts_with("byte 32: its version is"), "{error}");
    let mut reader = Reader::new(
        &broken[..],
        &Options {
            skip_bad: true,
            ..named
        },
    )
    .expect("known");
    assert_eq!(
        (
            reader.by_ref().filter(|found| found.is_ok()).count(),
            reader.skipped()
        ),
        (2, 1)
    );
}

#[test]
fn packed_traces_are_unpacked() {
    use std::io::Write as _;
    let text = b"W,0,4096,0\nW,4096,4096,1\n";
    let gzip = |bytes: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).expect("memory");
        packer.finish().expect("memory")
    };
    let zstd = |bytes: &[u8]| {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    };
    // In one piece, in two as parallel compressors write them, and with a skippable frame in
    // between.
    let skipped = [
        &0x184d_2a53u32.to_le_bytes()[..],
        &3u32.to_le_bytes(),
        b"abc",
    ]
    .concat();
    let (first, second) = text.split_at(11);
    for packed in [
        gzip(text),
        [gzip(first), gzip(second)].concat(),
        zstd(text),
        [skipped.clone(), zstd(first), skipped, zstd(second)].concat(),
    ] {
        assert_eq!(
            read(&packed, &Options::default()).expect("readable"),
            [
                request(Write, 0, 0, 4096, 0),
                request(Write, 0, 4096, 4096, 1000)
            ]
        );
        // A wrong checksum is found; it is near the end of either.
        let mut wrong = packed.clone();
        let at = wrong.len() - if packed.starts_with(&[0x1f]) { 8 } else { 1 };
        wrong[at] ^= 1;
        assert!(
            matches!(
                read(&wrong, &Options::default()),
                Err(TraceError::Damaged { .. })
            ),
            "a wrong checksum passes"
        );
        // A truncated file is damaged, however much could be decompressed.
        assert!(matches!(
            read(&packed[..packed.len() - 3], &Options::default()),
            Err(TraceError::Damaged { .. })
        ));
    }
}

#[test]
fn faults_are_told_by_their_line() {
    let error = |text: &str| {
        read(
            text.as_bytes(),
            &Options {
                format: Some(Format::Csv),
                ..Options::default()
            },
        )
        .expect_err("wrong")
        .to_string()
    };
    assert_eq!(
        error("W,0,4096,0\nX,0,4096,1\n"),
        "line 2: the operation is 'X'"
    );
    assert_eq!(error("W,0,4096\n"), "line 1: there is no time");
    assert_eq!(error("W,0,-1,0\n"), "line 1: the length is '-1'");
    assert_eq!(
        error("W,18446744073709551615,1,0\n"),
        "line 1: its range goes beyond 2^64 bytes"
    );
    assert_eq!(
        error("W,0,4294967297,0\n"),
        "line 1: it is longer than 4 GiB"
    );
    assert_eq!(error("F,0,1,0\n"), "line 1: it is a flush with a range");
    assert_eq!(
        error(&format!("W,0,1,0{}\n", " ".repeat(70_000))),
        "byte 0: a line of more than 65536 bytes"
    );
    let skipping = Options {
        format: Some(Format::Csv),
        skip_bad: true,
        ..Options::default()
    };
    let mut reader = Reader::new(
        &b"W,0,4096,0\nX,0,4096,1\n\xff\xfe\nR,0,1,2\n"[..],
        &skipping,
    )
    .expect("named");
    assert_eq!(
        (
            reader.by_ref().filter(|found| found.is_ok()).count(),
            reader.skipped()
        ),
        (2, 2)
    );
}

#[test]
fn what_is_no_trace_is_said_to_be_none() {
    for bytes in [
        &b""[..],
        b"hello\n",
        b"1,2,3\n",
        b"\0\0\0\0\0\0",
        b"# only a comment\n",
        b"W,0\n",
        b"fio version 9 iolog\n",
    ] {
        let error = read(bytes, &Options::default()).expect_err("no trace");
        assert!(
            matches!(error, TraceError::Unknown(_) | TraceError::Record { .. }),
            "{error}"
        );
    }
    // A table may begin with a line of names; names alone are not a table.
    assert_eq!(
        read(
            b"device_id,opcode,offset,length,timestamp\n1,W,0,4096,5\n",
            &Options::default()
        )
        .expect("readable")
        .len(),
        1
    );
    assert!(
        read(
            b"device_id,opcode,offset,length,timestamp\n",
            &Options::default()
        )
        .is_err()
    );
}

#[test]
fn earlier_times_are_counted_from_the_first_request() {
    let found = read(
        b"W,0,4096,100\nW,0,4096,40\nW,0,4096,150\n",
        &Options::default(),
    )
    .expect("readable");
    assert_eq!(
        found
            .iter()
            .map(|request| request.time_ns)
            .collect::<Vec<_>>(),
        [0, 0, 50_000]
    );
}

#[test]
fn one_device_of_several() {
    let of = |text: &str, device: &str| {
        read(
            text.as_bytes(),
            &Options {
                device: Some(device.to_owned()),
                ..Options::default()
            },
        )
    };
    let text = "W,0,4096,0,sda\nW,0,8192,1,sdb\nF,0,0,2,sda\nR,0,512,3,sdb\n";
    let second = [
        request(Write, 1, 0, 8192, 1000),
        request(Read, 1, 0, 512, 3000),
    ];
    assert_eq!(
        (
            of(text, "sdb").expect("by name"),
            of(text, "1").expect("by number")
        ),
        (second.to_vec(), second.to_vec())
    );
    assert_eq!(
        of(text, "sdc").expect_err("none").to_string(),
        "it has no device 'sdc'; those that it has: sda sdb"
    );
    assert!(of(text, "2").is_err());
    // Where names are numbers, a number is a name.
    let text = "419,W,0,4096,0\n0,W,0,8192,1\n";
    assert_eq!(
        of(text, "0").expect("by name"),
        [request(Write, 1, 0, 8192, 1000)]
    );
    assert!(matches!(of(text, "1"), Err(TraceError::Device(_))));
}
