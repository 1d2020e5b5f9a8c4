//! Caching switched off: every block is the driver's own.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, CaptureMode, ErrorKind};
use alloc_core::config::{Flavour, Settings, environment};
use alloc_core::history::HistoryOptions;
use alloc_core::pointer::Problem;
use alloc_core::types::{DeviceIndex, DevicePtr, MIB};
use backend_openreg::{Call, Clock, FaultPlan, OpenRegConfig};
use granule_tests::rig::{DEVICE, Rig, on_each};
use std::time::Duration;

/// The settings that the environment gives with one variable set to 1.
fn with(variable: &str) -> Settings {
    environment::read(|name| (name == variable).then(|| "1".to_owned()), Flavour::Cuda).unwrap().settings
}

fn machine() -> OpenRegConfig {
    OpenRegConfig::default().capacity(64 * MIB)
}

/// How often the driver gave memory and took some back.
fn driver_calls(rig: &Rig) -> (u64, u64) {
    let calls = rig.device.calls();
    (calls.get(Call::Malloc), calls.get(Call::Free))
}

#[test]
fn a13_with_caching_off_each_allocation_is_a_driver_call() {
    on_each(&machine(), |rig| {
        for variable in environment::BYPASS_VARIABLES {
            let allocator = rig.allocator(with(variable));
            allocator.history().record(&HistoryOptions::newest(100));
            assert!(!allocator.is_enabled(), "whoever builds on the cache can ask: {variable}");
            rig.device.reset_calls();
            let before = allocator.stats(DEVICE).unwrap();
            for round in 1..=3 {
                let ptr = allocator.malloc(1000, rig.stream()).unwrap();
                assert_eq!(rig.used(), 1024, "what was asked for, without a segment around it");
                allocator.record_stream(ptr, rig.new_stream()).unwrap();
                allocator.free(ptr).unwrap();
                assert_eq!(driver_calls(rig), (round, round));
                assert_eq!(rig.used(), 0);
            }
            assert_eq!(allocator.malloc(0, rig.stream()).unwrap(), DevicePtr::NULL);
            assert_eq!(allocator.stats(DEVICE).unwrap(), before, "nothing is counted");
            let snapshot = allocator.snapshot(true);
            assert!(snapshot.segments.is_empty() && snapshot.device_traces[0].is_empty(), "nor recorded");
            rig.nothing_is_left(&allocator);
        }
    });
}

