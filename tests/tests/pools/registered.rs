//! Pools over memory that libraries register: its sizes, its windows, and that nothing of it is lost.

use alloc_core::AllocError;
use alloc_core::backend::{Access, CopyKind, ErrorKind, HandleType, ShareableHandle};
use alloc_core::config::Settings;
use alloc_core::pool::{MemoryPool, PoolOptions, SegmentSource};
use alloc_core::share::{RegisteredMemory, RegisteredOptions};
use alloc_core::types::{DeviceIndex, DevicePtr, MIB};
use backend_openreg::{Driver, FaultPlan, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::pools::take;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{both, free_all, mapped, of, reserved};
use std::sync::Arc;

fn with_chunk(bytes: u64) -> RegisteredOptions {
    let mut options = RegisteredOptions::default();
    options.chunk = bytes;
    options
}

fn pool_of(allocator: &Allocator, options: &RegisteredOptions) -> (MemoryPool, Arc<RegisteredMemory>) {
    let memory = allocator.pools().registered(DEVICE, options).unwrap();
    let source = Some(memory.clone() as _);
    let options = PoolOptions { source, no_split: true, ..PoolOptions::default() };
    (MemoryPool::new(allocator, DEVICE, options).unwrap(), memory)
}

#[test]
fn memory_in_a_window_serves_again_and_leaves_after_it() {
    for settings in both() {
        on_each(&of(512), |rig| {
            let allocator = rig.allocator(settings.clone());
            let (pool, memory) = pool_of(&allocator, &with_chunk(64 * MIB));
            let first = take(&allocator, &pool, 30 * MIB, rig.stream()).unwrap();
            let window = memory.window(first.add(5 * MIB)).unwrap();
            assert!(window.base() <= first && first.0 + 30 * MIB <= window.base().0 + window.bytes());
            assert_eq!((rig.used(), memory.held(), window.bytes()), (64 * MIB, 64 * MIB, 64 * MIB));
            allocator.free(first).unwrap();
            let second = take(&allocator, &pool, 30 * MIB, rig.stream()).unwrap();
            assert_eq!(second, first, "nothing has to be registered again");
            allocator.free(second).unwrap();
            // Another window of the same range keeps it, too, when its pool has ended.
            let another = memory.window(second).unwrap();
            drop((window, pool));
            allocator.empty_cache().unwrap();
            assert_eq!((rig.used(), reserved(&allocator)), (64 * MIB, 30 << 20), "it is held, and counted");
            drop(another);
            rig.nothing_is_left(&allocator);
        });
    }
}

#[test]
fn segments_share_a_handle_and_what_is_too_large_has_one_of_its_own() {
    on_each(&of(1024), |rig| {
        let allocator = rig.allocator(Settings::default());
        let (pool, memory) = pool_of(&allocator, &with_chunk(64 * MIB));
        let malloc = |mib: u64| take(&allocator, &pool, mib * MIB, rig.stream()).unwrap();
        let blocks = [malloc(20), malloc(24), malloc(20), malloc(100)];
        assert_eq!(memory.held(), 64 * MIB + 100 * MIB);
        let bases: Vec<_> = blocks.iter().map(|block| memory.window(*block).unwrap().base()).collect();
        assert!(bases[0] == bases[1] && bases[1] == bases[2] && bases[2] != bases[3]);
        free_all(&allocator, blocks);
        drop(pool);
        rig.nothing_is_left(&allocator);
        assert_eq!(memory.held(), 0);
    });
}

#[test]
fn ranges_of_a_handle_that_come_free_join() {
    on_each(&of(256), |rig| {
        let allocator = rig.allocator(Settings::default());
        let memory = allocator.pools().registered(DEVICE, &with_chunk(64 * MIB)).unwrap();
        let take = |mib: u64| memory.alloc(mib * MIB, rig.stream()).unwrap();
        // SAFETY: each is given back once, and no work used it.
        let give = |at: DevicePtr, mib: u64| unsafe { memory.free(at, mib * MIB, rig.stream()) };
        for order in [[0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 0, 2]] {
            let parts = [take(4), take(20), take(30), take(10)];
            order.iter().for_each(|which| give(parts[*which], [4, 20, 30][*which]));
            let whole = take(54);
            assert_eq!((whole, memory.held()), (parts[0], 64 * MIB));
            give(whole, 54);
            give(parts[3], 10);
            assert_eq!(memory.held(), 0);
        }
    });
}

#[test]
fn a_pool_and_an_allocator_may_end_before_a_window() {
    on_each(&of(512), |rig| {
        let allocator = rig.allocator(Settings::default());
        let window = {
            let (pool, memory) = pool_of(&allocator, &RegisteredOptions::default());
            let block = take(&allocator, &pool, 30 * MIB, rig.stream()).unwrap();
            let window = memory.window(block).unwrap();
            allocator.free(block).unwrap();
            window
        };
        assert!(rig.used() > 0, "the pool has ended");
        drop(allocator);
        assert!(rig.used() > 0, "the allocator has ended");
        drop(window);
        assert_eq!((rig.used(), rig.device.traps()), (0, Vec::new()));
    });
}

#[test]
fn another_process_maps_the_same_bytes() {
    let rig = Rig::openreg(mapped(512));
    let allocator = rig.allocator(Settings::default());
    let (pool, memory) = pool_of(&allocator, &RegisteredOptions::default());
    let block = take(&allocator, &pool, 30 * MIB, rig.stream()).unwrap();
    let window = memory.window(block).unwrap();
    assert_eq!(memory.handle_type(), HandleType::PosixFd);
    let shared = window.share().unwrap();
    assert!(matches!(shared, ShareableHandle::PosixFd(_)));
    let vm = rig.backend.physical_sharing().unwrap();
    let imported = vm.import_physical(DEVICE, &shared).unwrap();
    assert_eq!(Driver(&rig.device).physical_properties(imported).unwrap().bytes, window.bytes());
    let bytes = window.bytes();
    let view = vm.reserve_address(DEVICE, bytes, 0, DevicePtr::NULL).unwrap();
    // SAFETY: a handle of this size, in a reservation of its own.
    unsafe { vm.map(view, bytes, imported) }.unwrap();
    // SAFETY: mapped just now.
    unsafe { vm.set_access(view, bytes, &[DEVICE], Access::ReadWrite) }.unwrap();
    let there = view.add(block.0 - window.base().0);
    // SAFETY: rule 2: mapped until the stream has passed it.
    unsafe { rig.backend.memset_async(there, 0x5a, MIB, rig.stream()) }.unwrap();
    rig.backend.synchronize_stream(rig.stream()).unwrap();
    let mut seen = vec![0_u8; 4096];
    let host = DevicePtr(seen.as_mut_ptr() as u64);
    // SAFETY: rule 2: a live block, and as many bytes of this vector.
    unsafe { rig.backend.copy(host, block, 4096, CopyKind::DeviceToHost) }.unwrap();
    assert!(seen.iter().all(|byte| *byte == 0x5a));
    // SAFETY: rule 3: mapped above as one piece; the stream has passed all work.
    unsafe { vm.unmap(view, bytes) }.unwrap();
    // SAFETY: rule 3: reserved above, and nothing is mapped there any more.
    unsafe { vm.release_address(view, bytes) }.unwrap();
    // SAFETY: rule 1: imported above, and not used again.
    unsafe { vm.release_physical(imported) }.unwrap();
    drop(window);
    allocator.free(block).unwrap();
    drop(pool);
    rig.nothing_is_left(&allocator);
}

#[test]
fn other_devices_of_the_process_reach_it() {
    let rig = Rig::openreg(OpenRegConfig::default().devices(3).capacity(256 * MIB));
    let allocator = rig.allocator(Settings::default());
    let mut options = RegisteredOptions::default();
    options.reached_by = vec![DeviceIndex(2), DEVICE];
    let (pool, memory) = pool_of(&allocator, &options);
    let block = take(&allocator, &pool, 3 * MIB, rig.stream()).unwrap();
    let base = memory.window(block).unwrap().base();
    let reach = [0, 1, 2]
        .map(|device| rig.backend.virtual_memory().unwrap().access(base, DeviceIndex(device)).unwrap());
    assert_eq!(reach, [Access::ReadWrite, Access::None, Access::ReadWrite]);
    options.reached_by = vec![DeviceIndex(7)];
    assert!(matches!(allocator.pools().registered(DEVICE, &options), Err(AllocError::InvalidDevice { .. })));
    let elsewhere = allocator.malloc(3 * MIB, rig.stream()).unwrap();
    let told = memory.window(elsewhere).unwrap_err().to_string();
    assert!(told.contains("allocate it in such a pool"), "{told}");
    free_all(&allocator, [block, elsewhere]);
    drop(pool);
    rig.nothing_is_left(&allocator);
}

#[test]
fn a_driver_call_that_fails_loses_nothing() {
    let program = |rig: &Rig, allocator: &Allocator, fail: u64| {
        rig.device.set_faults(FaultPlan::none());
        let Ok(memory) = allocator.pools().registered(DEVICE, &with_chunk(64 * MIB)) else { return };
        let options = PoolOptions { source: Some(memory.clone() as _), ..PoolOptions::default() };
        let pool = MemoryPool::new(allocator, DEVICE, options).unwrap();
        if fail > 0 {
            rig.device.set_faults(FaultPlan::none().fail_nth(fail, ErrorKind::InvalidValue));
        }
        let blocks: Vec<_> = [3, 30, 100]
            .iter()
            .filter_map(|mib| take(allocator, &pool, mib * MIB, rig.stream()).ok())
            .collect();
        let windows: Vec<_> = blocks.iter().map(|block| memory.window(*block).unwrap()).collect();
        blocks.iter().for_each(|block| allocator.free(*block).unwrap());
        let _first_error = allocator.empty_cache();
        drop(windows);
        let _first_error = allocator.empty_cache();
        drop(pool);
        // What was refused then is taken back with the next handle, or at the end.
        rig.device.set_faults(FaultPlan::none());
        allocator.empty_cache().unwrap();
        drop(memory);
    };
    let rig = Rig::openreg(of(512));
    let allocator = rig.allocator(Settings::default());
    let before = rig.device.calls().total();
    program(&rig, &allocator, 0);
    let calls = rig.device.calls().total() - before;
    assert!(calls > 15, "{calls}");
    for fail in 1..=calls {
        program(&rig, &allocator, fail);
        rig.nothing_is_left(&allocator);
    }
}
