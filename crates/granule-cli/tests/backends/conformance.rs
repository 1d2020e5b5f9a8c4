//! The kit over the real backends on lookalike drivers, and over the masquerade, each in a process of its own.
//! (Over the simulated accelerator, a C table and a generated crate it runs where those are.)

use crate::granule;
use serde_json::Value;

/// The scorecard of `backend` on the machine `machine`.
fn scorecard(backend: &str, machine: &str) -> Value {
    let output = granule(machine).args(["conformance", "--json", "--backend", backend]).output().unwrap();
    let card: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
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

/// Every check passed, but for those whose names contain one of `absent`, each of which was skipped with a reason.
fn whole_but_for(card: &Value, absent: &[&str]) {
    for check in of(card, "skipped") {
        let name = check["name"].as_str().unwrap();
        assert!(absent.iter().any(|part| name.contains(part)), "{name} was skipped: {}", check["why"]);
        assert!(check["why"].as_str().unwrap().len() > 10, "{name} says why");
    }
    assert!(card["passed"].as_u64().unwrap() >= 100);
}

/// No driver has these.
const ALWAYS: &[&str] = &["host_access"];

macro_rules! conforms {
    ($($test:ident: $backend:literal on $machine:literal, without $absent:expr;)*) => {
        $(#[test]
        fn $test() {
            let card = scorecard($backend, $machine);
            whole_but_for(&card, &[ALWAYS, $absent].concat());
        })*
    };
}

conforms! {
    cuda: "cuda" on "", without &["multicast", "fabric"];
    cuda_on_one_device: "cuda" on "devices=1", without &["multicast", "fabric", "peers.", "second", "device"];
    cuda_without_virtual_memory: "cuda" on "personality=no-vmm", without &["multicast", "virtual_memory.", "ipc.", "engine.", "peers."];
    hip_of_rocm_5: "hip" on "personality=rocm5", without &["multicast", "virtual_memory.", "ipc.", "engine.", "peers.", "capture."];
    hip_of_rocm_6: "hip" on "personality=rocm6", without &["multicast", "fabric"];
    hip_of_rocm_7: "hip" on "personality=rocm7", without &["multicast", "fabric"];
    hip_as_cuda_of_rocm_5: "hip-as-cuda" on "personality=rocm5", without &["multicast", "virtual_memory.", "ipc.", "engine.", "peers.", "capture."];
    hip_as_cuda_of_rocm_6: "hip-as-cuda" on "personality=rocm6", without &["multicast", "fabric"];
    hip_as_cuda_of_rocm_7: "hip-as-cuda" on "personality=rocm7", without &["multicast", "fabric"];
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
