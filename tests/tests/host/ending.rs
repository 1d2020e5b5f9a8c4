//! The end of pinned memory: of its allocator, its driver, and its process.

use crate::machines::{calls, idle, plain, slow, with};
use crate::watched::{over, world};
use alloc_core::backend::{
    Backend, BackendError, CaptureMode, CopyKind, ErrorKind, PinnedHost, Result as DriverResult,
};
use alloc_core::config::Settings;
use alloc_core::pool::Filter;
use alloc_core::sleep::{Backup, Retention, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, KIB, MIB, PoolId};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Call, Clock, FaultPlan};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::alone::alone;
use granule_tests::pinned::nothing_is_pinned;
use granule_tests::quiet::Retires;
use granule_tests::rig::DEVICE;
use granule_tests::sleepers::{malloc_in, tagged};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn the_end_makes_no_contexts() {
    let (machine, driver, watch) = world(Clock::Virtual { lag: 0 });
    let host = over(&driver, &Settings::default());
    watch.lone.store(true, Ordering::Relaxed);
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    let kept = host.allocate_for(MIB, stream).unwrap();
    assert!(host.record_event(kept.ptr, kept.id, stream).unwrap());
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 1: it was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    host.free(kept.id).unwrap();
    drop(host);
    assert_eq!(machine.calls().get(Call::HostMalloc), machine.calls().get(Call::HostFree));
    assert_eq!(watch.waited.load(Ordering::Relaxed), 1, "only devices in use are waited for");
}

#[test]
fn the_end_waits_for_devices_and_leaves_what_the_program_has() {
    let machine = slow(1000);
    let host = plain(&machine);
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let devices =
        granule_tests::made::<granule_tests::policy::PytorchPolicy>(machine.clone(), Settings::default())
            .unwrap();
    let device = devices.malloc(MIB, stream).unwrap();
    let used = host.allocate(MIB).unwrap();
    // SAFETY: rule 2: the block is given back after the copy, as this test shows; a trap would tell.
    unsafe { host.copy_async(device, used.ptr, MIB, CopyKind::HostToDevice, stream) }.unwrap();
    host.free(used.id).unwrap();
    let unrecorded = host.allocate(2 * MIB).unwrap();
    assert!(host.record_event(unrecorded.ptr, unrecorded.id, stream).unwrap());
    machine.set_faults(FaultPlan::none().fail_nth_of(Call::RecordEvent, 1, ErrorKind::Other));
    host.free(unrecorded.id).unwrap();
    let live = host.allocate(4 * MIB).unwrap();
    let pool = PoolId::fresh();
    host.begin_pool(pool, &Filter::Always).unwrap();
    host.free(host.allocate(KIB).unwrap().id).unwrap();
    drop(host);
    assert_eq!(calls(&machine, Call::HostFree), calls(&machine, Call::HostMalloc) - 1);
    assert_eq!(machine.traps(), Vec::new());
    // SAFETY: rule 3: the allocator is gone, and nothing uses its last block.
    unsafe { machine.host_free(live.ptr) }.unwrap();
    devices.free(device).unwrap();
}

#[test]
fn a_driver_that_goes_away_is_not_called_again() {
    let machine = slow(1000);
    let host = with(&machine, &Settings { pinned_use_background_threads: true, ..Settings::default() });
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let (block, waits) = (host.allocate(KIB).unwrap(), host.allocate(MIB).unwrap());
    assert!(host.record_event(waits.ptr, waits.id, stream).unwrap());
    host.free(waits.id).unwrap();
    host.abandon();
    std::thread::sleep(std::time::Duration::from_millis(5));
    let before = machine.calls().total();
    assert!(matches!(host.allocate(KIB), Err(AllocError::DriverGone)));
    assert!(matches!(host.record_event(block.ptr, block.id, stream), Err(AllocError::DriverGone)));
    host.free(block.id).unwrap();
    host.empty_cache().unwrap();
    host.retire(stream).unwrap();
    assert_eq!(host.stats().allocations.current, 2, "what only looks still works");
    drop(host);
    assert_eq!(machine.calls().total(), before);
}

/// A driver that takes no pinned memory back, and says that it is unloading.
#[derive(Debug, Default)]
struct Unloads(Arc<AtomicBool>);

impl Unloads {
    fn answer(&self, call: &'static str) -> DriverResult<()> {
        if !self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(BackendError::new(ErrorKind::Unusable, 4, call, DEVICE, "the driver is unloading"))
    }
}

impl Hook for Unloads {
    unsafe fn host_free(&self, inner: &dyn PinnedHost, ptr: DevicePtr) -> DriverResult<()> {
        self.answer("host_free")?;
        // SAFETY: the caller's promise.
        unsafe { inner.host_free(ptr) }
    }

    fn has_primary_context(&self, inner: &dyn Backend, device: DeviceIndex) -> DriverResult<bool> {
        self.answer("has_primary_context")?;
        inner.has_primary_context(device)
    }
}

/// The word of an allocator that was gone said to another one that its driver was.
#[test]
fn what_a_backup_learns_of_its_driver_does_not_concern_a_later_allocator() {
    alone(|| {
        let (machine, unloads) = (idle(), Arc::<AtomicBool>::default());
        let driver: Arc<dyn Backend> =
            Arc::new(Interposed::new(machine.clone(), Unloads(Arc::clone(&unloads))));
        let host = over(&driver, &Settings { pinned_free_catch_all: true, ..Settings::default() });
        let allocator = Arc::new(CachingAllocator::new(driver, Settings::default()).unwrap());
        let pool = tagged(&allocator, "weights");
        let block = malloc_in(&pool, &allocator, 4 * MIB, machine.default_stream(DEVICE));
        // SAFETY: nothing uses the memory.
        unsafe { allocator.sleep_mode().sleep(Tags::All, &Backup::HostPinned(Retention::Release)) }.unwrap();
        assert!(host.stats().active_bytes.current >= 4 << 20, "it has the backup");
        drop(host);
        let later = plain(&idle());
        unloads.store(true, Ordering::Relaxed);
        allocator.sleep_mode().wake(Tags::All).unwrap();
        unloads.store(false, Ordering::Relaxed);
        let pinned = later.allocate(KIB).expect("its driver is there");
        later.free(pinned.id).unwrap();
        allocator.free(block).unwrap();
    });
}

/// The child of a fork is told so, and touches neither locks nor the driver.
#[test]
fn a_forked_child_is_refused() {
    alone(|| {
        let machine = idle();
        let host = with(&machine, &Settings { pinned_use_background_threads: true, ..Settings::default() });
        let block = host.allocate(KIB).unwrap();
        let stream = machine.default_stream(DEVICE);
        // SAFETY: the child calls what is under test, and ends without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let forked = |result: Result<(), AllocError>| matches!(result, Err(AllocError::Forked));
            let complaints = [
                forked(host.allocate(KIB).map(drop)),
                forked(host.free(block.id)),
                forked(host.record_event(block.ptr, block.id, stream).map(drop)),
                forked(host.empty_cache()),
                forked(host.poll()),
                forked(host.configure(&Settings::default())),
                forked(host.begin_pool(PoolId::fresh(), &Filter::Always)),
                host.stats().allocations.current == 0,
            ];
            drop(host);
            let wrong = complaints.iter().position(|fine| !fine).map_or(0, |n| n as i32 + 1);
            // SAFETY: ends the child.
            unsafe { libc::_exit(wrong) }
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "the child ended by itself: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 0, "the number of the answer that was wrong");
        host.free(block.id).unwrap();
        drop(host);
        nothing_is_pinned(&machine);
    });
}
