//! The edges of a process: forked children, the exit, and drivers that go away.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::{Backend, BackendError, ErrorKind, Result};
use alloc_core::config::Settings;
use alloc_core::history::{HistoryOptions, Stage};
use alloc_core::policy::Policy;
use alloc_core::pool::{Filter, PoolScope};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, PoolId, Stream};
use alloc_core::{AllocError, CachingAllocator, DeviceBuffer};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use conformance::interpose::{Hook, Interposed};
use granule_tests::quiet::Retires;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

const DEVICE: DeviceIndex = DeviceIndex(0);

fn config() -> OpenRegConfig {
    OpenRegConfig::default().devices(2).capacity(8 * GIB)
}

/// A driver that counts calls and can unload.
#[derive(Debug, Default)]
struct Driver {
    calls: AtomicU64,
    unloaded: AtomicBool,
    /// Events cannot be recorded: the stream, not the driver, is unusable.
    broken_streams: AtomicBool,
}

#[derive(Debug)]
struct Watch(Arc<Driver>);

impl Hook for Watch {
    fn enter(&self, method: &'static str) -> Result<()> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let broken = self.0.broken_streams.load(Ordering::Relaxed) && method == "Backend::record_event";
        if self.0.unloaded.load(Ordering::Relaxed) || broken {
            return Err(BackendError::new(ErrorKind::Unusable, 4, method, DEVICE, "the driver is unloading"));
        }
        Ok(())
    }
}

