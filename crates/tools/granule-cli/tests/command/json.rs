//! What commands print as JSON, against the schemas in docs/schemas.

use super::{BUNDLED, Place};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const SCHEMAS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/schemas");

fn schema(name: &str) -> Value {
    let path = Path::new(SCHEMAS).join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Every name that a script may rely on is there, with a value of its kind.
#[track_caller]
pub(super) fn fits(name: &str, answer: &Value) {
    let schema = schema(name);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<_> =
        validator.iter_errors(answer).map(|error| format!("{}: {error}", error.instance_path)).collect();
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
}

/// A recording with refusals, iterations, another stream and a leak.
const LINES: &str =
    "i 0\na 0 8388608 0\ni 1\na 1 30000000 1\nr 1 0\nf 1\ni 2\na 2 8388608 0\ni 3\na 3 60000000 0\nf 3\n";

fn place() -> Place {
    let place = Place::new();
    place
        .trace("t.gz", LINES)
        .file("whole.gz", BUNDLED)
        .file("p.csv", b"id,lower,upper,size\na,0,2,8\nb,1,3,8\n");
    for (name, conf) in [("s.pickle", "history_max_entries:100"), ("w.pickle", "history_max_entries:6")] {
        let args = ["replay", "t.gz", "--capacity", "64MiB", "--snapshot", name];
        assert_eq!(place.run_with(&args, &[("GRANULE_CONF", conf)]).code, 0);
    }
    place
}

#[test]
fn what_is_wrong_with_the_command_line_is_said_without_a_word_about_help() {
    let place = Place::new();
    for args in [&["replay", "t.gz", "--capacity", "much", "--json"][..], &["inspect", "--json"]] {
        let ran = place.run(args);
        let answer: Value = serde_json::from_str(&ran.out).unwrap();
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!((ran.code, message.contains("--help")), (2, false), "{message}");
        assert!(!message.is_empty() && ran.err.contains("For more information, try '--help'"), "{}", ran.err);
    }
}

#[test]
fn every_answer_is_as_its_schema_says() {
    let place = place();
    let answers: &[(&str, &[&str])] = &[
        ("replay", &["replay", "whole.gz"]),
        ("replay", &["replay", "t.gz", "--capacity", "64MiB", "--policy", "granule"]),
        ("replay", &["replay", "s.pickle"]),
        ("min-capacity", &["min-capacity", "t.gz"]),
        ("min-capacity", &["min-capacity", "s.pickle", "--policy", "granule"]),
        ("plan", &["plan", "t.gz"]),
        ("plan", &["plan", "p.csv"]),
        ("inspect", &["inspect", "t.gz", "--capacity", "64MiB"]),
        ("inspect", &["inspect", "w.pickle"]),
        ("inspect", &["inspect", "t.gz", "s.pickle"]),
        ("check", &["check", "t.gz", "--max-reserved", "1GiB"]),
        ("check", &["check", "t.gz", "--max-growth", "900%"]),
        ("whatif", &["whatif", "t.gz", "--capacity", "64MiB,1GiB"]),
        ("whatif", &["whatif", "w.pickle"]),
        ("report", &["report", "t.gz", "--no-whatif"]),
        ("report", &["report", "t.gz", "s.pickle"]),
        ("export", &["export", "t.gz", "--parquet", "tables", "--perfetto", "p.json"]),
        ("devices", &["devices"]),
        ("devices", &["devices", "--who"]),
        ("doctor", &["doctor", "--backend", "openreg"]),
    ];
    for (name, args) in answers {
        fits(name, &place.run(&[*args, &["--json"]].concat()).json());
    }
    let lines = place.run(&["conformance", "--backend", "openreg", "--area", "memory", "--json"]).out;
    assert!(lines.lines().count() > 40, "{lines}");
    for line in lines.lines() {
        fits("conformance", &serde_json::from_str(line).unwrap());
    }
    let told: BTreeSet<_> = answers.iter().map(|(name, _)| (*name).to_owned()).collect();
    let others = ["conformance", "error", "estimate"].map(ToOwned::to_owned);
    let there: BTreeSet<_> = std::fs::read_dir(SCHEMAS)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(there, told.into_iter().chain(others).collect());
}

#[test]
fn every_command_with_json_has_a_schema() {
    let place = Place::new();
    let overview = place.run(&["-h"]).out;
    let commands = overview.split("\n\n").nth(2).unwrap();
    let names = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let with_json = names
        .map(|line| line.split_whitespace().next().unwrap())
        .filter(|name| place.run(&[name, "--help"]).out.contains("--json"));
    let mut looked_at = 0;
    for name in with_json {
        schema(name);
        looked_at += 1;
    }
    assert!(looked_at >= 10, "{looked_at}");
}

#[test]
fn errors_are_json_too() {
    let place = Place::new();
    let error = |args: &[&str]| {
        let ran = place.run(args);
        let answer: Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{args:?}: {}", ran.out));
        fits("error", &answer);
        assert_eq!(answer["error"]["exit_code"], ran.code);
        assert!(ran.err.contains("error: "), "people read it, too: {}", ran.err);
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(error(&["replay", "nowhere.gz", "--json"]).starts_with("nowhere.gz: No such file"));
    assert!(error(&["inspect", "--json", "nowhere.gz"]).starts_with("nowhere.gz: "));
    assert!(error(&["whatif", "t.gz", "--json", "--capacity", "24"]).contains("24GiB"));
    assert!(error(&["check", "t.gz", "--json"]).contains("--max-reserved"));
    assert_eq!(place.run(&["replay", "nowhere.gz"]).out, "", "only where JSON is asked for");
    assert_eq!(place.run(&["record", "--", "nosuchprog", "--json"]).out, "", "and of this command");
}
