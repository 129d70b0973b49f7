use super::*;
use crate::metadata::Metadata;
use serde_json::{Value, json};

/// A small tree that breaks no rule.
fn good_tree() -> Tree {
    let lib = "//! The engine.\nuse std::time::Duration;\n/// One.\npub fn one(at: Duration) -> Duration {\n    at\n}\n";
    let manifest = "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n";
    tree(&[
        ("CHANGELOG.md", "# Changes\n\n## [Unreleased]\n"),
        (
            "README.md",
            "# It\n\nSee [words](docs/dependencies.md#the-list) and `[x](nowhere)`.\n\n```sh\ncargo xtask tidy\nwindrow demo\n```\n",
        ),
        ("crates/engine/Cargo.toml", manifest),
        ("crates/engine/src/lib.rs", lib),
        (
            "crates/engine/src/tests.rs",
            "use std::fs;\nfn f() { std::thread::yield_now() }\n",
        ),
        ("crates/host/Cargo.toml", manifest),
        ("crates/io/Cargo.toml", manifest),
        ("crates/io/src/lib.rs", "//! Buffers.\nunsafe fn f() {}\n"),
        (
            "docs/dependencies.md",
            "# The list\n\n| name | why |\n|---|---|\n| `serde` | because |\n",
        ),
    ])
}

fn tree(files: &[(&str, &str)]) -> Tree {
    Tree {
        files: files
            .iter()
            .map(|(path, text)| File {
                path: (*path).to_owned(),
                bytes: text.as_bytes().to_vec(),
            })
            .collect(),
    }
}

/// The good tree with one file replaced or added.
fn with(path: &str, text: &str) -> Tree {
    let mut tree = good_tree();
    tree.files.retain(|file| file.path != path);
    tree.files.push(File {
        path: path.to_owned(),
        bytes: text.as_bytes().to_vec(),
    });
    tree
}

fn package(name: &str, license: &str, dependencies: &[(&str, Option<&str>, bool)]) -> Value {
    let list: Vec<Value> = dependencies.iter().map(|(name, kind, ours)| json!({"name": name, "kind": kind, "path": ours.then_some("somewhere")})).collect();
    json!({"id": name, "name": name, "license": license, "dependencies": list})
}

fn node(name: &str, needs: &[&str]) -> Value {
    let deps: Vec<Value> = needs
        .iter()
        .map(|need| json!({"pkg": need, "dep_kinds": [{"kind": null}]}))
        .collect();
    json!({"id": name, "deps": deps})
}

fn metadata(engine: &[(&str, Option<&str>, bool)], serde_needs: &[&str]) -> Metadata {
    let ours = "Apache-2.0 OR MIT";
    let mut packages = vec![
        package("windrow-engine", ours, engine),
        package("windrow-io", ours, &[]),
        package(
            "windrow-host",
            ours,
            &[("windrow-engine", None, true), ("windrow-io", None, true)],
        ),
        package("serde", "MIT OR Apache-2.0", &[]),
    ];
    let mut nodes = vec![
        node("windrow-engine", &["windrow-io", "serde"]),
        node("windrow-io", &[]),
        node("windrow-host", &["windrow-engine"]),
        node("serde", serde_needs),
    ];
    for need in serde_needs {
        packages.push(package(need, "MIT", &[]));
        nodes.push(node(need, &["serde"]));
    }
    let members = ["windrow-engine", "windrow-io", "windrow-host"];
    Metadata::parse(
        &json!({"workspace_members": members, "packages": packages, "resolve": {"nodes": nodes}}),
    )
    .expect("the form is right")
}

fn good_metadata() -> Metadata {
    metadata(&[("windrow-io", None, true), ("serde", None, false)], &[])
}

