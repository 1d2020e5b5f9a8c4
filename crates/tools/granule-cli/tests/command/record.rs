//! `granule record`, with programs that only look at what they were given. PyTorch's part is in tests/torch/test_record.py.

use super::{Place, granule};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Output, Stdio};
use std::time::Duration;

fn run(place: &Place, options: &[&str], script: &str) -> super::Ran {
    let cache = place.path("cache");
    let arguments = [&["record"], options, &["--", "sh", "-c", script]].concat();
    place.run_with(&arguments, &[("XDG_CACHE_HOME", cache.to_str().unwrap())])
}

#[test]
fn the_program_gets_the_hook_and_the_options() {
    let place = Place::new();
    let script = "echo $GRANULE_RECORD; echo $GRANULE_HOOK; ls ${PYTHONPATH%%:*}; pwd";
    let options =
        ["-o", "run7", "--rotate", "64MiB", "--keep", "3", "--max-entries", "500", "--stacks", "none"];
    let ran = run(&place, &options, script);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let directory = place.path("run7").canonicalize().unwrap();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines[0],
        format!("{},rotate=67108864,keep=3,max_entries=500,stacks=none", directory.display())
    );
    assert_eq!(lines[1], "granule_record");
    assert!(lines.contains(&"granule_hook.py") && lines.contains(&"granule_hook-1.dist-info"), "{}", ran.out);
    assert!(ran.err.contains("nothing was recorded"), "{}", ran.err);
}

#[test]
fn an_earlier_python_path_stays() {
    let place = Place::new();
    let cache = place.path("cache");
    let environment = [("XDG_CACHE_HOME", cache.to_str().unwrap()), ("PYTHONPATH", "/of/the/user")];
    let ran = place.run_with(&["record", "--", "sh", "-c", "echo $PYTHONPATH"], &environment);
    assert!(ran.out.trim().ends_with(":/of/the/user"), "{}", ran.out);
}

#[test]
fn the_hook_can_be_used_without_the_command() {
    let place = Place::new();
    let cache = place.path("cache");
    let ran = place.run_with(&["record", "--hook-path"], &[("XDG_CACHE_HOME", cache.to_str().unwrap())]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(std::path::Path::new(ran.out.trim()).join("granule_record.py").is_file());
}

/// Another user puts a folder of theirs, which they can change while programs run, where the hook would go.
#[test]
fn a_folder_that_others_can_write_gets_no_hook() {
    let place = Place::new();
    let own = |path: &str, mode| {
        fs::create_dir_all(place.path(path)).unwrap();
        fs::set_permissions(place.path(path), Permissions::from_mode(mode)).unwrap();
    };
    let hook_path = || {
        let folders = ["cache", "tmp"].map(|name| place.path(name).to_str().unwrap().to_owned());
        let environment = [("XDG_CACHE_HOME", folders[0].as_str()), ("TMPDIR", folders[1].as_str())];
        place.run_with(&["record", "--hook-path"], &environment)
    };
    own("cache/granule", 0o777);
    own("tmp", 0o1777);
    let other = format!("tmp/granule-{}", fs::metadata(place.path("tmp")).unwrap().uid());
    let ran = hook_path();
    assert!(ran.code == 0 && ran.out.contains(&other), "{}{}", ran.out, ran.err);
    assert_eq!(fs::metadata(place.path(&other)).unwrap().mode() & 0o777, 0o700);
    own(&other, 0o777);
    let ran = hook_path();
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("other users") && ran.err.contains("XDG_CACHE_HOME"), "{}", ran.err);
    fs::rename(place.path(&other), place.path("elsewhere")).unwrap();
    own("elsewhere", 0o700);
    symlink(place.path("elsewhere"), place.path(&other)).unwrap();
    assert_eq!(hook_path().code, 1, "nor a link");
}

#[test]
fn new_files_are_listed_and_failures_come_first_in_what_to_do() {
    let place = Place::new();
    let script = "cd granule-recording; echo x > granule-p1-0001.pickle; echo x > granule-p1-0002-d0-oom.pickle; echo x > other";
    let ran = run(&place, &[], script);
    assert!(ran.err.contains("granule-p1-0001.pickle  2 bytes"), "{}", ran.err);
    assert!(
        ran.err.contains("hint: granule inspect granule-recording/granule-p1-0002-d0-oom.pickle"),
        "{}",
        ran.err
    );
    assert!(!ran.err.contains("other"));
    // What was there before is not new.
    assert!(run(&place, &[], "true").err.contains("nothing was recorded"));
    assert!(run(&place, &["--on-oom"], "true").err.contains("no request failed"));
}

#[test]
fn the_exit_code_is_the_programs() {
    let place = Place::new();
    assert_eq!(run(&place, &[], "exit 7").code, 7);
    assert_eq!(run(&place, &[], "kill -9 $$").code, 128 + 9);
    let ran = place.run(&["record", "--", "there-is-no-such-program"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("there-is-no-such-program cannot be run"), "{}", ran.err);
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let place = Place::new();
    assert!(run(&place, &["-o", "a,b"], "true").err.contains("has a comma"));
    for bad in [&["--rotate", "10MB"], &["--max-entries", "0"], &["--keep", "-1"], &["--stacks", "c"]] {
        assert_eq!(run(&place, bad, "true").code, 2, "{bad:?}");
    }
    assert_eq!(place.run(&["record"]).code, 2);
}

#[test]
fn signals_go_to_the_program() {
    let place = Place::new();
    let script = "trap 'echo told > told; exit 5' USR1; echo ready > ready; while :; do sleep 0.05; done";
    let mut command = granule(place.0.path());
    command.args(["record", "--", "sh", "-c", script]).env("XDG_CACHE_HOME", place.path("cache"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !place.path("ready").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let signalled =
        std::process::Command::new("kill").args(["-USR1", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let Output { status, .. } = child.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(5));
    assert!(place.path("told").exists());
}

/// As under `nohup`.
#[test]
fn an_ignored_signal_stays_ignored() {
    let place = Place::new();
    let script = "trap '' HUP USR1; exec \"$0\" record -- sh -c 'for s in HUP USR1; do kill -$s $PPID; kill -$s $$; done; sleep 0.3; exit 5'";
    let command = granule(place.0.path());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).arg(command.get_program()).current_dir(place.0.path());
    let status = shell.env("XDG_CACHE_HOME", place.path("cache")).status().unwrap();
    assert_eq!(status.code(), Some(5));
}
