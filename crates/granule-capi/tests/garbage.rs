//! Whatever numbers a program passes as addresses, devices, streams, pools and sizes: an answer, and never more than that.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking
#![allow(clippy::undocumented_unsafe_blocks)] // all are the same: the allocator and the places for answers are good

mod support;

use granule::config::PolicyName;
use granule_capi::bytes::*;
use granule_capi::error::*;
use granule_capi::last_error::*;
use granule_capi::memory::budgets::*;
use granule_capi::memory::pools::*;
use granule_capi::memory::share::*;
use granule_capi::memory::sleep::*;
use granule_capi::memory::*;
use granule_capi::pool_id::*;
use granule_capi::watch::history::*;
use granule_capi::watch::stats::*;
use proptest::prelude::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Allocator, last_error};

/// Any number, and those near what is there.
fn address(live: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0..1u64 << 21).prop_map(move |offset| live.wrapping_sub(1 << 20).wrapping_add(offset)),
        Just(1),
        Just(u64::MAX),
        Just(live + 512),
    ]
}

fn of(address: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(address as usize)
}

fn policies() -> impl Strategy<Value = PolicyName> {
    prop::sample::select(PolicyName::ALL)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn wrong_addresses_are_refused(policy in policies(), offsets in prop::collection::vec(address(0x1000_0000_0000), 1..40)) {
        let a = Allocator::openreg(policy);
        let live = a.malloc(1000).unwrap();
        let hold = a.malloc(3 << 20).unwrap();
        for at in offsets.into_iter().map(of).filter(|at| *at != live && *at != hold && !at.is_null()) {
            prop_assert_eq!(a.free(at), GRANULE_INVALID_POINTER);
            prop_assert!(last_error().contains("invalid device pointer"), "{}", last_error());
            let (mut bytes, mut base, mut asleep) = (7u64, null_mut(), true);
            prop_assert_eq!(unsafe { granule_block_size(a.0, at, &raw mut bytes) }, GRANULE_INVALID_POINTER);
            prop_assert_eq!(
                unsafe { granule_base_allocation(a.0, at, &raw mut base, &raw mut bytes) },
                GRANULE_INVALID_POINTER
            );
            prop_assert_eq!(unsafe { granule_annotate(a.0, at, c"x".as_ptr()) }, GRANULE_INVALID_POINTER);
            prop_assert_eq!(unsafe { granule_is_asleep(a.0, at, &raw mut asleep) }, GRANULE_INVALID_POINTER);
            prop_assert_eq!(unsafe { granule_free_on(a.0, at, 1) }, GRANULE_INVALID_POINTER);
            let mut handle = granule_bytes { data: std::ptr::null(), len: 0, owner: null_mut() };
            prop_assert_eq!(
                unsafe { granule_share(a.0, at, &raw mut handle, &raw mut bytes) },
                GRANULE_INVALID_POINTER
            );
            prop_assert_eq!((bytes, base, asleep, handle.len), (7, null_mut(), true, 0));
            // A use of a part is a use of the block; here by its own stream, which changes nothing.
            let recorded = unsafe { granule_record_stream(a.0, at, 0, 0) };
            prop_assert!([GRANULE_OK, GRANULE_INVALID_POINTER].contains(&recorded));
            let mut there = null_mut();
            let placed = unsafe { granule_malloc_at(a.0, 512, at, 0, 0, &raw mut there) };
            if placed == GRANULE_OK {
                prop_assert_eq!(there, at);
                prop_assert_eq!(a.free(there), GRANULE_OK);
            } else {
                prop_assert_eq!(placed, GRANULE_EXACT_ADDRESS);
            }
        }
        prop_assert_eq!(a.free(live), GRANULE_OK);
        prop_assert_eq!(a.free(live), GRANULE_INVALID_POINTER);
        prop_assert_eq!(a.free(hold), GRANULE_OK);
    }

    #[test]
    fn wrong_numbers_are_refused(
        policy in policies(),
        device in prop_oneof![i32::MIN..0, 2..i32::MAX],
        pool in any::<(u64, u64)>().prop_filter("not the default pool", |pool| *pool != (0, 0)),
        tenant in any::<u64>(),
        bytes in any::<u64>(),
        kind in prop_oneof![i32::MIN..0, 5..i32::MAX],
    ) {
        let a = Allocator::openreg(policy);
        let mut ptr = null_mut();
        prop_assert_eq!(
            unsafe { granule_malloc(a.0, 512, device, 0, &raw mut ptr) },
            GRANULE_INVALID_DEVICE
        );
        prop_assert_eq!(unsafe { granule_poll(a.0, device) }, GRANULE_INVALID_DEVICE);
        match a.malloc(bytes) {
            Ok(ptr) => prop_assert_eq!(a.free(ptr), GRANULE_OK),
            Err(status) => prop_assert_eq!(status, GRANULE_OUT_OF_MEMORY),
        }
        let unknown = granule_pool_id { first: pool.0, second: pool.1 };
        prop_assert_eq!(unsafe { granule_pool_release(a.0, 0, unknown) }, GRANULE_UNKNOWN_POOL);
        prop_assert_eq!(unsafe { granule_pool_end(a.0, 0, unknown) }, GRANULE_POOL);
        prop_assert_eq!(unsafe { granule_pool_end(a.0, device, unknown) }, GRANULE_INVALID_DEVICE);
        prop_assert_eq!(unsafe { granule_tenant_remove(a.0, tenant) }, GRANULE_BUDGET);
        let filter = granule_filter {
            size: size_of::<granule_filter>() as u32,
            kind,
            stream: 0,
            user: null_mut(),
            accepts: None,
            drop: None,
        };
        prop_assert_eq!(
            unsafe { granule_pool_begin(a.0, 0, unknown, &raw const filter) },
            GRANULE_INVALID_ARGUMENT
        );
    }

    /// Structs of any size: what is too small is refused, and no byte beyond what is said is written.
    #[test]
    fn no_more_is_written_than_the_struct_says(policy in policies(), said in 0u32..2000) {
        let a = Allocator::openreg(policy);
        const ROOM: usize = 2000;
        let mut room = vec![0x5a5a_5a5a_5a5a_5a5au64; ROOM / 8 + 1];
        let stats = room.as_mut_ptr().cast::<granule_device_stats>();
        unsafe { stats.cast::<u32>().write(said) };
        let status = unsafe { granule_stats(a.0, 0, stats) };
        let known = size_of::<granule_device_stats>();
        // As programs know it that were compiled before it grew.
        let least = std::mem::offset_of!(granule_device_stats, asleep_bytes) + size_of::<i64>();
        let is_one = said as usize >= least;
        let written = if is_one { known.min(said as usize) } else { 4 };
        prop_assert_eq!(status, if is_one { GRANULE_OK } else { GRANULE_ABI });
        let bytes: Vec<u8> = room.iter().flat_map(|word| word.to_ne_bytes()).collect();
        prop_assert_eq!(&bytes[..4], said.to_ne_bytes());
        prop_assert!(bytes[written..].iter().all(|byte| *byte == 0x5a));
    }

    /// Handles that other processes made up.
    #[test]
    fn handles_that_nobody_made_are_refused(policy in policies(), bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let a = Allocator::openreg(policy);
        let mut import = null_mut();
        let (data, len) = (bytes.as_ptr(), bytes.len() as u64);
        let status = unsafe { granule_open_shared(a.0, 0, data, len, &raw mut import) };
        prop_assert_eq!((status, import), (GRANULE_SHARE, null_mut()));
    }
}

