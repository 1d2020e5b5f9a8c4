use super::{BUNDLED, Place};

#[test]
fn finds_what_native_needs() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    for conf in ["", "expandable_segments:True"] {
        let answer = place.run(&["min-capacity", "t.gz", "--conf", conf, "--json"]).json();
        let native = &answer["native"];
        assert!(native["min_capacity"].as_u64().unwrap() > 0);
        assert_eq!(answer["min_capacity"], native["min_capacity"], "{answer}");
        assert_eq!(answer["retries_at_min_capacity"], native["retries_at_min_capacity"], "{answer}");
        assert_eq!((answer["policy"].as_str(), answer["conf"].as_str()), (Some("pytorch"), Some(conf)));
        assert_eq!(answer["step"], 16 << 20);
        assert_eq!(
            (native["verdict"].as_str(), answer["workload"].as_str()),
            (Some("same"), Some("resnet_train"))
        );
    }
}

#[test]
fn table() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let ran = place.run(&["min-capacity", "t.gz"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    // How many replays it took depends on the search.
    insta::with_settings!({filters => vec![(r": \d+ replays", ": N replays")]}, {
        insta::assert_snapshot!(ran.out);
    });
}

#[test]
fn a_step_of_one_granule_finds_the_edge() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\n");
    let answer = place.run(&["min-capacity", "t.gz", "--step", "2MiB", "--json"]).json();
    let smallest = answer["min_capacity"].as_u64().unwrap();
    assert_eq!(smallest, 30 << 20, "one segment of whole 2 MiB");
    assert!(answer["native"].is_null());
    let replay =
        |capacity: u64| place.run(&["replay", "t.gz", "--json", "--capacity", &capacity.to_string()]).json();
    assert_eq!(replay(smallest)["refused"], 0);
    assert_eq!(replay(smallest - (2 << 20))["refused"], 1);
}

#[test]
fn a_device_that_is_never_large_enough_says_where_to_search() {
    let place = Place::new();
    place.trace("t.gz", "a 0 3000000000 0\n");
    let ran = place.run(&["min-capacity", "t.gz", "--capacity", "2GiB"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("refused memory even with 2.00 GiB; it has up to 2.79 GiB live at once")
            && ran.err.contains("hint: search larger devices too, with --capacity 4GiB"),
        "{}",
        ran.err
    );
}

#[test]
fn a_step_that_says_nothing_is_not_used() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\n");
    let ran = place.run(&["min-capacity", "t.gz", "--step", "2GiB", "--json"]);
    assert!(ran.err.contains("--step 2.00 GiB is larger than the workload"), "{}", ran.err);
    let answer = ran.json();
    assert_eq!((answer["step"].as_u64(), answer["min_capacity"].as_u64()), (Some(16 << 20), Some(32 << 20)));
}

#[test]
fn a_device_that_is_behind_needs_more() {
    let place = Place::new();
    // What stream 1 uses comes back only when the device has caught up.
    place.trace("t.gz", "a 0 30000000 0\nr 0 1\nf 0\na 1 30000000 0\n");
    let answer =
        |lag: &str| place.run(&["min-capacity", "t.gz", "--step", "2MiB", "--lag", lag, "--json"]).json();
    let (at_once, late) = (answer("0"), answer("50"));
    assert_eq!((at_once["lag"].as_u64(), late["lag"].as_u64()), (Some(0), Some(50)));
    assert_eq!(at_once["min_capacity"], 30 << 20);
    assert!(late["min_capacity"].as_u64() >= at_once["min_capacity"].as_u64(), "{late}");
}
