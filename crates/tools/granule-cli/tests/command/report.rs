use super::{BUNDLED, Place};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use granule::snapshot::{Action, Frame, Labels, Snapshot, Stack, TraceEntry, Value};
use std::io::Read;
use std::sync::Arc;

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
    assert!(text.contains("One request was refused, of 70.00 MiB: too little memory was free"), "{text}");
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

/// What a file tells of who made it, and a page must not, once it was asked not to.
const TELLING: [&str; 9] = [
    "alice",
    "secret_model",
    "train_step",
    "the-weights",
    "after-warm-up",
    "system_root:/home",
    "of_mine",
    "torch/nn/functional",
    "secret_linear",
];

/// A file of two devices; it has each of the texts above.
fn two_devices(place: &Place) {
    let frame = |filename: &str, name: &str| Frame {
        name: name.into(),
        filename: filename.into(),
        line: 12,
        extra: Vec::new(),
    };
    let stack: Stack = [
        frame("/home/alice/env/lib/python3.12/site-packages/torch/nn/functional.py", "secret_linear"),
        frame("/home/alice/secret_model.py", "train_step"),
    ]
    .into();
    let labels = |text: &str| {
        let text = Some(text.into()).filter(|_| !text.is_empty());
        Arc::new(Labels { user_metadata: text, ..Labels::default() })
    };
    let entry = |action, addr, size, frames, text| TraceEntry {
        action,
        addr,
        size,
        stream: 0,
        time_us: 1,
        labels: labels(text),
        frames,
    };
    let history = |bytes: u64| {
        vec![
            entry(Action::SegmentAlloc, 1 << 30, 64 << 20, None, ""),
            entry(Action::Alloc, 1 << 30, bytes, Some(stack.clone()), "the-weights"),
            entry(Action::Annotate, 0, 0, None, "after-warm-up"),
            entry(Action::Snapshot, 0, 0, None, ""),
            entry(Action::FreeRequested, 1 << 30, bytes, None, ""),
            entry(Action::FreeCompleted, 1 << 30, bytes, None, ""),
            entry(Action::Oom, 1 << 20, 1 << 30, Some(stack.clone()), ""),
        ]
    };
    let conf = Value::Str("max_split_size_mb:128,system_root:/home/alice".into());
    let snapshot = Snapshot {
        device_traces: vec![history(20 << 20), history(40 << 20)],
        allocator_settings: vec![("GRANULE_CONF".into(), conf)],
        ..Snapshot::default()
    };
    let mut bytes = Vec::new();
    granule_snapshot::pickle::write(&snapshot, &mut bytes, Default::default()).unwrap();
    // An action that nobody knows.
    let at = bytes.windows(8).position(|word| word == b"snapshot").unwrap();
    bytes[at..at + 8].copy_from_slice(b"of_mine!");
    place.file("alice.pickle", &bytes);
}

/// All that is in a page, unpacked.
fn unpacked(page: &str) -> String {
    let mut whole = page.to_owned();
    for section in page.split("<script type=\"application/octet-stream\" id=\"").skip(1) {
        let (id, text) = section.split_once("\">").unwrap();
        let packed = STANDARD.decode(text.split_once('<').unwrap().0).unwrap();
        let mut bytes = Vec::new();
        flate2::read::DeflateDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        whole += id;
        whole += &String::from_utf8_lossy(&bytes);
    }
    whole
}

