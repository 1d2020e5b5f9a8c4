//! Device memory and pinned memory of one device are one budget where they are the same bytes, and nowhere else.

use super::{Board, DEVICE};
use alloc_core::backend::Backend;
use alloc_core::budget::Budget;
use alloc_core::config::{MemoryLimit, PolicyName, Settings};
use alloc_core::host::{HostAllocator, HostOptions, NumaPolicy};
use alloc_core::sleep::{Backup, Tags};
use alloc_core::types::{DevicePtr, GIB, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_tests::alone::over_lookalikes;
use granule_tests::sleepers::{malloc_in, tagged};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

fn pinning(board: &Board) -> HostAllocator {
    HostAllocator::new(board.backend(), &Settings::default(), HostOptions::default()).unwrap()
}

fn limited(policy: PolicyName, mib: u64) -> Settings {
    Settings {
        policy: Some(policy),
        memory_limit: Some(MemoryLimit::Bytes(mib * MIB)),
        host_reserve: Some(MemoryLimit::Bytes(0)),
        ..Settings::default()
    }
}

fn stream(board: &Board) -> Stream {
    board.machine.default_stream(DEVICE)
}

fn reserved(allocator: &CachingAllocator) -> i64 {
    allocator.stats(DEVICE).unwrap().reserved_bytes.all.current
}

/// What a refusal of device memory says, in Granule's words and PyTorch's.
fn refused(refusal: Result<DevicePtr, AllocError>) -> [String; 2] {
    let refusal = refusal.unwrap_err();
    let AllocError::OutOfMemory(report) = &refusal else { panic!("{refusal}") };
    assert_eq!(report.pinned, 16 * MIB);
    [refusal.to_string(), refusal.pytorch_message()]
}

#[test]
fn a_limit_counts_both_and_a_refusal_names_both() {
    for policy in [PolicyName::Granule, PolicyName::Pytorch] {
        let board = Board::new();
        let (allocator, host) = (board.allocator(limited(policy, 64)), pinning(&board));
        let held = allocator.malloc(40 * MIB, stream(&board)).unwrap();
        let pinned = host.allocate(16 * MIB).unwrap();
        for text in refused(allocator.malloc(16 * MIB, stream(&board))) {
            assert!(text.contains("16.00 MiB of it are pinned host memory"), "{policy}: {text}");
        }
        let refusal = host.allocate(16 * MIB).unwrap_err();
        assert!(refusal.is_out_of_memory());
        let AllocError::PinnedOutOfMemory(why) = &refusal else { panic!("{refusal}") };
        assert_eq!((why.bytes, why.held, why.pinned, why.allowed), (16 * MIB, 40 * MIB, 16 * MIB, 64 * MIB));
        let rounded = host.allocate(9 * MIB).unwrap_err().to_string();
        assert!(
            rounded.contains("pin 16.00 MiB of host memory for 9.00 MiB that were asked for (pinned_sizes"),
            "{rounded}"
        );
        let text = refusal.to_string();
        assert!(
            text.contains("40.00 MiB are held as device memory and 16.00 MiB as pinned memory"),
            "{text}"
        );
        assert!(text.contains("memory_limit allows 64.00 MiB for both together"), "{text}");
        // What either gives up, the other has.
        host.free(pinned.id).unwrap();
        host.empty_cache().unwrap();
        let more = allocator.malloc(20 * MIB, stream(&board)).unwrap();
        assert!(host.allocate(16 * MIB).is_err());
        allocator.free(more).unwrap();
        allocator.free(held).unwrap();
        allocator.empty_cache().unwrap();
        host.allocate(64 * MIB).unwrap();
    }
}

#[test]
fn shares_of_the_device_and_what_processes_agree_on_count_both() {
    let board = Board::with(GIB);
    let (allocator, host) = (board.allocator(Settings::default()), pinning(&board));
    allocator.set_memory_fraction(0.125, DEVICE).unwrap();
    let held = allocator.malloc(100 * MIB, stream(&board)).unwrap();
    let text = host.allocate(32 * MIB).unwrap_err().to_string();
    assert!(text.contains("the memory fraction allows 128.00 MiB"), "{text}");
    host.allocate(16 * MIB).unwrap();
    assert!(allocator.malloc(16 * MIB, stream(&board)).is_err());
    allocator.set_memory_fraction(1.0, DEVICE).unwrap();
    host.allocate(32 * MIB).unwrap();
    assert!(
        allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(MIB)), None).is_ok(),
        "what is held stays"
    );
    assert!(host.allocate(MIB).is_err());
    allocator.free(held).unwrap();
}

