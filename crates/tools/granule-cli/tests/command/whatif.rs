use super::verdict::unwrapped;
use super::{BUNDLED, Place};
use serde_json::Value;

fn with_bundled() -> Place {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    place
}

/// A large block is freed, small ones are put where it was, and then there is no room for a middling one.
const HOLES: &str = "\
i 0
a 0 104857600 0
f 0
i 1
a 1 12582912 0
a 2 12582912 0
a 3 12582912 0
a 4 12582912 0
a 5 73400320 0
";

fn candidate<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let all = answer["candidates"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {answer}"))
}

#[test]
fn text() {
    let place = with_bundled();
    let ran =
        place.run(&["whatif", "t.gz", "--capacity", "10GiB,11.1GiB,12GiB", "--conf", "max_split_size_mb:64"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    insta::assert_snapshot!(ran.out);
}

#[test]
fn json_is_what_replay_says_of_each_candidate() {
    let place = with_bundled();
    let answer = place.run(&["whatif", "t.gz", "--capacity", "12GiB", "--json"]).json();
    assert_eq!((&answer["workload"], &answer["exact"]), (&Value::from("resnet_train"), &Value::from(true)));
    assert_eq!(answer["not_exact"], Value::Array(Vec::new()));
    for (name, policy) in [
        ("default", "pytorch"),
        ("expandable_segments:True", "pytorch"),
        ("max_split_size_mb:128", "pytorch"),
        ("roundup_power2_divisions:4", "pytorch"),
        ("policy:granule", "granule"),
    ] {
        let tried = candidate(&answer, name);
        let conf = tried["conf"].as_str().unwrap();
        for (capacity, outcome) in [("12GiB", &tried["outcomes"][0]), ("80GiB", &tried["roomy"])] {
            let args =
                ["replay", "t.gz", "--json", "--capacity", capacity, "--conf", conf, "--policy", policy];
            let replayed = place.run(&args).json();
            for (key, value) in outcome.as_object().unwrap().iter().filter(|(key, _)| *key != "first_refusal")
            {
                assert_eq!(*value, replayed[key], "{name} on {capacity}: {key}");
            }
            assert_eq!(outcome["first_refusal"]["event"], replayed["first_oom"]["event"]);
        }
    }
}

#[test]
fn json_names_what_is_in_it() {
    let place = Place::new();
    place.trace("t.gz", HOLES);
    let answer = place.run(&["whatif", "t.gz", "--capacity", "130MiB,90MiB", "--json"]).json();
    let keys: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    insta::assert_debug_snapshot!("keys", keys);
    // How many replays it took depends on the search.
    insta::with_settings!({filters => vec![(r#""replays": \d+"#, r#""replays": N"#)]}, {
        insta::assert_json_snapshot!("verdicts", (&answer["verdicts"], &answer["smallest"]));
    });
    insta::assert_json_snapshot!("candidate", candidate(&answer, "expandable_segments:True"));
}

#[test]
fn the_recommended_setting_is_no_longer_refused_anything() {
    let place = with_bundled();
    let answer = place.run(&["whatif", "t.gz", "--capacity", "11.1GiB", "--json"]).json();
    let least = &answer["verdicts"][0]["least_change"];
    assert_eq!(least["changed_options"], serde_json::json!(["expandable_segments"]));
    let conf = least["conf"].as_str().unwrap();
    let replay = |conf: &str| {
        let args = ["replay", "t.gz", "--json", "--capacity", "11.1GiB", "--conf", conf];
        place.run(&args).json()["refused"].as_u64().unwrap()
    };
    assert_eq!(replay(conf), 0);
    assert!(replay("") > 0);
}

#[test]
fn only_granules_policy_fits() {
    let place = Place::new();
    // Every segment keeps one of its two blocks: no setting of PyTorch's puts the other halves together.
    let mut lines = String::new();
    for id in 0..24 {
        lines += &format!("a {id} 7864320 0\n");
    }
    for id in (0..24).step_by(2) {
        lines += &format!("f {id}\n");
    }
    lines += &format!("a 24 {} 0\n", 80 << 20);
    place.trace("t.gz", &lines);
    let ran = place.run(&["whatif", "t.gz", "--capacity", "245MiB"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("On 245.00 MiB: fits with Granule's policy"), "{}", ran.out);
    assert!(ran.out.contains("    export GRANULE_TORCH=1 GRANULE_CONF=policy:granule\n"), "{}", ran.out);
    let answer = place.run(&["whatif", "t.gz", "--capacity", "245MiB,1GiB", "--json"]).json();
    let advice = |device: usize| answer["verdicts"][device]["advice"].as_str().unwrap();
    assert_eq!(advice(0), "export GRANULE_TORCH=1 GRANULE_CONF=policy:granule");
    assert_eq!(advice(1), "# On 1.00 GiB: fits as it is");
    assert_eq!(answer["candidates"][0]["name"], "policy:granule", "the winner comes first");
    let ran = place.run(&["whatif", "t.gz", "--capacity", "245MiB", "--policy", "pytorch", "--json"]);
    let verdict = &ran.json()["verdicts"][0];
    assert!(verdict["least_change"].is_null(), "{verdict}");
    assert_eq!(verdict["without_caching"]["steps"][0], "export PYTORCH_NO_CUDA_MEMORY_CACHING=1");
}

#[test]
fn a_device_that_nothing_fits_says_what_would() {
    let place = Place::new();
    place.trace("t.gz", HOLES);
    let ran = place.run(&["whatif", "t.gz", "--capacity", "100MiB"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in [
        "On 100.00 MiB: nothing can fit: the program requests 118.00 MiB at once",
        "The nearest is ",
        "in iteration 1, where the program would end",
        "PyTorch: 128.00 MiB without retries: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "Granule: 128.00 MiB without retries: export GRANULE_TORCH=1 GRANULE_CONF=policy:granule",
    ] {
        assert!(unwrapped(&ran.out).contains(part), "'{part}' is not in {}", ran.out);
    }
}

#[test]
fn a_window_says_which_conclusions_are_not_exact() {
    let place = Place::new();
    place.trace("t.gz", &HOLES.replace("a 5", "r 1 1\nf 1\na 5"));
    let environment = [("GRANULE_CONF", "history_max_entries:6")];
    let ran = place.run_with(&["replay", "t.gz", "--snapshot", "w.pickle"], &environment);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let answer = place.run(&["whatif", "w.pickle", "--json"]).json();
    assert_eq!(answer["exact"], false);
    let reasons = answer["not_exact"].as_array().unwrap();
    assert_eq!(reasons[0]["effect"], "lower_bound");
    assert!(reasons[0]["figures"].as_array().unwrap().contains(&"reserved_bytes_peak".into()));
    assert!(answer["not_tried"].to_string().contains("does not say where iterations begin"));
    let ran = place.run(&["whatif", "w.pickle"]);
    assert!(
        unwrapped(&ran.out).contains("Not exact: the history is a window of the run: what came before is missing. Lower bounds: peak requested, "),
        "{}",
        ran.out
    );
    assert!(!ran.out.contains("\nExact:"));
}

#[test]
fn a_window_gets_the_comparison_in_place_of_a_verdict() {
    let place = Place::new();
    // 2 GiB are reserved and given back before the window begins, which has some small requests.
    let mut lines = String::from("a 0 1073741824 0\na 1 1073741824 0\nf 0\nf 1\n");
    for id in 2..40 {
        lines += &format!("a {id} 1048576 0\n");
    }
    place.trace("t.gz", &lines);
    let conf = [("GRANULE_CONF", "history_max_entries:20")];
    assert_eq!(place.run_with(&["replay", "t.gz", "--snapshot", "w.pickle"], &conf).code, 0);
    let ran = place.run(&["whatif", "w.pickle", "--capacity", "1GiB,4GiB"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let text = ran.out.replace('\n', " ");
    assert!(
        text.starts_with("Replay 38.00 MiB, Granule held 2.0") && text.contains("Do not choose by this."),
        "{}",
        ran.out
    );
    for device in ["1.00 GiB", "4.00 GiB"] {
        assert!(text.contains(&format!("On {device}: not known")), "{}", ran.out);
    }
    assert!(!text.contains(": fits"), "{}", ran.out);
    assert!(!text.contains("_peak") && !text.contains("num_"), "no internal names: {}", ran.out);
    let answer = place.run(&["whatif", "w.pickle", "--capacity", "1GiB,4GiB", "--json"]).json();
    assert!(answer["reserved_before"].as_u64().unwrap() >= 2 << 30);
    assert_eq!(
        (&answer["verdicts"][0]["known"], &answer["verdicts"][1]["known"]),
        (&false.into(), &false.into())
    );
    assert_eq!(answer["doubt"]["replayed"], 38 << 20);
    assert!(answer["doubt"]["recorded"].as_u64().unwrap() >= 2 << 30);
    assert!(answer["smallest"].is_null(), "that of a part is not the program's");
    // Asked about no device in particular, it looks at those that could have held it.
    let answer = place.run(&["whatif", "w.pickle", "--json"]).json();
    let verdicts = answer["verdicts"].as_array().unwrap();
    assert!(verdicts.iter().all(|verdict| verdict["capacity"].as_u64().unwrap() >= 2 << 30));
}

#[test]
fn a_snapshot_of_an_oom_knows_its_device_and_settings() {
    let place = Place::new();
    place.trace("t.gz", HOLES);
    let conf = ["--conf", "max_split_size_mb:256"];
    let ran = place
        .run(&[&["replay", "t.gz", "--capacity", "130MiB", "--snapshot", "oom.pickle"][..], &conf].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = place.run(&["whatif", "oom.pickle", "--json"]);
    assert!(
        ran.err.contains("settings 'max_split_size_mb:256' are those the snapshot was recorded with\n"),
        "{}",
        ran.err
    );
    let answer = ran.json();
    assert_eq!(answer["current_conf"], "max_split_size_mb:256");
    let device = &answer["verdicts"][0];
    assert_eq!(device["capacity"], 130 << 20, "what was free and what was held when a request was refused");
    assert_eq!(device["least_change"]["conf"], "max_split_size_mb:256,expandable_segments:True");
    let effects: Vec<&Value> =
        answer["not_exact"].as_array().unwrap().iter().map(|why| &why["effect"]).collect();
    assert!(effects.contains(&&Value::from("right_until")), "{effects:?}");
}

/// 20 GiB were reserved and given back before the window begins: no smaller card is known to be enough.
#[test]
fn a_window_is_tried_on_cards_that_have_what_was_reserved_before() {
    let place = Place::new();
    let gib = |id: u32| format!("a {id} {} 0\n", 10_u64 << 30);
    let small: String = (2..40).map(|id| format!("a {id} 1048576 0\n")).collect();
    place.trace("t.gz", &format!("{}{}f 0\nf 1\n{small}", gib(0), gib(1)));
    let conf = [("GRANULE_CONF", "history_max_entries:20")];
    assert_eq!(place.run_with(&["replay", "t.gz", "--snapshot", "w.pickle"], &conf).code, 0);
    let answer = place.run(&["whatif", "w.pickle", "--json"]).json();
    assert_eq!(answer["verdicts"][0]["card"]["name"], "24 GiB");
    // Of a recording that goes on from a former one nobody knows what was reserved.
    place.file("r.trace", b"# {\"recording\": {\"window\": true}}\na 0 1048576 0\n");
    let ran = place.run(&["whatif", "r.trace", "--capacity", "1GiB"]);
    let text = ran.out.replace('\n', " ");
    assert!(
        text.starts_with("Replay 2.00 MiB, what the program held is not recorded: the recording is a window")
            && text.contains("On 1.00 GiB: not known"),
        "{text}"
    );
}

/// A card has less than its name says: 24 GiB of an A10 are 21.5 for the allocator.
#[test]
fn cards_are_what_programs_get_of_them() {
    let place = Place::new();
    place.trace("t.gz", &format!("a 0 {} 0\n", 22_u64 << 30));
    let ran = place.run(&["whatif", "t.gz"]);
    assert!(
        ran.out.contains("On a card of 32 GiB (30.85 GiB for the allocator): fits as it is"),
        "{}",
        ran.out
    );
    assert!(!ran.out.contains("24 GiB"), "{}", ran.out);
    let answer = place.run(&["whatif", "t.gz", "--json"]).json();
    assert_eq!(answer["verdicts"][0]["card"]["name"], "32 GiB");
    assert_eq!(answer["verdicts"][0]["capacity"], (32_100_u64 - 512) << 20);
}

#[test]
fn a_device_that_is_behind_is_not_exact() {
    let place = Place::new();
    place.trace("t.gz", HOLES);
    let answer = place.run(&["whatif", "t.gz", "--lag", "50", "--json"]).json();
    assert_eq!((&answer["lag"], &answer["exact"]), (&Value::from(50), &Value::from(false)));
}

#[test]
fn bad_arguments_are_refused_before_the_file_is_read() {
    let place = Place::new();
    let ran = place.run(&["whatif", "nowhere.gz", "--conf", "no_such:1"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("error: --conf: ") && ran.err.contains("no_such"), "{}", ran.err);
    let ran = place.run(&["whatif", "nowhere.gz"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("nowhere.gz") && ran.err.contains("check the path"), "{}", ran.err);
    for bad in [&["--capacity", "24GB"][..], &["--capacity", "24GiB,"], &["--policy", "rmm"]] {
        let ran = place.run(&[&["whatif", "nowhere.gz"], bad].concat());
        assert_eq!(ran.code, 2, "{bad:?}");
    }
}

#[test]
fn a_device_with_more_memory_than_addresses_logs_nothing() {
    let place = Place::new();
    place.trace("t.gz", "a 0 1048576 0\n");
    let ran = place.run(&["whatif", "t.gz", "--capacity", "8388607TiB"]);
    assert!(ran.code == 0 && !ran.err.contains("WARN"), "{}", ran.err);
}