#[test]
fn pointers_that_are_null_or_not_aligned_are_refused() {
    for a in Allocator::each() {
        let mut words = [0u64; 4];
        let odd = words.as_mut_ptr().cast::<u8>().wrapping_add(1);
        let not_aligned = |status: granule_status| {
            assert_eq!(status, GRANULE_INVALID_ARGUMENT);
            assert!(last_error().contains("not aligned"), "{}", last_error());
        };
        not_aligned(unsafe { granule_malloc(a.0, 512, 0, 0, odd.cast()) });
        not_aligned(unsafe { granule_malloc(odd.cast(), 512, 0, 0, words.as_mut_ptr().cast()) });
        not_aligned(unsafe { granule_stats(a.0, 0, odd.cast()) });
        let null = |status: granule_status| {
            assert_eq!(status, GRANULE_INVALID_ARGUMENT);
            assert!(last_error().contains("is null"), "{}", last_error());
        };
        null(unsafe { granule_stats(a.0, 0, null_mut()) });
        null(unsafe { granule_free(null_mut(), null_mut()) });
        null(unsafe { granule_pool_begin(a.0, 0, granule_pool_fresh(), std::ptr::null()) });
        null(unsafe { granule_tenant_create(a.0, 0, std::ptr::null(), std::ptr::null(), null_mut()) });
        null(unsafe { granule_last_error_details(null_mut()) });
        null(unsafe { granule_set_user_metadata(std::ptr::null()) });
    }
}

#[test]
fn each_thread_has_a_last_error_of_its_own() {
    for a in Allocator::each() {
        let failed = AtomicUsize::new(0);
        assert_eq!(a.free(of(5)), GRANULE_INVALID_POINTER);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    assert_eq!(last_error(), "");
                    assert_eq!(unsafe { granule_poll(null_mut(), 0) }, GRANULE_INVALID_ARGUMENT);
                    assert_eq!(last_error(), "a is null");
                    failed.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(failed.load(Ordering::Relaxed), 2);
        assert!(last_error().contains("0x5"), "{}", last_error());
    }
}
