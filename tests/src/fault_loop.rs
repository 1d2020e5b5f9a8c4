//! The fault loop of promise 3: one driver call fails, for every call in turn, and nothing is lost.

use crate::lookalike::Controls;
use crate::policy::Policy;
use crate::recorded;
use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind, EventFlags};
use alloc_core::config::Settings;
use alloc_core::types::{DeviceIndex, DevicePtr, Stream};
use backend_openreg::{FaultPlan, OpenReg};
use granule_snapshot::trace::Event;
use std::fmt::Debug;
use std::sync::Arc;

const DEVICE: DeviceIndex = DeviceIndex(0);

/// A machine whose calls can be made to fail.
pub trait Machine: Debug {
    /// The backend over it.
    fn backend(&self) -> Arc<dyn Backend>;
    /// Lets the `k`-th call from now fail; 0 takes that back.
    fn fail(&self, k: u64, kind: ErrorKind);
    /// Calls so far.
    fn calls(&self) -> u64;
    /// Bytes in use on the first device.
    fn used(&self) -> u64;
    /// Wrong uses of memory so far.
    fn traps(&self) -> u64;
    /// Lets an event of the program pass.
    fn tick(&self);
    /// Work on `stream` that uses the memory.
    fn touch(&self, stream: Stream, ptr: DevicePtr);

    /// The same after everything that `home` was given, as a program has to see to. Where a call fails, there is no use.
    fn touch_after(&self, home: Stream, stream: Stream, ptr: DevicePtr) {
        let backend = self.backend();
        let Ok(event) = backend.create_event(DEVICE, EventFlags::empty()) else { return };
        let ordered = backend.record_event(event, home).and_then(|()| backend.wait_event(stream, event));
        // SAFETY: rule 1: made above, and not used again.
        while unsafe { backend.destroy_event(event) }.is_err() {}
        if ordered.is_ok() {
            self.touch(stream, ptr);
        }
    }
}

/// The simulated accelerator itself; `lag` as in its virtual clock.
#[derive(Debug)]
pub struct Simulated {
    /// The device.
    pub device: Arc<OpenReg>,
    /// Events between queueing and completion.
    pub lag: u64,
}

impl Machine for Simulated {
    fn backend(&self) -> Arc<dyn Backend> {
        self.device.clone()
    }
    fn fail(&self, k: u64, kind: ErrorKind) {
        let plan = if k == 0 { FaultPlan::none() } else { FaultPlan::none().fail_nth(k, kind) };
        self.device.set_faults(plan);
    }
    fn calls(&self) -> u64 {
        self.device.calls().total()
    }
    fn used(&self) -> u64 {
        self.device.used(DEVICE)
    }
    fn traps(&self) -> u64 {
        self.device.traps().len() as u64
    }
    fn tick(&self) {
        self.device.advance(u64::from(self.lag > 0));
    }
    fn touch(&self, stream: Stream, ptr: DevicePtr) {
        // So that a lost free would be noticed; where the call is the one that fails, there is no use.
        let _ = self.device.use_memory(stream, ptr, 512);
    }
}

/// A real backend over a lookalike driver, which fails at its C entry points.
#[derive(Debug)]
pub struct OverLookalike {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// The driver's controls.
    pub controls: Controls,
}

/// A driver's code for a kind; CUDA and HIP gave these the same numbers.
fn code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::OutOfMemory => 2,
        ErrorKind::InvalidValue => 1,
        _ => 999,
    }
}

impl Machine for OverLookalike {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }
    fn fail(&self, k: u64, kind: ErrorKind) {
        self.controls.fail(k, code(kind));
    }
    fn calls(&self) -> u64 {
        self.controls.calls()
    }
    fn used(&self) -> u64 {
        self.controls.used(0)
    }
    fn traps(&self) -> u64 {
        self.controls.traps()
    }
    fn tick(&self) {}
    fn touch(&self, stream: Stream, ptr: DevicePtr) {
        // SAFETY: rule 2: a live block of at least 512 bytes, whose use the program then records.
        let _ = unsafe { self.backend.memset_async(ptr, 0, 512, stream) };
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Driver calls it made.
    pub calls: u64,
    /// Whether an operation noticed the failure.
    pub struck: bool,
}

