//! A driver whose calls are watched.

use alloc_core::backend::{Backend, Result as DriverResult};
use alloc_core::config::Settings;
use alloc_core::host::{HostAllocator, HostOptions};
use alloc_core::types::{DeviceIndex, Event, Stream};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::rig::DEVICE;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::thread::ThreadId;
use std::time::Duration;

/// Sees which thread makes which call.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) calls: Mutex<Vec<(&'static str, ThreadId)>>,
    /// How long a question about an event takes.
    pub(crate) slow: Mutex<Duration>,
    /// Devices other than the first have no context.
    pub(crate) lone: AtomicBool,
    /// Devices that were waited for, as bits.
    pub(crate) waited: AtomicU64,
    /// Streams on which events were recorded.
    pub(crate) recorded: Mutex<Vec<Stream>>,
}

impl Watch {
    pub(crate) fn count(&self, method: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|(called, _)| *called == method).count()
    }

    pub(crate) fn all(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

#[derive(Debug)]
pub(crate) struct Seen(pub(crate) Arc<Watch>);

impl Hook for Seen {
    fn enter(&self, method: &'static str) -> DriverResult<()> {
        self.0.calls.lock().unwrap().push((method, thread::current().id()));
        if method == "Backend::query_event" {
            let slow = *self.0.slow.lock().unwrap();
            thread::sleep(slow);
        }
        Ok(())
    }

    fn has_primary_context(&self, inner: &dyn Backend, device: DeviceIndex) -> DriverResult<bool> {
        let lone = self.0.lone.load(Ordering::Relaxed) && device != DEVICE;
        if lone { Ok(false) } else { inner.has_primary_context(device) }
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> DriverResult<()> {
        self.0.recorded.lock().unwrap().push(stream);
        inner.record_event(event, stream)
    }

    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> DriverResult<()> {
        self.0.waited.fetch_or(1 << device.0, Ordering::Relaxed);
        inner.synchronize_device(device)
    }
}

pub(crate) fn world(clock: Clock) -> (Arc<OpenReg>, Arc<dyn Backend>, Arc<Watch>) {
    let machine = OpenReg::new(OpenRegConfig::default().devices(2).clock(clock)).unwrap();
    let watch = Arc::new(Watch::default());
    let driver = Arc::new(Interposed::new(machine.clone(), Seen(Arc::clone(&watch))));
    (machine, driver, watch)
}

pub(crate) fn over(driver: &Arc<dyn Backend>, settings: &Settings) -> HostAllocator {
    HostAllocator::new(driver.clone(), settings, HostOptions::default()).unwrap()
}
