//! Write amplification by layer: the factor of each layer between a program and the flash, alone
//! and with Windrow below the file system.
//!
//! Layers multiply (2014 paper: "such writing increases the wear on Flash media multiplicatively").
//! The file system's own writes are the same in both cases. Below it, in place, follow the parity
//! of each random block and the drive's amplification of random writes. Under a log follow its own
//! headers and cleaning, the parity of full rows, and the drive's amplification of long linear
//! writes.

use crate::ftl;
use crate::topology::{DoesNotFit, Topology};
use serde::Serialize;

/// Factor of a layer, with the source of the figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// Bytes out for each byte in.
    pub factor: f64,
    /// Source: a formula, or a measurement.
    pub source: String,
}

fn factor(name: impl Into<String>, factor: f64, source: impl Into<String>) -> Factor {
    Factor {
        name: name.into(),
        factor,
        source: source.into(),
    }
}

/// A file system, or its substitute.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// Blocks are written unchanged.
    None,
    /// FAT with `tables` tables, writing 512 bytes at a time.
    Fat {
        /// Copies of the table.
        tables: u32,
    },
    /// XFS, ext4, NTFS: `journal` bytes of journal and metadata for each write of `data` bytes.
    Journalling {
        /// Bytes of a write.
        data: f64,
        /// Bytes of journal and metadata for it.
        journal: f64,
    },
    /// ext4 with `data=journal`: data goes to the journal with the metadata, and to its home
    /// location later.
    FullJournal {
        /// Bytes of a write.
        data: f64,
        /// Bytes of journal and metadata in addition to the data.
        journal: f64,
    },
    /// ZFS with one parity.
    ZfsZ1,
    /// ZFS with three parities.
    ZfsZ3,
    /// A phone: SQLite on YAFFS2.
    SqliteOnFlash,
}

/// Minimum and maximum of journal and metadata per write (2017, "How ESS Produces Time-based Wear
/// Avoidance").
pub const JOURNAL_KIB: [f64; 2] = [32.0, 80.0];

impl FileSystem {
    /// Factor: (user + metadata) / user.
    pub fn factor(self) -> Factor {
        match self {
            Self::None => factor("no file system", 1.0, "-"),
            Self::Fat { tables } => factor(
                format!("FAT, {tables} table(s), 512 B at a time"),
                1.0 + f64::from(tables),
                "blog: a block of each table is written with each block",
            ),
            Self::Journalling { data, journal } => {
                let name = format!(
                    "journalling (XFS, ext4, NTFS), {:.0} KiB writes, {:.0} KiB journal",
                    data / 1024.0,
                    journal / 1024.0
                );
                factor(
                    name,
                    (data + journal) / data,
                    "2017: 32 to 80 KiB of journal and metadata with each write, of 4 KB or 1 MB",
                )
            }
            Self::FullJournal { data, journal } => {
                let name = format!(
                    "ext4, data=journal, {:.0} KiB writes, {:.0} KiB metadata",
                    data / 1024.0,
                    journal / 1024.0
                );
                factor(
                    name,
                    (2.0 * data + journal) / data,
                    "journal talk: user data goes to the journal and then to its place; 2017 for what goes along",
                )
            }
            Self::ZfsZ1 => factor("ZFS, Z1", 11.0, "2014: 11 writes for each"),
            Self::ZfsZ3 => factor("ZFS, Z3", 22.0, "2014: 22 writes for each"),
            Self::SqliteOnFlash => factor(
                "SQLite on YAFFS2 (phone)",
                30.0 / 1.6,
                "blog: 1.6 MB became 30 MB; it says 20",
            ),
        }
    }

    /// True if the factor includes its own parity, so that a RAID layer below would count it twice.
    pub fn has_parity(self) -> bool {
        matches!(self, Self::ZfsZ1 | Self::ZfsZ3)
    }
}