/// PyTorch's count of a request is less than what a growable segment takes for it.
#[test]
fn what_is_mapped_beyond_the_request_keeps_the_limit_too() {
    for has_budgets in [false, true] {
        let board = Board::with(GIB);
        let settings = Settings { expandable_segments: true, ..limited(PolicyName::Pytorch, 64) };
        let (allocator, host) = (board.allocator(settings), pinning(&board));
        if has_budgets {
            allocator.hooks().on_budget(|_| {});
        }
        host.allocate(32 * MIB).unwrap();
        let refusal = allocator.malloc(30 * MIB, stream(&board)).unwrap_err();
        assert!(refusal.is_out_of_memory(), "30 MiB take 40: {refusal}");
        let block = allocator.malloc(20 * MIB, stream(&board)).unwrap();
        allocator.free(block).unwrap();
    }
}

#[test]
fn what_is_idle_on_one_side_goes_before_the_other_is_refused() {
    for (policy, limit) in [PolicyName::Granule, PolicyName::Pytorch].map(|p| [(p, 256), (p, 4096)]).concat()
    {
        let board = Board::with(256 * MIB);
        let (allocator, host) = (board.allocator(limited(policy, limit)), pinning(&board));
        let stream = stream(&board);
        for round in 0..3 {
            // A stream still has to do with one of them.
            let [used, idle] = [64 * MIB, 64 * MIB].map(|bytes| host.allocate(bytes).unwrap());
            host.record_event(used.ptr, used.id, stream).unwrap();
            host.free(used.id).unwrap();
            host.free(idle.id).unwrap();
            let block =
                allocator.malloc(200 * MIB, stream).unwrap_or_else(|error| panic!("{round}: {error}"));
            assert_eq!(host.stats().allocated_bytes.current, 0, "{policy}");
            allocator.free(block).unwrap();
            let pinned = host.allocate(128 * MIB).unwrap();
            assert_eq!(reserved(&allocator), 0, "{policy}");
            assert!(allocator.malloc(200 * MIB, stream).is_err(), "what is in use stays");
            host.free(pinned.id).unwrap();
        }
    }
}

#[test]
fn a_pool_that_wakes_keeps_within_the_limit_and_gets_what_is_idle() {
    let board = Board::with(GIB);
    let (allocator, host) = (Arc::new(board.allocator(limited(PolicyName::Granule, 64))), pinning(&board));
    let pool = tagged(&allocator, "weights");
    let block = malloc_in(&pool, &allocator, 40 * MIB, stream(&board));
    // SAFETY: nothing uses the memory.
    unsafe { allocator.sleep_mode().sleep(Tags::All, &Backup::Discard) }.unwrap();
    let pinned = host.allocate(32 * MIB).expect("what sleeps takes nothing");
    let refusal = allocator.sleep_mode().wake(Tags::All).unwrap_err();
    assert!(matches!(refusal, AllocError::NoRoomToWake { .. }), "{refusal}");
    host.free(pinned.id).unwrap();
    allocator.sleep_mode().wake(Tags::All).expect("what is idle goes");
    allocator.free(block).unwrap();
}

