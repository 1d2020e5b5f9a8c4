//! The kit over the real backends on lookalike drivers, and over the masquerade, each in a process of its own.
//! (Over the simulated accelerator, a C table and a generated crate it runs where those are.)

use crate::granule;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

/// The totals of `backend` on the machine `machine`, with all lines as `checks`.
fn scorecard(backend: &str, machine: &str) -> Value {
    let output = granule(machine).args(["conformance", "--json", "--backend", backend]).output().unwrap();
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut card =
        lines.last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr))).clone();
    card["checks"] = lines.into();
    println!(
        "{backend} on {machine}: {} passed, {} failed, {} skipped",
        card["passed"], card["failed"], card["skipped"]
    );
    let failed: Vec<_> = of(&card, "failed").map(|c| format!("{}: {}", c["name"], c["why"])).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(output.status.code(), Some(0));
    card
}

fn of<'c>(card: &'c Value, outcome: &str) -> impl Iterator<Item = &'c Value> {
    card["checks"].as_array().unwrap().iter().filter(move |c| c["outcome"] == outcome)
}

/// Every check passed, but for those that were skipped for one of these reasons.
fn whole_but_for(card: &Value, reasons: &[&str]) {
    for check in of(card, "skipped") {
        let why = check["why"].as_str().unwrap();
        assert!(reasons.iter().any(|reason| why.contains(reason)), "{} was skipped: {why}", check["name"]);
    }
    assert!(card["passed"].as_u64().unwrap() >= 120);
}

/// What the lookalikes do not have.
const NEVER: [&str; 1] = ["every device reaches every other"];
const ONE_DEVICE: &str = "there is no second device";
const NO_VIRTUAL_MEMORY: &str = "virtual memory is not available";

macro_rules! conforms {
    ($($test:ident: $backend:literal on $machine:literal, without $absent:expr;)*) => {
        $(#[test]
        fn $test() {
            let card = scorecard($backend, $machine);
            let absent: &[&str] = &$absent;
            whole_but_for(&card, &[&NEVER, absent].concat());
            // What is said to be absent is: a skip nobody meets would hide a mistake in this list.
            for reason in absent {
                assert!(of(&card, "skipped").any(|c| c["why"].as_str().unwrap().contains(reason)), "{reason}");
            }
        })*
    };
}

conforms! {
    cuda: "cuda" on "", without [];
    cuda_on_one_device: "cuda" on "devices=1", without [ONE_DEVICE];
    cuda_on_eight_devices: "cuda" on "devices=8", without [];
    cuda_without_virtual_memory: "cuda" on "personality=no-vmm", without [NO_VIRTUAL_MEMORY];
    hip_of_rocm_6: "hip" on "personality=rocm6", without [];
    hip_of_rocm_7: "hip" on "personality=rocm7", without [];
    hip_of_rocm_7_0: "hip" on "personality=rocm70", without [];
    hip_without_virtual_memory: "hip" on "personality=no-vmm", without [NO_VIRTUAL_MEMORY];
    hip_as_cuda_of_rocm_6: "hip-as-cuda" on "personality=rocm6", without [];
    hip_as_cuda_of_rocm_7: "hip-as-cuda" on "personality=rocm7", without [];
}

/// Nothing of HIP shows through the masquerade, in reasons either.
#[test]
fn reasons_through_the_masquerade_are_cudas() {
    for machine in ["personality=no-vmm", "personality=rocm7"] {
        let card = scorecard("hip-as-cuda", machine);
        for check in of(&card, "skipped") {
            let why = check["why"].as_str().unwrap();
            let names = why.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| {
                word.strip_prefix("hip")
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
            });
            assert_eq!(names.collect::<Vec<_>>(), [""; 0], "{why}");
        }
    }
}

/// A run that has printed its first line.
fn begun(args: &[&str]) -> (Child, BufReader<ChildStdout>, String) {
    let mut command = granule("");
    command.args(["conformance", "--backend", "openreg"]).args(args);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut out, mut first) = (BufReader::new(run.stdout.take().unwrap()), String::new());
    out.read_line(&mut first).unwrap();
    (run, out, first)
}

#[test]
fn a_run_that_is_killed_leaves_the_lines_of_the_checks_that_ended() {
    let (mut run, mut out, mut lines) = begun(&["--json", "--repeat", "1000"]);
    run.kill().unwrap();
    run.wait().unwrap();
    out.read_to_string(&mut lines).unwrap();
    let read: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read[0]["name"], "device.id_is_stable");
    assert!(read.iter().all(|line| line["backend"].is_null()), "it had not ended: {lines}");
}

#[test]
fn a_reader_who_has_seen_enough_ends_the_run() {
    for args in [&["--json"][..], &[], &["--list"]] {
        let (mut run, out, first) = begun(args);
        drop(out);
        let mut said = String::new();
        run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(first.contains("device.id_is_stable") || first.starts_with("device: "), "{first}");
        assert_eq!((run.wait().unwrap().code(), said.as_str()), (Some(0), ""));
    }
}

#[test]
fn areas_are_chosen_by_name() {
    let said = |args: &[&str]| {
        let output = granule("").args(["conformance", "--backend", "openreg"]).args(args).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    let (code, list) =
        said(&["--area", "peers", "--area", "memory", "--only", "unknown", "--only", "host.", "--list"]);
    assert_eq!(code, Some(0), "{list}");
    let due =
        |line: &str| line.contains("unknown") && (line.starts_with("memory.") || line.starts_with("peers."));
    assert!(list.lines().count() > 1 && list.lines().all(due), "{list}");

    let (code, text) = said(&["--area", "device"]);
    assert_eq!(code, Some(0), "{text}");
    let [area, totals] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(area.strip_prefix("device: "), totals.strip_prefix("openreg: "), "{text}");
    assert!(area.ends_with(" passed, 0 failed, 0 skipped"), "{text}");

    let (code, text) = said(&["--area", "memry"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("possible values: device, memory, copies,") && text.contains("'memory'"), "{text}");
    let (code, text) = said(&["--area", "ipc", "--only", "memory."]);
    assert_eq!(code, Some(1));
    assert!(text.contains("no check's name contains memory. in ipc"), "{text}");
}

/// A driver without a device is a clear error, not a scorecard.
#[test]
fn a_machine_without_a_device_is_a_clear_error() {
    for (backend, machine) in [("cuda", "personality=no-device"), ("hip", "personality=no-device")] {
        let output = granule(machine).args(["conformance", "--backend", backend]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("no device") || text.contains("NoDevice"), "{text}");
    }
}

/// A driver that is missing is a clear error that says what to do.
#[test]
fn a_missing_driver_is_a_clear_error() {
    for (backend, variable) in [
        ("cuda", "GRANULE_CUDA_LIBRARY"),
        ("hip", "GRANULE_HIP_LIBRARY"),
        ("hip-as-cuda", "GRANULE_HIP_LIBRARY"),
    ] {
        let mut command = granule("");
        let output = command
            .env(variable, "/nowhere/libnone.so")
            .args(["conformance", "--backend", backend])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("/nowhere/libnone.so") && text.contains("hint:"), "{text}");
    }
}
