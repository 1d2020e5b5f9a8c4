use super::{BUNDLED, Place, Ran, bundled_text, gzip};

/// Fails with code 1 and one error that names the file and all of `parts`.
#[track_caller]
fn fails(ran: &Ran, parts: &[&str]) {
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert_eq!(ran.out, "");
    let errors: Vec<_> = ran.err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{}", ran.err);
    for part in parts {
        assert!(errors[0].contains(part), "'{part}' is not in: {}", errors[0]);
    }
}

#[test]
fn missing_file() {
    for command in ["replay", "min-capacity"] {
        let ran = Place::new().run(&[command, "nowhere.gz"]);
        fails(&ran, &["nowhere.gz", "No such file", "check the path"]);
    }
}

#[test]
fn a_directory() {
    fails(&Place::new().run(&["replay", "."]), &[".: "]);
}

#[test]
fn truncated_gzip() {
    let place = Place::new();
    for end in [3, 12, 500, BUNDLED.len() / 2, BUNDLED.len() - 9, BUNDLED.len() - 1] {
        place.file("t.gz", &BUNDLED[..end]);
        fails(&place.run(&["replay", "t.gz"]), &["t.gz: "]);
    }
    place.file("t.gz", &BUNDLED[..BUNDLED.len() / 2]);
    fails(
        &place.run(&["replay", "t.gz"]),
        &["t.gz: line ", "gzip archive ends in the middle", "record it again"],
    );
}

#[test]
fn corrupt_gzip() {
    let place = Place::new();
    let mut bytes = BUNDLED.to_vec();
    for byte in &mut bytes[40_000..40_064] {
        *byte ^= 0x5a;
    }
    place.file("t.gz", &bytes);
    fails(&place.run(&["replay", "t.gz"]), &["t.gz: line "]);
}

#[test]
fn truncated_line() {
    let place = Place::new();
    let text = bundled_text();
    // Inside the fifth event: its line has lost its end.
    let lines: Vec<_> = text.lines().take(6).collect();
    let cut = lines.join("\n");
    place.file("t.gz", &gzip(&cut.as_bytes()[..cut.len() - 2]));
    fails(&place.run(&["replay", "t.gz"]), &["t.gz: line 6: ", "record it again"]);
}

