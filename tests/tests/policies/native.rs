//! Promise 8 under other configurations and capacities: `data/native.json` has what PyTorch 2.15's own allocator
//! did with the recorded traces (measured with its own library on a device that completes all work at once), and
//! `data/native-2.11.json` what 2.11's did.

use alloc_core::config::{Flavour, PytorchRelease, Settings, environment};
use granule_analysis::replay::{ReplayOptions, replay};
use granule_tests::recorded;
use serde_json::Value;
use std::collections::HashMap;

/// Replays what a release was measured with, and compares every figure.
fn is_reproduced(release: PytorchRelease, measured: &str) {
    let cases: Vec<Value> = serde_json::from_str(measured).unwrap();
    assert!(cases.len() > 100);
    let mut traces = HashMap::new();
    let (mut compared, mut wrong) = (0, Vec::new());
    for case in &cases {
        let name = case["trace"].as_str().unwrap();
        let trace = traces.entry(name).or_insert_with(|| recorded(name));
        let Some(trace) = trace else { continue };
        compared += 1;
        let conf = case["conf"].as_str().unwrap();
        let lookup = |variable: &str| (variable == "PYTORCH_CUDA_ALLOC_CONF").then(|| conf.to_owned());
        let read: Settings = environment::read(lookup, Flavour::Cuda).unwrap().settings;
        let settings = Settings { pytorch_release: Some(release), ..read };
        let options = ReplayOptions {
            settings,
            capacity: Some(case["capacity"].as_u64().unwrap()),
            ..ReplayOptions::default()
        };
        let ours = replay(trace, &options, |_| {}).unwrap();
        ours.allocator.check_invariants();
        let result = serde_json::to_value(&ours.result).unwrap();
        for (figure, native) in case.as_object().unwrap() {
            if matches!(figure.as_str(), "trace" | "conf") {
                continue;
            }
            if result[figure] != *native {
                wrong.push(format!(
                    "{name} [{conf}] {}: {figure} {} instead of {native}",
                    case["capacity"], result[figure]
                ));
            }
        }
    }
    println!("{compared} of {} cases compared", cases.len());
    assert!(compared >= 20, "the bundled trace alone has that many");
    assert!(wrong.is_empty(), "{} figures differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_measured_configuration_and_capacity_is_reproduced() {
    is_reproduced(PytorchRelease::V2_15, include_str!("../../data/native.json"));
}

/// So did those of 2.14.0 and 2.14.1.
#[test]
fn pytorch_2_14_is_reproduced() {
    is_reproduced(PytorchRelease::V2_14, include_str!("../../data/native.json"));
}

/// 2.13's own allocator did what 2.15's did, in every case.
#[test]
fn pytorch_2_13_is_reproduced() {
    is_reproduced(PytorchRelease::V2_13, include_str!("../../data/native.json"));
}

#[test]
fn pytorch_2_11_is_reproduced() {
    is_reproduced(PytorchRelease::V2_11, include_str!("../../data/native-2.11.json"));
}
