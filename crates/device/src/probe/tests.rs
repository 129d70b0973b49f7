use super::usage::{mounts_in, unescape};
use super::*;
use crate::sysfs::DeviceNumber;
use crate::testing::{LoopDevice, patient};
use crate::{Allocation, FileMember, OpenOptions, create_file};
use std::os::unix::fs::FileExt;
use std::process::Command;

const SIZE: u64 = 16 << 20;

fn blank(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    create_file(&path, SIZE, Allocation::Sparse).expect("create");
    path
}

fn names(path: &Path) -> Vec<String> {
    probe(path, |_| None)
        .expect("probe")
        .signatures
        .into_iter()
        .map(|s| s.name)
        .collect()
}

#[test]
fn signatures_are_found_where_they_belong() {
    let folder = tempfile::tempdir().expect("folder");
    type Writes = &'static [(u64, &'static [u8])];
    const ZFS: [u8; 8] = 0x00ba_b10c_u64.to_le_bytes();
    const ZFS_BIG_ENDIAN: [u8; 8] = 0x00ba_b10c_u64.to_be_bytes();
    const THIN: [u8; 8] = 27_022_010_u64.to_le_bytes();
    const CACHE: [u8; 8] = 6_142_003_u64.to_le_bytes();
    const MD: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];
    let cases: &[(&str, Writes)] = &[
        ("XFS", &[(0, b"XFSB")]),
        ("Btrfs", &[(65600, b"_BHRfS_M")]),
        ("F2FS", &[(1024, &[0x10, 0x20, 0xf5, 0xf2])]),
        ("ext2", &[(1080, &[0x53, 0xef])]),
        ("ext3", &[(1080, &[0x53, 0xef]), (1024 + 92, &[4])]),
        (
            "ext4",
            &[
                (1080, &[0x53, 0xef]),
                (1024 + 92, &[4]),
                (1024 + 96, &[0x40]),
            ],
        ),
        ("swap", &[(4086, b"SWAPSPACE2")]),
        ("swap", &[(65526, b"SWAPSPACE2")]),
        ("LVM2", &[(512, b"LABELONE"), (536, b"LVM2 001")]),
        ("md 1.0", &[(SIZE - 8192, &MD)]),
        ("md 1.1", &[(0, &MD)]),
        ("md 1.2", &[(4096, &MD)]),
        ("md 0.90", &[(SIZE - 65536, &MD)]),
        ("md 0.90", &[(SIZE - 65536, &[0xa9, 0x2b, 0x4e, 0xfc])]),
        ("LUKS", &[(0, b"LUKS\xba\xbe")]),
        ("ZFS", &[((256 << 10) + (128 << 10) + 4096, &ZFS)]),
        ("ZFS", &[(SIZE - (128 << 10), &ZFS_BIG_ENDIAN)]),
        ("NTFS", &[(3, b"NTFS    ")]),
        ("FAT", &[(82, b"FAT32   ")]),
        ("GPT", &[(512, b"EFI PART")]),
        ("GPT", &[(4096, b"EFI PART")]),
        ("backup of a GPT", &[(SIZE - 512, b"EFI PART")]),
        (
            "MBR",
            &[
                (510, &[0x55, 0xaa]),
                (446, &[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]),
            ],
        ),
        (
            "bcache",
            &[(
                4120,
                &[
                    0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48,
                    0xba, 0x6d, 0x81,
                ],
            )],
        ),
        ("VDO", &[(0, b"dmvdo001")]),
        ("SquashFS", &[(0, b"hsqs")]),
        ("ISO 9660", &[(32769, b"CD001")]),
        ("qcow2", &[(0, b"QFI\xfb")]),
        ("Intel", &[(SIZE - 1024, b"Intel Raid ISM Cfg Sig. ")]),
        ("DDF", &[(SIZE - 512, &[0xde, 0x11, 0xde, 0x11])]),
        ("DDF", &[(SIZE - 257 * 512, &[0xde, 0x11, 0xde, 0x11])]),
        ("Adaptec", &[(SIZE - 512, &[0x37, 0xfc, 0x4d, 0x1e])]),
        ("JMicron", &[(SIZE - 512, b"JM")]),
        ("LSI", &[(SIZE - 512, b"$XIDE$")]),
        ("NVIDIA", &[(SIZE - 1024, b"NVIDIA  ")]),
        ("Promise", &[(SIZE - 63 * 512, b"Promise Technology, Inc.")]),
        (
            "Promise",
            &[(SIZE - 3087 * 512, b"Promise Technology, Inc.")],
        ),
        ("Silicon Image", &[(SIZE - 512 + 96, &[0, 0, 0, 0x2f])]),
        (
            "VIA",
            &[
                (SIZE - 512, &[0x55, 0xaa, 2, 7]),
                (SIZE - 512 + 50, &[(0x55 + 0xaa + 2 + 7 - 256) as u8]),
            ],
        ),
        ("HighPoint", &[(SIZE - 11 * 512, &[0xf3, 0x16, 0x78, 0x5a])]),
        ("HighPoint", &[(4608 + 32, &[0xf0, 0x16, 0x78, 0x5a])]),
        ("DRBD 8", &[(SIZE - 4096 + 60, &[0x83, 0x74, 0x02, 0x6b])]),
        ("DRBD 9", &[(SIZE - 4096 + 60, &[0x83, 0x74, 0x02, 0x6d])]),
        (
            "external metadata of DRBD",
            &[(60, &[0x83, 0x74, 0x02, 0x6c])],
        ),
        ("VMFS", &[(2 << 20, &[0x5e, 0xf1, 0xab, 0x2f])]),
        (
            "bcachefs",
            &[(
                SIZE - (1 << 20) + 24,
                &[
                    0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80,
                    0x3d, 0xf7, 0xef,
                ],
            )],
        ),
        ("UFS", &[(8192 + 1372, &[0x54, 0x19, 0x01, 0x00])]),
        ("UFS", &[(65536 + 1372, &[0x19, 0x54, 0x01, 0x19])]),
        ("dm-thin", &[(32, &THIN)]),
        ("dm-cache", &[(32, &CACHE)]),
        ("Stratis", &[(516, b"!Stra0tis\x86\xff\x02^Arh")]),
        ("sleeps", &[(4086, b"S1SUSPEND")]),
        ("dynamic disk", &[(3072, b"PRIVHEAD")]),
        ("VHD", &[(SIZE - 512, b"conectix")]),
    ];
    for (number, (expected, writes)) in cases.iter().enumerate() {
        let path = blank(&folder, &number.to_string());
        let file = std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("open");
        for (offset, bytes) in *writes {
            file.write_all_at(bytes, *offset).expect("write");
        }
        let found = names(&path);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{expected}: {found:?}"
        );
        assert!(!probe(&path, |_| None).expect("probe").is_free());
    }
}