/// Flash translation layer of a drive.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inside {
    /// Empty tails of `tail` pages in blocks of 128.
    EmptyTail {
        /// Pages of the tail.
        tail: u32,
    },
    /// Page-mapped and greedy, with spare over all space.
    PageMapped {
        /// Spare over all space.
        spare: f64,
    },
    /// The tunable layer's first order, with spare over logical space.
    Tunable {
        /// Spare over logical space.
        spare: f64,
    },
    /// As stated by a maker or a test.
    Stated(f64),
}

/// Number of pages of an erase block in the models.
const PAGES: u32 = 128;
/// GB (10^9 bytes) of a TiB.
const TIB_GB: f64 = 1_099.511_627_776;

impl Inside {
    /// Factor for random writes.
    pub fn factor(self) -> Factor {
        match self {
            Self::EmptyTail { tail } => factor(
                format!("empty tail of {tail} in {PAGES} pages"),
                ftl::empty_tail(PAGES, tail),
                "2017, figures 2 and 3",
            ),
            Self::PageMapped { spare } => factor(
                format!("page-mapped, greedy, {:.1} % of it spare", spare * 100.0),
                ftl::page_mapped(spare, PAGES),
                "closed form of greedy cleaning, uniform writes",
            ),
            Self::Tunable { spare } => factor(
                format!("tunable, {:.1} % spare", spare * 100.0),
                ftl::tunable_wear(spare),
                "FTL talk: (1 + op) / (2 op)",
            ),
            Self::Stated(value) => factor("as stated", value, "stated"),
        }
    }
}

/// Layers of Windrow below the file system.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Log {
    /// Headers, tables and checkpoints per user byte, plus 1 for the byte itself.
    pub own: f64,
    /// Cleaning: (user + moved) / user.
    pub cleaning: f64,
    /// Drive's amplification of the log's linear writes.
    pub inside: f64,
}

impl Log {
    /// One block of 4 KiB in 256 for tables (0.39 %, JEDEC test of the 2017 paper), cleaning as
    /// given, 1.01 inside the drive (SMART of the M500 there).
    pub fn with_cleaning(cleaning: f64) -> Self {
        Self {
            own: 128.501 / 128.002,
            cleaning,
            inside: 1.01,
        }
    }
}

/// One line of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// The layer.
    pub layer: &'static str,
    /// Without Windrow.
    pub alone: Factor,
    /// With it.
    pub under_windrow: Factor,
}

/// Table: a line for each layer and their products.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Stack {
    /// Lines from the program down.
    pub lines: Vec<Line>,
    /// Flash bytes per program byte, without Windrow.
    pub alone: f64,
    /// With it.
    pub under_windrow: f64,
}

/// Builds the table for a file system on `drives` drives.
pub fn stack(
    file_system: FileSystem,
    topology: Topology,
    drives: u32,
    inside: Inside,
    log: Log,
) -> Result<Stack, DoesNotFit> {
    let data = topology.data_drives(drives)?;
    let fs = file_system.factor();
    let row = f64::from(drives) / f64::from(data);
    // A log below a file system with its own parity is the volume it lies on: the parity above
    // stays.
    let in_place = if file_system.has_parity() {
        factor("in the file system", 1.0, "its factor holds its parity")
    } else {
        factor(
            format!("{topology} of {drives}, in place"),
            topology.random_writes(),
            "2014: data and each parity",
        )
    };
    let lines = vec![
        Line {
            layer: "file system",
            alone: fs.clone(),
            under_windrow: fs,
        },
        Line {
            layer: "log and cleaning",
            alone: factor("none", 1.0, "-"),
            under_windrow: factor(
                "Windrow",
                log.own * log.cleaning,
                "tables 0.39 % (2017, JEDEC test), times cleaning",
            ),
        },
        Line {
            layer: "redundancy",
            alone: in_place,
            under_windrow: factor(
                format!("{topology} of {drives}, full rows"),
                row,
                "drives / data drives",
            ),
        },
        Line {
            layer: "inside the drive",
            alone: inside.factor(),
            under_windrow: factor(
                "linear writes",
                log.inside,
                "2017: SMART of an M500 under ESS, 1.01",
            ),
        },
    ];
    let product = |of: fn(&Line) -> f64| lines.iter().map(of).product();
    let (alone, under_windrow) = (
        product(|line| line.alone.factor),
        product(|line| line.under_windrow.factor),
    );
    Ok(Stack {
        lines,
        alone,
        under_windrow,
    })
}