#[test]
fn a13_what_the_driver_refuses_is_the_drivers_error() {
    on_each(&machine(), |rig| {
        let allocator = rig.allocator(Settings { caching: false, ..Settings::default() });
        let answer = allocator.malloc(65 * MIB, rig.stream());
        let Err(AllocError::Backend(error)) = answer else { panic!("{answer:?}") };
        assert_eq!(error.kind, ErrorKind::OutOfMemory);
        assert_eq!(allocator.stats(DEVICE).unwrap().num_ooms, 0);
        let ptr = allocator.malloc(64 * MIB, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a13_a_request_during_a_capture_is_refused_by_the_driver() {
    on_each(&machine(), |rig| {
        let allocator = rig.allocator(Settings { caching: false, ..Settings::default() });
        let early = allocator.malloc(512, rig.stream()).unwrap();
        let stream = rig.new_stream();
        let capture = rig.backend.capture().unwrap();
        allocator.pools().mark_capture_begin(DEVICE).unwrap();
        capture.begin(stream, CaptureMode::ThreadLocal).unwrap();
        let answer = allocator.malloc(512, stream);
        let Err(AllocError::Backend(error)) = answer else { panic!("{answer:?}") };
        assert_eq!(error.kind, ErrorKind::CaptureViolation, "its mode is not relaxed");
        // The attempt broke the capture, as PyTorch wants it.
        assert!(capture.end(stream).is_err());
        allocator.pools().mark_capture_end(DEVICE).unwrap();
        allocator.free(early).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// BUG in PyTorch: a raw free follows the switch as it is then, and gives cached memory to the driver or driver memory to
/// the cache.
#[test]
fn a01_a13_the_switch_may_change_between_an_allocation_and_its_free() {
    on_each(&machine(), |rig| {
        let allocator = rig.allocator(Settings::default());
        rig.device.reset_calls();
        let cached = allocator.malloc(512, rig.stream()).unwrap();
        allocator.enable(false);
        let direct = allocator.malloc(512, rig.stream()).unwrap();
        assert_eq!(driver_calls(rig), (2, 0), "one segment and one allocation of its own");
        allocator.free(cached).unwrap();
        assert_eq!(driver_calls(rig), (2, 0), "a cached block goes to the cache");
        allocator.enable(true);
        assert_eq!(allocator.malloc(512, rig.stream()).unwrap(), cached);
        allocator.free(direct).unwrap();
        assert_eq!(driver_calls(rig), (2, 1), "the driver's goes to the driver");
        assert_eq!(rig.used(), 2 * MIB);
        for ptr in [direct, direct.add(1)] {
            let Err(AllocError::InvalidPointer(wrong)) = allocator.free(ptr) else {
                panic!("{ptr} was freed")
            };
            assert_eq!(wrong.problem, Problem::Foreign, "once and only once");
        }
        assert_eq!(allocator.stats(DEVICE).unwrap().allocation.all.current, 1);
        allocator.free(cached).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a13_what_is_not_cached_is_known_all_the_same() {
    on_each(&machine(), |rig| {
        let allocator = rig.allocator(Settings { caching: false, ..Settings::default() });
        let ptr = allocator.malloc(512, rig.stream()).unwrap();
        let Err(AllocError::InvalidPointer(wrong)) = allocator.base_allocation(ptr) else { panic!() };
        assert_eq!(wrong.problem, Problem::NotCached);
        let answer = allocator.free_on(ptr, DeviceIndex(1));
        assert!(matches!(answer, Err(AllocError::WrongDevice { owner: DEVICE, .. })), "{answer:?}");
        allocator.free_on(ptr, DEVICE).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// Drivers' own frees wait for the device, the contract's need not: nothing may leave that is still used.
#[test]
fn a13_memory_goes_back_when_all_work_on_it_is_done() {
    on_each(&machine().clock(Clock::Workers), |rig| {
        let allocator = rig.allocator(Settings { caching: false, ..Settings::default() });
        let far = rig.backend.create_stream(DeviceIndex(1), 0).unwrap();
        rig.backend.peers().unwrap().enable_access(DeviceIndex(1), DEVICE).unwrap();
        for user in [rig.stream(), rig.new_stream(), far] {
            let ptr = allocator.malloc(4096, rig.stream()).unwrap();
            let long = Duration::from_millis(30);
            let user_of_machine = alloc_core::types::Stream { backend: rig.device.id(), ..user };
            rig.device.use_memory_for(user_of_machine, ptr, 4096, long).unwrap();
            allocator.record_stream(ptr, user).unwrap();
            allocator.free(ptr).unwrap();
        }
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a13_a_free_that_the_driver_refuses_can_be_made_again() {
    on_each(&machine(), |rig| {
        let allocator = rig.allocator(Settings { caching: false, ..Settings::default() });
        let ptr = allocator.malloc(512, rig.stream()).unwrap();
        for call in [Call::SynchronizeDevice, Call::Free] {
            rig.device.set_faults(FaultPlan::none().fail_nth_of(call, 1, ErrorKind::Other));
            assert!(matches!(allocator.free(ptr), Err(AllocError::Backend(_))), "{call}");
        }
        allocator.free(ptr).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a14_disabled_restores_what_was_before_nested_as_well() {
    on_each(&machine(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let is_cached = || {
            let before = driver_calls(rig).1;
            let ptr = allocator.malloc(512, rig.stream()).unwrap();
            allocator.free(ptr).unwrap();
            assert_eq!(allocator.settings().caching, allocator.is_enabled());
            driver_calls(rig).1 == before
        };
        assert!(allocator.is_enabled() && is_cached());
        {
            let _outer = allocator.disabled();
            assert!(!allocator.is_enabled() && !is_cached());
            {
                let _inner = allocator.disabled();
                assert!(!allocator.is_enabled() && !is_cached());
                allocator.enable(true);
                assert!(is_cached());
            }
            assert!(!allocator.is_enabled() && !is_cached(), "the inner one found it off");
        }
        assert!(allocator.is_enabled() && is_cached());
        allocator.enable(false);
        drop(allocator.disabled());
        assert!(!allocator.is_enabled() && !is_cached(), "it was off before");
        allocator.configure(Settings::default()).unwrap();
        assert!(allocator.is_enabled() && is_cached(), "settings say it, too");
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a14_the_switch_is_restored_when_the_program_panics() {
    on_each(&machine(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let scope = || {
            let _off = allocator.disabled();
            std::panic::resume_unwind(Box::new("the program's own"));
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(scope)).is_err());
        assert!(allocator.is_enabled());
    });
}
