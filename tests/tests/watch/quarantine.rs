//! Blocks in quarantine: how long they stay, what they hold up, and who may touch them.

use crate::hardened::{all_is_well, growable, holding, stats, write};
use alloc_core::AllocError;
use alloc_core::backend::{Backend, CopyKind, ErrorKind, Result};
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::pointer::Problem;
use alloc_core::policy::Policy;
use alloc_core::pool::Filter;
use alloc_core::snapshot::Action;
use alloc_core::types::{DeviceKind, DevicePtr, Event, MIB, PoolId, Stream};
use backend_openreg::{Clock, TrapKind};
use granule_conformance::interpose::Hook;
use granule_tests::hardened::{hardened, reports};
use granule_tests::quiet::Retires;
use granule_tests::rig::{DEVICE, behind, on_each};
use granule_tests::setup::mapped;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

fn the_oldest_leave_the_quarantine_when_it_is_full<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(holding(4 * 2560));
        let ptrs: Vec<_> = (0..6).map(|_| allocator.malloc(2048, rig.stream()).unwrap()).collect();
        for (n, ptr) in (1..).zip(&ptrs[..4]) {
            allocator.free(*ptr).unwrap();
            assert_eq!((stats(&allocator).quarantined, stats(&allocator).quarantined_bytes), (n, n * 2560));
        }
        let next = allocator.malloc(2048, rig.stream()).unwrap();
        assert!(!ptrs.contains(&next), "what is in quarantine is not reused");
        allocator.free(ptrs[4]).unwrap();
        assert_eq!((stats(&allocator).quarantined, stats(&allocator).checked), (4, 1));
        assert_eq!(allocator.malloc(2048, rig.stream()).unwrap(), ptrs[0], "the oldest is free again");
        allocator.free(ptrs[5]).unwrap();
        assert_eq!(allocator.malloc(2048, rig.stream()).unwrap(), ptrs[1]);
        for ptr in [ptrs[0], ptrs[1], next] {
            allocator.free(ptr).unwrap();
        }
        all_is_well(rig, &allocator, 9);
    });
}

fn a_quarantine_of_nothing_checks_at_once<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(holding(0));
        let reports = reports(&allocator);
        let ptr = allocator.malloc(600, rig.stream()).unwrap();
        write(rig, rig.stream(), ptr.add(600), 0, 1);
        allocator.free(ptr).unwrap();
        assert_eq!(reports.lock().unwrap().len(), 1, "in the very call");
        assert_eq!(allocator.malloc(600, rig.stream()).unwrap(), ptr);
        allocator.free(ptr).unwrap();
        assert_eq!(reports.lock().unwrap().len(), 1, "the canary was written anew");
        rig.nothing_is_left(&allocator);
    });
}

fn a_second_free_is_an_error_that_knows_the_quarantine<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let ptr = allocator.malloc(2000, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        let Err(AllocError::InvalidPointer(wrong)) = allocator.free(ptr) else { panic!("freed twice") };
        assert_eq!(wrong.problem, Problem::Quarantined { requested: 2000 });
        assert!(wrong.to_string().contains("double free"), "{wrong}");
        all_is_well(rig, &allocator, 1);
    });
}

fn blocks_in_quarantine_are_pending_and_figures_are_the_programs<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let ptr = allocator.malloc(1000, rig.stream()).unwrap();
        let figures = || {
            let found = allocator.stats(DEVICE).unwrap();
            [found.requested_bytes, found.allocated_bytes, found.active_bytes].map(|stat| stat.all.current)
        };
        assert_eq!(figures(), [1000, 1024, 1024], "the margin is not the program's request");
        allocator.free(ptr).unwrap();
        assert_eq!(figures(), [1000, 0, 1024]);
        allocator.check_invariants();
        allocator.synchronise(DEVICE).unwrap();
        assert_eq!(figures(), [0, 0, 0]);
        all_is_well(rig, &allocator, 1);
    });
}

/// Promise 1.
fn no_request_fails_for_what_is_in_quarantine<P: Policy>() {
    for settings in [hardened(), growable()] {
        on_each(&mapped(64), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            for _ in 0..3 {
                let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
                allocator.free(ptr).unwrap();
            }
            assert_eq!(stats(&allocator).checked, 2, "each request emptied the quarantine of the one before");
            let small: Vec<_> =
                (0..20).map(|_| allocator.malloc(2 * MIB - 16, rig.stream()).unwrap()).collect();
            small.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
            let other = rig.new_stream();
            let ptr = allocator.malloc(50 * MIB, other).unwrap();
            allocator.free(ptr).unwrap();
            let answer = allocator.malloc(65 * MIB, rig.stream());
            assert!(matches!(answer, Err(AllocError::OutOfMemory(_))), "{answer:?}");
            all_is_well(rig, &allocator, 24);
        });
    }
}