impl Driver {
    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// An allocator over a machine whose driver calls are counted.
fn rig<P: Policy>(config: OpenRegConfig) -> (Arc<OpenReg>, Arc<Driver>, CachingAllocator<P>, Stream) {
    let machine = OpenReg::new(config).unwrap();
    let driver = Arc::new(Driver::default());
    let backend = Arc::new(Interposed::new(machine.clone(), Watch(Arc::clone(&driver))));
    let stream = machine.default_stream(DEVICE);
    (machine, driver, CachingAllocator::<P>::new(backend, Settings::default()).unwrap(), stream)
}

/// Which process this is after a fork.
enum Fork {
    Child(Report),
    Parent(Child),
}

/// Where a child says what it complains about.
struct Report(i32);

impl Report {
    /// Ends the child.
    fn end(self, complaints: &[String]) -> ! {
        let text = complaints.join("\n") + "\nend";
        // SAFETY: the bytes are there for the length of the call.
        unsafe { libc::write(self.0, text.as_ptr().cast(), text.len()) };
        // SAFETY: ends the child, and runs nothing else.
        unsafe { libc::_exit(0) }
    }
}

struct Child {
    id: libc::pid_t,
    pipe: File,
}

impl Child {
    /// What the child complains about, once it has ended.
    fn complaints(mut self) -> Vec<String> {
        let mut text = String::new();
        self.pipe.read_to_string(&mut text).unwrap();
        let mut status = 0;
        // SAFETY: the child of this process, waited for once.
        assert_eq!(unsafe { libc::waitpid(self.id, &raw mut status, 0) }, self.id);
        assert_eq!(
            (status, text.ends_with("end")),
            (0, true),
            "the child ended by itself, having said: {text}"
        );
        let lines = text.trim_end_matches("end").split('\n');
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

/// Forks. A child that hangs is killed.
fn fork() -> Fork {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: what a child may do after this is what these tests are about; it ends in `Report::end`.
    let id = unsafe { libc::fork() };
    assert!(id >= 0, "the process can be forked");
    if id == 0 {
        // SAFETY: no handler is there: the alarm ends a child that hangs.
        unsafe { libc::alarm(30) };
        return Fork::Child(Report(ends[1]));
    }
    // SAFETY: this process's descriptor, closed once.
    unsafe { libc::close(ends[1]) };
    // SAFETY: the descriptor is open and owned by nobody else.
    Fork::Parent(Child { id, pipe: unsafe { File::from_raw_fd(ends[0]) } })
}

/// Every call that can fail, and what it said.
fn every_call<P: Policy>(
    allocator: &CachingAllocator<P>,
    ptr: DevicePtr,
    stream: Stream,
    saved: &alloc_core::device::PoolCheckpoint,
) -> Vec<(&'static str, std::result::Result<(), AllocError>)> {
    let a = allocator;
    let pool = PoolId::fresh();
    vec![
        ("malloc", a.malloc(512, stream).map(drop)),
        ("malloc_at", a.malloc_at(512, ptr, stream).map(drop)),
        ("record_stream", a.record_stream(ptr, stream)),
        ("poll", a.poll(DEVICE)),
        ("synchronise", a.synchronise(DEVICE)),
        ("cache_info", a.cache_info(DEVICE).map(drop)),
        ("set_memory_fraction", a.set_memory_fraction(0.5, DEVICE)),
        ("set_memory_limits", a.set_memory_limits(DEVICE, None, None)),
        ("set_reserve_class", a.set_reserve_class(stream, "none")),
        ("annotate", a.annotate(ptr, "text")),
        ("create_pool", a.create_pool(DEVICE, pool, None)),
        ("begin_pool", a.begin_pool(DEVICE, pool, Filter::Always)),
        ("set_use_on_oom", a.set_use_on_oom(DEVICE, PoolId::DEFAULT, true)),
        ("set_no_split", a.set_no_split(DEVICE, PoolId::DEFAULT)),
        ("set_pool_limit", a.set_pool_limit(DEVICE, PoolId::DEFAULT, None)),
        ("prime_pool", a.prime_pool(PoolId::DEFAULT, stream, &[512])),
        ("mark_capture_begin", a.mark_capture_begin(DEVICE)),
        ("checkpoint", a.checkpoint(DEVICE, PoolId::DEFAULT).map(drop)),
        ("restore_checkpoint", a.restore_checkpoint(saved, None).map(drop)),
    ]
}

/// Calls that give something back.
fn releases<P: Policy>(
    allocator: &CachingAllocator<P>,
    ptr: DevicePtr,
    stream: Stream,
) -> Vec<(&'static str, std::result::Result<(), AllocError>)> {
    let a = allocator;
    vec![
        ("free", a.free(ptr)),
        ("free again", a.free(ptr)),
        ("free of another's", a.free(DevicePtr(0xdead_beef))),
        ("free_on", a.free_on(ptr, DEVICE)),
        ("retire_stream", a.retire(stream)),
        ("empty_cache", a.empty_cache()),
        ("empty_pool", a.empty_pool(PoolId::DEFAULT)),
        ("end_pool", a.end_pool(DEVICE, PoolId::DEFAULT)),
        ("release_pool", a.release_pool(DEVICE, PoolId::DEFAULT)),
        ("mark_capture_end", a.mark_capture_end(DEVICE)),
    ]
}

/// Calls that only look.
fn looks<P: Policy>(
    allocator: &CachingAllocator<P>,
    ptr: DevicePtr,
) -> Vec<(&'static str, std::result::Result<(), AllocError>)> {
    let a = allocator;
    vec![
        ("stats", a.stats(DEVICE).map(drop)),
        ("reset_peak_stats", a.reset_peak_stats(DEVICE)),
        ("reset_accumulated_stats", a.reset_accumulated_stats(DEVICE)),
        ("memory_fraction", a.memory_fraction(DEVICE).map(drop)),
        ("base_allocation", a.base_allocation(ptr).map(drop)),
        ("pool_use_count", a.pool_use_count(DEVICE, PoolId::DEFAULT).map(drop)),
        ("pool_stats", a.pool_stats(DEVICE, PoolId::DEFAULT).map(drop)),
        ("pool_has_live", a.pool_has_live(DEVICE, PoolId::DEFAULT, &BTreeSet::new()).map(drop)),
    ]
}

/// What of `calls` did not answer as `expected` says.
fn unexpected(
    calls: Vec<(&'static str, std::result::Result<(), AllocError>)>,
    expected: impl Fn(&std::result::Result<(), AllocError>) -> bool,
) -> Vec<String> {
    let wrong = calls.into_iter().filter(|(_, answer)| !expected(answer));
    wrong.map(|(call, answer)| format!("{call} answered {answer:?}")).collect()
}

fn is_forked(answer: &std::result::Result<(), AllocError>) -> bool {
    matches!(answer, Err(AllocError::Forked))
}

/// All that a child may try on its parent's allocator. The answers are what it complains about.
fn misuse<P: Policy>(
    allocator: &CachingAllocator<P>,
    ptr: DevicePtr,
    stream: Stream,
    saved: &alloc_core::device::PoolCheckpoint,
) -> Vec<String> {
    let mut wrong = unexpected(every_call(allocator, ptr, stream, saved), is_forked);
    wrong.extend(unexpected(releases(allocator, ptr, stream), is_forked));
    wrong.extend(unexpected(looks(allocator, ptr), is_forked));
    wrong.extend(unexpected(vec![("configure", allocator.configure(Settings::default()))], is_forked));
    allocator.record_history(&HistoryOptions::newest(10));
    allocator.mark_range(Stage::Start, "range", DEVICE);
    allocator.add_trace_tracker(|_, _| ());
    allocator.add_segment_observer(|_| ());
    allocator.add_rejection_observer(|_, _, _, _| ());
    allocator.add_out_of_memory_observer(|_| ());
    allocator.add_free_memory_callback(|| false);
    allocator.enable(false);
    allocator.check_invariants();
    let answers = [
        ("block_size", allocator.block_size(ptr).is_none()),
        ("context_of", allocator.context_of(ptr).is_none()),
        ("snapshot", allocator.snapshot(true).segments.is_empty()),
        ("is_history_enabled", !allocator.is_history_enabled()),
        ("is_enabled", allocator.is_enabled()),
        ("settings", allocator.settings() == Settings::default()),
    ];
    wrong.extend(answers.iter().filter(|(_, right)| !right).map(|(call, _)| format!("{call} answered")));
    wrong
}

fn a_forked_child_gets_a_typed_error_from_every_call_and_the_parent_is_unaffected<P: Policy>() {
    let (machine, driver, allocator, stream) = rig::<P>(config());
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    let saved = allocator.checkpoint(DEVICE, PoolId::DEFAULT).unwrap();
    let shared = allocator.malloc(5 * MIB, stream).unwrap();
    allocator.record_stream(shared, other).unwrap();
    allocator.retire(other).unwrap();
    let allocator = Arc::new(allocator);
    let buffer = DeviceBuffer::new(&allocator, 7 * MIB, stream).unwrap();
    let scope = PoolScope::new(&allocator, DEVICE, PoolId::fresh(), Filter::this_thread());
    let scope = scope.unwrap();
    let before = driver.calls();
    let child = match fork() {
        Fork::Parent(child) => child,
        Fork::Child(report) => {
            let mut wrong = misuse(&allocator, ptr, stream, &saved);
            drop(buffer);
            drop(scope);
            let last = Arc::into_inner(allocator);
            wrong.extend(last.is_none().then(|| "the allocator is still shared".to_owned()));
            drop(last);
            wrong.extend((driver.calls() != before).then(|| "the driver was called".to_owned()));
            report.end(&wrong)
        }
    };
    assert_eq!(child.complaints(), Vec::<String>::new());
    let text = AllocError::Forked.to_string();
    assert!(text.contains("fork") && text.contains("`spawn`"), "{text:?} says what to do");

    assert_eq!(allocator.block_size(ptr), Some(3 * MIB));
    drop(scope);
    drop(buffer);
    allocator.free(shared).unwrap();
    allocator.free(ptr).unwrap();
    let again = allocator.malloc(3 * MIB, stream).unwrap();
    allocator.free(again).unwrap();
    allocator.check_invariants();
    drop(allocator);
    assert_eq!((machine.used(DEVICE), machine.traps()), (0, Vec::new()));
}

/// The parent's threads hold whatever locks they like while it forks.
fn a_child_waits_for_no_lock_of_its_parents_threads<P: Policy>() {
    let (machine, driver, allocator, stream) = rig::<P>(config().clock(Clock::Workers));
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    let saved = allocator.checkpoint(DEVICE, PoolId::DEFAULT).unwrap();
    let pending = allocator.malloc(5 * MIB, stream).unwrap();
    allocator.record_stream(pending, other).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    machine.launch_host_function(other, Box::new(move || _ = gate.recv())).unwrap();
    allocator.free(pending).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let before = driver.calls();
        scope.spawn(|| allocator.synchronise(DeviceIndex(0)).unwrap());
        while driver.calls() == before {
            std::thread::yield_now();
        }
        for device in [0, 1] {
            let stream = machine.default_stream(DeviceIndex(device));
            let (allocator, done) = (&allocator, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let ptr = allocator.malloc(2 * MIB, stream).unwrap();
                    allocator.stats(stream.device).unwrap();
                    let _ = allocator.snapshot(true);
                    allocator.free(ptr).unwrap();
                    CachingAllocator::<alloc_core::policy::PytorchPolicy>::new(
                        allocator.backend().clone(),
                        Settings::default(),
                    )
                    .unwrap();
                }
            });
        }
        for _ in 0..40 {
            match fork() {
                Fork::Parent(child) => assert_eq!(child.complaints(), Vec::<String>::new()),
                Fork::Child(report) => report.end(&misuse(&allocator, ptr, stream, &saved)),
            }
        }
        done.store(true, Ordering::Relaxed);
        open.send(()).unwrap();
    });
    allocator.free(ptr).unwrap();
    allocator.check_invariants();
    drop(allocator);
    assert_eq!((machine.used(DEVICE), machine.traps()), (0, Vec::new()));
}