#[test]
fn boot_code_alone_is_no_partition_table_and_small_files_are_no_problem() {
    let folder = tempfile::tempdir().expect("folder");
    let path = blank(&folder, "boot");
    std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("open")
        .write_all_at(&[0x55, 0xaa], 510)
        .expect("write");
    let report = probe(&path, |_| None).expect("probe");
    assert!(report.is_free() && report.has_data);
    assert_eq!(
        report.lines().len(),
        1,
        "data of an unknown kind is reported"
    );
    for size in [0usize, 1, 511, 4096, 70_000] {
        let path = folder.path().join(format!("small-{size}"));
        std::fs::write(&path, vec![0xff; size]).expect("write");
        let report = probe(&path, |_| None).expect("probe");
        assert_eq!(
            (report.size_bytes, report.signatures.len(), report.has_data),
            (size as u64, 0, size > 0)
        );
    }
}

/// A disk whose first sectors were blanked (`wipefs`, an aborted installation) is not empty.
#[test]
fn data_between_the_ends_is_reported() {
    let folder = tempfile::tempdir().expect("folder");
    let path = blank(&folder, "wiped");
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("open");
    file.write_all_at(&vec![0xa5; 3 << 20], 8 << 20)
        .expect("write");
    let report = probe(&path, |_| None).expect("probe");
    let (found, read) = report.samples;
    assert!(
        report.is_free() && !report.has_data && read == 256,
        "{report:?}"
    );
    assert!((70..85).contains(&found), "3 of 10 MiB: {found}");
    assert!(
        report.lines().len() == 1 && report.lines()[0].contains("samples between hold data"),
        "{:?}",
        report.lines()
    );
    file.write_all_at(&[1], SIZE - 1).expect("write");
    assert!(
        probe(&path, |_| None).expect("probe").has_data,
        "the last byte counts"
    );
}

