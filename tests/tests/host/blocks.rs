//! Pinned host memory as PyTorch has it: which block serves, how large it is, and when it goes back.

use alloc_core::backend::{CopyKind, PointerKind};
use alloc_core::config::{Settings, pytorch, strict};
use alloc_core::host::{HostAllocator, HostBlock, HostBlockId, HostOptions, HostStats};
use alloc_core::stats::Stat;
use alloc_core::types::{DevicePtr, KIB, MIB};
use backend_openreg::{Call, MemoryMode};
use granule_tests::pinned::{calls, host, machine, nothing_is_left, read, working, write};
use granule_tests::rig::on_each;

#[test]
fn n01_a_freed_block_serves_the_next_equal_request() {
    on_each(&machine(), |rig| {
        let host = host(rig, &Settings::default());
        let first = host.allocate(1000).unwrap();
        let other = host.allocate(1000).unwrap();
        assert_ne!(first.ptr, other.ptr);
        host.free(first.id).unwrap();
        let again = host.allocate(1000).unwrap();
        assert_eq!((again.ptr, again.bytes, again.size), (first.ptr, 1000, 1024));
        assert_ne!(again.id, first.id, "a name is never used twice");
        // What was freed last comes back first; other sizes of the same power of two are equal.
        host.free(other.id).unwrap();
        host.free(again.id).unwrap();
        assert_eq!(host.allocate(513).unwrap().ptr, again.ptr);
        assert_eq!(host.allocate(1024).unwrap().ptr, other.ptr);
        assert_ne!(host.allocate(512).unwrap().ptr, first.ptr, "smaller ones have blocks of their own");
        assert_eq!(calls(rig, Call::HostMalloc), 3);
        assert_eq!(host.allocate(0).unwrap(), HostBlock::NONE);
        host.free(HostBlockId::NONE).unwrap();
    });
}

#[test]
fn n02_blocks_are_found_by_their_name_or_else_by_their_first_address() {
    on_each(&working(), |rig| {
        let host = host(rig, &Settings::default());
        let stream = rig.new_stream();
        let (named, based) = (host.allocate(MIB).unwrap(), host.allocate(MIB).unwrap());
        let inside = |block: &HostBlock| block.ptr.add(512);
        assert!(
            host.record_event(inside(&named), named.id, stream).unwrap(),
            "an address inside needs the name"
        );
        assert!(host.record_event(based.ptr, HostBlockId::NONE, stream).unwrap());
        assert!(!host.record_event(inside(&based), HostBlockId::NONE, stream).unwrap());
        assert!(!host.record_event(DevicePtr(0x5000), HostBlockId(u64::MAX), stream).unwrap());
        let gate = rig.hold(stream);
        host.free(named.id).unwrap();
        host.free(based.id).unwrap();
        assert!(!host.record_event(based.ptr, based.id, stream).unwrap(), "nobody has it any more");
        assert_eq!(host.stats().granule.pending_bytes, 2 * MIB as i64, "both were used");
        gate.open();
    });
}

/// All 28 figures, of which four are the clock's.
#[test]
fn n03_figures_follow_the_rounding_to_powers_of_two() {
    on_each(&machine(), |rig| {
        let host = host(rig, &Settings::default());
        let floats = host.allocate(10_240 * 4).unwrap();
        assert_eq!(floats.size, 65_536);
        let small = host.allocate(3).unwrap();
        host.free(floats.id).unwrap();
        let again = host.allocate(33_000).unwrap();
        assert_eq!(again.ptr, floats.ptr);
        let more = host.allocate(40_000).unwrap();
        host.free(small.id).unwrap();
        host.free(more.id).unwrap();
        host.empty_cache().unwrap();
        let stats = host.stats();
        let flat = stats.flatten();
        let figures = |name: &str| {
            ["current", "peak", "allocated", "freed"].map(|part| flat[&format!("{name}.{part}")])
        };
        assert_eq!(figures("active_requests"), [1, 3, 4, 3]);
        assert_eq!(figures("active_bytes"), [65_536, 131_076, 3 * 65_536 + 4, 2 * 65_536 + 4]);
        assert_eq!(figures("allocations"), [1, 3, 3, 2]);
        assert_eq!(figures("allocated_bytes"), [65_536, 131_076, 131_076, 65_540]);
        assert_eq!((flat["num_host_alloc"], flat["num_host_free"]), (3, 2));
        for (name, count) in [("host_alloc_time", 3), ("host_free_time", 2)] {
            let time = |part: &str| flat[&format!("{name}.{part}")];
            assert_eq!(time("count"), count);
            assert!(time("min") <= time("avg") && time("avg") <= time("max") && time("max") <= time("total"));
            assert_eq!(time("avg"), time("total") / count);
        }
        assert_eq!(flat.len(), 28);
        // By size: 64 KiB is 2 to the power of 16, 4 bytes to that of 2.
        let bucket = |n: usize| (stats.buckets[n].active_requests, stats.buckets[n].active_bytes.current);
        assert_eq!(bucket(16), (Stat { current: 1, peak: 2, allocated: 3, freed: 2 }, 65_536));
        assert_eq!(bucket(2), (Stat { current: 0, peak: 1, allocated: 1, freed: 1 }, 0));
        host.reset_peak_stats();
        let reset = host.stats();
        assert_eq!(reset.active_bytes.peak, 65_536);
        assert_eq!((reset.allocations.peak, reset.host_alloc_time.max, reset.host_alloc_time.min), (1, 0, 0));
        assert_eq!((reset.host_alloc_time.count, reset.num_host_alloc()), (3, 3), "sums stay");
        host.reset_accumulated_stats();
        let reset = host.stats().flatten();
        assert_eq!((reset["active_bytes.allocated"], reset["active_bytes.freed"]), (0, 0));
        assert_eq!(
            (reset["num_host_alloc"], reset["num_host_free"], reset["host_free_time.count"]),
            (0, 0, 0)
        );
        assert_eq!((reset["active_bytes.current"], reset["allocated_bytes.current"]), (65_536, 65_536));
        host.free(again.id).unwrap();
        nothing_is_left(rig, host);
    });
}