fn memory_in_quarantine_is_inaccessible_where_it_has_granules_of_its_own<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(growable());
        // Its neighbours share no granule with it.
        let [below, ptr, above] =
            [3, 2, 3].map(|mib| allocator.malloc(mib * MIB - 16, rig.stream()).unwrap());
        assert_eq!(
            [below, ptr, above].map(|ptr| allocator.block_size(ptr).unwrap()),
            [4, 2, 4].map(|mib| mib * MIB)
        );
        allocator.free(ptr).unwrap();
        assert_eq!(
            (stats(&allocator).quarantined_bytes, stats(&allocator).protected_bytes),
            (2 * MIB, 2 * MIB)
        );
        let machine_stream = Stream { backend: rig.device.id(), ..rig.stream() };
        for at in [ptr, ptr.add(MIB), ptr.add(2 * MIB - 1)] {
            let error = rig.device.use_memory(machine_stream, at, 1).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidValue);
            // SAFETY: rule 2 is what this breaks on purpose: the memory is the engine's.
            assert!(unsafe { rig.backend.memset_async(at, 1, 1, rig.stream()) }.is_err(), "a write");
            let mut byte = [0_u8];
            let host = DevicePtr(byte.as_mut_ptr().expose_provenance() as u64);
            // SAFETY: as above; nothing is copied.
            assert!(unsafe { rig.backend.copy(host, at, 1, CopyKind::DeviceToHost) }.is_err(), "a read");
        }
        let traps = rig.device.take_traps();
        assert_eq!(traps.len(), 9);
        assert!(traps.iter().all(|trap| trap.kind == TrapKind::NoAccess), "{traps:?}");
        for live in [below, above] {
            rig.device.use_memory(machine_stream, live, 3 * MIB - 16).unwrap();
        }
        allocator.synchronise(DEVICE).unwrap();
        assert_eq!(stats(&allocator).protected_bytes, 0);
        assert_eq!(allocator.malloc(2 * MIB - 16, rig.stream()).unwrap(), ptr);
        rig.device.use_memory(machine_stream, ptr, 2 * MIB - 16).unwrap();
        for ptr in [below, ptr, above] {
            allocator.free(ptr).unwrap();
        }
        all_is_well(rig, &allocator, 4);
    });
}

fn small_blocks_share_granules_and_are_not_protected<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(growable());
        let ptr = allocator.malloc(MIB - 16, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        assert_eq!((stats(&allocator).quarantined, stats(&allocator).protected_bytes), (1, 0));
        write(rig, rig.stream(), ptr, 0, 1);
        allocator.synchronise(DEVICE).unwrap();
        assert_eq!(stats(&allocator).corruptions, 1, "the poison finds writes");
        rig.nothing_is_left(&allocator);
    });
}

/// A free waits for its own stream there, so that nothing queued loses its memory.
fn memory_is_protected_after_the_work_that_uses_it<P: Policy>() {
    on_each(&mapped(64).clock(Clock::Workers), |rig| {
        let allocator = rig.with_policy::<P>(growable());
        let other = rig.new_stream();
        for _ in 0..20 {
            let ptr = allocator.malloc(2 * MIB - 16, rig.stream()).unwrap();
            write(rig, rig.stream(), ptr, 1, 2 * MIB - 16);
            write(rig, other, ptr, 2, 2 * MIB - 16);
            allocator.record_stream(ptr, other).unwrap();
            allocator.free(ptr).unwrap();
            assert_eq!(stats(&allocator).protected_bytes, stats(&allocator).quarantined_bytes);
        }
        all_is_well(rig, &allocator, 20);
    });
}

/// A driver whose handle 2 is the calling thread's default stream.
#[derive(Debug, Default)]
struct PerThread {
    named: Arc<Mutex<Vec<(u64, ThreadId)>>>,
}

impl PerThread {
    fn note(&self, stream: Stream) -> Stream {
        self.named.lock().unwrap().push((stream.raw, std::thread::current().id()));
        Stream { raw: 0, ..stream }
    }
}

impl Hook for PerThread {
    fn kind(&self, _: &dyn Backend) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        inner.record_event(event, self.note(stream))
    }

    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(self.note(stream), event)
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        inner.synchronize_stream(self.note(stream))
    }

    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: rule 2 is the caller's promise, passed on.
        unsafe { inner.memset_async(dst, value, bytes, self.note(stream)) }
    }
}

/// The engine's own name of a thread's default stream went to the driver as a handle.
fn hardened_mode_names_a_threads_default_stream_as_the_driver_knows_it<P: Policy>() {
    let hook = PerThread::default();
    let named = Arc::clone(&hook.named);
    let (_machine, _, allocator, default) = behind::<_, P>(mapped(64), hardened(), hook);
    let mine = Stream { raw: 2, ..default };
    let me = std::thread::current().id();
    let ptr = allocator.malloc(1000, mine).unwrap();
    allocator.free(ptr).unwrap();
    allocator.synchronise(DEVICE).unwrap();
    assert_eq!(allocator.statistics().hardened(DEVICE).unwrap().checked, 1);
    let ptr = allocator.malloc(1000, mine).unwrap();
    std::thread::scope(|scope| scope.spawn(|| allocator.free(ptr).unwrap()).join().unwrap());
    allocator.synchronise(DEVICE).unwrap();
    let stats = allocator.statistics().hardened(DEVICE).unwrap();
    assert_eq!((stats.checked, stats.unchecked), (1, 1), "nobody else can poison on this thread's stream");
    let named = std::mem::take(&mut *named.lock().unwrap());
    assert!(named.len() >= 4, "canaries, poison, an event: {named:?}");
    assert!(named.iter().all(|call| *call == (2, me)), "{named:?}");
}