/// If blkid is installed, it must not know anything that the probe misses.
#[test]
fn what_blkid_sees_is_seen() {
    const MARKS: &[(u64, &[u8])] = &[
        (SIZE - 512, b"$XIDE$"),
        (SIZE - 63 * 512, b"Promise Technology, Inc."),
        (SIZE - 11 * 512, &[0xf3, 0x16, 0x78, 0x5a]),
        (4640, &[0xf0, 0x16, 0x78, 0x5a]),
        (SIZE - 4096 + 60, &[0x83, 0x74, 0x02, 0x6b]),
        (2 << 20, &[0x5e, 0xf1, 0xab, 0x2f]),
        (1 << 20, &[0x0d, 0xd0, 0x01, 0xc0]),
        (0, b"SnAp"),
        (0, b"-rom1fs-"),
        (8192, b"OracleCFS"),
        (65536, b"ReIsEr4"),
        (1024, &[0xf5, 0xfc, 0x01, 0xa5]),
    ];
    let folder = tempfile::tempdir().expect("folder");
    let mut seen = 0;
    for (number, (offset, bytes)) in MARKS.iter().enumerate() {
        let path = blank(&folder, &format!("mark-{number}"));
        std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("open")
            .write_all_at(bytes, *offset)
            .expect("write");
        assert_eq!(names(&path).len(), 1, "{bytes:?} at {offset}");
        let Ok(output) = Command::new("blkid")
            .args(["-p", "-s", "TYPE", "-o", "value"])
            .arg(&path)
            .output()
        else {
            return eprintln!("SKIPPED: blkid is not here");
        };
        seen += usize::from(!output.stdout.is_empty());
    }
    eprintln!("blkid names {seen} of {}", MARKS.len());
    assert!(seen >= 6, "the places are those of blkid: it names {seen}");
}

#[test]
fn what_real_tools_make_is_recognised() {
    let folder = tempfile::tempdir().expect("folder");
    let tools: [(&str, &[&str], &[&str], &str); 11] = [
        ("mkfs.ext4", &["-q", "-F"], &[], "ext4"),
        ("mkfs.ext4", &["-q", "-F", "-t", "ext3"], &[], "ext3"),
        ("mkfs.ext4", &["-q", "-F", "-t", "ext2"], &[], "ext2"),
        ("mkfs.xfs", &["-q", "-f"], &[], "XFS"),
        ("mkfs.vfat", &[], &[], "FAT"),
        ("mkfs.btrfs", &["-q", "-f"], &[], "Btrfs"),
        ("mkswap", &[], &[], "swap"),
        (
            "qemu-img",
            &["create", "-q", "-f", "qcow2"],
            &["16M"],
            "qcow2",
        ),
        (
            "qemu-img",
            &["create", "-q", "-f", "vmdk"],
            &["16M"],
            "VMDK",
        ),
        (
            "qemu-img",
            &["create", "-q", "-f", "vhdx"],
            &["16M"],
            "VHDX",
        ),
        ("qemu-img", &["create", "-q", "-f", "vdi"], &["16M"], "VDI"),
    ];
    for (number, (tool, before, after, expected)) in tools.into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        create_file(&path, 320 << 20, Allocation::Sparse).expect("create");
        match Command::new(tool)
            .args(before)
            .arg(&path)
            .args(after)
            .output()
        {
            Ok(output) if output.status.success() => assert!(
                names(&path).iter().any(|n| n.contains(expected)),
                "{expected}: {:?}",
                names(&path)
            ),
            _ => eprintln!("SKIPPED: {tool} does not make {expected} here"),
        }
    }
}

