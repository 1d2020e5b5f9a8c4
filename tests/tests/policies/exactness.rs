//! Promise 8: with the `pytorch` policy a replay gives what PyTorch's native allocator gave.

use alloc_core::config::Settings;
use granule_analysis::replay::{ReplayOptions, min_capacity, replay};
use granule_tests::recorded;

fn options(configuration: &str) -> ReplayOptions {
    let settings = Settings { expandable_segments: configuration == "expandable", ..Settings::default() };
    ReplayOptions { settings, ..ReplayOptions::default() }
}

fn same_as_native(name: &str, configuration: &str) {
    let Some(trace) = recorded(name) else { return };
    let native = trace.header.native.get(configuration).expect("the header has this configuration");
    let ours = replay(&trace, &options(configuration), |_| {}).unwrap();
    let result = &ours.result;
    let figure = |value: i64| Some(value.unsigned_abs());
    assert_eq!(figure(result.requested_bytes_peak), native.requested_bytes_peak, "requested");
    assert_eq!(figure(result.allocated_bytes_peak), native.allocated_bytes_peak, "allocated");
    assert_eq!(figure(result.active_bytes_peak), native.active_bytes_peak, "active");
    assert_eq!(figure(result.reserved_bytes_peak), native.reserved_bytes_peak, "reserved");
    assert_eq!(figure(result.num_device_alloc), native.num_device_alloc, "device allocations");
    assert_eq!(figure(result.num_device_free), native.num_device_free, "device frees");
    assert_eq!(figure(result.num_alloc_retries), native.num_alloc_retries, "retries");
    assert_eq!(figure(result.num_ooms), native.num_ooms, "refusals");
    assert_eq!(result.marks, native.marks, "figures at each iteration");
    assert_eq!(result.simulated.as_ref().map(|s| s.traps), Some(0), "no memory left while work used it");
    ours.allocator.check_invariants();
}

fn same_smallest_device(name: &str, configuration: &str) {
    let Some(trace) = recorded(name) else { return };
    let native = trace.header.native.get(configuration).expect("the header has this configuration");
    let ours = min_capacity(&trace, &options(configuration), 16 << 20, |_| {}).unwrap();
    assert_eq!(Some(ours.min_capacity), native.min_capacity, "smallest device");
    assert_eq!(
        Some(ours.retries_at_min_capacity.unsigned_abs()),
        native.retries_at_min_capacity,
        "retries on it"
    );
}

macro_rules! exactness {
    ($($name:ident),*) => {$(
        mod $name {
            #[test]
            fn default_peaks_marks_and_device_calls() { super::same_as_native(stringify!($name), "default"); }
            #[test]
            fn expandable_peaks_marks_and_device_calls() { super::same_as_native(stringify!($name), "expandable"); }
            #[test]
            fn default_smallest_device() { super::same_smallest_device(stringify!($name), "default"); }
            #[test]
            fn expandable_smallest_device() { super::same_smallest_device(stringify!($name), "expandable"); }
        }
    )*};
}
exactness!(bert_varlen, dlrm_prefetch, gpt2_train, llama_generate, llama_lora, resnet_train);
