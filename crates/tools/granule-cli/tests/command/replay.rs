use super::verdict::unwrapped;
use super::{BUNDLED, Place};
use granule::snapshot::Snapshot;
use granule_snapshot::pickle;
use serde_json::Value;
use std::fs::File;
use std::sync::Arc;

const EXPANDABLE: &str = "expandable_segments:True";

fn with_bundled() -> Place {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    place
}

fn native(name: &str) -> Value {
    let text = super::bundled_text();
    let header: Value = serde_json::from_str(text.lines().next().unwrap().trim_start_matches("# ")).unwrap();
    header["native"][name].clone()
}

#[test]
fn table() {
    let ran = with_bundled().run(&["replay", "t.gz"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let filters = vec![(r"│ host time per operation [^\n]*", "│ host time per operation: some")];
    insta::with_settings!({filters => filters}, { insta::assert_snapshot!(ran.out) });
}

#[test]
fn json_has_the_names_of_trace_headers_and_natives_figures() {
    let place = with_bundled();
    for (name, conf) in [("default", ""), ("expandable", EXPANDABLE)] {
        let ours = place.run(&["replay", "t.gz", "--conf", conf, "--json"]).json();
        let native = native(name);
        for figure in [
            "capacity",
            "requested_bytes_peak",
            "allocated_bytes_peak",
            "active_bytes_peak",
            "reserved_bytes_peak",
            "num_device_alloc",
            "num_device_free",
            "num_alloc_retries",
            "num_ooms",
            "marks",
        ] {
            assert_eq!(ours[figure], native[figure], "{name}: {figure}");
        }
        assert_eq!((ours["policy"].as_str(), ours["conf"].as_str()), (Some("pytorch"), Some(conf)));
        assert_eq!(ours["refused"], 0);
        assert!(ours["ops"].as_u64().unwrap() > 10_000);
        assert!(ours["ns_per_op"].as_f64().unwrap() > 0.0);
        assert!(!ours["device_calls"].as_object().unwrap().is_empty());
    }
}

/// The figures are those of each release's own allocator (`tests/data/native-2.11.json` in the tests across crates).
#[test]
fn a_release_of_pytorch_is_imitated() {
    let place = with_bundled();
    for (release, reserved) in
        [("2.15", 12_048_138_240_u64), ("2.11", 12_050_235_392), ("2.11.0", 12_050_235_392)]
    {
        let args = ["--capacity", "11.25GiB", "--policy", "pytorch", "--pytorch", release, "--json"];
        let ours = place.run(&[&["replay", "t.gz"], &args[..]].concat()).json();
        assert_eq!(ours["reserved_bytes_peak"], reserved, "{release}");
        let answer = place.run(&[&["whatif", "t.gz"], &args[..]].concat()).json();
        let mut tried = answer["candidates"].as_array().unwrap().iter();
        let tried = tried.find(|candidate| candidate["kind"] == "current").unwrap();
        assert_eq!(tried["outcomes"][0]["reserved_bytes_peak"], reserved, "{release}, whatif");
    }
    for unknown in ["2.9", "2.12"] {
        let refused = place.run(&["replay", "t.gz", "--pytorch", unknown]);
        assert_eq!(refused.code, 2);
        assert!(refused.err.contains("known are 2.11, 2.13"), "{}", refused.err);
    }
}

#[test]
fn settings_are_compared_by_meaning() {
    let place = with_bundled();
    let ran =
        place.run(&["replay", "t.gz", "--conf", " expandable_segments : True , max_split_size_mb:unlimited"]);
    // PyTorch has no such word.
    assert_eq!(ran.code, 1);
    let ran = place.run(&["replay", "t.gz", "--conf", " expandable_segments:True,expandable_segments:True"]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("warning: expandable_segments is given more than once"), "{}", ran.err);
    assert!(ran.out.contains("PyTorch native") && !ran.out.contains("Not the same"), "{}", ran.out);
}

#[test]
fn other_conditions_are_labelled() {
    let place = with_bundled();
    let other_conf = place.run(&["replay", "t.gz", "--conf", "max_split_size_mb:128"]).out;
    assert!(!other_conf.contains("│ PyTorch native"), "{other_conf}");
    assert!(
        unwrapped(&other_conf).contains("native results in the file have other settings: default (''), expandable ('expandable_segments:True')"),
        "{other_conf}"
    );
    let other_device = place.run(&["replay", "t.gz", "--capacity", "40GiB"]).out;
    for part in ["PyTorch native on 80.00", "(not compared) │"] {
        assert!(other_device.contains(part), "{other_device}");
    }
    assert!(!other_device.contains("differs") && !other_device.contains("┆ same"), "{other_device}");
    assert!(
        unwrapped(&other_device).contains(
            "Not the same conditions: native had a device of 80.00 GiB, this replay one of 40.00 GiB"
        ),
        "{other_device}"
    );
    let late = place.run(&["replay", "t.gz", "--lag", "100"]);
    assert_eq!(late.code, 0, "{}", late.err);
    assert!(
        unwrapped(&late.out).contains("native's device completed work at once, this one 100 events later"),
        "{}",
        late.out
    );
}

/// A file and a text say the same; a file that is none is refused with its line.
#[test]
fn what_calls_cost_may_come_from_a_card() {
    let place = Place::new();
    place.trace("t.gz", "a 0 33554432 0\nf 0\n");
    let line = |call: &str, ns: u64| {
        format!("{{\"step\":\"driver\",\"call\":\"{call}\",\"bytes\":2097152,\"median_ns\":{ns}}}\n")
    };
    let lines = [line("cuMemAlloc", 7_000_000), line("cuMemFree", 1), line("cuFoo", 1)];
    place.file("driver.jsonl", lines.concat().as_bytes());
    let ns = |command: &str, cost: &str| {
        let answer = place.run(&[command, "t.gz", "--json", "--cost", cost]).json();
        match command {
            "replay" => answer["modelled_driver_ns"].clone(),
            _ => answer["candidates"][0]["roomy"]["modelled_driver_ns"].clone(),
        }
    };
    for command in ["replay", "whatif"] {
        let from_file = ns(command, "driver.jsonl");
        assert_eq!(from_file, ns(command, "malloc=7ms,free=1ns"), "{command}");
        assert!(
            from_file.as_u64().unwrap() >= 7_000_000 && from_file != ns(command, ""),
            "{command}: {from_file}"
        );
        let note = "costs: driver.jsonl (malloc, free); assumed: the rest; not known: cuFoo";
        let ran = place.run(&[command, "t.gz", "--json", "--cost", "driver.jsonl"]);
        assert!(ran.err.contains(note) && ran.json()["notes"][0] == note, "{command}: {}", ran.err);
    }
    place.file("driver.jsonl", (line("cuMemAlloc", 7) + "{\"step\":\"dri").as_bytes());
    let ran = place.run(&["replay", "t.gz", "--cost", "driver.jsonl"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("driver.jsonl: line 2: EOF") && ran.err.contains("can be deleted"),
        "{}",
        ran.err
    );
    let ran = place.run(&["replay", "t.gz", "--cost", "no-such-file"]);
    assert!(ran.err.contains("name a file that is there"), "{}", ran.err);
}

#[test]
fn the_environment_counts_where_conf_is_not_given() {
    let place = with_bundled();
    let environment = [("PYTORCH_CUDA_ALLOC_CONF", EXPANDABLE)];
    let ran = place.run_with(&["replay", "t.gz", "--json"], &environment);
    assert!(
        ran.err.contains("'expandable_segments:True' come from the environment (PYTORCH_CUDA_ALLOC_CONF)"),
        "{}",
        ran.err
    );
    let answer = ran.json();
    assert_eq!(answer["conf"], EXPANDABLE);
    assert_eq!(answer["reserved_bytes_peak"], native("expandable")["reserved_bytes_peak"]);
    assert!(ran.err.contains("; --conf overrides them\n"), "{}", ran.err);
    let ran = place.run_with(&["replay", "t.gz", "--json", "--conf", ""], &environment);
    assert_eq!(ran.err, "");
    assert_eq!(ran.json()["conf"], "");
    // Granule's own variable is read on top of either.
    let granule = ("GRANULE_CONF", "expandable_segments:True");
    for (environment, says) in [
        (&[granule][..], "; GRANULE_CONF is read on top of --conf, too\n"),
        (&[environment[0], granule], "; --conf overrides PyTorch's, and GRANULE_CONF is read on top of it\n"),
    ] {
        let ran = place.run_with(&["replay", "t.gz", "--json"], environment);
        assert!(ran.err.contains(says), "{}", ran.err);
        let ran = place.run_with(&["replay", "t.gz", "--json", "--conf", ""], environment);
        assert_eq!(ran.json()["conf"], "expandable_segments:True");
    }
}

fn first_message(answer: &Value) -> &str {
    answer["first_oom"]["message"].as_str().unwrap()
}

#[test]
fn refused_requests_are_counted_and_the_first_is_reported() {
    let place = with_bundled();
    let ran = place.run(&["replay", "t.gz", "--capacity", "4GiB", "--json"]);
    let answer = ran.json();
    let refused = answer["refused"].as_u64().unwrap();
    assert!(refused > 0);
    assert_eq!(answer["num_ooms"].as_u64(), Some(refused));
    assert_eq!(ran.err.matches("out of memory. Tried to allocate").count(), 1, "{}", ran.err);
    assert!(ran.err.contains("has a total capacity of 4.00 GiB"), "{}", ran.err);
    assert!(ran.err.contains("which takes one block of"), "{}", ran.err);
    for text in [ran.err.as_str(), first_message(&answer)] {
        assert!(text.contains("Simulated device out of memory."), "{text}");
        assert!(!text.contains("PrivateUse1") && !text.contains("openreg"), "{text}");
    }
    let told =
        format!("{refused} requests were refused, of {} operations; {} after", answer["ops"], refused - 1);
    assert!(ran.err.contains(&told), "{}", ran.err);
    let first = &answer["first_oom"];
    let event = first["event"].as_u64().unwrap();
    let line = super::bundled_text().lines().nth(usize::try_from(event).unwrap()).unwrap().to_owned();
    assert_eq!(line, format!("a {} {} {}", first["block"], first["requested"], first["stream"]));
    assert!(ran.err.contains(&format!("event {event} (line {}), block ", event + 1)), "{}", ran.err);
    assert!(ran.err.contains(&format!("{} bytes", first["requested"])), "{}", ran.err);
    assert_eq!(first["device_total"], 4u64 << 30);
    assert!(first["device_free"].as_u64() < first["tried"].as_u64(), "{first}");
    assert!(!first["blockers"].as_array().unwrap().is_empty() && first["remedies"].is_array(), "{first}");
    assert!(ran.err.contains("hint: granule min-capacity"));
}

#[test]
fn stop_on_oom_stops_with_a_code_of_its_own() {
    let place = with_bundled();
    let ran = place.run(&["replay", "t.gz", "--capacity", "4GiB", "--stop-on-oom", "--json"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["refused"], 1);
    assert_eq!(place.run(&["replay", "t.gz", "--stop-on-oom"]).code, 0);
    let table = place.run(&["replay", "t.gz", "--capacity", "4GiB", "--stop-on-oom"]);
    assert_eq!(table.code, 3);
    assert!(unwrapped(&table.out).contains("which this is a part"), "{}", table.out);
}

#[test]
fn a_snapshot_replays_to_the_same_figures() {
    let place = Place::new();
    // Everything is made and given back after recording began, so nothing is lost.
    let mut lines = String::new();
    for n in 0..200u64 {
        lines += &format!("a {n} {} {}\n", 1000 + n * n * 1777, n % 3);
        if n >= 20 {
            lines += &format!("f {}\n", n - 20);
        }
    }
    place.trace("t.gz", &lines);
    let first = place.run(&["replay", "t.gz", "--json", "--snapshot", "s.pickle"]).json();
    let ran = place.run(&["replay", "s.pickle", "--json"]);
    assert!(ran.err.contains("its history of device 0 became 380 events"), "{}", ran.err);
    let second = ran.json();
    for figure in
        ["requested_bytes_peak", "allocated_bytes_peak", "reserved_bytes_peak", "num_device_alloc", "ops"]
    {
        assert_eq!(first[figure], second[figure], "{figure}");
    }
    let ran = place.run(&["replay", "s.pickle", "--device", "1"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("nothing of device 1, but of device 0")
            || ran.err.contains("no history of device 1"),
        "{}",
        ran.err
    );
}

#[test]
fn what_a_snapshot_cannot_tell_is_said() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\nf 0\ne\na 1 512 0\n");
    assert_eq!(place.run(&["replay", "t.gz", "--snapshot", "s.pickle"]).code, 0);
    let ran = place.run(&["replay", "s.pickle"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("note: not exact: 1 segment was given back"), "{}", ran.err);
    assert!(ran.out.contains("recorded by Granule (not") && ran.out.contains("compared) │"), "{}", ran.out);
    let answer = place.run(&["replay", "s.pickle", "--json"]).json();
    assert!(answer["notes"][0].as_str().unwrap().starts_with("1 segment was given back"), "{answer}");
    let native = &answer["native"];
    assert_eq!(
        (native["recorded_by"].as_str(), native["comparable"].as_bool()),
        (Some("Granule"), Some(false))
    );
    assert_eq!(native["figures"]["reserved_bytes_peak"]["native"], 30 << 20, "{native}");
    assert_eq!(native["figures"]["reserved_bytes_end"]["native"], 2 << 20, "{native}");
    assert!(native["figures"]["reserved_bytes_end"]["verdict"].is_null(), "{native}");
}

#[test]
fn figures_are_written_for_prometheus() {
    let place = Place::new();
    place.trace("t.gz", "a 0 1000 0\na 1 3145728 0\nf 0\n");
    let ran = place.run(&["replay", "t.gz", "--metrics", "m.prom"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let text = std::fs::read_to_string(place.path("m.prom")).unwrap();
    for line in [
        "granule_allocated_bytes{device=\"0\",kind=\"privateuseone\",pool=\"all\"} 3145728",
        "granule_requested_peak_bytes{device=\"0\",kind=\"privateuseone\",pool=\"small_pool\"} 1000",
        "granule_device_allocs_total{device=\"0\",kind=\"privateuseone\"} 2",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
}

#[test]
fn the_snapshot_replaces_a_file_and_follows_a_link() {
    let place = Place::new();
    place.trace("t.gz", "a 0 512 0\n").file("old.pickle", b"old");
    std::os::unix::fs::symlink("old.pickle", place.path("link.pickle")).unwrap();
    assert_eq!(place.run(&["replay", "t.gz", "--snapshot", "link.pickle"]).code, 0);
    assert!(place.path("link.pickle").is_symlink());
    let snapshot = granule_snapshot::pickle::read_file(place.path("old.pickle")).unwrap();
    assert_eq!(snapshot.segments.len(), 1);
    assert_eq!(place.run(&["replay", "t.gz", "--snapshot", "/dev/null"]).code, 0);
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn equal_runs_give_equal_snapshots() {
    let place = with_bundled();
    for name in ["a", "b"] {
        assert_eq!(place.run(&["replay", "t.gz", "--snapshot", name]).code, 0);
    }
    assert_eq!(std::fs::read(place.path("a")).unwrap(), std::fs::read(place.path("b")).unwrap());
}

#[test]
fn the_log_goes_to_standard_error() {
    let place = with_bundled();
    let ran = place.run_with(&["replay", "t.gz", "--json"], &[("GRANULE_LOG", "info")]);
    assert!(ran.err.contains("resnet_train"), "{}", ran.err);
    ran.json();
    let ran = place.run_with(&["replay", "t.gz", "--json"], &[("GRANULE_LOG", "a=b=c")]);
    assert!(ran.err.contains("warning: GRANULE_LOG is ignored"), "{}", ran.err);
    ran.json();
}

#[test]
fn json_says_what_was_replayed_and_how_it_compares() {
    let place = with_bundled();
    let answer = place.run(&["replay", "t.gz", "--json"]).json();
    assert_eq!((answer["workload"].as_str(), answer["file"].as_str()), (Some("resnet_train"), Some("t.gz")));
    assert_eq!(answer["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(answer["notes"], serde_json::json!([]));
    assert!(answer["first_oom"].is_null());
    let compared = &answer["native"];
    assert_eq!((compared["name"].as_str(), compared["comparable"].as_bool()), (Some("default"), Some(true)));
    for (name, figure) in compared["figures"].as_object().unwrap() {
        assert_eq!(figure["native"], native("default")[name], "{name}");
        assert_eq!(figure["verdict"], "same", "{name}");
    }
    assert!(compared["figures"].as_object().unwrap().len() >= 8, "{compared}");
    place.trace("empty.gz", "e\n");
    let answer = place.run(&["replay", "empty.gz", "--json"]).json();
    assert!(answer["efficiency"].is_null() && answer["native"].is_null(), "{answer}");
}

#[test]
fn a_refused_request_survives_in_the_snapshot() {
    let place = Place::new();
    place.trace("t.gz", "a 0 300000000 0\ni 4\na 1 900000000 3\n");
    let args = ["replay", "t.gz", "--capacity", "1GiB", "--stop-on-oom", "--snapshot", "oom.pickle"];
    let ran = place.run(&args);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let told = "first refused request: event 3 (line 4), block 1, iteration 4, stream 3, 900000000 bytes";
    assert!(ran.err.contains(told) && ran.err.contains("1 request was refused, of 2"), "{}", ran.err);

    let again = place.run(&["replay", "oom.pickle", "--capacity", "1GiB", "--json"]);
    let answer = again.json();
    assert_eq!(answer["refused"], 1, "{}", again.err);
    let requested = answer["first_oom"]["requested"].as_u64().unwrap();
    assert!((900_000_000..902 << 20).contains(&requested), "{requested}: rounded to blocks");
    assert!(
        again.err.contains("1 request was refused when it was recorded; a replay asks again"),
        "{}",
        again.err
    );
    let smallest = |file: &str| place.run(&["min-capacity", file, "--json"]).json()["min_capacity"].as_u64();
    assert_eq!(smallest("oom.pickle"), smallest("t.gz"));
}

#[test]
fn a_window_of_a_history_gives_lower_bounds() {
    let place = Place::new();
    let mut lines = String::new();
    for n in 0..300 {
        lines += &format!("a {n} 3000000 0\n");
        if n > 0 {
            lines += &format!("f {}\n", n - 1);
        }
    }
    place.trace("t.gz", &lines);
    let environment = [("GRANULE_CONF", "history_max_entries:50")];
    let ran = place.run_with(&["replay", "t.gz", "--snapshot", "w.pickle"], &environment);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = place.run(&["replay", "w.pickle", "--json"]);
    assert!(
        ran.err.contains("earlier history is missing") && ran.err.contains("lower bounds"),
        "{}",
        ran.err
    );
    let answer = ran.json();
    assert!(answer["notes"][0].as_str().unwrap().starts_with("earlier history is missing"), "{answer}");
    let native = &answer["native"];
    assert_eq!(native["differences"].as_array().unwrap().len(), 2, "{native}");
    // Two blocks of 3 MB share a segment of 20 MiB.
    assert_eq!(native["figures"]["reserved_bytes_peak"]["native"], 20 << 20, "{native}");
    let ran = place.run_with(&["replay", "w.pickle"], &[("GRANULE_CONF", "policy:pytorch")]);
    let told = "note: the snapshot was recorded with other settings: 'history_max_entries:50'";
    assert!(ran.err.contains(told), "{}", ran.err);
    assert!(ran.out.contains("those of the recorded window"), "{}", ran.out);
}

#[test]
fn a_snapshot_is_replayed_with_its_own_settings() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\n");
    place.run(&["replay", "t.gz", "--conf", EXPANDABLE, "--snapshot", "s.pickle"]);
    let ran = place.run(&["replay", "s.pickle", "--json"]);
    let told = "settings 'expandable_segments:True' are those the snapshot was recorded with";
    assert!(ran.err.contains(told), "{}", ran.err);
    assert_eq!(ran.json()["conf"], EXPANDABLE);
    assert_eq!(place.run(&["replay", "s.pickle", "--json", "--conf", ""]).json()["conf"], "");
    let environment = [("PYTORCH_ALLOC_CONF", "max_split_size_mb:128")];
    let ran = place.run_with(&["replay", "s.pickle", "--json"], &environment);
    assert_eq!(ran.json()["conf"], "max_split_size_mb:128");
}

#[test]
fn a_snapshot_of_an_older_pytorch_is_replayed_as_that_decides() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\n");
    place.run(&["replay", "t.gz", "--snapshot", "new.pickle"]);
    let mut snapshot = pickle::read_file(place.path("new.pickle")).unwrap();
    let mut written = |name: &str, older: fn(&mut Snapshot)| {
        older(&mut snapshot);
        pickle::write(&snapshot, File::create(place.path(name)).unwrap(), pickle::Protocol::default())
            .unwrap();
    };
    written("2.13.pickle", |snapshot| snapshot.history = None);
    written("2.12.pickle", |snapshot| {
        snapshot.allocator_settings.retain(|(word, _)| &**word != "max_cached_size");
    });
    written("2.11.pickle", |snapshot| {
        for entry in snapshot.device_traces.iter_mut().flatten() {
            Arc::make_mut(&mut entry.labels).pool_id = None;
        }
    });
    for (file, release) in [("new", None), ("2.13", None), ("2.12", Some("2.13")), ("2.11", Some("2.11"))] {
        let (file, told) = (format!("{file}.pickle"), "the snapshot is of an older PyTorch");
        let ran = place.run(&["replay", &file]);
        assert_eq!((ran.code, ran.err.contains(told)), (0, release.is_some()), "{}", ran.err);
        let decides = format!("decides as {};", release.unwrap_or_default());
        assert!(release.is_none() || ran.err.contains(&decides), "{}", ran.err);
        let about = file == "2.12.pickle";
        assert_eq!(ran.err.contains("its figures are about right"), about, "{}", ran.err);
        let answer = place.run(&["whatif", &file, "--json"]).json();
        let not_exact = answer["not_exact"].to_string();
        assert_eq!(not_exact.contains("PyTorch 2.12, and a replay decides as 2.13"), about, "{not_exact}");
        let screen = place.run(&[&file]);
        assert_eq!(screen.out.contains("a replay decides as 2.13"), about, "{}", screen.out);
        for other in [["--pytorch", "2.15"], ["--policy", "granule"]] {
            let ran = place.run(&[&["replay", &file], &other[..]].concat());
            assert!(ran.code == 0 && !ran.err.contains(told), "{}", ran.err);
        }
    }
}

#[test]
fn only_the_variable_that_counts_is_named() {
    let place = with_bundled();
    let environment =
        [("PYTORCH_CUDA_ALLOC_CONF", EXPANDABLE), ("PYTORCH_ALLOC_CONF", "max_split_size_mb:128")];
    let ran = place.run_with(&["replay", "t.gz", "--json"], &environment);
    assert!(ran.err.contains("come from the environment (PYTORCH_CUDA_ALLOC_CONF);"), "{}", ran.err);
    let environment = [("PYTORCH_NO_HIP_MEMORY_CACHING", "1"), ("GRANULE_CONF", "policy:pytorch")];
    let ran = place.run_with(&["replay", "t.gz", "--json"], &environment);
    assert!(ran.err.contains("warning: PYTORCH_NO_HIP_MEMORY_CACHING=1 is ignored"), "{}", ran.err);
    assert!(ran.err.contains("come from the environment (GRANULE_CONF);"), "{}", ran.err);
}

#[test]
fn granules_own_settings_are_read_on_top_of_those_of_the_command_line() {
    let place = Place::new();
    place.trace("t.gz", "a 0 30000000 0\n");
    let args = ["replay", "t.gz", "--json", "--conf", EXPANDABLE];
    let ran = place.run_with(&args, &[("GRANULE_CONF", "policy:granule")]);
    let (answer, conf) = (ran.json(), format!("{EXPANDABLE},policy:granule"));
    assert_eq!((&answer["policy"], &answer["conf"]), (&"granule".into(), &conf.into()), "{}", ran.err);
    assert!(ran.err.contains("--conf, and GRANULE_CONF on top of it"), "{}", ran.err);
    let args = ["replay", "t.gz", "--json", "--policy", "pytorch"];
    let ran = place.run_with(&args, &[("GRANULE_CONF", "policy:granule")]);
    assert_eq!(ran.json()["policy"], "pytorch", "the command line has the last word");
}

#[test]
fn standard_input_is_a_file_too() {
    let place = with_bundled();
    let mut child = super::granule(place.0.path())
        .args(["replay", "-", "--json"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), BUNDLED).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["workload"], "resnet_train");
}

#[test]
fn a_snapshot_path_that_ends_in_gz_is_packed() {
    let place = with_bundled();
    for name in ["s.pickle", "s.pickle.gz"] {
        assert_eq!(place.run(&["replay", "t.gz", "--snapshot", name]).code, 0);
    }
    let (plain, packed) =
        (std::fs::read(place.path("s.pickle")).unwrap(), std::fs::read(place.path("s.pickle.gz")).unwrap());
    assert_eq!(packed[..2], [0x1f, 0x8b]);
    assert!(packed.len() < plain.len() / 2);
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).unwrap();
    assert!(unpacked == plain);
}

#[test]
fn the_log_has_no_colours_in_a_file_and_typing_errors_are_noticed() {
    let place = with_bundled();
    let ran = place.run_with(&["replay", "t.gz", "--json"], &[("GRANULE_LOG", "info")]);
    assert!(ran.err.contains("resnet_train") && !ran.err.contains('\u{1b}'), "{}", ran.err);
    let ran = place.run_with(&["replay", "t.gz", "--json"], &[("GRANULE_LOG", "debg")]);
    assert!(ran.err.contains("warning: GRANULE_LOG: 'debg' is neither a level"), "{}", ran.err);
}