/// PyTorch adds the peaks of all sizes up, whenever these were; the exact figure is there, too.
#[test]
fn n03_the_peak_is_the_sum_of_the_peaks_of_all_sizes() {
    on_each(&machine(), |rig| {
        let host = host(rig, &Settings::default());
        for bytes in [KIB, 2 * KIB, 4 * KIB] {
            host.free(host.allocate(bytes).unwrap().id).unwrap();
        }
        let HostStats { active_requests, active_bytes, granule, .. } = host.stats();
        assert_eq!((active_requests.peak, active_bytes.peak), (3, 7 * KIB as i64));
        assert_eq!((granule.active_requests.peak, granule.active_bytes.peak), (1, 4 * KIB as i64));
    });
}

#[test]
fn n04_above_the_threshold_sizes_are_exact_and_no_block_is_too_small() {
    on_each(&machine(), |rig| {
        let settings = Settings { pinned_max_round_threshold: MIB, ..Settings::default() };
        let host = host(rig, &settings);
        assert_eq!(host.allocate(MIB - 5).unwrap().size, MIB, "at the threshold sizes are rounded");
        let exact = MIB + 512 * KIB + 3;
        let block = host.allocate(exact).unwrap();
        assert_eq!(block.size, exact);
        host.free(block.id).unwrap();
        // Between the same two powers of two, and larger.
        let larger = host.allocate(exact + 1).unwrap();
        assert_ne!(larger.ptr, block.ptr, "{}: it is one byte short", rig.name);
        write(&larger, |_| 1);
        let smaller = host.allocate(MIB + 1).unwrap();
        assert_eq!(
            (smaller.ptr, smaller.size),
            (block.ptr, exact),
            "a larger one of the same bucket will do"
        );
        assert_eq!(host.stats().active_bytes.current, (MIB + exact + exact + 1) as i64);
        // A much larger one is another bucket's.
        let huge = host.allocate(9 * MIB).unwrap();
        host.free(huge.id).unwrap();
        assert_ne!(host.allocate(3 * MIB).unwrap().ptr, huge.ptr);
        // What is cached under other settings is checked, too.
        host.free(smaller.id).unwrap();
        host.configure(&Settings::default()).unwrap();
        let rounded = host.allocate(MIB + 1).unwrap();
        assert_eq!(
            rounded.size,
            2 * MIB,
            "{}: the cached block is smaller than the request's size",
            rig.name
        );
    });
}

#[test]
fn n05_blocks_over_the_cached_size_go_straight_back() {
    on_each(&working(), |rig| {
        let settings = Settings { pinned_max_cached_size: MIB, ..Settings::default() };
        let host = host(rig, &settings);
        let (kept, large) = (host.allocate(MIB).unwrap(), host.allocate(MIB + 1).unwrap());
        assert_eq!(large.size, MIB + 1, "what is not cached is not rounded either");
        host.free(kept.id).unwrap();
        assert_eq!((host.stats().num_host_free(), calls(rig, Call::HostFree)), (0, 0));
        host.free(large.id).unwrap();
        assert_eq!((host.stats().num_host_free(), calls(rig, Call::HostFree)), (1, 1));
        assert_eq!(host.stats().allocated_bytes.current, MIB as i64);
        // A used one, once its stream is done.
        let stream = rig.new_stream();
        let large = host.allocate(2 * MIB).unwrap();
        let gate = rig.hold(stream);
        assert!(host.record_event(large.ptr, large.id, stream).unwrap());
        host.free(large.id).unwrap();
        assert_eq!(host.stats().num_host_free(), 1);
        gate.open();
        rig.backend.synchronize_stream(stream).unwrap();
        host.poll().unwrap();
        assert_eq!((host.stats().num_host_free(), calls(rig, Call::HostFree)), (2, 2));
        assert_eq!(host.stats().active_bytes.current, 0);
        nothing_is_left(rig, host);
    });
}

