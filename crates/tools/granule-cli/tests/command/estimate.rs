//! Stand-ins: a `python` that knows which PyTorch it has and "runs" a program by writing what the recorder would write, and
//! a `bash` that builds nothing. With real PyTorch: tests/torch/test_estimate.py.

use super::{Place, Ran, granule, ran};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const TORCH: &str = r#"{"python": "python", "torch": {"site": "/site", "version": "2.15.0+cu132", "cuda": "13.2", "hip": null}}"#;

/// Two gibibytes in three blocks, of which two are live at once; the recorder was killed in the middle of a line.
const RECORDED: &str = r##"printf '# {"workload": "train", "torch": "2.15.0+cu132"}\na 0 1073741824 0\na 1 536870912 0\ni 1\nf 1\na 2 536870912 0\ni 2\nf 2\0\0\0' > "$GRANULE_ESTIMATE_FOLDER/77.0.trace""##;

impl Place {
    fn script(&self, name: &str, text: &str) -> &Self {
        self.file(name, format!("#!/bin/sh\n{text}\n").as_bytes());
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o755)).unwrap();
        self
    }

    /// A Python with this answer to the probe, whose programs do that.
    fn python(&self, answer: &str, program: &str) -> &Self {
        self.script(
            "bash",
            "case $1 in */build.sh) mkdir -p \"$OUT\" ;; *) shift 2; PATH=/usr/bin:/bin; exec \"$@\" ;; esac",
        );
        self.script("python", &format!("if [ \"$1\" = -c ]; then echo '{answer}'; else {program}; fi"))
    }

    fn estimate(&self, args: &[&str]) -> Ran {
        self.estimate_with(args, &[])
    }

    fn estimate_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Ran {
        let mut command = self.estimate_command(args);
        command.envs(environment.iter().copied());
        ran(command.output().unwrap())
    }

    fn estimate_command(&self, args: &[&str]) -> Command {
        let mut command = granule(&self.path(""));
        command
            .arg("estimate")
            .args(args)
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("").display()))
            .env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    /// Starts it, and gives it signals once a file is there.
    fn estimate_and_signal(&self, args: &[&str], file: &str, signal: &str) -> Ran {
        let granule = self.estimate_command(args);
        // A test that runs in the background may ignore Ctrl-C, and then so does what it starts.
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(granule.get_program()).args(granule.get_args());
        command.current_dir(self.path(""));
        for (name, value) in granule.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        self.wait_for(file);
        shell(&format!("kill -{signal} {}", child.id()));
        ran(child.wait_with_output().unwrap())
    }

    fn wait_for(&self, file: &str) {
        let begin = Instant::now();
        while !self.path(file).exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{file} does not come");
            sleep(Duration::from_millis(20));
        }
    }

    /// Whether the process whose number is in a file still does.
    fn runs(&self, file: &str) -> bool {
        let process = std::fs::read_to_string(self.path(file)).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z"))
    }

    /// What is in the cache of drivers but for whole builds.
    fn unfinished(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("cache/granule/estimate")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with("torch-") && !name.starts_with("python-")).collect()
    }
}

fn shell(command: &str) {
    Command::new("sh").args(["-c", command]).status().unwrap();
}

/// Fails with one error that has all of `parts`, and this hint.
#[track_caller]
fn fails(ran: &Ran, parts: &[&str], hint: &str) {
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let errors: Vec<_> = ran.err.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{}", ran.err);
    for part in parts {
        assert!(errors[0].contains(part), "'{part}' is not in: {}", errors[0]);
    }
    let hints: Vec<_> = ran.err.lines().filter(|line| line.starts_with("hint: ")).collect();
    assert!(hints.len() == 1 && hints[0].contains(hint), "{}", ran.err);
}

/// Ends with this code, and says it as one JSON object.
#[track_caller]
fn fits_with_error(ran: &Ran, code: i32, message: &str) {
    let said: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.out));
    super::json::fits("estimate", &said);
    assert_eq!((ran.code, &said["error"]["exit_code"]), (code, &code.into()), "{}", ran.err);
    assert!(said["error"]["message"].as_str().unwrap().contains(message), "{said}");
}

