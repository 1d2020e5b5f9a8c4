//! What a refusal for lack of memory says, who is told, and what works after it.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, CaptureMode, ErrorKind};
use alloc_core::config::{MemoryLimit, PytorchRelease, ReserveSize, Settings};
use alloc_core::oom::{OomReport, PoolCache, ProcessMemory};
use alloc_core::pool::Filter;
use alloc_core::types::{DevicePtr, GIB, KIB, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, FaultPlan};
use granule_tests::log::Log;
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::pools::Own;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{free_all, growable, of, of_bytes};
use granule_tests::{Allocator, with_policy};
use std::sync::{Arc, Mutex};

fn refused(allocator: &Allocator, bytes: u64, stream: Stream) -> Box<OomReport> {
    match allocator.malloc(bytes, stream).unwrap_err() {
        AllocError::OutOfMemory(report) => report,
        other => panic!("{other}"),
    }
}

/// What would help, how many bytes it gives, and whether that is enough.
fn remedies(report: &OomReport) -> Vec<(&str, u64, bool)> {
    report.remedies.iter().map(|r| (r.what.as_str(), r.bytes, r.enough)).collect()
}

/// Blocks of these sizes from a pool, which has one reference then.
fn in_pool(allocator: &Allocator, rig: &Rig, pool: PoolId, sizes: &[u64]) -> Vec<DevicePtr> {
    allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
    let blocks = sizes.iter().map(|bytes| allocator.malloc(*bytes, rig.stream()).unwrap()).collect();
    allocator.pools().end(DEVICE, pool).unwrap();
    blocks
}

const HINT: &str = " If reserved but unallocated memory is large try setting \
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  \
    (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";