/// File systems covered by the sources.
pub fn file_systems() -> Vec<FileSystem> {
    let kib = 1024.0;
    let journal = |data: f64, journal: f64| FileSystem::Journalling {
        data: data * kib,
        journal: journal * kib,
    };
    let full = |data: f64| FileSystem::FullJournal {
        data: data * kib,
        journal: JOURNAL_KIB[0] * kib,
    };
    vec![
        FileSystem::None,
        FileSystem::Fat { tables: 1 },
        FileSystem::Fat { tables: 2 },
        journal(4.0, JOURNAL_KIB[0]),
        journal(4.0, JOURNAL_KIB[1]),
        journal(32.0, JOURNAL_KIB[0]),
        journal(32.0, JOURNAL_KIB[1]),
        journal(1024.0, JOURNAL_KIB[0]),
        journal(1024.0, JOURNAL_KIB[1]),
        full(4.0),
        full(32.0),
        full(1024.0),
        FileSystem::ZfsZ1,
        FileSystem::ZfsZ3,
        FileSystem::SqliteOnFlash,
    ]
}

/// Total amplification under a file system, all layers together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Total {
    /// The file system.
    pub file_system: Factor,
    /// Flash bytes per program byte, without Windrow.
    pub alone: f64,
    /// With it.
    pub under_windrow: f64,
}

/// All file systems over the same drives.
pub fn totals(
    topology: Topology,
    drives: u32,
    inside: Inside,
    log: Log,
) -> Result<Vec<Total>, DoesNotFit> {
    let total = |system: FileSystem| {
        let stack = stack(system, topology, drives, inside, log)?;
        Ok(Total {
            file_system: system.factor(),
            alone: stack.alone,
            under_windrow: stack.under_windrow,
        })
    };
    file_systems().into_iter().map(total).collect()
}

