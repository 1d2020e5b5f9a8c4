use super::{BUNDLED, Place};

#[test]
fn table() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let ran = place.run(&["inspect", "t.gz", "--top", "3"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100), "{}", ran.out);
    insta::assert_snapshot!(ran.out);
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
fn a_moment_that_is_not_there_is_refused_in_words() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\n");
    let ran = place.run(&["inspect", "t.gz", "--at", "oom"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("no request was refused") && ran.err.contains("hint: "), "{}", ran.err);
}
