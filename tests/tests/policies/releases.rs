//! What the `pytorch` policy does otherwise where it decides as an earlier release of PyTorch. `native.rs` compares whole programs.

use alloc_core::backend::Backend;
use alloc_core::config::{PytorchRelease, Settings};
use alloc_core::pool::Filter;
use alloc_core::types::{DevicePtr, MIB, PoolId, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::Call;
use granule_tests::policy::PytorchPolicy;
use granule_tests::rig::DEVICE;
use granule_tests::setup::{growable, of, roomy};
use granule_tests::with_policy;
use std::sync::Arc;

fn as_release(release: PytorchRelease, settings: Settings) -> Settings {
    Settings { pytorch_release: Some(release), ..settings }
}

/// An allocator of each release, with what takes memory from it.
fn each(test: impl Fn(PytorchRelease, &CachingAllocator, &dyn Fn(u64) -> DevicePtr)) {
    for release in PytorchRelease::ALL {
        let (_device, allocator, stream): (_, Arc<CachingAllocator>, Stream) =
            roomy::<PytorchPolicy>(as_release(*release, Settings::default()));
        test(*release, &allocator, &|bytes| allocator.malloc(bytes, stream).unwrap());
        allocator.check_invariants();
    }
}

#[test]
fn until_2_11_the_lowest_address_decides_whatever_segment_is_older() {
    each(|release, allocator, take| {
        let (first, second) = (take(40 * MIB), take(40 * MIB));
        allocator.free(first).unwrap();
        allocator.empty_cache().unwrap();
        let third = take(40 * MIB);
        assert!(third < second, "the device gives the address out again");
        [third, second].into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        let expected = if release <= PytorchRelease::V2_11 { third } else { second };
        assert_eq!(take(40 * MIB), expected, "{release}");
    });
}

#[test]
fn until_2_11_nothing_cached_goes_back_while_a_scope_is_open() {
    for release in PytorchRelease::ALL {
        let settings = as_release(*release, Settings::default());
        let (device, allocator, stream) = with_policy::<PytorchPolicy>(of(100), settings);
        let side = device.create_stream(DEVICE, 0).unwrap();
        let cached = allocator.malloc(60 * MIB, stream).unwrap();
        allocator.free(cached).unwrap();
        let pool = PoolId::fresh();
        // For another stream than the one that asks: PyTorch looks at whether any is open.
        allocator.pools().begin(DEVICE, pool, Filter::Stream(side)).unwrap();
        let served = allocator.malloc(80 * MIB, stream).map(|ptr| allocator.free(ptr).unwrap()).is_ok();
        assert_eq!(served, *release >= PytorchRelease::V2_13, "{release}");
        allocator.pools().end(DEVICE, pool).unwrap();
        allocator.malloc(90 * MIB, stream).unwrap();
        allocator.check_invariants();
    }
}

#[test]
fn before_2_15_addresses_that_could_not_be_mapped_are_kept() {
    for release in PytorchRelease::ALL {
        let settings = as_release(*release, growable());
        let (device, allocator, stream) = with_policy::<PytorchPolicy>(of(100), settings);
        let side = device.create_stream(DEVICE, 0).unwrap();
        let held = allocator.malloc(80 * MIB, stream).unwrap();
        assert!(allocator.malloc(40 * MIB, side).is_err());
        allocator.free(held).unwrap();
        allocator.empty_cache().unwrap();
        let kept = *release < PytorchRelease::V2_15;
        let before = device.calls().get(Call::ReserveAddress);
        let again = allocator.malloc(40 * MIB, side).unwrap();
        let reserved = device.calls().get(Call::ReserveAddress) - before;
        assert_eq!(reserved, u64::from(!kept), "{release}");
        // Once something was mapped there, they go like any other.
        allocator.free(again).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(
            device.calls().get(Call::ReserveAddress),
            device.calls().get(Call::ReleaseAddress),
            "{release}"
        );
        allocator.check_invariants();
    }
}

#[test]
fn an_allocator_keeps_its_release() {
    let settings = as_release(PytorchRelease::V2_13, Settings::default());
    let (_device, allocator, _) = roomy::<PytorchPolicy>(settings);
    let refused = allocator.configure(as_release(PytorchRelease::V2_11, Settings::default())).unwrap_err();
    assert!(matches!(refused, AllocError::ReleaseFixed { asked: PytorchRelease::V2_11, .. }), "{refused}");
    assert!(refused.to_string().contains("decides as 2.13"), "{refused}");
    allocator.configure(Settings::default()).unwrap();
    assert_eq!(allocator.settings().pytorch_release(), PytorchRelease::V2_13, "it was not named");
}
