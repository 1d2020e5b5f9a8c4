use super::{BUNDLED, Place};

#[test]
fn table() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let all = place.run(&["inspect", "t.gz", "--top", "3", "--all"]);
    assert!(all.out.lines().all(|line| line.chars().count() <= 80), "{}", all.out);
    assert!(all.out.contains("What rounding costs") && all.out.contains("Growth: "), "{}", all.out);
    let ran = place.run(&["inspect", "t.gz", "--top", "3"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.lines().all(|line| line.chars().count() <= 80), "{}", ran.out);
    insta::assert_snapshot!(ran.out);
    // With a refused request and stacks it is longest.
    place.file("oom.pickle.gz", include_bytes!("../../data/train-oom.pickle.gz"));
    let oom = place.run(&["inspect", "oom.pickle.gz"]).out;
    assert!(oom.lines().count() <= 35 && oom.lines().all(|line| line.chars().count() <= 80), "{oom}");
    assert!(oom.find("The refused request") < oom.find("who asked"), "{oom}");
}

#[test]
fn bytes_sum_up_to_what_is_reserved() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let answer = place.run(&["inspect", "t.gz", "--json", "--at", "peak"]).json();
    let memory = &answer["moments"][0]["memory"];
    let parts = ["requested", "rounding", "tails", "waiting", "free"];
    let sum: u64 = parts.iter().map(|part| memory[part].as_u64().unwrap()).sum();
    assert_eq!(memory["reserved"].as_u64(), Some(sum), "{memory}");
    assert_eq!(memory["requested"], answer["run"]["peak_live"]);
    assert_eq!(answer["growth"]["marks"], "iterations");
}

#[test]
fn a_trace_and_the_snapshot_of_its_replay_are_the_same_run() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    assert_eq!(place.run(&["replay", "t.gz", "--snapshot", "s.pickle"]).code, 0);
    let answer = place.run(&["inspect", "t.gz", "s.pickle", "--json"]).json();
    let comparison = &answer["comparison"];
    for figure in &comparison["run"].as_array().unwrap()[..6] {
        assert_eq!(figure["before"], figure["after"], "{figure}");
    }
    for moment in comparison["moments"].as_array().unwrap() {
        assert_eq!(moment["by_size"].as_array().map(Vec::len), Some(0), "{moment}");
        for figure in moment["memory"].as_array().unwrap() {
            assert_eq!(figure["before"], figure["after"], "{figure}");
        }
    }
}

#[test]
fn a_refused_request_says_what_was_missing() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\na 1 30000000 0\n");
    let answer = place.run(&["inspect", "t.gz", "--capacity", "40MiB", "--json"]).json();
    let refused = &answer["refused"];
    assert_eq!(refused["verdict"], "too_little", "{refused}");
    // 40 MiB less the segment of 30 MiB are left, and what is free in it.
    assert_eq!(refused["device_free"], 10 << 20);
    assert_eq!(refused["usable_free"], (30 << 20) - 30_000_128);
    assert_eq!(refused["missing"], 30_000_128 - (10 << 20) - ((30 << 20) - 30_000_128));
    let whats: Vec<_> = answer["moments"].as_array().unwrap().iter().map(|moment| &moment["what"]).collect();
    assert_eq!(whats, ["peak", "oom", "end"]);
}

#[test]
fn the_verdict_comes_first() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\na 1 30000000 0\n");
    let args = ["inspect", "t.gz", "--capacity", "40MiB"];
    let ran = place.run(&args);
    let verdict: String = ran.out.split("\n\n").next().unwrap().replace('\n', " ");
    assert_eq!(
        verdict,
        "At most 28.61 MiB were live at once and 30.00 MiB reserved, of 40.00 MiB. One request was refused, of 28.61 MiB: \
         too little memory was free, however it lay. 17.22 MiB less to keep, or a larger device, would have served it."
    );
    let summary = place.run(&[&args[..], &["--json"]].concat()).json()["summary"].clone();
    assert_eq!(summary["text"], verdict);
    assert_eq!((&summary["why"], &summary["help"]), (&"too_little".into(), &"need_less".into()));
}

#[test]
fn a_snapshot_is_not_replayed_and_nothing_is_said_of_replays() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    // A use on another stream and a window: a replay could repeat neither.
    let conf = [("GRANULE_CONF", "history_max_entries:2000")];
    assert_eq!(place.run_with(&["replay", "t.gz", "--snapshot", "w.pickle"], &conf).code, 0);
    for command in [&["inspect", "w.pickle"][..], &["export", "w.pickle", "--parquet", "tables"]] {
        let ran = place.run(command);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("note: not exact: earlier history is missing"), "{}", ran.err);
        assert!(!ran.err.contains("became") && !ran.err.contains("replay"), "{}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert!(!ran.out.contains("replay"), "{}", ran.out);
    }
    assert!(place.run(&["replay", "w.pickle"]).err.contains("its history of device 0 became"));
}

#[test]
fn a_moment_behind_the_end_is_refused() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\n");
    let entries = place.run(&["inspect", "t.gz", "--json"]).json()["run"]["entries"].as_u64().unwrap();
    let ran = place.run(&["inspect", "t.gz", "--at", "1000"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("there is no moment 1000"), "{}", ran.err);
    assert!(ran.err.contains(&format!("--at takes 0 to {entries}")), "{}", ran.err);
    assert_eq!(place.run(&["inspect", "t.gz", "--at", &entries.to_string()]).code, 0);
}

#[test]
fn a_moment_that_is_not_there_is_refused_in_words() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\n");
    let ran = place.run(&["inspect", "t.gz", "--at", "oom"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("no request was refused") && ran.err.contains("hint: "), "{}", ran.err);
}
