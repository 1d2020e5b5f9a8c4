use super::parquet::asked_for_by_a_program;
use super::{any_run, small, source};
use granule_analysis::Run;
use granule_export::runs::perfetto::{Options, Written, write};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::HashMap;

fn trace(run: &Run, options: &Options) -> (Written, Value) {
    let mut file = Vec::new();
    let written = write(&source(run, &[]), options, &mut file).unwrap();
    (written, serde_json::from_slice(&file).unwrap())
}

fn events<'v>(trace: &'v Value, phase: &str) -> Vec<&'v Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).collect()
}

fn counter(trace: &Value, name: &str) -> Vec<(i64, u64)> {
    let of = events(trace, "C").into_iter().filter(|event| event["name"] == name);
    of.map(|event| (event["ts"].as_i64().unwrap(), event["args"]["bytes"].as_u64().unwrap())).collect()
}

/// Every begin has one end with the same id and category, not before it; slices and counters need what the format asks for.
fn check_format(trace: &Value) {
    let mut open: HashMap<(String, String), i64> = HashMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let phase = event["ph"].as_str().unwrap();
        assert!(event["name"].is_string() && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        let time = event["ts"].as_i64().unwrap();
        let key = || (event["cat"].to_string(), event["id"].as_str().unwrap().to_owned());
        match phase {
            "b" => assert!(open.insert(key(), time).is_none(), "begun twice: {event}"),
            "e" => assert!(open.remove(&key()).expect("an end without a begin") <= time, "{event}"),
            "X" => assert!(event["dur"].as_i64().unwrap() >= 0, "{event}"),
            "C" => assert!(event["args"]["bytes"].is_u64(), "{event}"),
            "i" => assert!(["p", "t"].contains(&event["s"].as_str().unwrap()), "{event}"),
            "M" => assert!(event["args"]["name"].is_string(), "{event}"),
            other => panic!("{other}: {event}"),
        }
    }
    assert!(open.is_empty(), "without an end: {open:?}");
}

#[test]
fn counters_are_the_runs_figures() {
    let run = small();
    let (written, trace) = trace(&run, &Options::default());
    check_format(&trace);
    assert!(!written.thinned);
    let time = |at: i64| 1_000_000 + 10 * (at - 1).max(0);
    let live = [(2, 300), (3, 600), (4, 400), (5, 300), (6, 0), (7, 50)].map(|(at, value)| (time(at), value));
    assert_eq!(counter(&trace, "live"), [&[(time(0), 100)][..], &live].concat());
    // What was held before and what was taken with the first entry have the same time.
    assert_eq!(counter(&trace, "reserved"), [(time(1), 3000), (time(8), 2000)]);
    assert_eq!(counter(&trace, "live").iter().map(|point| point.1).max(), Some(run.peak().1));
    assert_eq!(
        counter(&trace, "live: stream 0xabc, pool (0, 3)"),
        [(time(0), 0), (time(2), 200), (time(4), 0)]
    );
    assert_eq!(counter(&trace, "reserved: stream 0xabc, pool (0, 3)"), [(time(1), 2000)]);
}

#[test]
fn slices_and_marks_say_what_they_are() {
    let run = small();
    let (written, trace) = trace(&run, &Options::default());
    assert_eq!((written.slices, written.allocations, written.least), (4, 4, 50));
    let iterations = events(&trace, "X");
    assert_eq!(iterations.len(), 2);
    assert_eq!((&iterations[0]["name"], &iterations[0]["dur"]), (&"iteration 5".into(), &30.into()));
    assert_eq!(iterations[1]["args"]["growth in bytes"], -350);
    let oom = events(&trace, "i").into_iter().find(|event| event["cat"] == "oom").unwrap();
    assert_eq!(oom["args"]["free on the device"], 77);
    assert_eq!(oom["args"]["stack"][1], "main train.py:40");
    let begins = events(&trace, "b");
    assert_eq!(begins[1]["args"]["stream"], "0xabc");
    assert_eq!(begins[1]["args"]["label"], "weights");
    assert_eq!(begins[3]["args"]["freed at entry"], "alive at the end");
    assert_eq!(events(&trace, "M")[0]["args"]["name"], "train (device 1)");
    assert_eq!(trace["otherData"]["settings"], "expandable_segments:True");
}

#[test]
fn only_the_largest_become_slices() {
    let run = small();
    let (written, trace) = trace(&run, &Options { slices: 2, ..Options::default() });
    check_format(&trace);
    assert_eq!((written.slices, written.least), (2, 200));
    let sizes: Vec<_> =
        events(&trace, "b").iter().map(|event| event["args"]["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [200, 300]);
}

#[test]
fn a_long_run_is_thinned_out_and_keeps_its_peak() {
    let mut run = small();
    run.clock.clear();
    run.allocations = (1..5000)
        .map(|at| super::life(2 * at, 2 * at + 1, if at == 3333 { 9999 } else { u64::from(at) }))
        .collect();
    let (written, trace) = trace(&run, &Options { slices: 10, points: 100 });
    assert!(written.thinned);
    let live = counter(&trace, "live");
    assert!(live.len() <= 100, "{}", live.len());
    assert!(live.contains(&(i64::from(run.peak().0), 9999)));
}

proptest! {
    #[test]
    fn no_run_is_too_strange(run in any_run(), slices in 0..30_usize, points in 0..30_usize) {
        let (written, trace) = trace(&run, &Options { slices, points });
        check_format(&trace);
        prop_assert!(written.slices <= slices);
    }
}

#[test]
fn a_slice_has_the_name_of_the_programs_line() {
    let (_, trace) = trace(&asked_for_by_a_program(), &Options::default());
    let names: Vec<_> = events(&trace, "b").iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["someone/model.py:31 forward"]);
}