#[test]
fn o01_the_message_has_every_part_and_figure() {
    on_each(&of_bytes(256 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let label = rig.backend.label();
        let mut blocks: Vec<_> =
            [30 * MIB, 3 * MIB].map(|n| allocator.malloc(n, rig.stream()).unwrap()).into();
        let pool = PoolId::fresh();
        let mut pooled = in_pool(&allocator, rig, pool, &[40 * MIB, 10 * MIB]);
        let start = |mebibytes| {
            format!(
                "{label} out of memory. Tried to allocate {mebibytes}.00 MiB. GPU 0 has a total capacity of 256.00 MiB of \
                 which 156.00 MiB is free. "
            )
        };
        let rest = format!(
            "Of the allocated memory 83.00 MiB is allocated by PyTorch, and 17.00 MiB is reserved by PyTorch but \
             unallocated.{HINT}"
        );
        let message = refused(&allocator, 160 * MIB, rig.stream()).pytorch_message();
        assert_eq!(message, format!("{}{rest}", start(160)));
        allocator.set_memory_fraction(0.5, DEVICE).unwrap();
        let message = refused(&allocator, 50 * MIB - 7, rig.stream()).pytorch_message();
        assert_eq!(message, format!("{}128.00 MiB allowed; {rest}", start(50)));
        free_all(&allocator, [pooled.remove(0)]);
        allocator.hooks().set_process_memory_source(|device| {
            assert_eq!(device, DEVICE);
            let own = std::process::id();
            [(own + 1, 2 * GIB), (own, 100 * MIB)].map(|(pid, bytes)| ProcessMemory { pid, bytes }).into()
        });
        let other = std::process::id() + 1;
        assert_eq!(
            refused(&allocator, 50 * MIB - 7, rig.stream()).pytorch_message(),
            format!(
                "{}Process {other} has 2.00 GiB memory in use. Including non-PyTorch memory, this process has 100.00 \
                 MiB memory in use. 128.00 MiB allowed; Of the allocated memory 83.00 MiB is allocated by PyTorch, with \
                 40.00 MiB allocated in private pools (e.g., CUDA Graphs), and 17.00 MiB is reserved by PyTorch but \
                 unallocated.{HINT}",
                start(50)
            ),
        );
        for bytes in [1 << 60, u64::MAX] {
            let error = allocator.malloc(bytes, rig.stream()).unwrap_err();
            let text = format!("{label} out of memory. Tried to allocate more than 1EB memory.");
            assert_eq!(error.to_string(), text);
        }
        blocks.append(&mut pooled);
        free_all(&allocator, blocks);
        allocator.pools().release(DEVICE, pool).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn o01_with_growable_segments_the_hint_is_about_address_space() {
    on_each(&of_bytes(256 * MIB), |rig| {
        let classes = vec![("kv".into(), ReserveSize::Bytes(60 * MIB))];
        let settings = Settings { expandable_segments_reserve_by_class: classes, ..growable() };
        let allocator = rig.allocator(settings.clone());
        let message = refused(&allocator, 300 * MIB, rig.stream()).pytorch_message();
        assert!(
            message.ends_with(
                "unallocated. expandable_segments is enabled. If instead the process is running out of virtual address \
                 space (VSZ), expandable segments may be over-reserving VA (each segment reserves ~9/8 of device memory, \
                 times the number of streams); reduce it via PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / \
                 expandable_segments_reserve_by_class."
            ),
            "{message}"
        );
        let rest = ", and a single allocation cannot span expandable segments. Raise PYTORCH_CUDA_ALLOC_CONF \
                    expandable_segments_reserve or expandable_segments_reserve_by_class (or unset it) so that a segment \
                    is at least 100.00 MiB.";
        let classed = rig.new_stream();
        allocator.set_reserve_class(classed, "kv").unwrap();
        let message = refused(&allocator, 100 * MIB, classed).pytorch_message();
        let start = " This allocation exceeds the expandable-segment reserve of 60.00 MiB for stream reserve class 'kv'";
        assert!(message.ends_with(&format!("unallocated.{start}{rest}")), "{message}");
        let reserve = Some(ReserveSize::Bytes(40 * MIB));
        allocator.configure(Settings { expandable_segments_reserve: reserve, ..settings }).unwrap();
        let message = refused(&allocator, 100 * MIB, rig.stream()).pytorch_message();
        let start = " This allocation exceeds the expandable-segment reserve of 40.00 MiB for this stream";
        assert!(message.ends_with(&format!("unallocated.{start}{rest}")), "{message}");
    });
}

#[test]
fn o01_releases_before_2_14_advise_growable_segments_where_they_are_on_too() {
    on_each(&of_bytes(256 * MIB), |rig| {
        for (release, end) in [
            ("2.11", HINT),
            ("2.13", HINT),
            ("2.14.1", "is reserved by PyTorch but unallocated."),
            ("2.15", "expandable_segments_reserve_by_class."),
        ] {
            let release: PytorchRelease = release.parse().unwrap();
            let allocator = rig.allocator(Settings { pytorch_release: Some(release), ..growable() });
            let message = refused(&allocator, 300 * MIB, rig.stream()).pytorch_message();
            assert!(message.ends_with(end), "{release}: {message}");
        }
    });
}

#[test]
fn o02_o03_work_goes_on_after_an_error_and_what_is_freed_meanwhile_serves() {
    for settings in [Settings::default(), growable()] {
        on_each(&of_bytes(100 * MIB), |rig| {
            let allocator = rig.allocator(settings.clone());
            let side = rig.new_stream();
            // On another stream: nothing of it can be reused, all of it has to go back.
            let held: Vec<_> = (0..4).map(|_| allocator.malloc(20 * MIB, side).unwrap()).collect();
            for round in 1..=3 {
                refused(&allocator, 80 * MIB, rig.stream());
                assert_eq!(allocator.stats(DEVICE).unwrap().num_ooms, round);
            }
            rig.use_memory(side, held[0], 20 * MIB);
            let small = allocator.malloc(KIB, rig.stream()).unwrap();
            rig.use_memory(rig.stream(), small, KIB);
            rig.backend.synchronize_device(DEVICE).unwrap();
            free_all(&allocator, held.into_iter().chain([small]));
            let ptr = allocator.malloc(80 * MIB, rig.stream()).expect("there is room now");
            assert_eq!(rig.used(), 80 * MIB);
            free_all(&allocator, [ptr]);
            rig.nothing_is_left(&allocator);
        });
    }
}

#[test]
fn o04_with_a_split_limit_the_error_comes_and_no_block_is_too_small() {
    on_each(&of_bytes(300 * MIB), |rig| {
        let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
        let allocator = rig.allocator(settings);
        let live = allocator.malloc(100 * MIB, rig.stream()).unwrap();
        let cached: Vec<_> = [60, 70].map(|n| allocator.malloc(n * MIB, rig.stream()).unwrap()).into();
        free_all(&allocator, cached);
        let report = refused(&allocator, 250 * MIB, rig.stream());
        assert_eq!((report.tried, report.allocated), (250 * MIB, 100 * MIB));
        // The cache went back before the error; what fits now is as large as asked.
        let fits = allocator.malloc(199 * MIB, rig.stream()).unwrap();
        assert_eq!(allocator.block_size(fits), Some(200 * MIB), "an oversize block is handed out whole");
        assert!(fits.0 >= live.0 + 100 * MIB || fits.0 + 200 * MIB <= live.0, "and is nobody else's");
        free_all(&allocator, [live, fits]);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn o05_the_observer_hears_of_each_error_once_and_first() {
    on_each(&of_bytes(256 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let weak = Arc::downgrade(&allocator);
        allocator.hooks().on_out_of_memory(move |report| {
            let total = report.allowed.unwrap_or(report.device_total);
            hears.lock().unwrap().push((report.device, report.tried, total, report.device_free));
            // No lock is held: an observer may look around.
            let ooms = weak.upgrade().unwrap().stats(DEVICE).unwrap().num_ooms;
            assert_eq!(usize::try_from(ooms).unwrap(), hears.lock().unwrap().len());
        });
        allocator.malloc(MIB, rig.stream()).unwrap();
        assert!(heard.lock().unwrap().is_empty());
        allocator.malloc(300 * MIB - 1, rig.stream()).unwrap_err();
        assert_eq!(*heard.lock().unwrap(), [(DEVICE, 300 * MIB, 256 * MIB, 254 * MIB)]);
        allocator.set_memory_fraction(0.5, DEVICE).unwrap();
        allocator.malloc(130 * MIB, rig.stream()).unwrap_err();
        assert_eq!(heard.lock().unwrap().pop(), Some((DEVICE, 130 * MIB, 128 * MIB, 254 * MIB)));
        allocator.malloc(1 << 60, rig.stream()).unwrap_err();
        assert_eq!(heard.lock().unwrap().len(), 1);
    });
}

#[test]
fn o06_o07_a_failure_that_was_made_good_is_logged_and_is_a_retry_and_no_error() {
    on_each(&of_bytes(256 * MIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let cached = allocator.malloc(200 * MIB, rig.new_stream()).unwrap();
        free_all(&allocator, [cached]);
        let log = Log::default();
        let ptr = tracing::subscriber::with_default(log.clone(), || {
            allocator.malloc(100 * MIB, rig.stream()).expect("after the cache went back")
        });
        let marker = "memory allocation failed with OOM";
        let marked = log.take(marker);
        let [(level, text)] = &marked[..] else { panic!("{marked:?}") };
        assert_eq!(*level, tracing::Level::INFO);
        assert!(text.contains(&format!("bytes={}", 100 * MIB)), "{text}");
        let seen = allocator.stats(DEVICE).unwrap();
        assert_eq!((seen.num_alloc_retries, seen.num_ooms), (1, 0));
        free_all(&allocator, [ptr]);
        // Any other error is raised at once, and tries nothing again.
        rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::Malloc, 1, ErrorKind::InvalidValue));
        let error = allocator.malloc(200 * MIB, rig.stream()).unwrap_err();
        assert!(matches!(error, AllocError::Backend(_)), "{error}");
        allocator.malloc(1 << 60, rig.stream()).unwrap_err();
        let seen = allocator.stats(DEVICE).unwrap();
        assert_eq!((seen.num_alloc_retries, seen.num_ooms), (1, 0), "nor is what cannot be");
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn o08_a_pools_own_source_that_returns_null_is_named() {
    const SENTENCE: &str = " The custom allocator backing this MemPool returned nullptr. Check preceding allocator \
        warnings or logs for the underlying cause. This can indicate an allocator-specific error or memory constraint, \
        even when device-wide free memory is available.";
    for settings in [Settings::default(), growable()] {
        on_each(&of_bytes(256 * MIB), |rig| {
            let allocator = rig.allocator(settings.clone());
            let source = Own::up_to(&rig.backend, false, 50 * MIB);
            let pool = PoolId::fresh();
            allocator.pools().create(DEVICE, pool, Some(source.clone())).unwrap();
            allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
            let ptr = allocator.malloc(30 * MIB, rig.stream()).unwrap();
            let message = refused(&allocator, 40 * MIB, rig.stream()).pytorch_message();
            assert!(message.contains("of which 226.00 MiB is free"), "{message}");
            assert!(message.ends_with(SENTENCE), "{message}");

            // A limit refused, and the source was not asked.
            allocator.pools().set_hard_limit(DEVICE, pool, Some(MemoryLimit::Bytes(60 * MIB))).unwrap();
            let asked = source.asked.lock().unwrap().len();
            let report = refused(&allocator, 40 * MIB, rig.stream());
            assert!(!report.pytorch_message().contains("nullptr"), "{report}");
            assert_eq!((report.pool, report.pool_limit), (pool, Some(60 * MIB)));
            assert_eq!(source.asked.lock().unwrap().len(), asked);
            allocator.pools().end(DEVICE, pool).unwrap();
            let report = refused(&allocator, 300 * MIB, rig.stream());
            assert!(!report.pytorch_message().contains("nullptr"), "another pool's trouble: {report}");
            free_all(&allocator, [ptr]);
            for _ in 0..2 {
                allocator.pools().release(DEVICE, pool).unwrap();
            }
            rig.nothing_is_left(&allocator);
            assert_eq!(source.held(), 0);
        });
    }
}

/// Promise 1: the report names the largest fit, what keeps free memory apart, and what would help.
#[test]
fn the_report_names_blockers_and_remedies() {
    let (device, allocator, stream) = with_policy::<PytorchPolicy>(of(64), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let base = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.free(base).unwrap();
    let parts: Vec<_> = (0..4).map(|_| allocator.malloc(10 * MIB, stream).unwrap()).collect();
    let _others = allocator.malloc(4 * MIB, side).unwrap();
    allocator.free(parts[0]).unwrap();
    allocator.free(parts[2]).unwrap();
    let report = refused(&allocator, 24 * MIB, stream);
    assert_eq!(report.largest_fit, 10 * MIB);
    let worst = report.blockers[0];
    assert_eq!((worst.ptr, worst.beside, worst.would_free()), (parts[1], 20 * MIB, 30 * MIB));
    let remedies: Vec<_> = report.remedies.iter().map(|r| (r.bytes, r.enough)).collect();
    assert_eq!(
        remedies,
        [(24 * MIB, true), (16 * MIB, false)],
        "joining the pieces; the other stream's cache"
    );
    let text = report.to_string();
    assert!(text.contains("30.00 MiB would be free in one piece"), "{text}");
    assert!(text.contains("expandable_segments:True") && text.contains(": enough"), "{text}");
    assert_eq!(report.shortfall(), 0);
    let too_much = allocator.malloc(100 * MIB, stream).unwrap_err();
    assert!(too_much.to_string().contains("need 60.00 MiB more than can be held"), "{too_much}");
}

#[test]
fn pools_that_could_help_are_named_with_what_they_would_give() {
    on_each(&of_bytes(100 * MIB).without_virtual_memory(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let live = allocator.malloc(30 * MIB, rig.stream()).unwrap();
        let pool = PoolId::fresh();
        let pooled = in_pool(&allocator, rig, pool, &[40 * MIB, 3 * MIB]);
        free_all(&allocator, [pooled[0]]);
        let report = refused(&allocator, 45 * MIB, rig.stream());
        let cache = PoolCache { pool, free: 57 * MIB, largest: 40 * MIB, releasable: 40 * MIB };
        assert_eq!((report.pools.as_slice(), report.private_free), ([cache].as_slice(), 57 * MIB));
        let opt_in = format!("letting the default pool take what pool {pool} has free (set_use_on_oom)");
        let release = format!(
            "dropping pool {pool} (its MemoryPool, or release_pool), whose cached memory can go then,"
        );
        assert_eq!(remedies(&report), [(release.as_str(), 40 * MIB, true), (&opt_in, 57 * MIB, false)]);
        let text = report.to_string();
        let line = format!(
            "\n  pool {pool} has 57.00 MiB free, at most 40.00 MiB in one piece, 40.00 MiB of it in whole segments"
        );
        assert!(text.contains(&line), "{text}");
        let report = refused(&allocator, 35 * MIB, rig.stream());
        assert_eq!(remedies(&report)[0], (opt_in.as_str(), 57 * MIB, true));

        // What is on already is not advised, and what was advised helps.
        allocator.pools().set_use_on_oom(DEVICE, pool, true).unwrap();
        let lent = allocator.malloc(35 * MIB, rig.stream()).expect("as the report said");
        free_all(&allocator, [lent]);
        let report = refused(&allocator, 45 * MIB, rig.stream());
        assert_eq!(remedies(&report), [(release.as_str(), 40 * MIB, true)]);
        allocator.pools().release(DEVICE, pool).unwrap();
        let ptr = allocator.malloc(45 * MIB, rig.stream()).expect("as the report said");
        free_all(&allocator, [live, pooled[1], ptr]);
        rig.nothing_is_left(&allocator);
    });
}

fn limits_that_refuse_are_remedies_together_and_others_are_not<P: Policy>() {
    on_each(&of_bytes(200 * MIB), |rig| {
        let allocator = rig.with_policy::<P>(growable());
        let live = allocator.malloc(60 * MIB, rig.stream()).unwrap();
        let advice = |report: &OomReport| {
            remedies(report)
                .into_iter()
                .map(|(what, bytes, enough)| (what.to_owned(), bytes, enough))
                .collect()
        };
        let limits = |hard: u64, fraction: f64, of_pool: u64| -> Vec<(String, u64, bool)> {
            allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(hard * MIB)), None).unwrap();
            allocator.set_memory_fraction(fraction, DEVICE).unwrap();
            let of_pool = Some(MemoryLimit::Bytes(of_pool * MIB));
            allocator.pools().set_hard_limit(DEVICE, PoolId::DEFAULT, of_pool).unwrap();
            advice(&refused(&allocator, 100 * MIB, rig.stream()))
        };
        let raising = |what: &str, bytes: u64, enough| vec![(format!("raising {what}"), bytes * MIB, enough)];
        assert_eq!(limits(120, 1.0, 500), raising("memory_limit", 80, true));
        assert_eq!(limits(120, 0.5, 500), raising("the memory fraction and memory_limit", 100, true));
        assert_eq!(limits(180, 0.5, 500), raising("the memory fraction", 80, true));
        assert_eq!(limits(500, 1.0, 100), raising("the limit of pool (0, 0) (set_pool_limit)", 100, true));
        rig.device.set_capacity(DEVICE, 130 * MIB);
        assert_eq!(limits(120, 1.0, 500), raising("memory_limit", 10, false), "the device has not enough");
        assert_eq!(limits(500, 1.0, 500), [], "no limit refuses");
        free_all(&allocator, [live]);
    });
}

/// During a capture nothing may be waited for: the report says what comes after it.
#[test]
fn what_a_capture_holds_up_is_named() {
    on_each(&of_bytes(100 * MIB).clock(Clock::Virtual { lag: 1000 }), |rig| {
        let allocator = rig.allocator(Settings::default());
        let (stream, side) = (rig.new_stream(), rig.new_stream());
        let used = allocator.malloc(30 * MIB, stream).unwrap();
        rig.use_memory(side, used, 30 * MIB);
        allocator.record_stream(used, side).unwrap();
        let cached = allocator.malloc(40 * MIB, stream).unwrap();
        rig.use_memory(stream, cached, 40 * MIB);
        free_all(&allocator, [used, cached]);
        let capture = rig.backend.capture().unwrap();
        allocator.pools().mark_capture_begin(DEVICE).unwrap();
        capture.begin(stream, CaptureMode::Relaxed).unwrap();
        let report = refused(&allocator, 60 * MIB, stream);
        let graph = capture.end(stream).unwrap();
        allocator.pools().mark_capture_end(DEVICE).unwrap();
        assert_eq!(report.pending, 30 * MIB);
        let found = remedies(&report);
        assert!(
            found.contains(&("emptying the cache (empty_cache) before the capture", 40 * MIB, true)),
            "{found:?}"
        );
        assert!(
            found.contains(&("waiting for pending frees, after the capture,", 30 * MIB, false)),
            "{found:?}"
        );
        assert!(
            report.to_string().contains(" 30.00 MiB were given back and wait for other streams."),
            "{report}"
        );
        // SAFETY: rule 1: made above and not used again.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        allocator.empty_cache().unwrap();
        let ptr = allocator.malloc(60 * MIB, stream).expect("as the report said");
        free_all(&allocator, [ptr]);
        rig.nothing_is_left(&allocator);
    });
}

granule_tests::for_each_policy!(limits_that_refuse_are_remedies_together_and_others_are_not,);