#[test]
fn n06_registered_pages_are_usable_pinned_memory() {
    for threads in [1, 2, 8, 128] {
        on_each(&working().memory(MemoryMode::Mapped), |rig| {
            let settings = Settings {
                pinned_use_host_register: true,
                pinned_num_register_threads: threads,
                ..Settings::default()
            };
            let (devices, host) = (rig.allocator(Settings::default()), host(rig, &settings));
            let stream = rig.new_stream();
            for size in [100, 4096 * threads + 17, MIB + 1] {
                let block = host.allocate(size).unwrap();
                for at in [block.ptr, block.ptr.add(block.size - 1)] {
                    let info = rig.backend.pointer_info(at).unwrap();
                    assert_eq!((info.kind, info.base), (PointerKind::Host, block.ptr), "{}", rig.name);
                }
                // There and back again.
                write(&block, |n| n as u8 ^ 0x5a);
                let device = devices.malloc(size, stream).unwrap();
                let back = host.allocate(size).unwrap();
                let copy = |to, from, kind| {
                    // SAFETY: rule 2: all three blocks live until the stream was waited for.
                    unsafe { host.copy_async(to, from, size, kind, stream) }.unwrap();
                };
                copy(device, block.ptr, CopyKind::HostToDevice);
                copy(back.ptr, device, CopyKind::DeviceToHost);
                rig.backend.synchronize_stream(stream).unwrap();
                assert!(read(&back) == read(&block), "{}: {threads} threads, {size} bytes", rig.name);
                [block, back].into_iter().for_each(|block| host.free(block.id).unwrap());
                devices.free(device).unwrap();
            }
            assert_eq!((calls(rig, Call::RegisterHost), calls(rig, Call::HostMalloc)), (6, 0));
            // The way back is the way a block came, whatever the settings say by then.
            rig.backend.synchronize_stream(stream).unwrap();
            host.configure(&Settings::default()).unwrap();
            let by_driver = host.allocate(16 * MIB).unwrap();
            host.free(by_driver.id).unwrap();
            host.empty_cache().unwrap();
            assert_eq!((calls(rig, Call::UnregisterHost), calls(rig, Call::HostFree)), (6, 1));
            nothing_is_left(rig, host);
        });
    }
}

#[test]
fn n06_the_number_of_threads_has_limits() {
    let refusals = [
        (3, "Number of register threads has to be power of 2, got 3"),
        (256, "Number of register threads should be less than or equal to 128, got 256"),
    ];
    on_each(&machine(), |rig| {
        let kept = host(rig, &Settings::default());
        for (threads, text) in refusals {
            let settings = Settings { pinned_num_register_threads: threads, ..Settings::default() };
            let refused = HostAllocator::new(rig.backend.clone(), &settings, HostOptions::default());
            assert!(refused.unwrap_err().to_string().contains(text));
            assert!(kept.configure(&settings).unwrap_err().to_string().contains(text));
            let written = format!("pinned_num_register_threads:{threads}");
            let flavour = alloc_core::config::Flavour::Cuda;
            let refused = pytorch::parse(&written, &Settings::default(), flavour).unwrap_err();
            assert!(refused.pytorch_message().contains(text), "{refused}");
            strict::parse(&written, &Settings::default()).unwrap_err();
        }
        let none = Settings { pinned_num_register_threads: 0, ..Settings::default() };
        assert!(HostAllocator::new(rig.backend.clone(), &none, HostOptions::default()).is_err());
    });
}

#[test]
fn n10_emptying_frees_every_cached_block_and_no_other() {
    on_each(&working(), |rig| {
        let (devices, host) = (rig.allocator(Settings::default()), host(rig, &Settings::default()));
        let stream = rig.new_stream();
        let live = host.allocate(KIB).unwrap();
        write(&live, |_| 9);
        let waiting = host.allocate(MIB).unwrap();
        let gate = rig.hold(stream);
        assert!(host.record_event(waiting.ptr, waiting.id, stream).unwrap());
        let cached: Vec<_> = (0..20).map(|n| host.allocate(1 << n).unwrap()).collect();
        cached.iter().chain([&waiting]).for_each(|block| host.free(block.id).unwrap());
        devices.empty_cache().unwrap();
        assert_eq!(calls(rig, Call::HostFree), 0, "emptying the devices' cache is something else");
        host.empty_cache().unwrap();
        assert_eq!(calls(rig, Call::HostFree), 20);
        assert_eq!(host.stats().allocated_bytes.current, (KIB + MIB) as i64);
        gate.open();
        rig.backend.synchronize_stream(stream).unwrap();
        host.empty_cache().unwrap();
        let stats = host.stats();
        assert_eq!((stats.num_host_alloc(), stats.num_host_free()), (22, 21));
        assert_eq!((stats.allocations.current, stats.allocated_bytes.current), (1, KIB as i64));
        assert!(read(&live).iter().all(|byte| *byte == 9));
        host.free(live.id).unwrap();
        host.empty_cache().unwrap();
        assert_eq!(host.stats().allocated_bytes.current, 0);
        nothing_is_left(rig, host);
    });
}
