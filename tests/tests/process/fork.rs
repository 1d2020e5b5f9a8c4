//! Forked children: each call tells them so, and the parent notices nothing.

use crate::calls::{config, every_call, looks, releases, rig, unexpected};
use alloc_core::allocator::SleepMode;
use alloc_core::backend::{Backend, CaptureMode};
use alloc_core::config::Settings;
use alloc_core::graph::GraphCapture;
use alloc_core::history::{HistoryOptions, Stage};
use alloc_core::pool::{Filter, MemoryPool, PoolOptions, PoolScope};
use alloc_core::sleep::{Backup, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, PoolId, Stream};
use alloc_core::{AllocError, CachingAllocator, DeviceBuffer};
use backend_openreg::{Clock, OpenReg};
use granule_tests::alone::alone;
use granule_tests::policy::Policy;
use granule_tests::quiet::Retires;
use granule_tests::rig::DEVICE;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

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

fn is_forked(answer: &std::result::Result<(), AllocError>) -> bool {
    matches!(answer, Err(AllocError::Forked))
}

/// All that a child may try on its parent's allocator. The answers are what it complains about.
fn misuse(
    allocator: &CachingAllocator,
    ptr: DevicePtr,
    stream: Stream,
    saved: &alloc_core::device::PoolCheckpoint,
) -> Vec<String> {
    let mut wrong = unexpected(every_call(allocator, ptr, stream, saved), is_forked);
    wrong.extend(unexpected(releases(allocator, ptr, stream), is_forked));
    wrong.extend(unexpected(looks(allocator, ptr), is_forked));
    wrong.extend(unexpected(vec![("configure", allocator.configure(Settings::default()))], is_forked));
    allocator.history().record(&HistoryOptions::newest(10));
    allocator.history().mark_range(Stage::Start, "range", DEVICE);
    allocator.hooks().on_trace(|_, _| ());
    allocator.hooks().on_segment(|_| ());
    allocator.hooks().on_rejection(|_, _, _, _| ());
    allocator.hooks().on_out_of_memory(|_| ());
    allocator.hooks().on_low_memory(|| false);
    allocator.enable(false);
    allocator.check_invariants();
    let answers = [
        ("block_size", allocator.block_size(ptr).is_none()),
        ("context_of", allocator.history().context_of(ptr).is_none()),
        ("snapshot", allocator.snapshot(true).segments.is_empty()),
        ("is_history_enabled", !allocator.history().is_enabled()),
        ("is_enabled", allocator.is_enabled()),
        ("settings", allocator.settings() == Settings::default()),
    ];
    wrong.extend(answers.iter().filter(|(_, right)| !right).map(|(call, _)| format!("{call} answered")));
    wrong
}

