//! Makes the seed corpora of the targets in `fuzz/`: `FOLDER/TARGET/seed-N`. The decoders get the
//! frozen files of the format. `cargo xtask fuzz` calls it.

#[path = "../tests/support/hostile.rs"]
mod hostile;

/// Targets with their input: files alongside the tests of `layout`.
const FROZEN: &[(&str, &[&str])] = &[
    (
        "superblock",
        &[
            "superblock-v1.bin",
            "superblock-journal-v1.bin",
            "superblock-hash-v1.bin",
        ],
    ),
    ("label", &["label-v1.bin"]),
    ("batch", &["batch-head-v1.bin"]),
    ("journal", &["record-512-v1.bin", "record-4096-v1.bin"]),
    (
        "pages",
        &[
            "leaf-v1.bin",
            "list-v1.bin",
            "map-v1.bin",
            "map-packed-v1.bin",
            "map-shared-v1.bin",
            "segment-v1.bin",
            "volumes-v1.bin",
        ],
    ),
];

/// A registry entry of a pool.
const REGISTRY: &str = r#"{"schema":"windrow/registry/1","name":"tank","pool":"6f9619ff-8b86-d011-b42d-00c04fc964ff","members":["/dev/sdb","/srv/m1"],
"exports":{"added":{"backup":{"volume":"data","read_only":true,"description":"d"}},"withdrawn":["data"],"default":"backup"}}"#;

/// Reports of drives on themselves.
const DRIVES: &[&str] = &[
    r#"{"model_name":"A","user_capacity":{"bytes":1000000000000},"power_on_time":{"hours":8760},"nvme_smart_health_information_log":{"percentage_used":5,"data_units_written":200000000,"power_on_hours":8760}}"#,
    r#"{"user_capacity":{"bytes":480103981056},"ata_smart_attributes":{"table":[{"name":"Host_Writes_32MiB","value":100,"raw":{"value":7,"string":"7"}},
{"name":"NAND_Writes_1GiB","value":100,"raw":{"value":9}},{"name":"Wear_Leveling_Count","value":97,"raw":{"value":3}},{"name":"Host_Program_Page_Count","raw":{"value":5}},{"name":"FTL_Program_Page_Count","raw":{"value":6}}]}}"#,
    r#"{"percent_used":3,"data_units_written":"1,234","Physical media units written":{"hi":0,"lo":99}}"#,
];

/// One command of each kind.
const CONTROL: &[&str] = &[
    r#"{"version":1,"command":"status"}"#,
    r#"{"version":1,"command":"volume-create","name":"a","size_bytes":4096}"#,
    r#"{"version":1,"command":"volume-delete","name":"a"}"#,
    r#"{"version":1,"command":"pool-set","spare_per_mille":100,"discard":true,"victim_policy":"greedy"}"#,
    r#"{"version":1,"command":"export-add","name":"b","volume":"a","read_only":true}"#,
    r#"{"version":1,"command":"scrub","action":"start","bytes_per_second":1}"#,
    r#"{"version":1,"command":"shutdown","export":true}"#,
];

/// Answers of a daemon; the state of a pool, which is longer, is in a file alongside the targets.
const ANSWERS: &[&str] = &[
    r#"{"version":1,"ok":{"kind":"done"}}"#,
    r#"{"version":1,"ok":{"kind":"exports","exports":[{"name":"data","volume":"data","size_bytes":4096,"read_only":false,"description":"","default":true}]}}"#,
    r#"{"version":1,"ok":{"kind":"sharing","volumes":[{"id":1,"exclusive_bytes":0}],"exact":true}}"#,
    r#"{"version":1,"ok":{"kind":"recorded","token":1,"requests":[["w",0,4096,17,1],["f",0,0,20]],"missed":0}}"#,
    r#"{"version":1,"error":{"id":"WR-VOLUME-001","what":"cannot delete volume 'a'","why":"there is no volume 'a'","remedy":"see `windrow volume list`"}}"#,
];

/// Configurations of `serve`: a complete one, and refused ones.
const CONFIGS: &[&str] = &[
    "pool = \"tank\"\nmembers = [\"/dev/sdb\", \"m1\"]\nnbd = [\"unix:/tmp/x\", \"tcp:127.0.0.1:10809\", \"tcp:[::1]:0\"]\nallow_remote = true\n\
     metrics = \"127.0.0.1:9464\"\ncontrol = \"c\"\nevent_command = \"true\"\npending_bytes = \"32M\"\nmap_bytes = \"1.5G\"\n",
    "nbd = []\npool = 5\n",
    "map_bytes = \"much\"\n",
];

