//! The `granule` policy on devices without virtual memory: segments are sized as they are taken, and idle ones make
//! room for larger ones.

use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::types::{DevicePtr, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Call, Clock, FaultPlan, OpenReg, OpenRegConfig};
use granule_analysis::replay::{ReplayOptions, ReplayResult, replay};
use granule_snapshot::trace::{Event, Trace};
use granule_tests::fault_loop::Simulated;
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::rig::DEVICE;
use granule_tests::{fault_loop, recorded};
use std::sync::Arc;

const TRACES: [&str; 6] =
    ["bert_varlen", "dlrm_prefetch", "gpt2_train", "llama_generate", "llama_lora", "resnet_train"];

fn config(capacity: u64, lag: u64) -> OpenRegConfig {
    let clock = Clock::Virtual { lag };
    OpenRegConfig::default().devices(1).capacity(capacity).clock(clock).without_virtual_memory()
}

/// A program on such a device.
struct Program {
    device: Arc<OpenReg>,
    allocator: CachingAllocator,
    stream: Stream,
}

impl Program {
    fn new(capacity: u64, lag: u64) -> Self {
        let device = OpenReg::new(config(capacity, lag)).unwrap();
        let allocator = granule_tests::made::<GranulePolicy>(device.clone(), Settings::default()).unwrap();
        Self { stream: device.default_stream(DEVICE), device, allocator }
    }

    /// Blocks that are live together, used, and freed again.
    fn phase(&self, blocks: usize, bytes: u64) {
        let live: Vec<_> = (0..blocks).map(|_| self.malloc(bytes).unwrap()).collect();
        live.into_iter().for_each(|ptr| self.allocator.free(ptr).unwrap());
    }

    fn malloc(&self, bytes: u64) -> Result<DevicePtr, AllocError> {
        let ptr = self.allocator.malloc(bytes, self.stream)?;
        self.device.use_memory(self.stream, ptr, bytes).unwrap();
        Ok(ptr)
    }

    fn raw_calls(&self) -> (u64, u64) {
        let calls = self.device.calls();
        (calls.get(Call::Malloc), calls.get(Call::Free))
    }

    /// Nothing is lost: what is counted is what the device has handed out.
    fn check(&self) {
        self.allocator.check_invariants();
        let stats = self.allocator.stats(DEVICE).unwrap();
        assert_eq!(stats.reserved_bytes.all.current.unsigned_abs(), self.device.used(DEVICE));
        assert_eq!(self.device.traps(), []);
    }
}

/// 1500 MiB of segments of 30 MiB, all idle.
fn with_idle_segments(capacity: u64, lag: u64) -> Program {
    let program = Program::new(capacity, lag);
    program.phase(50, 30 * MIB);
    assert_eq!((program.device.used(DEVICE), program.raw_calls()), (1500 * MIB, (50, 0)));
    program
}

#[test]
fn idle_segments_make_room_for_larger_ones() {
    let program = with_idle_segments(80 << 30, 0);
    program.phase(10, 120 * MIB);
    assert_eq!(program.device.peak_used(DEVICE), 1500 * MIB, "no more than ever was needed");
    assert_eq!(program.raw_calls(), (54, 48), "four segments of 360 MiB took the place of twelve each");
    program.check();
}

#[test]
fn a_repeating_program_stops_calling_the_driver() {
    for lag in [0, 20] {
        let program = Program::new(80 << 30, lag);
        let iteration = || {
            program.phase(50, 30 * MIB);
            program.phase(10, 120 * MIB);
            program.phase(300, 700 << 10);
            program.phase(3, 400 * MIB);
        };
        (0..3).for_each(|_| iteration());
        let settled = program.raw_calls();
        (0..10).for_each(|_| iteration());
        assert_eq!(program.raw_calls(), settled, "with work {lag} events behind");
        assert!(program.device.peak_used(DEVICE) <= 1500 * MIB / 100 * 120, "little beyond the most needed");
        program.check();
    }
}

#[test]
fn a_full_device_serves_what_fits_without_a_retry() {
    let program = with_idle_segments(1504 * MIB, 0);
    program.phase(10, 120 * MIB);
    let stats = program.allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms), (0, 0));
    program.check();
    assert!(matches!(program.malloc(1600 * MIB), Err(AllocError::OutOfMemory(_))));
    program.phase(1, 1500 * MIB);
    program.check();
}

