//! What PyTorch's own driver calls, as a trace header counts them, would have cost.

use backend_openreg::{Call, CostModel};
use granule_snapshot::trace::NativeResult;

/// Modelled driver time in nanoseconds of a native run, by the calls that its header counts; `None` if it counts none.
/// The time is a lower bound. Waits and the sizes of frees are not in the header. Memory that was made anew after it
/// had been given back counts with its calls alone.
#[must_use]
pub fn native_driver_ns(native: &NativeResult, costs: &CostModel) -> Option<u64> {
    let count = |key: &str| native.extra.get(key).and_then(|value| value.as_u64());
    let (malloc, free) = (count("cudaMalloc")?, count("cudaFree")?);
    let (create, map, unmap) = (count("cuMemCreate")?, count("cuMemMap")?, count("cuMemUnmap")?);
    // Mappings are opened step by step, and each of PyTorch's device allocations is a step then.
    let open = if map > 0 { native.num_device_alloc? } else { 0 };
    let calls = [
        (Call::Malloc, malloc),
        (Call::Free, free),
        (Call::CreatePhysical, create),
        (Call::Map, map),
        (Call::SetAccess, open),
        (Call::Unmap, unmap),
        // PyTorch gives the handle up with its mapping.
        (Call::ReleasePhysical, unmap),
    ];
    let held = count("driver_peak_held")?;
    let sized: &[Call] =
        if map > 0 { &[Call::CreatePhysical, Call::Map, Call::SetAccess] } else { &[Call::Malloc] };
    let for_calls = calls.iter().map(|&(call, count)| costs.of_calls(call, count));
    let for_bytes = sized.iter().map(|&call| costs.of_bytes(call, held));
    Some(for_calls.chain(for_bytes).sum())
}

#[cfg(test)]
mod tests {
    use super::native_driver_ns;
    use backend_openreg::CostModel;
    use granule_snapshot::trace::{NativeResult, Trace};

    fn native(counts: &str) -> NativeResult {
        let text = format!(r#"# {{"native": {{"one": {{"conf": "", {counts}}}}}}}"#);
        let header = Trace::from_reader(text.replace('\n', "").as_bytes()).unwrap().header;
        header.native.get("one").unwrap().clone()
    }

    #[test]
    fn each_call_has_its_cost_and_the_most_that_was_held_its_size() {
        let costs: CostModel =
            "zero,malloc=7us+1us/GiB,free=100us,create-physical=3us+2us/GiB,map=1us,unmap=10us,\
             set-access=20us,release-physical=30us"
                .parse()
                .unwrap();
        let raw = r#""cudaMalloc": 3, "cudaFree": 1, "cuMemCreate": 0, "cuMemMap": 0, "cuMemUnmap": 0,
             "num_device_alloc": 3, "driver_peak_held": 2147483648"#;
        assert_eq!(native_driver_ns(&native(raw), &costs), Some(21_000 + 100_000 + 2_000));
        let mapped = r#""cudaMalloc": 0, "cudaFree": 0, "cuMemCreate": 4, "cuMemMap": 4, "cuMemUnmap": 2,
             "num_device_alloc": 3, "driver_peak_held": 1073741824"#;
        let expected = 12_000 + 4_000 + 60_000 + 20_000 + 60_000 + 2_000;
        assert_eq!(native_driver_ns(&native(mapped), &costs), Some(expected));
        assert_eq!(
            native_driver_ns(&native(r#""cudaMalloc": 3"#), &costs),
            None,
            "the others are not counted"
        );
    }
}