fn a_child_makes_a_backend_of_its_own_and_its_children_cannot_use_that<P: Policy>() {
    fn allocator_over<P: Policy>(
        backend: Arc<dyn Backend>,
    ) -> std::result::Result<CachingAllocator<P>, AllocError> {
        CachingAllocator::<P>::new(backend, Settings::default())
    }
    let (machine, driver, allocator, _) = rig::<P>(config());
    let before = driver.calls();
    let child = match fork() {
        Fork::Parent(child) => child,
        Fork::Child(report) => {
            let mut wrong = Vec::new();
            for backend in [Arc::clone(allocator.backend()), machine.clone()] {
                let refused = matches!(allocator_over::<P>(backend), Err(AllocError::Forked));
                wrong.extend((!refused).then(|| "the parent's backend was accepted".to_owned()));
            }
            wrong.extend((driver.calls() != before).then(|| "the driver was called".to_owned()));
            let own = OpenReg::new(config()).unwrap();
            let mine = allocator_over::<P>(own.clone()).unwrap();
            let ptr = mine.malloc(3 * MIB, own.default_stream(DEVICE)).unwrap();
            match fork() {
                Fork::Parent(grandchild) => wrong.extend(grandchild.complaints()),
                Fork::Child(report) => {
                    let answers = vec![("free", mine.free(ptr)), ("new", allocator_over::<P>(own).map(drop))];
                    report.end(&unexpected(answers, is_forked))
                }
            }
            wrong.extend(unexpected(vec![("free", mine.free(ptr))], std::result::Result::is_ok));
            drop(mine);
            wrong.extend((own.used(DEVICE) != 0).then(|| "memory was left".to_owned()));
            report.end(&wrong)
        }
    };
    assert_eq!(child.complaints(), Vec::<String>::new());
}