#[test]
fn our_own_label_is_described_by_the_caller() {
    let folder = tempfile::tempdir().expect("folder");
    let path = blank(&folder, "ours");
    let report = probe(&path, |bytes| {
        (bytes.len() == 4096).then(|| "member 3 of pool tank".to_owned())
    })
    .expect("probe");
    assert_eq!(
        report.lines(),
        [format!(
            "{} holds member 3 of pool tank (signature at byte 4096), which would be overwritten",
            path.display()
        )]
    );
}

#[test]
fn what_cannot_be_a_member_and_what_is_not_there() {
    let folder = tempfile::tempdir().expect("folder");
    let report = probe(folder.path(), |_| None).expect("probe");
    assert!(report.target == Target::Unsuitable && !report.is_free() && report.lines().len() == 1);
    let report = probe(&folder.path().join("none"), |_| None).expect("probe");
    assert!(report.target == Target::Missing && report.is_free());
}

#[test]
fn a_file_that_is_locked_is_in_use() {
    let folder = tempfile::tempdir().expect("folder");
    let path = blank(&folder, "member");
    assert!(probe(&path, |_| None).expect("probe").is_free());
    let member = FileMember::open(&path, &OpenOptions::default()).expect("open");
    assert_eq!(probe(&path, |_| None).expect("probe").uses, [Use::Locked]);
    drop(member);
    assert!(probe(&path, |_| None).expect("probe").is_free());
}

#[test]
fn loop_devices_show_their_users() {
    let Some(device) = LoopDevice::attach(SIZE, 512) else {
        return;
    };
    let name = device
        .path()
        .file_name()
        .expect("name")
        .to_string_lossy()
        .into_owned();
    assert_eq!(
        probe(device.backing(), |_| None).expect("probe").uses,
        [Use::Held { holder: name }]
    );
    let report = probe(device.path(), |_| None).expect("probe");
    assert!(
        report.target == Target::BlockDevice && report.is_free() && report.size_bytes == SIZE,
        "{report:?}"
    );
    let member = FileMember::open(device.path(), &patient()).expect("open");
    assert_eq!(
        probe(device.path(), |_| None).expect("probe").uses,
        [Use::Locked]
    );
    drop(member);
    drop(FileMember::open(device.path(), &patient()).expect("free again"));

    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F"])
        .arg(device.path())
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: mkfs.ext4 is not here");
    }
    let folder = tempfile::tempdir().expect("folder");
    if !Command::new("mount")
        .arg(device.path())
        .arg(folder.path())
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return eprintln!("SKIPPED: mounting is not permitted here");
    }
    let report = probe(device.path(), |_| None);
    let unmounted = Command::new("umount").arg(folder.path()).status();
    let mount_point = folder.path().to_string_lossy().into_owned();
    assert_eq!(
        report.expect("probe").uses,
        [Use::Mounted {
            device: device.path().to_string_lossy().into_owned(),
            mount_point
        }]
    );
    assert!(unmounted.is_ok_and(|status| status.success()));
}