#[test]
fn what_is_pinned_is_counted_once() {
    let board = Board::with(GIB);
    let (allocator, host) = (board.allocator(Settings::default()), pinning(&board));
    let held = allocator.malloc(200 * MIB, stream(&board)).unwrap();
    let pinned = host.allocate(128 * MIB).unwrap();
    board.page_cache(300 * MIB);
    let told = allocator.statistics().ledger(DEVICE).unwrap();
    assert_eq!((told.used, told.ours.held(), told.pinned), (328 * MIB, 200 * MIB, 128 * MIB));
    assert_eq!((told.process_other, told.unaccounted, told.sum()), (0, 0, told.used));
    assert_eq!(allocator.statistics().memory_info(DEVICE).unwrap().free, (1024 - 328) * MIB);
    assert_eq!(reserved(&allocator), 200 << 20, "device memory alone");
    allocator.free(held).unwrap();
    host.free(pinned.id).unwrap();
    drop(host);
    assert_eq!(allocator.statistics().ledger(DEVICE).unwrap().pinned, 0, "it went with its allocator");
}

#[test]
fn allocators_that_come_later_and_go_count_what_is_there() {
    let board = Board::new();
    let host = pinning(&board);
    host.allocate(32 * MIB).unwrap();
    let first = board.allocator(limited(PolicyName::Granule, 64));
    assert!(first.malloc(40 * MIB, stream(&board)).is_err(), "32 were pinned before it came");
    let second = board.allocator(limited(PolicyName::Granule, 48));
    assert!(host.allocate(32 * MIB).unwrap_err().to_string().contains("48.00 MiB"), "the second one refuses");
    let block =
        first.malloc(32 * MIB, stream(&board)).expect("the first one counts nothing that was refused");
    first.free(block).unwrap();
    drop((first, second));
    host.allocate(32 * MIB).expect("nobody limits it any more");
}

#[test]
fn what_is_pinned_and_idle_gives_way_to_a_guarantee() {
    let board = Board::with(GIB);
    let (allocator, host) = (board.allocator(limited(PolicyName::Granule, 64)), pinning(&board));
    let pinned = host.allocate(32 * MIB).unwrap();
    let budget = || Budget { guarantee: Some(MemoryLimit::Bytes(40 * MIB)), ..Budget::default() };
    let refusal = allocator.budgets().create_tenant(DEVICE, "training", &budget()).unwrap_err().to_string();
    assert!(refusal.contains("32.00 MiB are in use"), "{refusal}");
    host.free(pinned.id).unwrap();
    allocator.budgets().create_tenant(DEVICE, "training", &budget()).expect("what is idle goes");
}

#[test]
fn observers_hear_at_once_what_pinned_memory_crosses() {
    let board = Board::with(GIB);
    let (allocator, host) = (board.allocator(Settings::default()), pinning(&board));
    allocator.set_memory_limits(DEVICE, None, Some(MemoryLimit::Bytes(64 * MIB))).unwrap();
    let heard = Arc::new(AtomicI64::new(0));
    let counts = Arc::clone(&heard);
    allocator.hooks().on_budget(move |_| {
        counts.fetch_add(1, Ordering::SeqCst);
    });
    let held = allocator.malloc(40 * MIB, stream(&board)).unwrap();
    for round in 1..=3 {
        let pinned = host.allocate(32 * MIB).unwrap();
        assert_eq!(heard.load(Ordering::SeqCst), round);
        host.free(pinned.id).unwrap();
        host.empty_cache().unwrap();
    }
    allocator.free(held).unwrap();
}

/// `policy:pytorch` counts as PyTorch does there, and the granule policy, too.
#[test]
fn a_device_with_memory_of_its_own_does_not_count_what_is_pinned() {
    for policy in [PolicyName::Granule, PolicyName::Pytorch] {
        let machine = OpenReg::new(OpenRegConfig::default().devices(1).capacity(GIB)).unwrap();
        let allocator = CachingAllocator::new(machine.clone(), limited(policy, 64)).unwrap();
        let host = HostAllocator::new(machine.clone(), &Settings::default(), HostOptions::default()).unwrap();
        let cached = host.allocate(128 * MIB).unwrap();
        host.free(cached.id).unwrap();
        let block = allocator.malloc(64 * MIB, machine.default_stream(DEVICE)).unwrap();
        let refusal = allocator.malloc(16 * MIB, machine.default_stream(DEVICE)).unwrap_err();
        assert!(!refusal.to_string().contains("pinned"), "{refusal}");
        assert_eq!(host.stats().allocated_bytes.current, 128 << 20, "no remedy for that");
        assert_eq!(allocator.statistics().ledger(DEVICE).unwrap().pinned, 0);
        allocator.free(block).unwrap();
    }
}