#[test]
fn cut_between_lines_is_replayed_with_a_warning() {
    let place = Place::new();
    let text = bundled_text();
    let lines: Vec<_> = text.lines().take(2001).collect();
    place.file("t.gz", &gzip((lines.join("\n") + "\n").as_bytes()));
    let ran = place.run(&["replay", "t.gz"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("holds 2000 of "), "{}", ran.err);
    assert!(
        ran.out.contains("Not the same conditions: native's figures are those of the whole run"),
        "{}",
        ran.out
    );
}

#[test]
fn garbage() {
    let place = Place::new();
    place.file("t.gz", b"PK\x03\x04 an archive of another kind");
    fails(&place.run(&["replay", "t.gz"]), &["t.gz: this zip archive cannot be read", "unpack"]);
    place.file("t.gz", b"\x7fELF and what follows");
    fails(&place.run(&["replay", "t.gz"]), &["t.gz: neither a trace", "nor a snapshot"]);
    place.file("t.gz", b"");
    for command in ["replay", "inspect", "whatif", "min-capacity"] {
        fails(&place.run(&[command, "t.gz"]), &["t.gz: the file is empty"]);
    }
    place.file("t.gz", &gzip(b""));
    fails(&place.run(&["replay", "t.gz"]), &["t.gz: the file is empty"]);
    place.file("t.gz", b"\x80\x04csubprocess\nPopen\n.");
    fails(&place.run(&["replay", "t.gz"]), &["t.gz: "]);
    for (line, lines) in [
        (3, "a 0 512 0\nx 1\n"),
        (2, "a 0 0 0\n"),
        (3, "a 0 512 0\nf 7\n"),
        (2, "a 0 99999999999999999999 0\n"),
    ] {
        place.trace("t.gz", lines);
        fails(&place.run(&["replay", "t.gz"]), &[&format!("t.gz: line {line}: ")]);
    }
}

#[test]
fn a_line_that_is_wrong_says_what_to_do_and_a_later_format_is_named() {
    let place = Place::new();
    for lines in ["a 0 -5 0\n", "a 0 1048576\n"] {
        place.trace("t.gz", lines);
        fails(&place.run(&["inspect", "t.gz"]), &["t.gz: line 2: ", "record it again, or mend the line"]);
    }
    place.file("t.trace", b"# {\"format\":\"alloc-trace 9\"}\na 0 1048576 0\n");
    let ran = place.run(&["inspect", "t.trace"]);
    assert!(ran.err.contains("of the format 'alloc-trace 9'") && ran.code == 0, "{}", ran.err);
}

#[test]
fn a_pipe_that_nobody_writes_to_is_named_after_a_moment() {
    let place = Place::new();
    assert!(std::process::Command::new("mkfifo").arg(place.path("p")).status().unwrap().success());
    let mut command = super::granule(&place.path(""));
    let mut child = command.args(["inspect", "./p"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let said = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut { said }, &mut line).unwrap();
    assert!(line.contains("waiting for ./p, a pipe into which"), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_snapshot_without_history() {
    let place = Place::new();
    let mut file = Vec::new();
    granule_snapshot::pickle::write(&granule::snapshot::Snapshot::default(), &mut file, Default::default())
        .unwrap();
    place.file("s.pickle", &file);
    fails(&place.run(&["replay", "s.pickle"]), &["s.pickle: ", "has no history", "_record_memory_history"]);
}

#[test]
fn a_pickle_of_something_else() {
    let place = Place::new();
    place.file("d.pickle", b"\x80\x04}\x8c\x05modelK\x01s.");
    fails(&place.run(&["replay", "d.pickle"]), &["d.pickle: not a PyTorch memory snapshot", "'segments'"]);
}

#[test]
fn a_stream_beyond_what_can_be_is_found_in_its_line() {
    let place = Place::new();
    place.trace("t.gz", "a 0 512 0\nf 0\na 1 512 70000\n");
    fails(&place.run(&["replay", "t.gz"]), &["event 3: stream 70000 is beyond 65535"]);
}

#[test]
fn a_full_disk_is_named() {
    if !std::path::Path::new("/dev/full").exists() {
        return;
    }
    let place = Place::new();
    place.trace("t.gz", "a 0 512 0\n");
    let ran = place.run(&["replay", "t.gz", "--snapshot", "/dev/full"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("error: /dev/full: "), "{}", ran.err);
    assert!(ran.err.contains("hint: the disk is full"), "{}", ran.err);
}

#[test]
fn settings_that_are_refused() {
    let place = Place::new();
    place.trace("t.gz", "a 0 512 0\n");
    let ran = place.run(&["replay", "t.gz", "--conf", "expandable_segment:True"]);
    fails(&ran, &["--conf: ", "expandable_segment", "did you mean 'expandable_segments'?"]);
    let ran = place.run(&["replay", "t.gz", "--conf", "max_split_size_mb:tiny"]);
    fails(&ran, &["--conf: max_split_size_mb: "]);
    let ran = place.run_with(&["replay", "t.gz"], &[("PYTORCH_CUDA_ALLOC_CONF", "nonsense:1")]);
    fails(&ran, &["PYTORCH_CUDA_ALLOC_CONF: ", "nonsense"]);
    // What was probably meant comes before all that there is.
    for (variable, conf, meant) in [
        ("GRANULE_CONF", "memory_limt:1GiB", "got 'memory_limt' at byte 0; did you mean 'memory_limit'?"),
        ("GRANULE_CONF", "polcy:granule", "got 'polcy' at byte 0; did you mean 'policy'?"),
        ("PYTORCH_CUDA_ALLOC_CONF", "memory_limt:1GiB", "at byte 0; did you mean 'memory_limit'?"),
        ("PYTORCH_CUDA_ALLOC_CONF", "memory_limt:1GiB", "Granule's own go into GRANULE_CONF"),
    ] {
        let ran = place.run_with(&["replay", "t.gz"], &[(variable, conf)]);
        fails(&ran, &[variable, meant]);
    }
}

/// `granule ... | head -0`: who reads has gone, and the file is what was asked for.
#[test]
fn files_are_written_where_nobody_reads_the_figures() {
    let place = Place::new();
    place.trace("t.gz", "a 0 512 0\n").file("t.csv", b"id,lower,upper,size\na,0,2,3\n");
    for (file, args) in [
        ("s.pickle", &["replay", "t.gz", "--snapshot", "s.pickle"][..]),
        ("m.prom", &["replay", "t.gz", "--metrics", "m.prom"]),
        ("j.pickle", &["replay", "t.gz", "--snapshot", "j.pickle", "--json"]),
        ("p.gz", &["plan", "t.gz", "-o", "p.gz"]),
        ("o.csv", &["plan", "t.csv", "-o", "o.csv"]),
        ("r.html", &["report", "t.gz", "-o", "r.html"]),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = super::granule(place.0.path());
        let ran = super::ran(command.args(args).stdout(writer).output().unwrap());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        assert!(place.path(file).is_file(), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_snapshot_path_that_cannot_be_written_is_noticed_before_the_replay() {
    let place = Place::new();
    place.trace("t.gz", "a 0 512 0\n");
    let ran = place.run(&["replay", "t.gz", "--snapshot", "no/such/directory/s.pickle"]);
    fails(&ran, &["no/such/directory/s.pickle: No such file or directory"]);
    assert!(ran.err.contains("hint: the directory no/such/directory does not exist"), "{}", ran.err);
}

#[test]
fn a_path_for_figures_that_cannot_be_written_is_noticed_before_the_replay() {
    let place = Place::new();
    place.trace("t.gz", "a 0 512 0\n");
    fails(
        &place.run(&["replay", "t.gz", "--metrics", "no/such/directory/m.prom"]),
        &["no/such/directory/m.prom: "],
    );
}

#[test]
fn wrong_usage() {
    let place = Place::new();
    place.trace("t.gz", "a 0 512 0\n");
    for (args, part) in [
        (&["replay", "t.gz", "--capacity", "80GB"][..], "write GiB for powers of 1024"),
        (&["replay", "t.gz", "--capacity", "0"], "more than 0"),
        (&["replay", "t.gz", "--capacity", "24"], "write 24GiB"),
        (&["replay", "t.gz", "--capacity", "-5"], "a size cannot be negative"),
        (&["whatif", "t.gz", "--capacity", "24GiB,-5"], "a size cannot be negative"),
        (&["replay", "t.gz", "--lag", "-5"], "invalid value '-5' for '--lag"),
        (&["replay", "t.gz", "--policy", "abacus"], "no such policy in this build; available: pytorch"),
        (
            &["replay", "t.gz", "--backend", "abacus"],
            "there is no backend 'abacus'; there are cuda, hip, hip-as-cuda, openreg",
        ),
        (&["replay", "t.gz", "--scale", "0"], "a factor is a positive number"),
        (&["conformance"], "--backend <NAME>"),
        (&["replay", "t.gz", "--frobnicate"], "unexpected argument"),
        (&["inspect"], "<TRACE|SNAPSHOT>"),
        (&["reply", "t.gz"], "'replay'"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains(part), "'{part}' is not in: {}", ran.err);
    }
}

/// A pickled list of fifty times the same list, and so on: written out, it is 50 to the power of `depth` numbers.
fn many_times(depth: u8) -> Vec<u8> {
    if depth == 0 {
        return b"K\x01".to_vec();
    }
    let inner = many_times(depth - 1);
    let again = [b'h', depth].repeat(49);
    [b"](", &inner[..], &[b'q', depth], &again, b"e"].concat()
}

#[test]
fn a_file_beyond_the_limits_is_read_where_it_is_trusted() {
    let place = Place::new();
    let key = |key: &str| [b"X", &(key.len() as u32).to_le_bytes()[..], key.as_bytes()].concat();
    let (segments, traces, extra) = (key("segments"), key("device_traces"), key("extra"));
    let pickle = [b"\x80\x02}(", &segments[..], b"]", &traces, b"]", &extra, &many_times(3), b"u."].concat();
    place.file("s.pickle", &pickle);
    let ran = place.run(&["inspect", "s.pickle"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("would become more than") && ran.err.contains("--trust"), "{}", ran.err);
    let ran = place.run(&["inspect", "s.pickle", "--trust"]);
    assert!(ran.err.contains("has no history"), "it was read: {}", ran.err);
}

#[test]
fn an_archive_that_grows_without_measure_is_unpacked_where_it_is_trusted() {
    let place = Place::new();
    let packed = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let padding = " ".repeat(5 << 20);
    place.file("bomb.trace.gz", &packed(&format!("# {{{padding}}}\na 0 512 0\n")));
    place.file("t.trace", b"# {}\na 0 512 0\nf 0\n");
    assert_eq!(place.run(&["plan", "t.trace", "-o", "p"]).code, 0);
    let plan = std::fs::read_to_string(place.path("p")).unwrap();
    place.file("bomb.plan.gz", &packed(&(padding + &plan)));
    for words in [
        &["replay", "bomb.trace.gz"][..],
        &["inspect", "bomb.trace.gz"],
        &["replay", "t.trace", "--policy", "granule", "--plan", "bomb.plan.gz"],
    ] {
        let ran = place.run(words);
        assert_eq!(ran.code, 1, "{words:?}: {}", ran.err);
        assert!(
            ran.err.contains("more than 64 times its size") && ran.err.contains("--trust"),
            "{}",
            ran.err
        );
        let ran = place.run(&[words, &["--trust"]].concat());
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.err);
    }
}

#[test]
fn a_program_that_is_not_there_is_named_and_leaves_nothing() {
    let place = Place::new();
    for command in ["record", "estimate"] {
        let ran = place.run(&[command, "--", "nosuchprog"]);
        assert_eq!(ran.code, 1, "{command}: {}", ran.err);
        assert!(ran.err.contains("error: nosuchprog"), "{command}: {}", ran.err);
        assert!(ran.err.contains("hint: "), "{command}: {}", ran.err);
        let left: Vec<_> = std::fs::read_dir(place.path(".")).unwrap().collect();
        assert!(left.is_empty(), "{command}: {left:?}");
    }
}

#[test]
fn a_selection_without_a_check_is_no_success() {
    let ran = Place::new().run(&["conformance", "--backend", "openreg", "--only", "no_such_check"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("no_such_check") && ran.err.contains("--list"), "{}", ran.err);
}

/// A title that sets the window's, clears the screen and colours what follows.
#[test]
fn control_characters_of_a_file_never_reach_the_terminal() {
    let place = Place::new();
    let title = r"\u001b]0;title\u0007\u001b[2J\u009b31mred";
    place.file("t.trace", format!("# {{\"workload\": \"{title}\"}}\na 0 1000000 0\nf 0\n").as_bytes());
    for command in [
        &["inspect", "t.trace"][..],
        &["replay", "t.trace"],
        &["check", "t.trace", "--max-reserved", "1MiB"],
        &["whatif", "t.trace"],
        &["plan", "t.trace"],
        &["min-capacity", "t.trace"],
        &["export", "t.trace", "--perfetto", "t.json"],
    ] {
        let ran = place.run(command);
        let text = format!("{}{}", ran.out, ran.err);
        assert!(!text.chars().any(|one| one.is_control() && !"\n\t".contains(one)), "{command:?}: {text:?}");
    }
    assert!(place.run(&["replay", "t.trace"]).out.contains(r"\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31mred"));
    assert_eq!(
        place.run(&["replay", "t.trace", "--json"]).json()["workload"],
        "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31mred"
    );
}
