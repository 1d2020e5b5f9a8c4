//! The example, over a driver that moves real bytes.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

#[path = "../examples/axpy.rs"]
#[allow(dead_code)] // its `main`
mod axpy;

use cudarc::driver::CudaContext;
use granule::types::DeviceIndex;
use granule_cudarc::Allocator;

#[test]
fn the_example_computes_and_takes_its_memory_once() {
    granule_tests::alone::over_named_lookalikes("", || {
        axpy::run().unwrap();
        let memory = Allocator::of(&CudaContext::new(0).unwrap()).unwrap();
        let stats = memory.granule().stats(DeviceIndex(0)).unwrap();
        assert_eq!((stats.allocation.all.allocated, stats.segment.all.allocated), (20, 2));
    });
}

#[test]
fn without_a_driver_it_says_what_is_missing() {
    granule_tests::alone::over_named_lookalikes("personality=no-device", || {
        let error = axpy::run().unwrap_err().to_string();
        assert!(error.contains("CUDA_ERROR_NO_DEVICE"), "{error}");
    });
}
