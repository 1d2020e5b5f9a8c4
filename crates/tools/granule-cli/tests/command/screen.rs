//! `granule FILE`: one screen, whatever the file is.

use super::{BUNDLED, Place, Ran, granule};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/cases/");
const OOM: &[u8] = include_bytes!("../../data/train-oom.pickle.gz");

/// 24 lines of 80 columns, the prompt's and those of messages counted.
fn fits(ran: &Ran) {
    assert_eq!(ran.code, 0, "{}", ran.err);
    let shown = format!("{}{}", ran.err, ran.out);
    assert!(shown.lines().count() < 24, "{shown}");
    // The folder of a test and the path of its executable are no one's choice.
    let own = |line: &&str| !line.starts_with("Page: ") && !line.contains(env!("CARGO_BIN_EXE_granule"));
    assert!(shown.lines().filter(own).all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn without_arguments_it_shows_an_error_and_the_line_that_helps() {
    let place = Place::new();
    let ran = place.run(&[]);
    fits(&ran);
    let exe = env!("CARGO_BIN_EXE_granule");
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"file://\S*/", "file:///FOLDER/");
    settings.bind(|| insta::assert_snapshot!(ran.out.replace(exe, "granule")));
    assert!(place.path("train-oom.html").exists());
    // What it prints first, works: the line and what it gives are those of whatif.
    let line = ran.out.lines().find_map(|line| line.trim().strip_prefix("export ")).unwrap();
    place.file("train-oom.pickle.gz", OOM);
    let tried = place.run(&["whatif", "train-oom.pickle.gz"]);
    assert!(tried.out.contains(line), "{}", tried.out);
    assert!(!ran.out.contains('\u{1b}'), "no colours in a file");
    let demo = place.run(&["replay"]);
    assert!(demo.out.contains("same") && !demo.out.contains("differs"), "{}", demo.out);
}

#[test]
fn every_kind_of_file_fits_a_screen_and_says_first_what_is_not_known() {
    let place = Place::new();
    place.file("resnet.trace.gz", BUNDLED);
    place.trace("small.trace.gz", "a 0 62914560 0\na 1 41943040 0\na 2 73400320 0\n");
    let case = |path: &str| format!("{CASES}{path}");
    let known = [
        (
            case("window/gpt2_train_stacks.pickle.gz"),
            "",
            "Replay 16.85 GiB, PyTorch held ",
            "The lines that hold most",
        ),
        (
            case("state/no-history.pickle.gz"),
            "",
            "258.28 MiB are live and 604.00 MiB reserved",
            "has no history",
        ),
        (case("11/slabs.trace"), "", "At most ", "there are no stacks"),
        ("resnet.trace.gz".into(), "", "At most 10.92 GiB", "for the whole recording"),
        ("small.trace.gz".into(), "110MiB", "At most 100.00 MiB", "are missing"),
        ("small.trace.gz".into(), "110MiB", "At most 100.00 MiB", "docs/remedies.md"),
    ];
    for (path, capacity, begins, says) in &known {
        let mut words = vec![path.as_str()];
        words.extend(["--capacity", capacity].iter().filter(|_| !capacity.is_empty()));
        let ran = place.run(&words);
        fits(&ran);
        assert!(ran.out.starts_with(begins) && ran.out.contains(says), "{path}: {}", ran.out);
    }
    let window = place.run(&[&known[0].0]);
    assert!(!window.out.contains("export ") && !window.out.contains("fits"), "{}", window.out);
}

#[test]
fn what_is_no_file_says_what_to_do_and_a_command_comes_before_a_file() {
    let place = Place::new();
    place.file("replay", BUNDLED).file("recordings.txt", b"");
    let nothing = place.run(&["nofile"]);
    assert_eq!(nothing.code, 2);
    assert!(
        nothing.err.contains("neither a command nor a file") && nothing.err.contains("granule FILE takes")
    );
    assert!(place.run(&["inspekt"]).err.contains("is 'inspect' meant?"));
    let missing = place.run(&["missing.pickle"]);
    assert!(missing.code == 1 && missing.err.starts_with("error: missing.pickle: "), "{}", missing.err);
    assert!(place.run(&["replay"]).out.contains("PyTorch native"), "the command");
    assert!(place.run(&["./replay"]).out.starts_with("At most 10.92 GiB"), "the file");

    std::fs::create_dir(place.path("folder")).unwrap();
    let empty = place.run(&["folder"]);
    assert!(empty.code == 1 && empty.err.contains("granule record -- python train.py"), "{}", empty.err);
    place.file("folder/run-0001-oom.pickle.gz", OOM).file("folder/run-0002.trace.gz", BUNDLED);
    let folder = place.run(&["folder"]);
    fits(&folder);
    assert!(folder.out.contains("1 more") && folder.out.contains("inspect folder/run-0001-oom.pickle.gz"));
}

#[test]
fn no_page_takes_the_place_of_another_without_a_word() {
    let place = Place::new();
    place.trace("t.gz", "a 0 1000 0\n").file("t.html", b"mine").file("report.html", b"mine");
    assert!(place.run(&["t.gz"]).out.contains("/t-2.html"));
    assert!(place.run(&["report", "t.gz"]).out.starts_with("report-2.html: "));
    let refused = place.run(&["report", "t.gz", "-o", "t.html"]);
    assert!(refused.code == 1 && refused.err.contains("--force replaces it"), "{}", refused.err);
    for name in ["t.html", "report.html"] {
        assert_eq!(std::fs::read(place.path(name)).unwrap(), b"mine");
    }
    assert_eq!(place.run(&["report", "t.gz", "-o", "t.html", "--force"]).code, 0);
    assert_ne!(std::fs::read(place.path("t.html")).unwrap(), b"mine");
    // A folder in the page's place is one that cannot be written.
    std::fs::create_dir(place.path("locked.html")).unwrap();
    place.trace("locked.gz", "a 0 1000 0\n");
    assert!(place.run(&["locked.gz"]).out.contains("/locked-2.html"));
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let place = Place::new();
    let mut child = granule(place.0.path()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