/// The observer ran under a lock that every change of settings takes.
fn a_corruption_observer_may_change_settings_also_when_the_mode_is_switched_off<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let seen = Arc::new(AtomicU64::new(0));
        let (count, weak) = (Arc::clone(&seen), Arc::downgrade(&allocator));
        allocator.hooks().on_corruption(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            weak.upgrade().unwrap().history().record(&HistoryOptions::newest(10));
        });
        let completed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&completed);
        allocator.hooks().on_trace(move |entry, _| {
            count.fetch_add(u64::from(entry.action == Action::FreeCompleted), Ordering::Relaxed);
        });
        let ptr = allocator.malloc(1000, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        // SAFETY: rule 2 is broken on purpose, within memory that the engine holds.
        unsafe { rig.backend.memset_async(ptr, 7, 1, rig.stream()) }.unwrap();
        rig.backend.synchronize_stream(rig.stream()).unwrap();
        allocator.configure(Settings::default()).unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 1);
        assert_eq!(completed.load(Ordering::Relaxed), 1, "trackers know when the call returns");
        rig.nothing_is_left(&allocator);
    });
}

/// The free named the block's stream to the driver until its end, and retiring a stream waits for whoever names it.
fn a_corruption_observer_may_retire_the_freed_blocks_stream<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(holding(0));
        let stream = rig.new_stream();
        let retired = Arc::new(AtomicU64::new(0));
        let (count, weak) = (Arc::clone(&retired), Arc::downgrade(&allocator));
        allocator.hooks().on_corruption(move |_| {
            weak.upgrade().unwrap().retire(stream).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        });
        let ptr = allocator.malloc(600, stream).unwrap();
        write(rig, stream, ptr.add(600), 0, 1);
        let (done, ended) = mpsc::channel();
        let freeing = Arc::clone(&allocator);
        let thread = std::thread::spawn(move || {
            freeing.free(ptr).unwrap();
            done.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(60)).expect("the free does not wait for itself");
        thread.join().unwrap();
        assert_eq!(retired.load(Ordering::Relaxed), 1);
        rig.nothing_is_left(&allocator);
    });
}

/// Blocks in quarantine are pending, and neither a checkpoint nor a request for their address knew how to get them out.
fn checkpoints_and_exact_addresses_find_what_is_in_quarantine<P: Policy>() {
    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(hardened());
        let pool = PoolId::fresh();
        allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
        let [kept, freed] = [1000, 1000].map(|bytes| allocator.malloc(bytes, rig.stream()).unwrap());
        allocator.free(freed).unwrap();
        let saved = allocator.pools().checkpoint(DEVICE, pool).unwrap();
        assert_eq!(saved.live().into_iter().collect::<Vec<_>>(), [kept]);
        let later = allocator.malloc(1000, rig.stream()).unwrap();
        allocator.free(later).unwrap();
        let delta = allocator.pools().restore(&saved, None).unwrap();
        assert_eq!((delta.freed, delta.allocated), (vec![kept], vec![kept]));
        allocator.free(kept).unwrap();
        assert_eq!(allocator.malloc_at(1000, kept, rig.stream()).unwrap(), kept);
        allocator.free(kept).unwrap();
        allocator.pools().end(DEVICE, pool).unwrap();
        allocator.pools().release(DEVICE, pool).unwrap();
        rig.nothing_is_left(&allocator);
        assert_eq!(allocator.statistics().hardened(DEVICE).unwrap().corruptions, 0);
    });
}

granule_tests::for_each_policy!(
    the_oldest_leave_the_quarantine_when_it_is_full,
    a_quarantine_of_nothing_checks_at_once,
    a_second_free_is_an_error_that_knows_the_quarantine,
    blocks_in_quarantine_are_pending_and_figures_are_the_programs,
    no_request_fails_for_what_is_in_quarantine,
    memory_in_quarantine_is_inaccessible_where_it_has_granules_of_its_own,
    small_blocks_share_granules_and_are_not_protected,
    memory_is_protected_after_the_work_that_uses_it,
    hardened_mode_names_a_threads_default_stream_as_the_driver_knows_it,
    a_corruption_observer_may_change_settings_also_when_the_mode_is_switched_off,
    a_corruption_observer_may_retire_the_freed_blocks_stream,
    checkpoints_and_exact_addresses_find_what_is_in_quarantine,
);
