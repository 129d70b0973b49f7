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
