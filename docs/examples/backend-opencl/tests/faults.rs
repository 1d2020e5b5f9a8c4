//! Faults that are easily made over OpenCL, each caught by the check that says so.

#[path = "../examples/hold/mod.rs"]
mod hold;

use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::{Backend, Result};
use backend_opencl::OpenClBackend;
use granule_conformance::interpose::{Hook, Interposed};
use granule_conformance::{Options, Subject, run};
use std::sync::{Arc, OnceLock};

static BACKEND: OnceLock<Arc<OpenClBackend>> = OnceLock::new();

fn backend() -> Result<Arc<OpenClBackend>> {
    let opened = OpenClBackend::new()?;
    Ok(Arc::clone(BACKEND.get_or_init(|| opened)))
}

/// Runs one check over the backend with a fault.
fn caught<H: Hook>(check: &str, fault: fn() -> H) {
    let open = move || -> Result<Arc<dyn Backend>> { Ok(Arc::new(Interposed::new(backend()?, fault()))) };
    let hold = |stream| hold::hold(&*backend()?, stream);
    let subject = Subject::new(check, open).held_by(hold);
    let options = Options { only: vec![check.into()], keep_going: true, ..Options::default() };
    let card = run(&subject, &options, |_| Ok(())).expect("a driver is there").expect("nothing is written");
    assert_eq!(card.failures().collect::<Vec<_>>(), [check], "{card}");
}

/// A queue that was flushed is taken for one that is done.
#[derive(Debug)]
struct FlushesOnly;

impl Hook for FlushesOnly {
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        inner.query_stream(stream).map(drop)
    }
}

#[test]
fn a_flush_is_no_wait() {
    caught("streams.synchronize_waits_every_time", || FlushesOnly);
}

/// Queues of one context are taken to wait for each other by themselves.
#[derive(Debug)]
struct NoBarrier;

impl Hook for NoBarrier {
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.query_event(event)?;
        inner.query_stream(stream).map(drop)
    }
}

#[test]
fn queues_do_not_wait_by_themselves() {
    caught("ordering.wait_holds_later_work", || NoBarrier);
}

/// A free without effect: the block stays in the list. What the driver itself keeps, nobody sees: it gives no figures.
#[derive(Debug)]
struct Leaks;

impl Hook for Leaks {
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() { Ok(()) } else { inner.address_range(ptr).and(inner.synchronize_device(device)) }
    }
}

#[test]
fn memory_that_was_freed_is_free() {
    caught("memory.info_rises_with_free", || Leaks);
}