fn a_forked_child_gets_a_typed_error_from_every_call_and_the_parent_is_unaffected<P: Policy>() {
    alone(|| {
        let (machine, driver, allocator, stream) = rig::<P>(config());
        let other = machine.create_stream(DEVICE, 0).unwrap();
        let ptr = allocator.malloc(3 * MIB, stream).unwrap();
        let saved = allocator.pools().checkpoint(DEVICE, PoolId::DEFAULT).unwrap();
        let shared = allocator.malloc(5 * MIB, stream).unwrap();
        allocator.record_stream(shared, other).unwrap();
        allocator.retire(other).unwrap();
        let allocator = Arc::new(allocator);
        let mut buffer = DeviceBuffer::<u8>::new(&allocator, 7 << 20, stream).unwrap();
        let scope = PoolScope::new(&allocator, DEVICE, PoolId::fresh(), Filter::this_thread());
        let scope = scope.unwrap();
        let captured = machine.create_stream(DEVICE, 0).unwrap();
        let capture = GraphCapture::begin(&allocator, captured, CaptureMode::Relaxed, None).unwrap();
        let before = driver.calls();
        let child = match fork() {
            Fork::Parent(child) => child,
            Fork::Child(report) => {
                let mut wrong = misuse(&allocator, ptr, stream, &saved);
                let calls = [
                    ("the end of a capture", capture.end().map(drop)),
                    ("a write to a buffer", buffer.write(&[1])),
                    ("a read of a buffer", buffer.read(&mut [0])),
                    ("a buffer's fill", buffer.fill_bytes(1)),
                ];
                wrong.extend(unexpected(calls.into(), is_forked));
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
        drop(capture.end().unwrap());
        drop(scope);
        drop(buffer);
        allocator.free(shared).unwrap();
        allocator.free(ptr).unwrap();
        let again = allocator.malloc(3 * MIB, stream).unwrap();
        allocator.free(again).unwrap();
        allocator.check_invariants();
        drop(allocator);
        assert_eq!((machine.used(DEVICE), machine.traps()), (0, Vec::new()));
    });
}

/// The parent's threads hold whatever locks they like while it forks.
fn a_child_waits_for_no_lock_of_its_parents_threads<P: Policy>() {
    alone(|| {
        let (machine, driver, allocator, stream) = rig::<P>(config().clock(Clock::Workers));
        let other = machine.create_stream(DEVICE, 0).unwrap();
        let ptr = allocator.malloc(3 * MIB, stream).unwrap();
        let saved = allocator.pools().checkpoint(DEVICE, PoolId::DEFAULT).unwrap();
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
                        granule_tests::made::<granule_tests::policy::PytorchPolicy>(
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
    });
}

fn a_child_makes_a_backend_of_its_own_and_its_children_cannot_use_that<P: Policy>() {
    alone(|| {
        fn allocator_over<P: Policy>(
            backend: Arc<dyn Backend>,
        ) -> std::result::Result<CachingAllocator, AllocError> {
            granule_tests::made::<P>(backend, Settings::default())
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
                        let answers =
                            vec![("free", mine.free(ptr)), ("new", allocator_over::<P>(own).map(drop))];
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
    });
}

/// A file's blocks stayed for as long as a child lived that was forked meanwhile.
fn a_child_has_no_part_of_what_sleeps_in_files<P: Policy>() {
    alone(|| {
        let (_machine, driver, allocator, stream) = rig::<P>(config());
        allocator.configure(Settings { expandable_segments: true, ..Settings::default() }).unwrap();
        let allocator = Arc::new(allocator);
        let folder = tempfile::TempDir::new().unwrap();
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let inside = pool.enter(Filter::Always).unwrap();
        let ptr = allocator.malloc(3 * MIB, stream).unwrap();
        drop(inside);
        allocator.sleep_mode().set_tag(DEVICE, pool.id(), Some(SleepTag::new("weights"))).unwrap();
        let backup = Backup::File(folder.path().to_owned());
        // SAFETY: nobody uses the memory.
        let sleep = |mode: SleepMode<'_>| unsafe { mode.sleep(Tags::All, &backup) }.map(drop);
        sleep(allocator.sleep_mode()).unwrap();
        assert!(allocator.sleep_mode().backup_bytes() >= 3 * MIB);
        let shown = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| line.contains(folder.path().to_str().unwrap()))
        };
        assert!(shown(), "the parent has it mapped");
        let before = driver.calls();
        let child = match fork() {
            Fork::Parent(child) => child,
            Fork::Child(report) => {
                let mode = allocator.sleep_mode();
                let mut bytes = vec![0; 1000];
                let answers = vec![
                    ("sleep", sleep(mode)),
                    ("wake", mode.wake(Tags::All).map(drop)),
                    ("set_tag", mode.set_tag(DEVICE, pool.id(), None)),
                    ("is_pool_asleep", mode.is_pool_asleep(DEVICE, pool.id()).map(drop)),
                ];
                let mut wrong = unexpected(answers, is_forked);
                mode.drop_backups();
                let harmless = [
                    ("the file is mapped", !shown()),
                    ("read_backup answered", matches!(mode.read_backup(ptr, &mut bytes), Ok(false))),
                    ("is_asleep answered", mode.is_asleep(ptr).is_none()),
                    ("backup_bytes answered", mode.backup_bytes() == 0),
                ];
                drop(pool);
                drop(Arc::into_inner(allocator));
                wrong.extend(harmless.iter().filter(|(_, right)| !right).map(|(what, _)| (*what).to_owned()));
                wrong.extend((driver.calls() != before).then(|| "the driver was called".to_owned()));
                report.end(&wrong)
            }
        };
        assert_eq!(child.complaints(), Vec::<String>::new());
        allocator.sleep_mode().wake(Tags::All).unwrap();
        assert!(!shown(), "it went with the wake");
        allocator.free(ptr).unwrap();
    });
}

granule_tests::for_each_policy!(
    a_child_has_no_part_of_what_sleeps_in_files,
    a_forked_child_gets_a_typed_error_from_every_call_and_the_parent_is_unaffected,
    a_child_waits_for_no_lock_of_its_parents_threads,
    a_child_makes_a_backend_of_its_own_and_its_children_cannot_use_that,
);
