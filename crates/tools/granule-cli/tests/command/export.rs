//! Recorded runs for the tools of others. What is in the files is checked in crates/tools/granule-export, and by `cargo xtask tables`.

use super::{BUNDLED, Place};
use std::io::Read;

#[test]
fn every_table_of_a_trace() {
    let place = Place::new();
    place.file("week.trace.gz", BUNDLED);
    let ran = place.run(&["export", "week.trace.gz", "--parquet", "runs/a"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.starts_with("resnet_train is run week in:\n"), "{}", ran.out);
    for table in ["runs", "iterations", "sites", "segments", "allocations", "events"] {
        let file = std::fs::read(place.path(&format!("runs/a/{table}.parquet"))).unwrap();
        assert_eq!((&file[..4], &file[file.len() - 4..]), (&b"PAR1"[..], &b"PAR1"[..]), "{table}");
        assert!(ran.out.contains(&format!("runs/a/{table}.parquet")), "{}", ran.out);
    }
    let json = place.run(&["export", "week.trace.gz", "--parquet", "runs/b", "--run", "b", "--json"]).json();
    assert_eq!(json["run"], "b");
    let rows: Vec<_> = json["files"].as_array().unwrap().iter().map(|file| file["entries"].clone()).collect();
    assert_eq!(rows[0], 1, "one run");
    assert_eq!(rows[1], 30, "its iterations");
    assert_eq!(rows[4], 19_105, "its requests");
}

#[test]
fn tables_of_another_run_are_not_replaced_unasked() {
    let place = Place::new();
    place.trace("a.trace.gz", "a 0 512 0\n").trace("b.trace.gz", "a 0 1024 0\n");
    assert_eq!(place.run(&["export", "a.trace.gz", "--parquet", "runs"]).code, 0);
    let before = std::fs::read(place.path("runs/allocations.parquet")).unwrap();
    assert_eq!(place.run(&["export", "a.trace.gz", "--parquet", "runs"]).code, 0, "the same run again");
    let ran = place.run(&["export", "b.trace.gz", "--parquet", "runs"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(
        ran.err.contains("runs has the tables of the run 'a'") && ran.err.contains("--overwrite"),
        "{}",
        ran.err
    );
    assert_eq!(std::fs::read(place.path("runs/allocations.parquet")).unwrap(), before);
    assert_eq!(place.run(&["export", "b.trace.gz", "--parquet", "runs", "--overwrite"]).code, 0);
}

#[test]
fn an_interrupted_export_leaves_nothing() {
    let place = Place::new();
    // It waits for standard input with its files open.
    let mut command = super::granule(&place.path("."));
    let mut child = command
        .args(["export", "-", "--parquet", "runs", "--perfetto", "p.json"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    while !place.path("runs").exists() && began.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    let left: Vec<_> = std::fs::read_dir(place.path("runs")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let left: Vec<_> =
        std::fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["runs"]);
}

#[test]
fn a_perfetto_trace_of_a_snapshot_with_its_peaks() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let replay = place.run(&["replay", "t.gz", "--snapshot", "s.pickle", "--json"]).json();
    let ran = place.run(&["export", "s.pickle", "--perfetto", "p.json.gz", "--slices", "100"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("the 100 largest of 19105 allocations"), "{}", ran.err);
    let mut text = String::new();
    let file = std::fs::File::open(place.path("p.json.gz")).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let most = |name: &str| {
        let of = events.iter().filter(|event| event["ph"] == "C" && event["name"] == name);
        of.filter_map(|event| event["args"]["bytes"].as_i64()).max()
    };
    assert_eq!(most("live"), replay["requested_bytes_peak"].as_i64());
    assert_eq!(most("reserved"), replay["reserved_bytes_peak"].as_i64());
    assert_eq!(events.iter().filter(|event| event["ph"] == "b").count(), 100);
}

#[test]
fn settings_are_those_of_the_replay() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let conf = ["--conf", "expandable_segments:True", "--policy", "granule"];
    let ran = place.run(&[&["export", "t.gz", "--perfetto", "p.json"], &conf[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path("p.json")).unwrap()).unwrap();
    assert_eq!(trace["otherData"]["settings"], "policy:granule,expandable_segments:True");
    assert_eq!(trace["otherData"]["clock"], "an entry of the history is a microsecond");
}

#[test]
fn what_cannot_be_is_said_with_what_to_do() {
    let place = Place::new();
    place.file("t.gz", BUNDLED).file("taken", b"");
    let ran = place.run(&["export", "t.gz"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("--parquet <DIR>|--perfetto <FILE>"), "{}", ran.err);
    for (args, part) in [
        (["export", "t.gz", "--parquet", "taken/x"], "taken/x: "),
        (["export", "t.gz", "--perfetto", "none/x"], "none/x: "),
        (["export", "none.gz", "--perfetto", "x"], "none.gz: "),
    ] {
        let ran = place.run(&args);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
        assert!(ran.err.contains(part), "'{part}' is not in: {}", ran.err);
    }
}
