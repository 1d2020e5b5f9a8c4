use super::{Place, granule};
use std::process::Command;

const SNAPSHOT: &str = "granule-snapshot.pickle";

#[test]
fn without_arguments_it_replays_the_bundled_trace_and_writes_a_snapshot() {
    let place = Place::new();
    let ran = place.run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with("resnet_train: "), "{}", ran.out);
    assert!(ran.out.contains("PyTorch native"));
    assert!(ran.out.contains("same") && !ran.out.contains("differs"), "{}", ran.out);
    assert!(ran.out.contains("Try next:\n"));
    assert!(
        ran.err.contains("granule-snapshot.pickle; https://pytorch.org/memory_viz opens it"),
        "{}",
        ran.err
    );

    let snapshot = granule::files::pickle::read_file(place.path(SNAPSHOT)).unwrap();
    assert!(!snapshot.segments.is_empty());
    assert!(snapshot.device_traces[0].len() > 10_000);
    assert!(snapshot.history.is_none_or(|history| history.complete));
    let files = std::fs::read_dir(place.path(".")).unwrap().count();
    assert_eq!(files, 1, "nothing else is left behind");
}

#[test]
fn python_reads_the_snapshot() {
    let Ok(python) = Command::new("python3").arg("--version").output() else { return };
    if !python.status.success() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.run(&[]).code, 0);
    let script = "import pickle, sys\n\
                  s = pickle.load(open(sys.argv[1], 'rb'))\n\
                  reserved = sum(g['total_size'] for g in s['segments'])\n\
                  live = sum(b['size'] for g in s['segments'] for b in g['blocks'] if b['state'] == 'active_allocated')\n\
                  allocated = sum(g['allocated_size'] for g in s['segments'])\n\
                  requests = sum(e['action'] == 'alloc' for e in s['device_traces'][0])\n\
                  print(reserved, live == allocated, requests)";
    let read = Command::new("python3").args(["-c", script]).arg(place.path(SNAPSHOT)).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let requests = super::bundled_text().lines().filter(|line| line.starts_with("a ")).count();
    let told = String::from_utf8(read.stdout).unwrap();
    let told: Vec<_> = told.split_whitespace().collect();
    assert!(told[0].parse::<u64>().unwrap() > 0);
    assert_eq!(told[1..], ["True", &requests.to_string()]);
}

#[test]
fn a_directory_that_cannot_be_written_still_shows_the_table() {
    let place = Place::new();
    // A directory in the snapshot's place, as permissions do not stop every user.
    std::fs::create_dir(place.path(SNAPSHOT)).unwrap();
    let ran = place.run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("PyTorch native") && ran.out.contains("Try next:"), "{}", ran.out);
    assert!(!ran.out.contains("memory_viz"), "there is nothing to drop there: {}", ran.out);
    assert!(ran.err.contains("warning: no snapshot is written: granule-snapshot.pickle: "), "{}", ran.err);
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let place = Place::new();
    let mut child = granule(place.0.path()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_it_says_to_try_next_works() {
    let place = Place::new();
    let ran = place.run(&[]);
    let exe = env!("CARGO_BIN_EXE_granule");
    let commands: Vec<_> = ran.out.lines().filter_map(|line| Some(line.split_once(exe)?.1.trim())).collect();
    assert_eq!(commands.len(), 5, "{}", ran.out);
    for command in commands {
        let args: Vec<_> =
            command.split(' ').map(|word| if word == "FILE" { SNAPSHOT } else { word }).collect();
        let next = place.run(&args);
        assert_eq!(next.code, 0, "{command}: {}", next.err);
    }
}