#[test]
fn the_mount_table_is_matched_by_number_and_by_source() {
    let table = "27 1 8:17 / / rw,relatime - ext4 /dev/root rw\n\
                 30 27 0:40 /sub /mnt/a\\040b rw shared:1 - btrfs /dev/sdz rw\n\
                 31 27 0:41 / /proc rw - proc proc rw\n\
                 broken line\n";
    let number = |major, minor| DeviceNumber { major, minor };
    let device_of = |path: &Path| (path == Path::new("/dev/sdz")).then(|| number(65, 144));
    let points = |family: &[DeviceNumber]| -> Vec<String> {
        let uses = mounts_in(table, family, &device_of);
        uses.into_iter()
            .map(|u| {
                if let Use::Mounted { mount_point, .. } = u {
                    mount_point
                } else {
                    String::new()
                }
            })
            .collect()
    };
    assert_eq!(points(&[number(8, 16), number(8, 17)]), ["/"]);
    assert_eq!(points(&[number(65, 144)]), ["/mnt/a b"]);
    assert!(points(&[number(9, 9)]).is_empty());
    assert_eq!(unescape("a\\040b\\134c\\9\\04"), "a b\\c\\9\\04");
}

/// The mark of a probed device is later computed from a locked device that is open for direct I/O,
/// by whole blocks.
#[test]
fn the_mark_of_a_locked_device_is_that_of_the_probe_until_a_write() {
    let folder = tempfile::tempdir().expect("folder");
    for (number, size) in [SIZE, SIZE + 1536, 5 << 20, (5 << 20) + 512, 8192]
        .into_iter()
        .enumerate()
    {
        let path = folder.path().join(number.to_string());
        let file = std::fs::File::create(&path).expect("create");
        file.set_len(size).expect("size");
        let probed = || probe(&path, |_| None).expect("probe").mark;
        let locked = || {
            Mark::of_device(&FileMember::open(&path, &OpenOptions::default()).expect("open"))
                .expect("read")
        };
        assert_eq!(
            (probed(), locked()),
            (Mark::default(), Mark::default()),
            "{size}"
        );
        let mut before = Mark::default();
        for offset in [4096, 0, size / 4096 * 4096 - 1] {
            file.write_all_at(&[7], offset).expect("write");
            assert_ne!(locked(), before, "{size} {offset}");
            assert_eq!(locked(), probed(), "{size} {offset}");
            before = locked();
        }
    }
}

#[test]
fn two_names_of_the_same_bytes_are_found() {
    let dir = tempfile::tempdir().expect("folder");
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a"), "x").expect("file");
    std::fs::write(at("b"), "x").expect("file");
    std::fs::create_dir(at("sub")).expect("folder");
    std::fs::hard_link(at("a"), at("hard")).expect("link");
    std::os::unix::fs::symlink(at("a"), at("soft")).expect("link");
    std::os::unix::fs::symlink(at("sub"), at("other")).expect("link");
    let why = |names: &[&str]| {
        let paths: Vec<std::path::PathBuf> = names.iter().map(|name| at(name)).collect();
        named_twice(paths.iter().map(std::path::PathBuf::as_path)).map(|twice| {
            (
                twice.first,
                twice.second,
                twice.why.replace(&format!("{}/", dir.path().display()), ""),
            )
        })
    };
    let said = |first, second, text: &str| Some((first, second, text.to_owned()));
    assert_eq!(why(&["a", "b", "new", "sub/new"]), None);
    assert_eq!(why(&["b", "a", "a"]), said(1, 2, "a is named twice"));
    assert_eq!(why(&["a", "./a"]), said(0, 1, "./a is named twice"));
    assert_eq!(
        why(&["a", "hard"]),
        said(0, 1, "a and hard are two names of one file")
    );
    assert_eq!(
        why(&["b", "soft", "a"]),
        said(1, 2, "soft and a are two names of one file")
    );
    // A missing file given twice must be detected before the first creation.
    assert_eq!(why(&["new", "./new"]), said(0, 1, "./new is named twice"));
    assert_eq!(
        why(&["sub/new", "other/new"]),
        said(0, 1, "sub/new and other/new are two names of one file")
    );
}
