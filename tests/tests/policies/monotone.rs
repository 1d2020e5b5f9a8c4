//! Whether a larger device serves what a smaller one did: a slice of `granule min-capacity --try-larger`.

use alloc_core::config::{PolicyName, Settings};
use granule_analysis::replay::{ReplayOptions, larger_devices, min_capacity, peak_live};
use granule_snapshot::trace::Trace;
use std::fs::File;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn recorded(name: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/traces");
    let file = File::open(folder.join(format!("{name}.trace.gz"))).unwrap();
    Trace::from_reader(file).unwrap()
}

fn options(policy: PolicyName) -> ReplayOptions {
    let settings = Settings { policy: Some(policy), ..Settings::default() };
    ReplayOptions { settings, capacity: Some(1 << 40), ..ReplayOptions::default() }
}

#[test]
fn larger_devices_serve_two_recorded_programs() {
    for name in ["recommender_towers", "gnn_sampling"] {
        let trace = recorded(name);
        let options = options(PolicyName::Granule);
        let smallest = min_capacity(&trace, &options, 16 * MIB, |_| {}).unwrap().min_capacity;
        let larger = larger_devices(&trace, &options, smallest, 4).unwrap();
        assert_eq!((larger.tried, larger.refused), (4, Vec::new()), "{name}");
    }
}

#[test]
fn a_device_that_refuses_is_named() {
    let trace = recorded("recommender_towers");
    let peak = peak_live(&trace);
    for policy in PolicyName::ALL {
        let too_small = larger_devices(&trace, &options(*policy), peak - peak / 50, 10).unwrap();
        let refused = |bytes: u64| too_small.refused.contains(&bytes);
        let first = *too_small.refused.first().unwrap();
        assert!(first < peak && refused(first), "no device of less than what is live serves: {too_small:?}");
        assert!(too_small.refused.is_sorted());
    }
}