/// All known baselines, layer by layer: (layer, what, factor, source).
pub fn baselines(drives: u32) -> Vec<(&'static str, Factor)> {
    let systems = file_systems()
        .into_iter()
        .filter(|system| *system != FileSystem::None);
    let mut found: Vec<(&'static str, Factor)> = systems
        .map(|system| ("file system", system.factor()))
        .collect();
    for topology in [
        Topology::Raid5,
        Topology::Raid6,
        Topology::Raid50 { groups: 3 },
        Topology::Raid60 { groups: 3 },
        Topology::Raid10,
    ] {
        let Ok([modify, construct]) = topology.in_place(drives) else {
            continue;
        };
        let reads = if modify.reads == construct.reads {
            format!("{} reads", modify.reads)
        } else {
            format!(
                "{} reads, or {} of the rest of the row",
                modify.reads, construct.reads
            )
        };
        found.push((
            "redundancy",
            factor(
                format!("{topology} of {drives}, in place"),
                topology.random_writes(),
                format!("{} writes after {reads}", modify.writes),
            ),
        ));
        if let Ok(data) = topology.data_drives(drives) {
            found.push((
                "redundancy",
                factor(
                    format!("{topology} of {drives}, full rows"),
                    f64::from(drives) / f64::from(data),
                    "drives / data drives",
                ),
            ));
        }
    }
    let whole = |written: f64| {
        factor(
            format!("whole erase block of 32 KB, {written:.0} KB written"),
            ftl::whole_block(32.0, written),
            "2017, figure 1",
        )
    };
    found.extend([whole(4.0), whole(16.0)].map(|factor| ("inside the drive", factor)));
    let insides = [
        Inside::EmptyTail { tail: 12 },
        Inside::EmptyTail { tail: 38 },
        // Drives of 1 TB, 960 GB and 800 GB on 1 TiB of flash, and one with 28 % in addition: spare
        // of all space.
        Inside::PageMapped {
            spare: 1.0 - 1000.0 / TIB_GB,
        },
        Inside::PageMapped {
            spare: 1.0 - 960.0 / TIB_GB,
        },
        Inside::PageMapped { spare: 0.28 / 1.28 },
        Inside::PageMapped {
            spare: 1.0 - 800.0 / TIB_GB,
        },
        Inside::Tunable { spare: 0.07 },
        Inside::Tunable { spare: 0.28 },
    ];
    found.extend(insides.map(|inside| ("inside the drive", inside.factor())));
    found.push((
        "inside the drive",
        factor(
            "a 240 GB consumer drive, JEDEC client trace",
            9.652,
            "2017: SMART of an M500, alone",
        ),
    ));
    found.push((
        "inside the drive",
        factor(
            "the same under a log",
            1.01,
            "2017: SMART of an M500, under ESS",
        ),
    ));
    found.push((
        "inside the drive",
        factor(
            "error correction of 128 bits in a sector of 512 B",
            528.0 / 512.0,
            "blog, which prints 520/512",
        ),
    ));
    found
}

/// JEDEC client test of the 2017 paper, as far as its figures are consistent.
pub mod jedec {
    /// Usable bytes.
    pub const LOGICAL: u64 = 128_002_187_264;
    /// Physical bytes.
    pub const PHYSICAL: u64 = 142_222_557_184;
    /// GB written by the trace.
    pub const WRITTEN_GB: f64 = 781.33;
    /// Writes of the trace.
    pub const WRITES: u64 = 35_391_419;
    /// GB trimmed by it.
    pub const TRIMMED_GB: f64 = 821.33;
    /// Trims of the trace.
    pub const TRIMS: u64 = 2_498_963;
    /// GB to the device in that time.
    pub const DEVICE_GB: f64 = 950.27;
    /// Spare of physical space, measured amplification.
    pub const MEASURED: [(f64, f64); 4] =
        [(0.05, 1.363), (0.07, 1.295), (0.10, 1.216), (0.20, 1.111)];
    /// Same at 10 % without trim.
    pub const WITHOUT_TRIM: f64 = 1.437;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounding::printed;

    #[test]
    fn file_systems_as_the_sources_have_them() {
        let of = |system: FileSystem| printed(system.factor().factor, 2);
        assert_eq!(
            (
                of(FileSystem::Fat { tables: 1 }),
                of(FileSystem::Fat { tables: 2 })
            ),
            ("2.00".into(), "3.00".into())
        );
        assert_eq!(
            (
                of(FileSystem::ZfsZ1),
                of(FileSystem::ZfsZ3),
                of(FileSystem::SqliteOnFlash)
            ),
            ("11.00".into(), "22.00".into(), "18.75".into())
        );
        // 4 KiB twice, and 32 KiB in addition.
        assert_eq!(
            of(FileSystem::FullJournal {
                data: 4096.0,
                journal: 32_768.0
            }),
            "10.00"
        );
        // "50 % to 60 % of all data written will be journal" for writes of up to 32 KB: half of it
        // at 32 and 32.
        let half = FileSystem::Journalling {
            data: 32768.0,
            journal: 32768.0,
        };
        assert_eq!(of(half), "2.00");
    }

    #[test]
    fn drives_of_usual_sizes_have_their_spare() {
        let known = baselines(24);
        let found: Vec<&str> = known
            .iter()
            .map(|(_, factor)| factor.name.as_str())
            .filter(|name| name.starts_with("page-mapped"))
            .collect();
        let expected = [9.1, 12.7, 21.9, 27.2]
            .map(|percent| format!("page-mapped, greedy, {percent:.1} % of it spare"));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_stack_is_the_product_of_its_layers() {
        let stack = stack(
            FileSystem::Fat { tables: 1 },
            Topology::Raid6,
            24,
            Inside::EmptyTail { tail: 12 },
            Log::with_cleaning(1.3),
        )
        .expect("fits");
        assert_eq!(
            printed(stack.alone, 2),
            printed(2.0 * 3.0 * 128.0 / 13.0, 2)
        );
        assert_eq!(
            printed(stack.under_windrow, 3),
            printed(2.0 * 128.501 / 128.002 * 1.3 * 24.0 / 22.0 * 1.01, 3)
        );
        // A file system with its own parity is not charged for that of the array as well.
        let own = super::stack(
            FileSystem::ZfsZ1,
            Topology::Raid5,
            8,
            Inside::Stated(3.0),
            Log::with_cleaning(1.3),
        )
        .expect("fits");
        assert_eq!(own.alone, 33.0);
    }

    #[test]
    fn totals_are_the_stacks_of_all_file_systems() {
        let (topology, inside, log) = (
            Topology::Raid6,
            Inside::EmptyTail { tail: 12 },
            Log::with_cleaning(1.3),
        );
        let all = totals(topology, 24, inside, log).expect("fits");
        assert_eq!(all.len(), file_systems().len());
        // Without a file system: three writes of which each becomes 128/13.
        assert_eq!(
            (printed(all[0].alone, 2), printed(all[0].under_windrow, 2)),
            (printed(3.0 * 128.0 / 13.0, 2), "1.44".into())
        );
        assert!(all.iter().all(|total| total.alone > total.under_windrow));
        assert!(totals(topology, 2, inside, log).is_err());
    }

    #[test]
    fn baselines_have_a_source_each_and_never_less_than_one() {
        let all = baselines(24);
        assert!(all.len() > 25);
        for (layer, factor) in &all {
            assert!(
                factor.factor >= 1.0 && factor.factor.is_finite() && !factor.source.is_empty(),
                "{layer}: {factor:?}"
            );
        }
        let of = |name: &str| {
            all.iter()
                .find(|(_, factor)| factor.name.starts_with(name))
                .map(|(_, factor)| printed(factor.factor, 2))
        };
        assert_eq!(
            (of("empty tail of 12"), of("empty tail of 38")),
            (Some("9.85".into()), Some("3.28".into()))
        );
        assert_eq!(
            (
                of("RAID-5 of 24, in place"),
                of("RAID-6 of 24, in place"),
                of("RAID-6 of 24, full")
            ),
            (
                Some("2.00".into()),
                Some("3.00".into()),
                Some("1.09".into())
            )
        );
        assert_eq!(
            (of("whole erase block of 32 KB, 4"), of("error correction")),
            (Some("8.00".into()), Some("1.03".into()))
        );
    }

    /// 2017, "ESS Test Report": consequences of its own figures. The mean trim is printed as 320.96
    /// KiB; the rounded totals give 320.97. The overhead of the fill is one block of 4 KiB in 1
    /// MiB.
    #[test]
    fn the_jedec_test_adds_up() {
        use super::jedec::*;
        assert_eq!(
            (LOGICAL / 4096, PHYSICAL / 4096, PHYSICAL % (1 << 20)),
            (31_250_534, 34_722_304, 0)
        );
        assert_eq!(printed(LOGICAL as f64 / PHYSICAL as f64, 4), "0.9000");
        assert_eq!(printed(DEVICE_GB / WRITTEN_GB, 3), "1.216");
        assert_eq!(
            (
                printed(WRITTEN_GB * 1e9 / WRITES as f64 / 1024.0, 2),
                printed(TRIMMED_GB * 1e9 / TRIMS as f64 / 1024.0, 2)
            ),
            ("21.56".into(), "320.97".into())
        );
        assert_eq!(printed((128.501 / 128.002 - 1.0) * 100.0, 2), "0.39");
    }
}
