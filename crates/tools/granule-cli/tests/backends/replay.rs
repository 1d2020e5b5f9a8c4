//! The recorded programs give the same counters on every backend.

use crate::granule;
use granule_tests::shared;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A machine like the one the simulated replay makes for itself.
const MACHINE: &str = "devices=1,capacity=80GiB,memory=reserved,clock=virtual:0";
/// What does not depend on the driver underneath.
const COUNTERS: [&str; 10] = [
    "requested_bytes_peak",
    "allocated_bytes_peak",
    "active_bytes_peak",
    "reserved_bytes_peak",
    "num_device_alloc",
    "num_device_free",
    "num_alloc_retries",
    "num_ooms",
    "marks",
    "events",
];

fn replay(trace: &Path, backend: &str, conf: &str) -> Value {
    let output = granule(MACHINE)
        .args(["replay", "--json", "--backend", backend, "--conf", conf])
        .arg(trace)
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{backend}: {error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn same_everywhere(trace: &Path) {
    for conf in ["", "expandable_segments:True"] {
        let simulated = replay(trace, "openreg", conf);
        assert!(simulated["num_device_alloc"].as_u64().unwrap() > 0);
        for backend in ["cuda", "hip", "hip-as-cuda"] {
            let here = replay(trace, backend, conf);
            assert_eq!(here["backend"], backend);
            for counter in COUNTERS {
                assert_eq!(
                    here[counter],
                    simulated[counter],
                    "{counter} of {} on {backend} ('{conf}')",
                    trace.display()
                );
            }
        }
    }
}

#[test]
fn the_bundled_trace_gives_the_same_counters_on_every_backend() {
    same_everywhere(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/resnet_train.trace.gz"));
}

macro_rules! recorded {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let Some(folder) = shared() else {
                println!("skipped: the recorded traces are not at hand (set GRANULE_SHARED to their folder)");
                return;
            };
            same_everywhere(&folder.join("traces").join(concat!(stringify!($name), ".trace.gz")));
        })*
    };
}

recorded!(bert_varlen dlrm_prefetch gpt2_train llama_generate llama_lora resnet_train);
