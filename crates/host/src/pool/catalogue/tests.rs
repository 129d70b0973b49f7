use super::*;
use crate::exports::NamedExport;

fn volume(id: u32, name: &str) -> VolumeEntry {
    VolumeEntry {
        id: VolumeId(id),
        name: name.to_owned(),
        size_bytes: u64::from(id) * 4096,
        read_only: false,
    }
}

fn of(volumes: Vec<VolumeEntry>) -> Catalogue {
    Catalogue {
        volumes,
        ..Catalogue::default()
    }
}

fn add(catalogue: &mut Catalogue, name: &str, volume: &str, default: bool) {
    let mut table = catalogue.table().clone();
    let export = NamedExport {
        volume: volume.to_owned(),
        ..NamedExport::default()
    };
    table
        .add(name, export, default, &catalogue.views())
        .unwrap();
    catalogue.change_table(|kept| *kept = table);
}

/// If each lookup walked over all exports, a client that asks for each of 4096 exports would cost
/// 16 million steps.
#[test]
fn exports_are_resolved_once_for_each_change() {
    let mut catalogue = of((1..=4096)
        .map(|id| volume(id, &format!("volume-{id}")))
        .collect());
    let resolved = catalogue.resolved().exports.as_ptr();
    for id in 1..=4096 {
        let info = catalogue.info(&format!("volume-{id}")).unwrap();
        assert_eq!(
            (info.volume, info.size_bytes),
            (VolumeId(id), u64::from(id) * 4096)
        );
    }
    assert_eq!(
        (
            catalogue.infos().count(),
            catalogue.exports().len(),
            catalogue.info("").is_none()
        ),
        (4096, 4096, true)
    );
    assert_eq!(
        resolved,
        catalogue.resolved().exports.as_ptr(),
        "questions change nothing"
    );
    assert!(catalogue.other_volume("volume-7").is_none());
    add(&mut catalogue, "look", "volume-7", true);
    assert!(catalogue.resolved.get().is_none());
    assert_eq!(
        (
            catalogue.info("look").unwrap().volume,
            catalogue.info("").unwrap().name.as_str()
        ),
        (VolumeId(7), "look")
    );
    assert_eq!(
        (
            catalogue.other_volume("look").as_deref(),
            catalogue.position("look")
        ),
        (Some("volume-7"), Some(0)),
        "the default is the first"
    );
}

/// An index that outlives a change would admit clients to a removed export.
#[test]
fn each_change_is_seen_by_the_next_lookup() {
    let mut catalogue = of(vec![volume(1, "a"), volume(4, "b")]);
    assert!(
        catalogue.info("a").is_some()
            && catalogue.info("b").is_some()
            && catalogue.info("c").is_none()
    );
    assert_eq!(
        (
            catalogue.volume(VolumeId(4)).map(|found| found.size_bytes),
            catalogue.volume(VolumeId(2)).is_none()
        ),
        (Some(16384), true)
    );
    let mut table = catalogue.table().clone();
    table.remove("a", &catalogue.views()).unwrap();
    catalogue.change_table(|kept| *kept = table);
    assert!(catalogue.info("a").is_none());
    assert_eq!(catalogue.not_served(), ["a"]);
    add(&mut catalogue, "c", "a", true);
    assert_eq!(
        catalogue.info("").map(|info| info.volume),
        Some(VolumeId(1))
    );
    catalogue.change_table(|table| table.forget_volume(VolumeId(1), "a"));
    assert!(catalogue.info("c").is_none() && catalogue.info("").is_none());
    assert!(
        catalogue.info("a").is_some(),
        "it is not withdrawn any more"
    );
}