/// An allocator that has something cached, live and pending, whose driver is then gone by `goes`.
fn after<P: Policy>(
    goes: impl FnOnce(&Driver, &CachingAllocator<P>, Stream),
    check: impl FnOnce(&Driver, CachingAllocator<P>, DevicePtr, Stream),
) {
    let (machine, driver, allocator, stream) = rig::<P>(config());
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    let shared = allocator.malloc(5 * MIB, stream).unwrap();
    let cached = allocator.malloc(7 * MIB, stream).unwrap();
    allocator.free(cached).unwrap();
    allocator.record_stream(shared, other).unwrap();
    goes(&driver, &allocator, stream);
    let before = driver.calls();
    assert!(allocator.free(shared).is_ok(), "a free that would need the driver");
    check(&driver, allocator, ptr, stream);
    assert_eq!(driver.calls(), before, "the driver is not called any more");
}

fn everything_is_defined_without_a_driver<P: Policy>(
    driver: &Driver,
    allocator: CachingAllocator<P>,
    ptr: DevicePtr,
    stream: Stream,
) {
    let saved = checkpoint_of_another::<P>();
    let gone = |answer: &std::result::Result<(), AllocError>| matches!(answer, Err(AllocError::DriverGone));
    let mut wrong = unexpected(every_call(&allocator, ptr, stream, &saved), gone);
    wrong.extend(unexpected(looks(&allocator, ptr), |answer| !gone(answer)));
    assert_eq!(allocator.block_size(ptr), Some(3 * MIB));
    let held: Vec<u64> = allocator.snapshot(true).segments.iter().map(|s| s.allocated_size).collect();
    assert_eq!(held, [8 * MIB], "what is held can still be looked at, and no free has an effect");
    wrong.extend(unexpected(releases(&allocator, ptr, stream), std::result::Result::is_ok));
    allocator.check_invariants();
    let backend = Arc::downgrade(allocator.backend());
    drop(allocator);
    assert_eq!(wrong, Vec::<String>::new());
    assert!(backend.upgrade().is_some(), "the end of a backend calls the driver, too");
    assert!(driver.calls() > 0);
}

/// A checkpoint to be refused.
fn checkpoint_of_another<P: Policy>() -> alloc_core::device::PoolCheckpoint {
    let (_, _, allocator, _) = rig::<P>(config());
    allocator.checkpoint(DEVICE, PoolId::DEFAULT).unwrap()
}

fn after_an_unload_that_a_request_notices_nothing_calls_the_driver<P: Policy>() {
    let notice = |driver: &Driver, allocator: &CachingAllocator<P>, stream| {
        driver.unloaded.store(true, Ordering::Relaxed);
        let noticed = allocator.malloc(50 * MIB, stream).unwrap_err();
        assert!(matches!(noticed, AllocError::Backend(e) if e.kind == ErrorKind::Unusable));
    };
    after(notice, everything_is_defined_without_a_driver);
}