/// Changes of members: kind, member, position, length and bytes. Of a superblock, of bytes, of a
/// record, of a batch; and a missing member.
const CHANGES: &[&[u8]] = &[
    b"\0\0\x60\0\x01\x01",
    b"\x03\0\0\x10\x02\x01\xff",
    b"\x08\0\x30\x80\x02\x01\0",
    b"\x0a\x01\x28\x80\x04\x01\0\0\0",
    b"\x06\x01\0\0\0",
];

/// A line or two of each format of traces. The first byte of a seed selects the format; 0:
/// detected.
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

/// Folder of the seeds.
struct Corpora(std::path::PathBuf);

impl Corpora {
    fn write(&self, target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let folder = self.0.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("seed-{name}")), bytes)
    }
}

/// A short trace in the compact format.
fn compact_trace() -> Vec<u8> {
    let mut encoder = windrow_trace::compact::Encoder::new(windrow_trace::compact::Granule::Block);
    let names = ["a".to_owned(), "b".to_owned()];
    for at in 0..8u64 {
        let request = windrow_trace::Request::new(
            windrow_trace::Kind::Write,
            (at % 2) as u32,
            at * at * 4096,
            4096,
            at * 1000,
        );
        encoder.add(&request, &names);
    }
    encoder.finish()
}

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        return Err(std::io::Error::other("name the folder for the corpora"));
    };
    let corpora = Corpora(folder.into());
    let fixture = |file: &str| {
        std::fs::read(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../format/tests/fixtures")
                .join(file),
        )
    };
    for (target, files) in FROZEN {
        for file in *files {
            corpora.write(target, file, &fixture(file)?)?;
        }
    }
    for kind in ["batch", "batch-packed", "batch-shared"] {
        corpora.write(
            "batch",
            kind,
            &[
                fixture(&format!("{kind}-head-v1.bin"))?,
                fixture(&format!("{kind}-tail-v1.bin"))?,
            ]
            .concat(),
        )?;
    }
    for kind in ["lz4", "zstd", "lz4-final"] {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../reduction/tests/fixtures/payload-{kind}-v1.bin"));
        corpora.write("payload", kind, &std::fs::read(file)?)?;
    }
    for (number, line) in CONTROL.iter().enumerate() {
        corpora.write(
            "control",
            &number.to_string(),
            format!("{line}\n").as_bytes(),
        )?;
    }
    // An answer is one line.
    let status = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/status.json"),
    )?
    .replace('\n', "");
    for (number, line) in ANSWERS.iter().copied().chain([status.as_str()]).enumerate() {
        corpora.write(
            "answers",
            &number.to_string(),
            format!("{line}\n").as_bytes(),
        )?;
    }
    for (number, config) in CONFIGS.iter().enumerate() {
        corpora.write("config", &number.to_string(), config.as_bytes())?;
    }
    for (pool, (number, change)) in
        (0..4u8).flat_map(|pool| CHANGES.iter().enumerate().map(move |change| (pool, change)))
    {
        for target in ["pool", "dumps"] {
            corpora.write(
                target,
                &format!("{pool}-{number}"),
                &[&[pool], *change].concat(),
            )?;
        }
    }
    for (number, report) in DRIVES.iter().enumerate() {
        corpora.write("drives", &number.to_string(), report.as_bytes())?;
    }
    let catalogue = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tools/plan/src/catalogue.toml");
    corpora.write("drives", "catalogue", &std::fs::read(catalogue)?)?;
    corpora.write("registry", "entry", REGISTRY.as_bytes())?;
    corpora.write(
        "registry",
        "host",
        b"6f9619ff-8b86-d011-b42d-00c04fc964ff\n",
    )?;
    for (number, seed) in TRACES.iter().enumerate() {
        corpora.write("trace", &number.to_string(), seed)?;
    }
    // The first byte selects the format; 0: detected.
    corpora.write("trace", "compact", &[vec![0], compact_trace()].concat())?;
    for (number, seed) in hostile::seeds().into_iter().enumerate() {
        let number = number.to_string();
        corpora.write("nbd_handshake", &number, &seed)?;
        corpora.write("nbd_connection", &number, &seed)?;
        // The first byte of a program for requests is no instruction.
        corpora.write("nbd_requests", &number, &[&[0x0d], &seed[..]].concat())?;
    }
    Ok(())
}
