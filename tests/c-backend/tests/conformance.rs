//! The kit passes over the backend in C, which is as short as promised.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use serde_json::Value;
use std::process::Command;

/// Areas of which a backend with the required part alone has nothing.
const FAMILIES: [&str; 6] = ["virtual_memory", "ipc", "peers", "capture", "pools", "families"];
/// What the required part lets a backend leave out.
const LEFT_OUT: [&str; 4] = [
    "the driver has no uuids",
    "the driver has no PCI ids",
    "events of this backend keep no time",
    "is not available:",
];

#[test]
fn the_required_part_passes_and_families_are_skipped_with_reasons() {
    let output = Command::new(env!("CARGO_BIN_EXE_c-backend")).arg("--json").output().unwrap();
    let lines = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let lines: Vec<Value> = lines.map(Result::unwrap).collect();
    let card = lines.last().unwrap();
    let failed: Vec<_> = lines.iter().filter(|c| c["outcome"] == "failed").collect();
    assert!(failed.is_empty() && output.status.success(), "{failed:#?}");
    assert!(card["passed"].as_u64().unwrap() > 200);
    for skipped in lines.iter().filter(|c| c["outcome"] == "skipped") {
        let (area, why) = (skipped["area"].as_str().unwrap(), skipped["why"].as_str().unwrap());
        let expected = FAMILIES.contains(&area) || LEFT_OUT.iter().any(|reason| why.contains(reason));
        assert!(expected, "{} was skipped: {why}", skipped["name"]);
    }
    println!("{} passed, {} skipped", card["passed"], card["skipped"]);
}

#[test]
fn the_required_part_takes_less_than_400_lines_of_c() {
    let mut in_comment = false;
    let code = include_str!("../example.c").lines().map(str::trim).filter(|line| {
        let comment = in_comment || line.starts_with("/*");
        in_comment = comment && !line.ends_with("*/");
        !comment && !line.is_empty()
    });
    let lines = code.count();
    println!("required part: {lines} lines of C");
    assert!(lines < 400, "{lines} lines");
}
