//! What the shared library exports is what the header declares, and nothing else.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::Path;

/// Names followed by `(` that are not function pointers' (`(*name)(`), outside of comments.
fn declared(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").unwrap().1;
    }
    code.push_str(rest);
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices('(') {
        let name = code[..at].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
        if name.starts_with("granule_") {
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn the_library_exports_the_headers_functions_and_nothing_else() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/granule.h");
    let declared = declared(&std::fs::read_to_string(header).unwrap());
    assert!(declared.len() > 150 && declared.contains("granule_malloc"), "{declared:?}");

    let library = std::env::current_exe().unwrap().with_file_name("libgranule_capi.so");
    let bytes = std::fs::read(&library).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let exported: BTreeSet<String> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .map(|symbol| symbol.name().unwrap().to_owned())
        .collect();
    let foreign: Vec<_> = exported.iter().filter(|name| !name.starts_with("granule_")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    let difference: Vec<_> = exported.symmetric_difference(&declared).collect();
    assert!(difference.is_empty(), "exported or declared, and not both: {difference:?}");
}