fn an_abandoned_driver_is_not_called<P: Policy>() {
    after(
        |_, allocator: &CachingAllocator<P>, _| allocator.abandon(),
        everything_is_defined_without_a_driver,
    );
}

fn a_free_notices_an_unload_and_is_a_no_op_all_the_same<P: Policy>() {
    let (machine, driver, allocator, stream) = rig::<P>(config());
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let [one, two] = [3, 5].map(|n| allocator.malloc(n * MIB, stream).unwrap());
    allocator.record_stream(one, other).unwrap();
    allocator.record_stream(two, other).unwrap();
    driver.unloaded.store(true, Ordering::Relaxed);
    allocator.free(one).unwrap();
    let before = driver.calls();
    allocator.free(two).unwrap();
    assert!(matches!(allocator.malloc(512, stream), Err(AllocError::DriverGone)));
    drop(allocator);
    assert_eq!(driver.calls(), before);
}

fn with_caching_off_frees_are_no_ops_after_an_unload_too<P: Policy>() {
    let (_, driver, allocator, stream) = rig::<P>(config());
    allocator.enable(false);
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    driver.unloaded.store(true, Ordering::Relaxed);
    allocator.free(ptr).unwrap();
    assert!(matches!(allocator.malloc(512, stream), Err(AllocError::DriverGone)));
}

/// Drivers answer the same kind about one stream, or one thread's context.
fn an_unusable_stream_is_not_an_unload<P: Policy>() {
    let (machine, driver, allocator, stream) = rig::<P>(config());
    let other = machine.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    allocator.record_stream(ptr, other).unwrap();
    driver.broken_streams.store(true, Ordering::Relaxed);
    allocator.free(ptr).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.unrecorded_frees, 1);
    allocator.synchronise(DEVICE).unwrap();
    assert_eq!(allocator.malloc(3 * MIB, stream).unwrap(), ptr);
}

/// What the exit of the process finds.
type Leftover = (Arc<Driver>, CachingAllocator, DevicePtr, Stream);
static LEFT: Mutex<Option<Leftover>> = Mutex::new(None);

/// Runs at the end of the process, after the engine's own handler, which was registered later.
extern "C" fn at_exit() {
    let Some((driver, allocator, ptr, stream)) = LEFT.lock().unwrap().take() else { return };
    let before = driver.calls();
    let gone = |answer: &std::result::Result<(), AllocError>| matches!(answer, Err(AllocError::DriverGone));
    let mut wrong = unexpected(releases(&allocator, ptr, stream), std::result::Result::is_ok);
    wrong.extend(unexpected(vec![("malloc", allocator.malloc(512, stream).map(drop))], gone));
    wrong.extend(unexpected(looks(&allocator, ptr), |answer| !gone(answer)));
    let backend = Arc::clone(allocator.backend());
    let late = CachingAllocator::<alloc_core::policy::PytorchPolicy>::new(backend, Settings::default());
    wrong.extend(unexpected(vec![("new", late.map(drop))], gone));
    drop(allocator);
    wrong.extend((driver.calls() != before).then(|| "the driver was called".to_owned()));
    let text = format!("at exit: {wrong:?}\n");
    // SAFETY: the bytes are there for the length of the call.
    unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
}

/// Not a test of itself: the process that [`frees_at_exit_are_no_ops`] starts and that ends with memory in its hands.
#[test]
fn process_that_exits() {
    if std::env::var_os("GRANULE_TEST_EXIT").is_none() {
        return;
    }
    // SAFETY: the handler panics only where the test has failed.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    let (_, driver, allocator, stream) = rig(config());
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    *LEFT.lock().unwrap() = Some((driver, allocator, ptr, stream));
    std::process::exit(0);
}

#[test]
fn frees_at_exit_are_no_ops() {
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "process_that_exits", "--nocapture"]).env("GRANULE_TEST_EXIT", "1");
    let output = process.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("at exit: []\n"), "{said}");
}

granule_tests::for_each_policy!(
    a_forked_child_gets_a_typed_error_from_every_call_and_the_parent_is_unaffected,
    a_child_waits_for_no_lock_of_its_parents_threads,
    a_child_makes_a_backend_of_its_own_and_its_children_cannot_use_that,
    after_an_unload_that_a_request_notices_nothing_calls_the_driver,
    an_abandoned_driver_is_not_called,
    a_free_notices_an_unload_and_is_a_no_op_all_the_same,
    with_caching_off_frees_are_no_ops_after_an_unload_too,
    an_unusable_stream_is_not_an_unload,
);
