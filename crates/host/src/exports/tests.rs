use super::*;

fn of(volumes: &[(u32, &'static str)]) -> Vec<VolumeView<'static>> {
    volumes
        .iter()
        .map(|&(id, name)| VolumeView {
            id: VolumeId(id),
            name,
            size_bytes: 4096,
            read_only: false,
        })
        .collect()
}

fn volumes() -> Vec<VolumeView<'static>> {
    of(&[(1, "a"), (2, "b")])
}

fn names(table: &ExportTable) -> Vec<String> {
    table
        .resolve(&volumes())
        .into_iter()
        .map(|export| export.name)
        .collect()
}

fn default(table: &ExportTable, volumes: &[VolumeView<'_>]) -> Option<String> {
    let mut defaults: Vec<_> = table
        .resolve(volumes)
        .into_iter()
        .filter(|export| export.default)
        .collect();
    assert!(defaults.len() <= 1);
    defaults.pop().map(|export| export.name)
}

fn export(volume: &str, read_only: bool) -> NamedExport {
    NamedExport {
        volume: volume.to_owned(),
        read_only,
        ..NamedExport::default()
    }
}

#[test]
fn volumes_are_served_under_their_names_unless_withdrawn() {
    let mut table = ExportTable::default();
    assert_eq!(names(&table), ["a", "b"]);
    table.remove("a", &volumes()).unwrap();
    assert_eq!(
        (names(&table), table.not_served(&volumes())),
        (vec!["b".to_owned()], vec!["a".to_owned()])
    );
    assert_eq!(
        table.remove("a", &volumes()).unwrap_err().id,
        id::EXPORT_UNKNOWN
    );
    table
        .add("a", export("a", false), false, &volumes())
        .unwrap();
    assert_eq!(table, ExportTable::default(), "added again as it was");
}

/// The first volume is no default: once it is withdrawn or deleted, a client that names no export
/// would write to another volume.
#[test]
fn there_is_no_default_unless_one_is_named_and_it_never_moves() {
    let mut table = ExportTable::default();
    assert_eq!(default(&table, &volumes()), None);
    table
        .add("a", export("a", false), true, &volumes())
        .unwrap();
    assert_eq!(default(&table, &volumes()).as_deref(), Some("a"));
    assert_eq!(
        table
            .add("a", export("a", true), true, &volumes())
            .unwrap_err()
            .id,
        id::EXPORT_EXISTS,
        "it is there, and not as that"
    );
    table.remove("a", &volumes()).unwrap();
    assert_eq!(default(&table, &volumes()), None);
    table.set_default_volume("b", &volumes()).unwrap();
    // Deleted and made again while this table was not available.
    assert_eq!(default(&table, &of(&[(1, "a"), (3, "b")])), None);
    table.bind(&of(&[(1, "a"), (3, "b")]));
    assert_eq!(table.default_export, None);
    table.set_default_volume("a", &volumes()).unwrap();
    assert_eq!(
        (
            default(&table, &volumes()).as_deref(),
            table.not_served(&volumes()).len()
        ),
        (Some("a"), 0),
        "named, so it is served again"
    );
    table.remove_default("a").unwrap();
    assert_eq!(
        (default(&table, &volumes()), names(&table).len()),
        (None, 2)
    );
    assert_eq!(
        table.remove_default("a").unwrap_err().id,
        id::EXPORT_UNKNOWN
    );
    assert_eq!(
        table.set_default_volume("c", &volumes()).unwrap_err().id,
        id::VOLUME_UNKNOWN
    );
    table
        .add("c", export("a", false), false, &volumes())
        .unwrap();
    let three = of(&[(1, "a"), (2, "b"), (3, "c")]);
    assert_eq!(
        table.set_default_volume("c", &three).unwrap_err().id,
        id::EXPORT_EXISTS,
        "the export of that name is another volume's"
    );
}

#[test]
fn the_default_comes_first_and_names_can_be_added() {
    let mut table = ExportTable::default();
    table
        .add("look", export("b", true), true, &volumes())
        .unwrap();
    let exports = table.resolve(&volumes());
    assert_eq!(
        (
            exports[0].name.as_str(),
            exports[0].read_only,
            exports[0].default
        ),
        ("look", true, true)
    );
    assert_eq!(names(&table), ["look", "a", "b"]);
    assert_eq!(
        table
            .add("a", export("b", false), false, &volumes())
            .unwrap_err()
            .id,
        id::EXPORT_EXISTS
    );
    assert_eq!(
        table
            .add("c", export("c", false), false, &volumes())
            .unwrap_err()
            .id,
        id::VOLUME_UNKNOWN
    );
    for name in ["", "c\0d", "c\nd", &"c".repeat(256)] {
        assert_eq!(
            table
                .add(name, export("a", false), false, &volumes())
                .unwrap_err()
                .id,
            id::USAGE,
            "{name:?}"
        );
    }
    table.forget_volume(VolumeId(2), "b");
    assert_eq!(
        table,
        ExportTable::default(),
        "an export of a volume that is gone is no default"
    );
}

/// A name that was added for a deleted volume must not serve a later volume of that name.
#[test]
fn an_export_stays_with_its_volume() {
    let mut table = ExportTable::default();
    table
        .add("look", export("b", true), false, &volumes())
        .unwrap();
    let renamed = table.resolve(&of(&[(1, "a"), (2, "c")]));
    assert_eq!(
        renamed
            .iter()
            .find(|export| export.name == "look")
            .map(|export| export.volume.as_str()),
        Some("c")
    );
    let made_again = of(&[(1, "a"), (3, "b")]);
    assert!(
        !table
            .resolve(&made_again)
            .iter()
            .any(|export| export.name == "look")
    );
    table.bind(&made_again);
    assert_eq!(table, ExportTable::default());
}

/// A default in an older version's file has no volume id before the pool is opened.
#[test]
fn tables_of_older_versions_are_understood() {
    let text = r#"{ "added": { "look": { "volume": "b", "read_only": true } }, "withdrawn": ["a", "gone"], "default": "look" }"#;
    let mut table: ExportTable = serde_json::from_str(text).unwrap();
    table.bind(&volumes());
    assert_eq!(default(&table, &volumes()).as_deref(), Some("look"));
    assert_eq!(
        (table.added["look"].volume_id, table.withdrawn.len()),
        (Some(VolumeId(2)), 1)
    );
    let kept: ExportTable = serde_json::from_str(&serde_json::to_string(&table).unwrap()).unwrap();
    assert_eq!(kept, table);
    let mut table: ExportTable = serde_json::from_str(r#"{ "default": "gone" }"#).unwrap();
    table.bind(&volumes());
    assert_eq!(table, ExportTable::default());
}

#[test]
fn what_was_made_elsewhere_is_not_served_by_itself() {
    let adopt =
        |kept: KeptExports| kept.adopt([(VolumeId(1), "a"), (VolumeId(4), "b")].into_iter());
    let (table, closed) = adopt(KeptExports::default());
    assert_eq!(
        (names(&table).len(), closed.len()),
        (2, 0),
        "it was never away"
    );
    let (mut table, closed) = adopt(KeptExports {
        elsewhere_from: Some(VolumeId(0)),
        ..KeptExports::default()
    });
    assert_eq!(
        (names(&table).len(), closed),
        (0, vec!["a".to_owned(), "b".to_owned()])
    );
    table
        .add("b", export("b", false), false, &volumes())
        .unwrap();
    assert_eq!(names(&table), ["b"]);
    let (table, closed) = adopt(KeptExports {
        elsewhere_from: Some(VolumeId(3)),
        ..KeptExports::default()
    });
    assert_eq!(
        (names(&table), closed),
        (vec!["a".to_owned()], vec!["b".to_owned()]),
        "one was made there"
    );
}

#[test]
fn exports_follow_the_new_name_of_a_volume() {
    let mut table = ExportTable::default();
    table
        .add("look", export("a", true), false, &volumes())
        .unwrap();
    table.remove("a", &volumes()).unwrap();
    table.set_default("b", &volumes()).unwrap();
    let ids = volumes().iter().map(|volume| volume.id).collect::<Vec<_>>();
    table.rename_volume(ids[0], "a", "x");
    table.rename_volume(ids[1], "b", "y");
    let renamed = [(ids[0], "x"), (ids[1], "y")].map(|(id, name)| VolumeView {
        id,
        name,
        size_bytes: 4096,
        read_only: false,
    });
    let exports: Vec<_> = table
        .resolve(&renamed)
        .into_iter()
        .map(|export| (export.name, export.volume, export.default))
        .collect();
    let served = |name: &str, volume: &str, default| (name.to_owned(), volume.to_owned(), default);
    assert_eq!(
        exports,
        [served("y", "y", true), served("look", "x", false)],
        "x is withdrawn, as a was"
    );
}

/// With an export for each volume, a linear search for each of them would be quadratic.
#[test]
fn tables_as_large_as_they_can_be_are_resolved() {
    let names: Vec<String> = (1..=4096).map(|id| format!("volume-{id}")).collect();
    let view = |(id, name)| VolumeView {
        id: VolumeId(id),
        name,
        size_bytes: 4096,
        read_only: false,
    };
    let volumes: Vec<VolumeView<'_>> = (1..)
        .zip(names.iter().map(String::as_str))
        .map(view)
        .collect();
    let mut table = ExportTable::default();
    for (at, name) in names.iter().enumerate() {
        // Every other one is of a version without ids.
        let volume_id = at.is_multiple_of(2).then_some(VolumeId(at as u32 + 1));
        table.added.insert(
            format!("export-{name}"),
            NamedExport {
                volume_id,
                ..export(name, false)
            },
        );
        table.withdrawn.insert(name.clone());
    }
    table.bind(&volumes);
    let is_bound = |name: &String, id: u32| {
        table.added[&format!("export-{name}")].volume_id == Some(VolumeId(id))
    };
    assert!((1..).zip(&names).all(|(id, name)| is_bound(name, id)));
    assert_eq!(
        (
            table.resolve(&volumes).len(),
            table.not_served(&volumes).len()
        ),
        (4096, 0)
    );
    table.added.pop_first();
    assert_eq!(table.not_served(&volumes), ["volume-1"]);
}

/// The new name must not be served writable alongside a read-only export of the old one, nor a
/// volume that is hidden by another export.
#[test]
fn a_rename_opens_nothing() {
    let ids = volumes().iter().map(|volume| volume.id).collect::<Vec<_>>();
    let renamed = [(ids[0], "x"), (ids[1], "b")].map(|(id, name)| VolumeView {
        id,
        name,
        size_bytes: 4096,
        read_only: false,
    });
    let exports = |table: &ExportTable| {
        table
            .resolve(&renamed)
            .into_iter()
            .map(|e| (e.name, e.volume, e.read_only, e.default))
            .collect::<Vec<_>>()
    };
    let served = |name: &str, volume: &str, read_only, default| {
        (name.to_owned(), volume.to_owned(), read_only, default)
    };
    let mut table = ExportTable::default();
    table.remove("a", &volumes()).unwrap();
    table.add("a", export("a", true), true, &volumes()).unwrap();
    let mut prepared = table.clone();
    prepared.prepare_rename(ids[0], "a", "x");
    assert!(
        exports(&prepared)
            .iter()
            .all(|(_, volume, read_only, _)| volume == "b" || *read_only),
        "not for a moment"
    );
    prepared.rename_volume(ids[0], "a", "x");
    table.rename_volume(ids[0], "a", "x");
    assert_eq!(
        exports(&table),
        [served("x", "x", true, true), served("b", "b", false, false)]
    );
    assert_eq!(exports(&prepared), exports(&table));
    let mut table = ExportTable::default();
    table.remove("a", &volumes()).unwrap();
    table
        .add("a", export("b", false), false, &volumes())
        .unwrap();
    table.rename_volume(ids[0], "a", "x");
    assert_eq!(
        exports(&table),
        [
            served("b", "b", false, false),
            served("a", "b", false, false)
        ]
    );
}
