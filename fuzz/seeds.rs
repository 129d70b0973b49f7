//! Makes the corpora that the targets start from: `corpus/TARGET/seed-N`. For the decoders: the frozen files of the format.

#[path = "../crates/nbd/tests/support/hostile.rs"]
mod hostile;

/// Targets with what they take apart: files beside the tests of `layout`.
const FROZEN: &[(&str, &[&str])] = &[
    ("superblock", &["superblock-v1.bin", "superblock-journal-v1.bin", "superblock-hash-v1.bin"]),
    ("label", &["label-v1.bin"]),
    ("batch", &["batch-head-v1.bin"]),
    ("journal", &["record-512-v1.bin", "record-4096-v1.bin"]),
    ("pages", &["leaf-v1.bin", "list-v1.bin", "map-v1.bin", "segment-v1.bin", "volumes-v1.bin"]),
];

/// One of each kind.
const CONTROL: &[&str] = &[
    r#"{"version":1,"command":"status"}"#,
    r#"{"version":1,"command":"volume-create","name":"a","size_bytes":4096}"#,
    r#"{"version":1,"command":"volume-delete","name":"a"}"#,
    r#"{"version":1,"command":"pool-set","spare_per_mille":100,"discard":true,"victim_policy":"greedy"}"#,
    r#"{"version":1,"command":"export-add","name":"b","volume":"a","read_only":true}"#,
    r#"{"version":1,"command":"scrub","action":"start","bytes_per_second":1}"#,
    r#"{"version":1,"command":"shutdown","export":true}"#,
];

/// A line or two of each format of traces. The first byte of a seed names the format: 0 for the one that is told.
const TRACES: &[&[u8]] = &[
    b"\0  8,16 1 1 0.000000000 5314 Q FWFS 1611592 + 8 [java]\n",
    b"\0fio version 2 iolog\na write 0 4096\na wait 5 0\na sync 0 0\n",
    b"\0fio version 3 iolog\n1 a trim 0 4096\n",
    b"\x00128166372003061629,hm,0,Read,383496192,32768,413\n",
    b"\x00419,W,8792731648,16384,1577808144360767\n",
    b"\x001538323200,12910952,128,0,1063\n",
    b"\x000,20941264,8192,W,0.551706\n",
    b"\0WF,0,512,5417.25,a\nT,0,1048576,5496\nF,0,0,5500\n",
    b"\x0013.191135\t30\t0\t5\t1\n",
    b"\x00938513000 4 264719034 16 0\n",
    b"\x0089966522969723 4270 a 18579576 8 W 6 0 d6c7\n",
    b"\0W 1000 8\nF\n",
    b"\0\x07\x74\x61\x65\x01\0\0\0\x05\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\x10\0\0\x01\0\x02\0\x07\0\0\0\x10\0\x80\0\0\0\0\0\0\0\0\0",
];

fn folder(target: &str) -> std::io::Result<std::path::PathBuf> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A short trace in the compact format.
fn compact_trace() -> Vec<u8> {
    let mut encoder = windrow_trace::compact::Encoder::new(windrow_trace::compact::Granule::Block);
    let names = ["a".to_owned(), "b".to_owned()];
    for at in 0..8u64 {
        let request = windrow_trace::Request::new(windrow_trace::Kind::Write, (at % 2) as u32, at * at * 4096, 4096, at * 1000);
        encoder.add(&request, &names);
    }
    encoder.finish()
}

fn main() -> std::io::Result<()> {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/layout/tests/fixtures");
    for (target, files) in FROZEN {
        for file in *files {
            std::fs::copy(fixtures.join(file), folder(target)?.join(format!("seed-{file}")))?;
        }
    }
    let whole = ["batch-head-v1.bin", "batch-tail-v1.bin"].map(|file| std::fs::read(fixtures.join(file)));
    let [head, tail] = whole;
    std::fs::write(folder("batch")?.join("seed-whole"), [head?, tail?].concat())?;
    for (number, line) in CONTROL.iter().enumerate() {
        std::fs::write(folder("control")?.join(format!("seed-{number}")), format!("{line}\n"))?;
    }
    for (number, seed) in TRACES.iter().enumerate() {
        std::fs::write(folder("trace")?.join(format!("seed-{number}")), seed)?;
    }
    let mut compact = vec![0];
    compact.extend(compact_trace());
    std::fs::write(folder("trace")?.join("seed-compact"), compact)?;
    for target in ["nbd_handshake", "nbd_requests", "nbd_connection"] {
        let folder = folder(target)?;
        for (number, seed) in hostile::seeds().into_iter().enumerate() {
            // The first byte of a program for requests is no instruction.
            let prefix: &[u8] = if target == "nbd_requests" { &[0x0d] } else { &[] };
            std::fs::write(folder.join(format!("seed-{number}")), [prefix, &seed].concat())?;
        }
    }
    Ok(())
}
