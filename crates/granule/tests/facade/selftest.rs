//! The self-test over machines that are well and machines that are not.

use alloc_core::backend::{Backend, CopyKind, Result, Unsupported, VirtualMemory};
use alloc_core::config::Settings;
use alloc_core::types::{DevicePtr, Event, Stream};
use backend_openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig};
use granule::selftest::{Outcome, SelfTest, run};
use granule_conformance::interpose::{Hook, Interposed};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

fn machine() -> Arc<OpenReg> {
    let config = OpenRegConfig::default().memory(MemoryMode::Mapped).clock(Clock::Workers);
    OpenReg::new(config.devices(1).capacity(1 << 30)).unwrap()
}

fn behind(hook: impl Hook + 'static, limit: Duration) -> SelfTest {
    run(Arc::new(Interposed::new(machine(), hook)), &Settings::default(), limit)
}

fn ended(test: &SelfTest, outcome: Outcome) -> Vec<&'static str> {
    test.steps.iter().filter(|step| step.outcome == outcome).map(|step| step.name).collect()
}

#[test]
fn a_machine_that_is_well_passes_and_keeps_nothing() {
    let machine = machine();
    let free = || machine.memory_info(alloc_core::types::DeviceIndex(0)).unwrap().free;
    let before = free();
    let test = run(machine.clone(), &Settings::default(), LIMIT);
    assert!(test.passed, "{test:#?}");
    assert_eq!((test.steps.len(), free()), (5, before));
}

/// Copies that lose their last byte.
#[derive(Debug)]
struct Shortens;

impl Hook for Shortens {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: less than the caller's promise.
        unsafe { inner.copy_async(dst, src, bytes - 1, kind, stream) }
    }
}

#[test]
fn bytes_that_are_lost_are_noticed() {
    let test = behind(Shortens, LIMIT);
    assert!(!test.passed);
    let failed = ended(&test, Outcome::Failed);
    assert!(failed.contains(&"bytes to the device and back"), "{test:#?}");
    assert!(test.steps[1].detail.as_ref().unwrap().starts_with("byte "), "{test:#?}");
}

/// Streams do not wait for events.
#[derive(Debug)]
struct Impatient;

impl Hook for Impatient {
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        // What was to be waited for comes late.
        inner.launch_host_function(stream, Box::new(|| std::thread::sleep(Duration::from_millis(200))))?;
        inner.record_event(event, stream)
    }

    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        inner.launch_host_function(stream, Box::new(|| std::thread::sleep(Duration::from_millis(200))))?;
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.memset_async(dst, value, bytes, stream) }
    }

    fn wait_event(&self, _: &dyn Backend, _: Stream, _: Event) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_that_does_not_wait_is_noticed() {
    assert_eq!(ended(&behind(Impatient, LIMIT), Outcome::Failed), ["two streams"]);
}

/// No virtual memory.
#[derive(Debug)]
struct Fixed;

impl Hook for Fixed {
    fn virtual_memory_family<'a>(
        &self,
        _: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn VirtualMemory, Unsupported> {
        Err(Unsupported { family: "virtual memory", reason: "this machine is old".into() })
    }
}

#[test]
fn what_a_machine_lacks_is_skipped_with_the_reason() {
    let test = behind(Fixed, LIMIT);
    assert!(test.passed);
    assert_eq!(ended(&test, Outcome::Skipped), ["growable segments"]);
    let why = test.steps.last().unwrap().detail.as_ref().unwrap();
    assert!(why.contains("this machine is old"), "{why}");
}

/// A driver that hangs.
#[derive(Debug)]
struct Hangs;

impl Hook for Hangs {
    fn synchronize_stream(&self, _: &dyn Backend, _: Stream) -> Result<()> {
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_driver_that_hangs_fails_its_step_in_time() {
    let begun = Instant::now();
    let test = behind(Hangs, Duration::from_millis(700));
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(ended(&test, Outcome::Failed), [test.steps.last().unwrap().name], "{test:#?}");
    assert!(test.steps.last().unwrap().detail.as_ref().unwrap().contains("0.7 s"));
}