/// Runs `events` with call `k` failing (0: none). Every operation that fails is made again at once and must
/// work then.
///
/// # Panics
/// Where something was lost.
pub fn run<P: Policy>(
    machine: &dyn Machine,
    events: &[Event],
    settings: &Settings,
    k: u64,
    kind: ErrorKind,
) -> Outcome {
    let backend = machine.backend();
    let create = |n: u32| match n {
        0 => backend.default_stream(DEVICE),
        _ => backend.create_stream(DEVICE, 0).expect("a stream can be made"),
    };
    let streams: Vec<_> = (0..4).map(create).collect();
    let allocator = crate::made::<P>(backend.clone(), settings.clone()).expect("the settings are valid");
    let (baseline, traps, calls) = (machine.used(), machine.traps(), machine.calls());
    machine.fail(k, kind);
    let mut struck = false;
    let mut live = vec![DevicePtr::NULL; events.len()];
    let mut homes = vec![streams[0]; events.len()];
    let mut again = |result: Result<DevicePtr, AllocError>,
                     retry: &dyn Fn() -> Result<DevicePtr, AllocError>| {
        result.or_else(|error| {
            if let AllocError::Backend(_) = &error {
                assert!(!struck, "one failing call fails one operation: {error}");
            }
            struck = true;
            allocator.check_invariants();
            retry()
        })
    };
    for event in events {
        machine.tick();
        match *event {
            Event::Alloc { id, size, stream } => {
                homes[id as usize] = streams[stream as usize];
                let malloc = || allocator.malloc(size, streams[stream as usize]);
                live[id as usize] = again(malloc(), &malloc).expect("the call after a failed one works");
            }
            Event::Free { id } | Event::Refused { id, .. } => {
                let ptr = std::mem::replace(&mut live[id as usize], DevicePtr::NULL);
                allocator.free(ptr).expect("free never fails");
            }
            Event::RecordStream { id, stream } => {
                machine.touch_after(homes[id as usize], streams[stream as usize], live[id as usize]);
                allocator
                    .record_stream(live[id as usize], streams[stream as usize])
                    .expect("recording a use never fails");
            }
            Event::EmptyCache => {
                let empty = || allocator.empty_cache().map(|()| DevicePtr::NULL);
                again(empty(), &empty).expect("emptying after a failed one works");
            }
            _ => {}
        }
    }
    for ptr in live.into_iter().filter(|ptr| !ptr.is_null()) {
        allocator.free(ptr).expect("free never fails");
    }
    let empty = || allocator.empty_cache().map(|()| DevicePtr::NULL);
    again(empty(), &empty).expect("emptying after a failed one works");
    allocator.empty_cache().expect("and once more: what a failure left behind goes now");
    allocator.check_invariants();
    assert_eq!(machine.used(), baseline, "bytes return to the baseline (call {k})");
    assert_eq!(machine.traps(), traps, "no memory left while work used it (call {k})");
    let stats = allocator.stats(DEVICE).expect("there is a device");
    assert_eq!(stats.reserved_bytes.all.current, 0);
    assert_eq!(stats.active_bytes.all.current, 0);
    let outcome = Outcome { calls: machine.calls() - calls, struck };
    machine.fail(0, kind);
    drop(allocator);
    for stream in streams.into_iter().skip(1) {
        // SAFETY: rule 1: made above, and nothing uses it any more.
        unsafe { backend.destroy_stream(stream) }.expect("a stream can be destroyed");
    }
    outcome
}

/// The fault loop of a real backend over recorded workloads: each C entry point fails in turn. `GRANULE_LONG` makes it
/// longer.
///
/// # Panics
/// Where something was lost.
pub fn every_entry_point_in_turn<P: Policy>(machine: &OverLookalike) {
    let growable = Settings { expandable_segments: true, ..Settings::default() };
    let long = std::env::var_os("GRANULE_LONG").is_some();
    for (name, settings, events) in [
        ("resnet_train", Settings::default(), 3000),
        ("resnet_train", growable, 1500),
        ("dlrm_prefetch", Settings::default(), 1500),
    ] {
        let Some(mut trace) = recorded(name) else { continue };
        if !long {
            trace.events.truncate(events);
        }
        // Flush in between, so that frees fail, too.
        trace.events.insert(trace.events.len() / 2, Event::EmptyCache);
        let run = |k| run::<P>(machine, &trace.events, &settings, k, kind_of(k));
        // What is made at the first use is there for good.
        run(0);
        let calls = run(0).calls;
        let last = calls.min(if long { 2000 } else { 400 });
        let struck = (1..=last).filter(|k| run(*k).struck).count() as u64;
        println!("{name}: {last} of {calls} entry points failed in turn; {struck} operations noticed");
        assert!(last > 50 && struck > last / 50, "failures reach the program");
    }
    assert_eq!(machine.traps(), 0);
}

/// Which error call `k` fails with: every third claims a lack of memory, so that remedies are tested, too.
#[must_use]
pub fn kind_of(k: u64) -> ErrorKind {
    [ErrorKind::Other, ErrorKind::InvalidValue, ErrorKind::OutOfMemory][k as usize % 3]
}