fn rules(tree: &Tree, metadata: &Metadata) -> Vec<String> {
    check(tree, metadata)
        .all
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[track_caller]
fn finds(tree: &Tree, expected: &str) {
    let found = rules(tree, &good_metadata());
    assert!(
        found.len() == 1 && found[0].contains(expected),
        "expected one finding with {expected:?}, found {found:#?}"
    );
}

#[test]
fn a_good_tree_has_no_findings() {
    assert_eq!(rules(&good_tree(), &good_metadata()), Vec::<String>::new());
}

#[test]
fn arrows_are_kept() {
    let upward = metadata(
        &[
            ("windrow-io", None, true),
            ("windrow-host", None, true),
            ("serde", None, false),
        ],
        &[],
    );
    let found = rules(&good_tree(), &upward);
    assert!(
        found.len() == 1
            && found[0].starts_with(
                "error[arrows] crates/engine/Cargo.toml: `engine` may not depend on `host`"
            ),
        "{found:#?}"
    );
    let in_tests = metadata(
        &[("windrow-host", Some("dev"), true), ("serde", None, false)],
        &[],
    );
    assert_eq!(rules(&good_tree(), &in_tests).len(), 1);
    let harmless = metadata(
        &[("windrow-sim", Some("dev"), true), ("serde", None, false)],
        &[],
    );
    assert_eq!(rules(&good_tree(), &harmless), Vec::<String>::new());
}

#[test]
fn the_table_of_arrows_points_down_only() {
    for (index, (name, allowed)) in arrows::ALLOWED.iter().enumerate() {
        for target in *allowed {
            // Planned crates may be listed before they exist.
            let place = arrows::ALLOWED
                .iter()
                .position(|(other, _)| other == target);
            assert!(
                place.is_some_and(|place| place < index),
                "`{name}` -> `{target}` must point to a line above"
            );
        }
    }
}

#[test]
fn the_engine_stays_small() {
    let most = dependencies::ENGINE_MOST;
    let names: Vec<String> = (0..most).map(|number| format!("p{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let engine = [("windrow-io", None, true), ("serde", None, false)];
    let found = rules(&good_tree(), &metadata(&engine, &names));
    assert!(
        found.len() == 1
            && found[0].contains(&format!(
                "{} packages from outside, at most {most}",
                most + 1
            )),
        "{found:#?}"
    );
    assert_eq!(
        rules(&good_tree(), &metadata(&engine, &names[..most - 2])),
        Vec::<String>::new()
    );
}

#[test]
fn source_rules() {
    let engine = "crates/engine/src/lib.rs";
    finds(
        &with(
            "crates/host/src/lib.rs",
            "fn f() {\n    unsafe { g() }\n}\n",
        ),
        "error[unsafe] crates/host/src/lib.rs:2",
    );
    finds(
        &with(engine, "use std::{fmt, time::{Duration, Instant}};\n"),
        "error[purity] crates/engine/src/lib.rs:1: `std::time::Instant`",
    );
    finds(
        &with(engine, "fn f() { std::fs::read(p); }\n"),
        "`std::fs` in a pure crate",
    );
    finds(
        &with(engine, "use std::collections::{BTreeMap, HashMap};\n"),
        "`std::collections::HashMap`",
    );
    finds(&with(engine, "use std::time;\n"), "name the item");
    finds(&with(engine, "fn f() { rand::random(); }\n"), "randomness");
    finds(&with(engine, "fn f() { todo!() }\n"), "error[unfinished]");
    finds(&with(engine, "// FIXME later\n"), "`FIXME` in a comment");
    finds(&with(engine, &"\n".repeat(650)), "warning[file-length]");
    finds(&with(engine, &"\n".repeat(701)), "error[file-length]");
    let long = |lines: usize| format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2));
    finds(
        &with(engine, &long(71)),
        "warning[function-length] crates/engine/src/lib.rs:1: `long` has 71 lines",
    );
    finds(&with(engine, &long(111)), "error[function-length]");
    assert!(
        rules(
            &with("crates/engine/src/store/map/tests.rs", &long(800)),
            &good_metadata()
        )
        .is_empty()
    );
    assert!(
        rules(
            &with(
                engine,
                "/// Say \"unsafe\" and std::fs.\nconst S: &str = \"unsafe { std::fs }\";\n"
            ),
            &good_metadata()
        )
        .is_empty()
    );
}

/// A revert that left both sides of a conflict in a document must be found.
#[test]
fn a_merge_that_was_not_settled_is_found() {
    finds(
        &with("docs/architecture.md", "# A\n<<<<<<< HEAD\n"),
        "error[conflict] docs/architecture.md:2",
    );
    finds(
        &with("docs/architecture.md", "# A\n>>>>>>> parent of 1\n"),
        "error[conflict] docs/architecture.md:2",
    );
}

#[test]
fn text_rules() {
    finds(
        &with("docs/a.md", "[gone](b.md)\n"),
        "error[links] docs/a.md:1: `b.md` does not exist",
    );
    finds(
        &with("docs/a.md", "[up](../../b.md)\n"),
        "leads out of the tree",
    );
    finds(
        &with("docs/a.md", "[x](dependencies.md#no-such)\n"),
        "no such heading",
    );
    finds(
        &with("docs/a.md", "```\ncargo xtask fly\n```\n"),
        "there is no task `cargo xtask fly`",
    );
    finds(&with("CHANGELOG.md", "# Changes\n"), "error[changelog]");
    finds(
        &with("s12.log", "what a run printed\n"),
        "error[leftover] s12.log",
    );
    finds(
        &with("notes.txt", &format!("see {}me\n", concat!("/ho", "me/"))),
        "error[machine-path] notes.txt:1",
    );
    assert!(
        rules(
            &with(
                "notes.txt",
                &format!(
                    "https://example.org{}me, net{}\n",
                    concat!("/ho", "me/"),
                    "work/"
                )
            ),
            &good_metadata()
        )
        .is_empty()
    );
    let mut big = good_tree();
    big.files.push(File {
        path: "image.bin".to_owned(),
        bytes: vec![0; (1 << 20) + 1],
    });
    finds(&big, "error[binary]");
}

#[test]
fn error_ids_and_their_guide_agree() {
    let code = (
        "crates/host/src/lib.rs",
        "const A: &str = \"WR-POOL-001\"; // WR-x WR-POOL-\n",
    );
    let mut both = tree(&[
        code,
        (
            "docs/reference/errors.md",
            "`WR-POOL-001` and `WR-POOL-002`\n",
        ),
    ]);
    both.files.extend(good_tree().files);
    finds(
        &both,
        "error[error-ids] docs/reference/errors.md: `WR-POOL-002` is explained and not used",
    );
    finds(
        &with(code.0, code.1),
        "`WR-POOL-001` is used in the code and not explained",
    );
}

#[test]
fn dependencies_are_documented_and_crates_take_the_lints() {
    finds(
        &with("docs/dependencies.md", "# The list\n"),
        "`serde` is a direct dependency without a line",
    );
    finds(
        &with(
            "docs/dependencies.md",
            "# The list\n\n| `serde` | yes |\n| `old` | no |\n",
        ),
        "`old` has a line but is no direct dependency",
    );
    finds(
        &with("crates/io/Cargo.toml", "[lints]\n[package]\n"),
        "error[lints] crates/io/Cargo.toml",
    );
}

#[test]
fn licence_expressions() {
    let fits = [
        "MIT",
        "MIT OR Apache-2.0",
        "Apache-2.0/MIT",
        "GPL-3.0 OR MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception",
    ];
    assert!(fits.into_iter().all(dependencies::licence_fits));
    let refused = [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "GPL-3.0 AND (MIT OR Apache-2.0)",
    ];
    assert!(!refused.into_iter().any(dependencies::licence_fits));
}

#[test]
fn commands_of_documents() {
    let text = "windrow not-fenced\n```sh\n$ windrow pool create \\\n    --name 'my pool' a b # makes it\ncargo run --release -- demo 2>/dev/null\nsudo A=1 windrow serve x | cat\nls\ncargo xtask bench nbd\ncargo xtask tidy\nwindrow-lab plan\ncargo run --release -p windrow-lab -- sim speed\n```\n";
    let found = commands::shown(text);
    let programs: Vec<(&str, Vec<&str>)> = found
        .iter()
        .filter_map(|shown| shown.program())
        .map(|(name, words)| (name, words.iter().map(String::as_str).collect()))
        .collect();
    assert_eq!(
        programs,
        [
            (
                "windrow",
                vec!["pool", "create", "--name", "my pool", "a", "b"]
            ),
            ("windrow", vec!["demo"]),
            ("windrow", vec!["serve", "x"]),
            ("windrow-bench", vec!["nbd"]),
            ("windrow-lab", vec!["plan"]),
            ("windrow-lab", vec!["sim", "speed"]),
        ]
    );
    assert_eq!(
        found.iter().map(|shown| shown.line).collect::<Vec<_>>(),
        [3, 5, 6, 7, 8, 9, 10, 11]
    );
}

#[test]
fn packages_of_the_product_are_counted_once_and_without_ours() {
    let few = "windrow v0.1.0 (/x)\nwindrow-io v0.1.0 (/x/io)\nserde v1.0.0\nserde v1.0.0 (*)\n\nlibc v0.2.0\n";
    let mut findings = Findings::default();
    dependencies::product(few, &mut findings);
    assert!(findings.all.is_empty());
    let many: String = (0..81)
        .map(|number| format!("p{number} v1.0.0\n"))
        .collect();
    dependencies::product(&many, &mut findings);
    assert_eq!(findings.count(Severity::Error), 1);
    assert!(
        findings.all[0].message.starts_with("81 packages"),
        "{}",
        findings.all[0]
    );
}

#[test]
fn a_component_is_assigned_by_its_own_module_only() {
    let path = "crates/engine/src/base/lsn.rs";
    let assigns = "fn f(&mut self) {\n    self.flush\n        .wanted |= true;\n}\n";
    finds(
        &with(path, assigns),
        "error[owner] crates/engine/src/base/lsn.rs:2: `flush` belongs",
    );
    finds(
        &with(
            path,
            "fn f(&mut self) { self.members.list[m.index()].online = false; }\n",
        ),
        "error[owner]",
    );
    let nested = "fn f(&mut self) { self.durability\n .journal.moves = true; }\n";
    finds(&with(path, nested), "`journal` belongs to `journal`");
    for right in [
        "fn f(&mut self) { self.flush.request(); }\n",
        "fn f(&mut self) { if self.flush.ended == 1 {} }\n",
        "fn f(&mut self) { self.lsns.next = 1; }\n",
        "fn f(&mut self) { self.flush = FlushState::default(); }\n",
        "fn f(&mut self) { self.durability.lsns.next = 1; }\n",
    ] {
        let findings = rules(&with(path, right), &good_metadata()).join("\n");
        assert!(!findings.contains("[owner]"), "{findings}");
    }
}

#[test]
fn words_that_hide_the_actor_are_found() {
    let path = "crates/engine/src/lib.rs";
    let line = |words: &str| format!("//! {words}\nfn f() {{}}\n");
    let hidden = concat!("This waits for no", "body.");
    finds(
        &with(path, &line(hidden)),
        "error[words] crates/engine/src/lib.rs:1",
    );
    let two = concat!("It can ", "not be written.");
    finds(&with(path, &line(two)), "write cannot");
    let part = concat!("A gener", "ation record of Sail", "ings.");
    let findings = rules(&with(path, &line(part)), &good_metadata()).join("\n");
    assert!(!findings.contains("[words]"), "{findings}");
}

#[test]
fn stops_of_the_tour_exist() {
    let tour = |stop: &str| {
        with(
            "docs/internals/tour.md",
            &format!("# Tour\n\n- `{stop}` does.\n"),
        )
    };
    let findings = rules(&tour("lib.rs:one"), &good_metadata()).join("\n");
    assert!(!findings.contains("[tour]"), "{findings}");
    finds(&tour("lib.rs:two"), "has no function `two`");
    finds(&tour("two.rs:one"), "there is no crates/engine/src/two.rs");
    let long = "- `lib.rs:one` does.\n".repeat(13);
    finds(&with("docs/internals/tour.md", &long), "more than 12 stops");
}