/// GH200: pages are elsewhere, unless they are placed on the device's node.
#[test]
fn pages_on_the_node_of_a_device_count_and_others_do_not() {
    over_lookalikes("personality=page64k", || {
        let root = tempfile::tempdir().unwrap();
        let node = root.path().join("sys/devices/system/node/node1");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join("meminfo"), "Node 1 MemTotal: 262144 kB\nNode 1 MemFree: 245760 kB\n")
            .unwrap();
        let chosen = granule::backends::choose(Some(granule::backends::Name::Cuda)).unwrap();
        let settings = Settings {
            system_root: root.path().to_owned(),
            memory_limit: Some(MemoryLimit::Bytes(64 * MIB)),
            ..Settings::default()
        };
        let allocator = CachingAllocator::new(chosen.backend.clone(), settings).unwrap();
        let pinning = |numa| {
            let options = HostOptions { numa, sysfs: root.path().join("sys"), ..HostOptions::default() };
            HostAllocator::new(Arc::clone(&chosen.backend), &Settings::default(), options).unwrap()
        };
        let (elsewhere, there) = (pinning(NumaPolicy::System), pinning(NumaPolicy::Node(1)));
        assert_eq!(there.node(), Some(1));
        elsewhere.allocate(64 * MIB).unwrap();
        there.allocate(32 * MIB).unwrap();
        let refusal = there.allocate(64 * MIB).unwrap_err();
        assert!(
            matches!(&refusal, AllocError::PinnedOutOfMemory(why) if why.pinned == 32 * MIB),
            "{refusal}"
        );
        let stream = chosen.backend.default_stream(DEVICE);
        assert!(allocator.malloc(40 * MIB, stream).is_err());
        let block = allocator.malloc(30 * MIB, stream).unwrap();
        allocator.free(block).unwrap();
    });
}

/// Threads of both kinds ask at once, and allocators of both kinds come and go meanwhile.
#[test]
fn both_sides_at_once_stay_within_the_limit_and_lose_nothing() {
    let board = Board::with(GIB);
    let (allocator, host) = (board.allocator(limited(PolicyName::Granule, 64)), pinning(&board));
    let counted = AtomicI64::new(0);
    // Counted before it can be used by others, and for as long as it is in use.
    let holds = |bytes: i64| assert!(counted.fetch_add(bytes, Ordering::SeqCst) + bytes <= 64 << 20);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (allocator, host, board, holds) = (&allocator, &host, &board, &holds);
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let bytes = (8 << ((round + thread) % 3)) * MIB;
                    if let Ok(block) = allocator.malloc(bytes, stream(board)) {
                        holds(bytes.cast_signed());
                        holds(-bytes.cast_signed());
                        allocator.free(block).unwrap();
                    }
                }
            });
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let bytes = (8 << ((round + thread) % 3)) * MIB;
                    if let Ok(block) = host.allocate(bytes) {
                        holds(bytes.cast_signed());
                        holds(-bytes.cast_signed());
                        host.free(block.id).unwrap();
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                let other = board.allocator(limited(PolicyName::Granule, 64));
                let pins = pinning(&board);
                let (ptr, block) = (other.malloc(4 * MIB, stream(&board)), pins.allocate(4 * MIB));

                block.into_iter().for_each(|block| pins.free(block.id).unwrap());
                ptr.into_iter().for_each(|ptr| other.free(ptr).unwrap());
            }
        });
    });
    host.empty_cache().unwrap();
    let all = allocator.malloc(64 * MIB, stream(&board)).expect("nothing is counted that is not there");
    allocator.free(all).unwrap();
    let all = host.allocate(64 * MIB).expect("nor here");
    host.free(all.id).unwrap();
    drop((allocator, host));
    assert_eq!(board.unused(), GIB);
}
