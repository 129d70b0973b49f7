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

fn folder(target: &str) -> std::io::Result<std::path::PathBuf> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
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