#[test]
fn a_page_has_all_devices_of_a_file() {
    let place = Place::new();
    two_devices(&place);
    let ran = place.run(&["report", "alice.pickle", "-o", "r.html"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("6 entries, 1 allocation, 2 devices\n"), "{}", ran.out);
    assert!(
        ran.out.contains("it holds 2 paths, 2 function names, 2 texts of the program, 1 fact"),
        "{}",
        ran.out
    );
    assert_eq!(ran.err.matches("what follows is about").count(), 1, "{}", ran.err);
    let whole = unpacked(&std::fs::read_to_string(place.path("r.html")).unwrap());
    let titles = "\"devices\":[\"alice.pickle, device 0\",\"alice.pickle, device 1\"]";
    assert_eq!(whole.matches(titles).count(), 2);
    assert!(whole.contains("device-1-texts") && !whole.contains("device-2-"));
    for text in TELLING {
        assert!(whole.contains(text), "the file has no {text}");
    }
    assert_eq!(place.run(&["alice.pickle"]).code, 0);
    assert!(std::fs::read_to_string(place.path("alice.html")).unwrap().contains("device-1-about"));
    let one = place.run(&["report", "alice.pickle", "--device", "1", "-o", "one.html"]);
    assert!(one.out.contains("1 allocation\n"), "{}", one.out);
    assert!(!std::fs::read_to_string(place.path("one.html")).unwrap().contains("device-1-"));
}

#[test]
fn an_anonymous_page_tells_nothing_of_who_made_it() {
    let place = Place::new();
    two_devices(&place);
    let others = ["report", "alice.pickle", "alice.pickle", "--device", "0", "--anonymous", "-o", "all.html"];
    for words in [&["report", "alice.pickle", "--anonymous", "-o", "r.html"][..], &others] {
        let ran = place.run(words);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let whole = unpacked(&std::fs::read_to_string(place.path(words[words.len() - 1])).unwrap());
        for text in TELLING {
            assert!(!whole.contains(text), "{words:?}: {text} is in the page");
        }
        // What is the program's own is still told from what is PyTorch's.
        assert!(whole.contains("file2.py") && whole.contains("f2"), "{words:?}");
    }
    // A trace has texts of its own.
    let trace = "# {\"format\":\"alice 9\",\"workload\":\"alice\",\"reasons\":[\"of_mine\"]}\na 0 1000 0\n";
    place.file("t.gz", &super::gzip(trace.as_bytes()));
    let conf = "expandable_segments_reserve_by_class:[of_mine:0.5]";
    assert_eq!(place.run(&["report", "t.gz", "--conf", conf, "--anonymous", "-o", "t.html"]).code, 0);
    let whole = unpacked(&std::fs::read_to_string(place.path("t.html")).unwrap());
    assert!(!whole.contains("alice") && !whole.contains("of_mine") && whole.contains("text1"));
    assert!(whole.contains("expandable_segments_reserve_by_class:[text"));
}

#[test]
fn an_anonymous_page_answers_as_the_page_does() {
    let place = Place::new();
    for reason in ["private pools were recorded as one", "torch.cuda.set_per_process_memory_fraction"] {
        let trace =
            format!("# {{\"reasons\":[\"{reason}\"]}}\na 0 41943040 0\na 1 41943040 0\nx 1 62914560\n");
        place.file("t.gz", &super::gzip(trace.as_bytes()));
        let told = |words: &[&str]| {
            let ran = place.run(&[&["report", "t.gz", "--json", "--force", "-o", "t.html"], words].concat());
            assert_eq!(ran.code, 0, "{}", ran.err);
            ran.json()["summary"].clone()
        };
        assert_eq!(told(&[]), told(&["--anonymous"]), "{reason}");
        assert!(told(&[]).as_object().is_some_and(|summary| !summary.is_empty()), "{}", told(&[]));
    }
}

#[test]
fn a_page_is_opened_and_nothing_waits_for_it() {
    let place = Place::new();
    place.trace("t.gz", "a 0 1000 0\n");
    place.file("browser", b"#!/bin/sh\necho \"$1\" > opened\nexec sleep 60\n");
    std::fs::set_permissions(place.path("browser"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let open = |browser: &str| {
        place.run_with(&["report", "t.gz", "--open", "--force", "-o", "r.html"], &[("BROWSER", browser)])
    };
    let begin = std::time::Instant::now();
    let ran = open("./browser");
    assert!(begin.elapsed().as_secs() < 30, "it waits for the browser");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let opened = std::fs::read_to_string(place.path("opened")).unwrap();
    assert!(opened.starts_with("file:///") && opened.ends_with("/r.html\n"), "{opened}");
    for (browser, why) in [("./no-such-browser", "No such file or directory"), ("false", "exit status: 1")] {
        let ran = open(browser);
        assert_eq!(ran.code, 0, "the page is there");
        let said = format!("warning: {browser} does not open the page: {why}");
        assert!(ran.err.starts_with(&said) && ran.err.contains("BROWSER names another"), "{}", ran.err);
    }
}

#[test]
fn several_files_each_have_their_doubt() {
    let place = Place::new();
    let case = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/cases/02/pools-unsaid.pickle.gz");
    let ran = place.run(&["report", case, case, "-o", "r.html", "--json"]);
    let answer = ran.json();
    let text = answer["runs"][1]["summary"]["text"].as_str().unwrap();
    assert!(text.contains("Do not choose by this") && !text.contains("granule whatif"), "{text}");
}
