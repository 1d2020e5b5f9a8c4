use super::{BUNDLED, Place};

#[test]
fn a_run_becomes_one_page() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let ran = place.run(&["report", "t.gz", "-o", "my run.html", "--title", "a <b> & c"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let page = std::fs::read_to_string(place.path("my run.html")).unwrap();
    let mut lines = ran.out.lines();
    let size = granule_tests_size(page.len());
    assert_eq!(lines.next(), Some(&*format!("my run.html: {size}, 56121 entries, 19105 allocations")));
    assert!(lines.next().unwrap().ends_with("/my%20run.html"), "{}", ran.out);
    assert!(page.starts_with("<!doctype html>"));
    assert!(page.contains("<title>a &lt;b&gt; &amp; c · Granule</title>"));
    assert!(page.contains("default-src 'none'; script-src 'sha256-"));
    assert!(
        page.contains("id=\"about\"")
            && page.contains("id=\"interval-0-0\"")
            && page.contains("id=\"texts\"")
    );
}

/// As the command writes it.
fn granule_tests_size(bytes: usize) -> String {
    let kib = bytes as f64 / 1024.0;
    format!("{kib:.2} KiB")
}

#[test]
fn figures_are_told_as_json() {
    let place = Place::new();
    place.trace("t.gz", "a 0 1000 0\na 1 2000 0\nf 0\ni 1\na 2 500 0\n");
    let answer = place.run(&["report", "t.gz", "-o", "r.html", "--json"]).json();
    assert_eq!((answer["peak_live"].as_u64(), answer["refused"].as_u64()), (Some(3000), Some(0)));
    assert_eq!(answer["allocations"], 3);
    assert_eq!(answer["bytes"].as_u64(), Some(std::fs::metadata(place.path("r.html")).unwrap().len()));
}

/// The page has the verdict that `granule inspect` begins with.
#[test]
fn a_page_begins_with_a_verdict() {
    let place = Place::new();
    place.trace("t.gz", "a 0 62914560 0\na 1 41943040 0\na 2 73400320 0\n");
    let capacity = ["t.gz", "--capacity", "110MiB", "--json"];
    let page = place.run(&[&["report"], &capacity[..]].concat()).json();
    let text = page["summary"]["text"].as_str().unwrap();
    assert!(text.starts_with("At most 100.00 MiB were live at once"), "{text}");
    assert!(text.contains("One request was refused, of 70.00 MiB: there was too little memory"), "{text}");
    let inspected = place.run(&[&["inspect"], &capacity[..]].concat()).json();
    assert_eq!(page["summary"], inspected["summary"]);
}

#[test]
fn a_page_that_cannot_be_written_is_said_before_the_work() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let ran = place.run(&["report", "t.gz", "-o", "none/r.html"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("none/r.html: ") && ran.err.contains("create it"), "{}", ran.err);
}

#[test]
fn several_runs_become_one_page() {
    let place = Place::new();
    place.trace("before.gz", "i 0\na 0 1000 0\ni 1\na 1 2000 0\nf 0\n");
    place.trace("after.gz", "i 0\na 0 4000 0\ni 1\na 1 2000 0\n");
    let ran = place.run(&["report", "before.gz", "after.gz", "before.gz", "-o", "all.html"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with("all.html: ") && ran.out.contains(", 3 runs\n"), "{}", ran.out);
    let page = std::fs::read_to_string(place.path("all.html")).unwrap();
    assert!(page.contains("id=\"run-0\"") && page.contains("id=\"run-2\"") && !page.contains("id=\"run-3\""));
    let answer = place.run(&["report", "before.gz", "after.gz", "--json"]).json();
    assert_eq!(
        (&answer["runs"][1]["name"], &answer["runs"][1]["peak_live"]),
        (&"after.gz".into(), &6000.into())
    );
}

/// Ranks are often in folders of their own.
#[test]
fn files_of_the_same_name_are_told_apart() {
    let place = Place::new();
    for rank in ["rank0", "rank1"] {
        std::fs::create_dir(place.path(rank)).unwrap();
        place.trace(&format!("{rank}/t.gz"), "a 0 1000 0\n");
    }
    let answer = place.run(&["report", "rank0/t.gz", "rank1/t.gz", "--json"]).json();
    assert_eq!(
        (&answer["runs"][0]["name"], &answer["runs"][1]["name"]),
        (&"rank0/t.gz".into(), &"rank1/t.gz".into())
    );
}

#[test]
fn a_bad_file_among_several_is_named_and_there_is_no_page() {
    let place = Place::new();
    place.trace("good.gz", "a 0 1000 0\n").file("bad.pickle", b"\x80\x04K").file("empty.gz", b"");
    for bad in ["nowhere.gz", "bad.pickle", "empty.gz", "."] {
        for files in [["good.gz", bad], [bad, "good.gz"]] {
            let ran = place.run(&["report", files[0], files[1], "-o", "page.html"]);
            assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{bad}: {}", ran.err);
            let error = ran.err.lines().find(|line| line.starts_with("error: ")).unwrap();
            assert!(error.starts_with(&format!("error: {bad}: ")), "{error}");
            assert!(!place.path("page.html").exists());
        }
    }
    // The settings of one run are none of several.
    let ran = place.run(&["report", "good.gz", "good.gz", "--whatif"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
}

#[test]
fn several_files_each_have_their_doubt() {
    let place = Place::new();
    let case = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/cases/02/pools-unsaid.pickle.gz");
    let ran = place.run(&["report", case, case, "-o", "r.html", "--json"]);
    let answer = ran.json();
    let text = answer["runs"][1]["summary"]["text"].as_str().unwrap();
    assert!(text.contains("Do not choose by this") && !text.contains("granule whatif"), "{text}");
}
