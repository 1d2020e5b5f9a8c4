//! Limits for continuous integration.

use super::{BUNDLED, Place};
use serde_json::json;

fn place() -> Place {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    place
}

#[test]
fn within_its_limits_a_run_is_ok_on_one_line() {
    let ran = place().run(&["check", "t.gz", "--max-reserved", "16GiB"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert_eq!(ran.out, "ok: resnet_train: 15.00 GiB reserved at most, within 16.00 GiB; growth +24.75 %\n");
}

#[test]
fn what_is_beyond_a_limit_is_code_6() {
    let place = place();
    let args = ["check", "t.gz", "--max-reserved", "10GiB", "--max-growth", "1%"];
    let ran = place.run(&args);
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 1);
    for part in ["exceeded: ", "reserved at most, exceeded 10.00 GiB", "exceeded 1.00 %"] {
        assert!(ran.out.contains(part), "'{part}' is not in: {}", ran.out);
    }
    let ran = place.run(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, 6);
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["ok"], false);
    assert_eq!(answer["limits"], json!({"reserved_peak": 10u64 << 30, "growth": 0.01}));
    assert_eq!(answer["exceeded"], json!(["reserved_peak", "growth"]));
}

#[test]
fn a_run_that_does_not_fit_is_within_no_limit() {
    let args = ["check", "t.gz", "--capacity", "4GiB", "--max-reserved", "16GiB"];
    let place = place();
    let ran = place.run(&args);
    assert_eq!(ran.code, 6, "{}{}", ran.out, ran.err);
    assert!(
        ran.out.starts_with("exceeded: ")
            && ran.out.contains(" refused: enough was free, but not in one piece"),
        "{}",
        ran.out
    );
    let answer: serde_json::Value =
        serde_json::from_str(&place.run(&[&args[..], &["--json"]].concat()).out).unwrap();
    assert_eq!((&answer["ok"], &answer["exceeded"]), (&json!(false), &json!(["refused"])));
    assert!(answer["refused"].as_u64() > Some(0), "{answer}");
}

#[test]
fn growth_is_the_last_iterations_over_the_first_after_the_second() {
    // 20 MiB more are reserved in each iteration.
    let mut lines = String::new();
    for n in 0..6 {
        lines += &format!("i {n}\na {n} {} 0\n", 20 << 20);
    }
    let place = Place::new();
    place.trace("t.gz", &lines);
    let answer = place.run(&["check", "t.gz", "--max-growth", "100%", "--json"]).json();
    assert_eq!(
        (&answer["growth"], &answer["reserved_peak"]),
        (&json!(1.0), &json!(120 << 20)),
        "120 MiB over 60"
    );
    assert_eq!(place.run(&["check", "t.gz", "--max-growth", "99%"]).code, 6);
    // Just the limit is within it: 2020 MiB over 2000.
    place.trace("1.gz", &format!("i 0\ni 1\ni 2\na 0 {} 0\ni 3\na 1 {} 0\n", 2000 << 20, 20 << 20));
    let ran = place.run(&["check", "1.gz", "--max-growth", "1%"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.ends_with("; growth +1.00 %, within 1.00 %\n"), "{}", ran.out);
}

#[test]
fn what_cannot_be_told_is_no_success() {
    let place = Place::new();
    place.trace("short.gz", "i 0\na 0 512 0\ni 1\na 1 512 0\ni 2\na 2 512 0\n").file("empty", b"");
    let ran = place.run(&["check", "short.gz", "--max-growth", "1%"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.err.contains("too few iterations"), "{}", ran.err);
    assert_eq!(place.run(&["check", "empty", "--max-reserved", "1GiB"]).code, 1);
    assert_eq!(place.run(&["check", "nowhere", "--max-reserved", "1GiB"]).code, 1);
    let ran = place.run(&["check", "short.gz"]);
    assert_eq!(ran.code, 2, "no limit");
    assert!(ran.err.contains("--max-reserved"), "{}", ran.err);
    assert_eq!(place.run(&["check", "short.gz", "--max-growth", "1"]).code, 2, "of what?");
}

#[test]
fn notes_about_several_devices_are_said_once_and_hints_are_about_the_file() {
    let place = Place::new();
    let case =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/cases/03/ten-two-refusals.pickle.gz");
    let ran = place.run(&["check", case, "--max-reserved", "1GiB", "--capacity", "3GiB"]);
    assert_eq!((ran.code, ran.err.matches("--capacity are ignored").count()), (6, 1), "{}", ran.err);
    place.file("cut.trace", b"# {\"events\":500}\na 0 1048576 0\n");
    let ran = place.run(&["check", "cut.trace", "--max-reserved", "1GiB"]);
    assert!(ran.err.contains("within 1.00 GiB; the file was cut\nhint: Fetch it again.\n"), "{}", ran.err);
    let ran = place.run(&["inspect", "cut.trace"]);
    assert!(ran.out.contains("Fetch it again.") && !ran.out.contains("from its start"), "{}", ran.out);
}
