use super::*;

#[test]
fn views_keep_lines_and_separate_comments_from_code() {
    let source = "let a = \"unsafe // no\"; // unsafe here\n/* outer /* inner */ still */ let c = '\\''; let l: &'static str = r#\"un\"safe\"#;\nfn r#unsafe() {}";
    let views = split(source);
    assert_eq!(views.code.lines().count(), 3);
    assert_eq!(views.code.len(), source.len());
    assert!(!views.code.lines().next().unwrap().contains("unsafe"));
    assert!(
        views
            .comments
            .lines()
            .next()
            .unwrap()
            .contains("unsafe here")
    );
    assert!(views.comments.contains("still") && !views.code.contains("still"));
    assert!(views.code.contains("&'static str"));
    assert!(!views.code.contains("un\"safe"));
}

#[test]
fn unfinished_input_is_harmless() {
    for source in [
        "/* never",
        "\"never",
        "r##\"never\"#",
        "'",
        "'\\",
        "b'",
        "é'é'",
        "fn",
        "fn a(",
        "use std::{",
        "use std::{a,",
        "std::",
    ] {
        let views = split(source);
        assert_eq!(views.code.len(), source.len());
        functions(&views.code);
        std_paths(&views.code);
    }
}

#[test]
fn functions_are_measured() {
    let source = "fn one() -> [u8; 4] {\n    [0; 4]\n}\ntrait T {\n    fn declared(&self);\n    fn two(&self)\n    where\n        Self: Sized,\n    {\n        if true {\n        }\n    }\n}\nlet f: fn(u8) = g;\n";
    let found = functions(&split(source).code);
    let expect = [("one", 1, 3), ("two", 6, 7)].map(|(name, line, lines)| Function {
        name: name.to_owned(),
        line,
        lines,
    });
    assert_eq!(found, expect);
}

#[test]
fn words_are_whole() {
    assert_eq!(
        words("unsafe unsafe_code an_unsafe unsafe{", "unsafe").collect::<Vec<_>>(),
        [0, 29]
    );
}

#[test]
fn paths_of_the_standard_library_are_written_out() {
    let code = "use std::{fs, time::{Duration, Instant as Clock}};\nlet x = ::std::thread::spawn(f);\nuse core::fmt;\nother::std::fs::x();\nuse std::time;\n";
    let found: Vec<String> = std_paths(code).into_iter().map(|(_, path)| path).collect();
    assert_eq!(
        found,
        [
            "std::fs",
            "std::time::Duration",
            "std::time::Instant",
            "std::thread::spawn",
            "std::time",
            "std::fmt"
        ]
    );
}
