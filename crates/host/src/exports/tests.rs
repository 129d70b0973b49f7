use super::*;

fn volumes() -> Vec<VolumeView<'static>> {
    ["a", "b"].map(|name| VolumeView { name, size_bytes: 4096, read_only: false }).to_vec()
}

fn names(table: &ExportTable) -> Vec<String> {
    table.resolve(&volumes()).into_iter().map(|export| export.name).collect()
}

fn export(volume: &str, read_only: bool) -> NamedExport {
    NamedExport { volume: volume.to_owned(), read_only, description: String::new() }
}

#[test]
fn volumes_are_served_under_their_names_unless_withdrawn() {
    let mut table = ExportTable::default();
    assert_eq!(names(&table), ["a", "b"]);
    table.remove("a", &volumes()).unwrap();
    assert_eq!(names(&table), ["b"]);
    assert_eq!(table.remove("a", &volumes()).unwrap_err().id, id::EXPORT_UNKNOWN);
    table.add("a", export("a", false), false, &volumes()).unwrap();
    assert_eq!(table, ExportTable::default(), "added again as it was");
}

#[test]
fn the_default_comes_first_and_names_can_be_added() {
    let mut table = ExportTable::default();
    table.add("look", export("b", true), true, &volumes()).unwrap();
    let exports = table.resolve(&volumes());
    assert_eq!((exports[0].name.as_str(), exports[0].read_only, exports[0].default), ("look", true, true));
    assert_eq!(exports.iter().filter(|export| export.default).count(), 1);
    assert_eq!(names(&table), ["look", "a", "b"]);
    assert_eq!(table.add("a", export("b", false), false, &volumes()).unwrap_err().id, id::EXPORT_EXISTS);
    assert_eq!(table.add("c", export("c", false), false, &volumes()).unwrap_err().id, id::VOLUME_UNKNOWN);
    table.forget_volume("b");
    assert_eq!(names(&table), ["a", "b"]);
}

/// A later volume of the name of a deleted one became what clients get who ask for no name.
#[test]
fn an_export_of_a_volume_that_is_gone_is_no_default() {
    let mut table = ExportTable::default();
    table.add("look", export("b", true), true, &volumes()).unwrap();
    table.forget_volume("a");
    assert_eq!(table.default.as_deref(), Some("look"));
    table.forget_volume("b");
    assert_eq!(table, ExportTable::default());
    table.default = Some("b".to_owned());
    table.added.insert("b".to_owned(), export("a", false));
    table.forget_volume("b");
    assert_eq!(table.default.as_deref(), Some("b"), "that one is of the other volume");
    table.forget_volume("a");
    assert_eq!(table, ExportTable::default());
}