#[test]
fn the_table() {
    let place = Place::new();
    place.python(TORCH, &format!("echo step 1; {RECORDED}"));
    let ran = place.estimate(&["--", "./python", "train.py"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("note: building simulated drivers for torch 2.15.0+cu132"), "{}", ran.err);
    insta::assert_snapshot!(ran.out);
    let again = place.estimate(&["--", "./python", "train.py"]);
    assert_eq!(again.out, ran.out);
    assert!(!again.err.contains("building"), "built once: {}", again.err);
    // The last line, which was cut, is not in it.
    let replayed = place.run(&["replay", "train.trace.gz", "--json"]).json();
    assert_eq!(replayed["events"], 6);
}

#[test]
fn json_has_the_figures_and_nothing_that_the_program_printed() {
    let place = Place::new();
    place.python(
        TORCH,
        &format!(
            "echo step 1; {RECORDED}; printf '# {{}}\\na 0 4096 0\\n' > $GRANULE_ESTIMATE_FOLDER/78.1.trace"
        ),
    );
    let environment = [("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")];
    let ran = place.estimate_with(
        &["--json", "-o", "t.gz", "--context", "1GiB", "--", "./python", "train.py"],
        &environment,
    );
    assert!(ran.err.contains("step 1"), "{}", ran.err);
    let said = ran.json();
    super::json::fits("estimate", &said);
    assert_eq!(said["torch"], "2.15.0+cu132");
    assert_eq!(said["exit_code"], 0);
    assert_eq!(said["context"], 1 << 30);
    let recordings = said["recordings"].as_array().unwrap();
    assert_eq!(recordings.len(), 2);
    assert_eq!(recordings[0]["requested_bytes_peak"], 3 << 29);
    assert_eq!(recordings[0]["trace"], "t.gz");
    assert_eq!(recordings[1]["trace"], "t.78-1.gz");
    assert_eq!((&recordings[1]["pid"], &recordings[1]["device"]), (&78.into(), &1.into()));
    let needs = recordings[0]["needs"].as_array().unwrap();
    let confs: Vec<_> = needs.iter().map(|need| need["conf"].as_str().unwrap()).collect();
    assert_eq!(confs, ["", "expandable_segments:True", "max_split_size_mb:128", "policy:granule"]);
    for need in needs {
        assert_eq!(need["card"]["name"], "6 GiB");
        assert!(need["min_capacity"].as_u64() >= Some(3 << 29), "{need}");
    }
}

#[test]
fn a_program_that_fails_gives_its_exit_code_and_what_was_recorded() {
    let place = Place::new();
    place.python(TORCH, &format!("{RECORDED}; exit 7"));
    let ran = place.estimate(&["--", "./python", "train.py"]);
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert!(
        ran.err.contains("the program failed (exit status: 7); the figures are those up to then"),
        "{}",
        ran.err
    );
    assert!(ran.out.contains("peak requested 1.50 GiB"), "{}", ran.out);
    place.python(TORCH, "exit 7");
    fails(
        &place.estimate(&["--", "./python", "train.py"]),
        &["failed before it asked"],
        "see what it printed",
    );
    // Whoever reads JSON gets an object then, too.
    let ran = place.estimate(&["--json", "--", "./python", "train.py"]);
    fails(&ran, &["failed before it asked"], "see what it printed");
    let said: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    super::json::fits("estimate", &said);
    assert_eq!((&said["exit_code"], &said["recordings"]), (&7.into(), &serde_json::json!([])));
    assert_eq!(said["error"]["message"], "the program failed before it asked PyTorch for device memory");
    place.python(TORCH, "true");
    fails(
        &place.estimate(&["--", "./python", "train.py"]),
        &["asked PyTorch for no device memory"],
        "CUDA allocator",
    );
}

#[test]
fn a_program_is_interrupted_when_its_time_is_over() {
    let place = Place::new();
    place.python(TORCH, &format!("{RECORDED}; exec sleep 600"));
    let ran = place.estimate(&["--timeout", "3", "--", "./python", "train.py"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("interrupted after 3 s"), "{}", ran.err);
    assert!(ran.out.contains("peak requested 1.50 GiB"), "{}", ran.out);
}

/// Only the program was, and what it had started went on.
#[test]
fn what_a_program_started_ends_with_it() {
    let place = Place::new();
    // As a launcher does it: in sessions of their own, deaf to Ctrl-C, and one's parent has gone.
    let workers = "(setsid sleep 600 & echo $! > orphan); setsid sleep 600 & echo $! > worker";
    place.python(TORCH, &format!("{RECORDED}; trap '' INT; {workers}; trap 'exit 3' INT; wait"));
    let ran = place.estimate(&["--timeout", "3", "--", "./python", "train.py"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!place.runs("orphan") && !place.runs("worker"));
}

/// It ended the command, too, and nothing was said.
#[test]
fn ctrl_c_evaluates_what_there_is() {
    let place = Place::new();
    place.python(TORCH, &format!("{RECORDED}; touch running; exec sleep 600"));
    let run = ["--", "./python", "train.py"];
    for signal in ["INT", "TERM"] {
        let ran = place.estimate_and_signal(&run, "running", signal);
        assert_eq!(ran.code, 0, "{signal}: {}", ran.err);
        assert!(ran.err.contains("the program was interrupted; the figures are"), "{}", ran.err);
        assert!(ran.out.contains("peak requested 1.50 GiB"), "{}", ran.out);
        std::fs::remove_file(place.path("running")).unwrap();
    }
    place.python(TORCH, "touch running; exec sleep 600");
    let ran = place.estimate_and_signal(&[&["--json"], &run[..]].concat(), "running", "INT");
    assert_eq!(ran.code, 1, "{}", ran.err);
    let said: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    super::json::fits("estimate", &said);
    assert_eq!((&said["interrupted"], &said["timed_out"]), (&true.into(), &false.into()));
    assert_eq!(said["error"]["message"], "the program was ended before it asked PyTorch for device memory");
}

/// As under `nohup`.
#[test]
fn a_signal_that_is_ignored_interrupts_nothing() {
    let place = Place::new();
    place.python(TORCH, &format!("{RECORDED}; kill -HUP $$; kill -HUP $(cat command); sleep 0.3"));
    let granule = place.estimate_command(&["--", "./python", "train.py"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; echo $$ > command; exec \"$0\" \"$@\""]).arg(granule.get_program());
    shell.args(granule.get_args()).current_dir(place.path("")).env_clear();
    shell.envs(granule.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = ran(shell.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("peak requested 1.50 GiB") && !ran.err.contains("interrupted"), "{}", ran.err);
}

#[test]
fn drivers_that_others_could_change_are_not_used() {
    let place = Place::new();
    place.python(TORCH, RECORDED);
    for folder in ["cache/granule", "cache/granule/estimate"] {
        let mode =
            |mode| std::fs::set_permissions(place.path(folder), PermissionsExt::from_mode(mode)).unwrap();
        std::fs::create_dir_all(place.path(folder)).unwrap();
        mode(0o777);
        let ran = ran(place.estimate_command(&["--", "./python", "train.py"]).output().unwrap());
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains("other users") && ran.err.contains("XDG_CACHE_HOME"), "{}", ran.err);
        mode(0o755);
    }
}

/// Half a build stayed in the cache for ever.
#[test]
fn a_build_that_is_ended_leaves_nothing() {
    let place = Place::new();
    place.python(TORCH, RECORDED);
    let (run, building) = (["--", "./python", "train.py"], "cache/building");
    let begin = format!("mkdir -p $OUT; mktemp -d; echo $$ > {}", place.path(building).display());
    place.script("bash", &format!("{begin}; sleep 600"));
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let ran = place.estimate_and_signal(&run, building, signal);
        assert_eq!(ran.code, code, "{signal}: {}", ran.err);
        assert!(ran.err.contains("interrupted while the simulated drivers were being built"), "{}", ran.err);
        assert_eq!(place.unfinished(), [""; 0], "{signal}");
        assert!(!place.runs(building));
        std::fs::remove_file(place.path(building)).unwrap();
    }
    // Whoever reads JSON gets an object then, too.
    let ran = place.estimate_and_signal(&[&["--json"], &run[..]].concat(), building, "INT");
    fits_with_error(&ran, 130, "interrupted while the simulated drivers were being built");
    std::fs::remove_file(place.path(building)).unwrap();
    // Nobody can clean up after that; the next build does.
    let mut child = place.estimate_command(&run).stderr(Stdio::null()).spawn().unwrap();
    place.wait_for(building);
    child.kill().unwrap();
    child.wait().unwrap();
    shell(&format!("kill $(cat {})", place.path(building).display()));
    assert_eq!(place.unfinished().len(), 1);
    place.python(TORCH, RECORDED);
    assert_eq!(place.estimate(&run).code, 0);
    assert_eq!(place.unfinished(), [""; 0]);
}

/// It was up to 16 MiB too large.
#[test]
fn the_smallest_device_is_exact_to_2_mib() {
    let place = Place::new();
    let lines = r#"# {"workload": "train"}\na 0 23068672 0\na 1 35651584 0\n"#;
    place.python(TORCH, &format!("printf '{lines}' > $GRANULE_ESTIMATE_FOLDER/7.0.trace"));
    let said = place.estimate(&["--json", "--", "./python", "train.py"]).json();
    let needs = said["recordings"][0]["needs"].as_array().unwrap();
    let smallest: Vec<_> = needs.iter().map(|need| need["min_capacity"].as_u64().unwrap() >> 20).collect();
    // Growable segments grow by 20 MiB.
    assert_eq!(smallest, [56, 60, 56]);
}

/// What leaves the snapshots is `granule record`, which gives the program its variable.
#[test]
fn a_program_that_may_run_out_of_memory_or_shall_keep_stacks_is_recorded() {
    let place = Place::new();
    place.python(TORCH, &format!("echo record=$GRANULE_RECORD; {RECORDED}"));
    for (args, on_oom) in
        [(&["--stacks"][..], Some(false)), (&["--capacity", "24GiB"], Some(true)), (&[], None)]
    {
        let ran = place.estimate(&[args, &["--", "./python", "train.py"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let said = ran.out.lines().find_map(|line| line.strip_prefix("record=")).unwrap();
        let expected = on_oom.map(|on_oom| (true, on_oom)).unwrap_or_default();
        assert_eq!((said.contains("granule-recording"), said.contains("on_oom=True")), expected, "{said}");
    }
}

#[test]
fn the_program_finds_what_was_asked_for() {
    let place = Place::new();
    let says = "echo $FAKE_GPU_MEM_GB $FAKE_GPU_COUNT $FAKE_GPU_CTX_MB $GRANULE_ESTIMATE_ITERATIONS $GRANULE_ESTIMATE_TORCH";
    place.python(TORCH, &format!("{says}; {RECORDED}"));
    let args =
        ["--capacity", "24GiB", "--devices", "2", "--context", "300MiB", "--max-iterations", "5", "--"];
    let ran = place.estimate(&[&args[..], &["./python", "train.py"]].concat());
    assert_eq!(ran.out.lines().next(), Some("24 2 300 5 2.15.0+cu132"));
}

/// It was found out only when the program had run.
#[test]
fn a_place_that_cannot_be_written_is_noticed_first() {
    let place = Place::new();
    place.python(TORCH, &format!("touch {}", place.path("it-ran").display()));
    let ran = place.estimate(&["-o", "no-such-folder/x.trace.gz", "--", "./python", "train.py"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("no-such-folder"), "{}", ran.err);
    assert!(!place.path("it-ran").exists());
}

#[test]
fn what_is_missing_is_said() {
    let place = Place::new();
    place.python(TORCH, "true");
    fails(
        &place.estimate(&["--", "./missing/python3", "x.py"]),
        &["./missing/python3", "No such file"],
        "--python",
    );
    let ran = place.estimate(&["--json", "--", "./missing/python3", "x.py"]);
    fits_with_error(&ran, 1, "No such file");
    fits_with_error(&place.estimate(&["--json"]), 2, "required");
    fails(
        &place.estimate(&["--python", "python", "--", "no-such-launcher"]),
        &["no-such-launcher", "No such file"],
        "as you would without granule",
    );
    place.python(r#"{"python": "python"}"#, "true");
    fails(
        &place.estimate(&["--", "./python", "x.py"]),
        &["./python has no PyTorch"],
        "activate the environment",
    );
    for (version, hip, how) in
        [("2.15.0+cpu", "null", "for the CPU only"), ("2.15.0+rocm7", "\"7.1\"", "for ROCm")]
    {
        let torch = format!(r#"{{"site": "/site", "version": "{version}", "cuda": null, "hip": {hip}}}"#);
        place.python(&format!(r#"{{"python": "python", "torch": {torch}}}"#), "true");
        fails(&place.estimate(&["--", "./python", "x.py"]), &[version, how], "pip install torch");
    }
    place.python("no JSON", "true");
    fails_without_hint(
        &place.estimate(&["--", "./python", "x.py"]),
        "could not be asked for its PyTorch: no JSON",
    );
    place.script("python", "echo broken environment >&2; exit 3");
    fails_without_hint(&place.estimate(&["--", "./python", "x.py"]), "broken environment");
}

#[track_caller]
fn fails_without_hint(ran: &Ran, part: &str) {
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.starts_with("error: ") && ran.err.contains(part), "{}", ran.err);
}

#[test]
fn a_compiler_that_is_missing_is_named() {
    let place = Place::new();
    place.python(TORCH, "true");
    place.script(
        "bash",
        "echo 'build.sh: g++ is missing: install g++, binutils, python3 and findutils' >&2; exit 1",
    );
    fails(&place.estimate(&["--", "./python", "x.py"]), &["g++ is missing"], "apt install g++ binutils");
}

#[test]
fn wrong_usage() {
    for (args, part) in [
        (&["--"][..], "<COMMAND>"),
        (&[][..], "<COMMAND>"),
        (&["python", "train.py"], "unexpected argument"),
        (&["--devices", "17", "--", "python"], "17 is not in 1..=16"),
        (&["--max-iterations", "0", "--", "python"], "0 is not in"),
        (&["--capacity", "24GB", "--", "python"], "write GiB"),
    ] {
        let ran = Place::new().run(&[&["estimate"], args].concat());
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains(part), "'{part}' is not in: {}", ran.err);
    }
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let place = Place::new();
    place.python(TORCH, RECORDED);
    let ran = place.estimate(&["-o", "no/such/folder/t.gz", "--", "./python", "x.py"]);
    fails(&ran, &["no/such/folder/t.gz"], "does not exist");
}