#[test]
fn what_was_given_back_is_room_when_the_segment_is_refused() {
    let refused = |plan| {
        let program = with_idle_segments(80 << 30, 0);
        program.device.set_faults(plan);
        let outcome = program.malloc(120 * MIB);
        program.device.set_faults(FaultPlan::none());
        program.check();
        (program, outcome)
    };
    let once = FaultPlan::none().fail_nth_of(Call::Malloc, 1, ErrorKind::OutOfMemory);
    let (program, outcome) = refused(once);
    program.allocator.free(outcome.unwrap()).unwrap();
    assert_eq!(program.device.used(DEVICE), 1260 * MIB, "360 MiB left, and what was asked for came");
    assert_eq!(program.allocator.stats(DEVICE).unwrap().num_alloc_retries, 0);

    let (program, outcome) = refused(FaultPlan::none().fail_all(Call::Malloc, ErrorKind::OutOfMemory));
    assert!(matches!(outcome, Err(AllocError::OutOfMemory(_))));
    program.phase(10, 120 * MIB);
    program.check();

    let (program, outcome) = refused(FaultPlan::none().fail_nth_of(Call::Malloc, 1, ErrorKind::Other));
    assert!(matches!(outcome, Err(AllocError::Backend(_))), "no lack of memory, so no remedy");
    program.phase(10, 120 * MIB);
    program.check();

    // What cannot be given back stays cached.
    let (program, outcome) = refused(FaultPlan::none().fail_all(Call::Free, ErrorKind::Other));
    assert!(outcome.is_ok());
    assert_eq!(program.device.used(DEVICE), 1620 * MIB);
}

#[test]
fn replacing_survives_every_failing_call() {
    let mut events = Vec::new();
    let mut phase = |blocks: u64, bytes: u64| {
        let first = events.iter().filter(|event| matches!(event, Event::Alloc { .. })).count() as u64;
        let ids = first..first + blocks;
        events.extend(ids.clone().map(|id| Event::Alloc { id, size: bytes, stream: (id % 2) as u32 }));
        events.extend(ids.map(|id| Event::Free { id }));
    };
    phase(20, 30 * MIB);
    phase(6, 90 * MIB);
    phase(2, 280 * MIB);
    for capacity in [80 << 30, 640 * MIB] {
        let run = |k| {
            let device = OpenReg::new(config(capacity, 3)).unwrap();
            let machine = Simulated { device, lag: 3 };
            fault_loop::run::<GranulePolicy>(
                &machine,
                &events,
                &Settings::default(),
                k,
                fault_loop::kind_of(k),
            )
        };
        let calls = run(0).calls;
        assert!(calls > 50, "there is something to fail");
        (1..=calls).for_each(|k| _ = run(k));
    }
}

fn replayed<P: Policy>(trace: &Trace) -> ReplayResult {
    let settings = granule_tests::under::<P>(Settings::default());
    let options = ReplayOptions { settings, no_virtual_memory: true, ..ReplayOptions::default() };
    let replay = replay(trace, &options, |_| {}).unwrap();
    replay.allocator.check_invariants();
    replay.result
}

#[test]
fn recorded_programs_keep_little_more_than_they_need() {
    let (mut sum, mut count) = (0.0, 0.0);
    for name in TRACES {
        let Some(trace) = recorded(name) else { continue };
        let result = replayed::<GranulePolicy>(&trace);
        let figures = result.simulated.as_ref().unwrap();
        assert_eq!((result.refused, figures.traps), (0, 0), "{name}");
        #[allow(clippy::cast_precision_loss)]
        let ratio = result.reserved_bytes_peak as f64 / result.requested_bytes_peak as f64;
        println!("{name}: {ratio:.4}");
        assert!(ratio <= 1.2, "{name}: {ratio}");
        (sum, count) = (sum + ratio, count + 1.0);
        let in_repeats: u64 = figures
            .iterations
            .iter()
            .filter(|one| one.iteration.repeats)
            .map(|one| one.driver.physical_creations + one.driver.device_wide_waits)
            .sum();
        assert_eq!(in_repeats, 0, "{name}: what repeats needs no driver");
        let of_pytorch = replayed::<PytorchPolicy>(&trace).simulated.unwrap().modelled_driver_ns;
        assert!(figures.modelled_driver_ns <= of_pytorch, "{name}: less time in the driver than PyTorch");
    }
    if count > 1.0 {
        assert!(sum / count <= 1.08, "mean {}", sum / count);
    }
}
