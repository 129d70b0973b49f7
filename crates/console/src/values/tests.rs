use super::*;

#[test]
fn sizes_are_exact() {
    let good = [
        ("0", 0),
        ("4096", 4096),
        ("4K", 4096),
        ("4k", 4096),
        ("4KiB", 4096),
        ("1.5M", 3 << 19),
        ("10G", 10 << 30),
        ("2T", 2 << 40),
        ("0.5K", 512),
        ("1B", 1),
    ];
    for (text, bytes) in good {
        assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
    }
    for text in [
        "",
        "K",
        "-1",
        "1.1K",
        "1e3",
        "1 X",
        "99999999999P",
        ".5K",
        "1.5",
        "0x10",
        "1..5K",
        "１",
    ] {
        assert!(text.parse::<Size>().is_err(), "{text}");
    }
    assert_eq!(
        Size(u64::MAX).0.to_string().parse::<Size>(),
        Ok(Size(u64::MAX))
    );
}

#[test]
fn sizes_are_shown_with_their_unit() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1 << 10, "1 KiB"),
        (3 << 19, "1.50 MiB"),
        (5 << 40, "5 TiB"),
    ] {
        assert_eq!(Size(bytes).to_string(), text);
    }
}

#[test]
fn shares_are_thousandths() {
    for (text, share) in [
        ("10%", 100),
        ("12.5%", 125),
        ("0.1", 100),
        ("0", 0),
        ("1", 1000),
        ("100%", 1000),
    ] {
        assert_eq!(text.parse::<Share>(), Ok(Share(share)), "{text}");
    }
    for text in ["", "%", "-1%", "101%", "1.1", "0.12345", "x", "NaN"] {
        assert!(text.parse::<Share>().is_err(), "{text}");
    }
    assert_eq!(
        (Share(100).to_string(), Share(125).to_string()),
        ("10%".to_owned(), "12.5%".to_owned())
    );
}

#[test]
fn a_journal_is_a_size_or_a_device() {
    let place = |text: &str| text.parse::<JournalPlace>();
    let device = |path: &str| Ok(JournalPlace::Device(PathBuf::from(path)));
    assert_eq!(
        (place("0"), place("4M")),
        (
            Ok(JournalPlace::OnMembers(Size(0))),
            Ok(JournalPlace::OnMembers(Size(4 << 20)))
        )
    );
    assert_eq!(
        (place("/dev/nvme0n1"), place("j0"), place("./1")),
        (device("/dev/nvme0n1"), device("j0"), device("./1"))
    );
    assert_eq!(
        (place(" 4M"), place("./none")),
        (Ok(JournalPlace::OnMembers(Size(4 << 20))), device("./none"))
    );
    assert!(
        ["", "4X", "none", "off"]
            .iter()
            .all(|text| place(text).is_err())
    );
}

#[test]
fn volumes_and_properties() {
    assert_eq!(
        "tank/a/b".parse::<VolumePath>().map(|path| path.volume),
        Ok("a/b".to_owned())
    );
    for text in ["tank", "/a", "tank/", ""] {
        assert!(text.parse::<VolumePath>().is_err());
    }
    assert_eq!(
        property("spare=10%"),
        Ok(("spare".to_owned(), "10%".to_owned()))
    );
    assert!(property("spare").is_err() && property("=1").is_err());
    for name in ["tank", "a-b", "deadbeef", "deadbeef-0000"] {
        assert_eq!(check_pool_name(name), Ok(()), "{name}");
    }
    for name in [
        "a/b",
        "",
        "-dash",
        "018f3c1e-7a52-4b1c-9d3e-5f60718293a4",
        "018F3C1E7A524B1C9D3E5F60718293A4",
    ] {
        assert!(check_pool_name(name).is_err(), "{name}");
    }
}

#[test]
fn an_export_may_be_left_out_but_not_empty() {
    let parse = |text: &str| text.parse::<ExportPath>();
    assert_eq!(parse("tank").unwrap().export, None);
    assert_eq!(parse("tank/a/b").unwrap().export.as_deref(), Some("a/b"));
    assert!(
        ["", "/", "tank/", "/a"]
            .iter()
            .all(|text| parse(text).is_err())
    );
}
