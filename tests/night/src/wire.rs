//! What the engine asks of drivers, watched call by call: with which locks held, about which streams, and how often.

use crate::fabric::Fabric;
use crate::verdict::Verdict;
use alloc_core::backend::{
    Attribute, Backend, Capture, CaptureStatus, CopyKind, HandleType, PhysicalSharing, Readiness, Result,
    ShareableHandle, VirtualMemory,
};
use alloc_core::types::{DeviceIndex, DevicePtr, Event, PhysicalHandle, Stream};
use granule_conformance::interpose::{Hook, Interposed};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The calls of one process.
#[derive(Debug)]
pub struct Wire {
    verdict: Arc<Verdict>,
    calls: AtomicU64,
    /// Streams that were destroyed, and whose handles no other stream has.
    dead: Mutex<HashSet<Stream>>,
    /// What processes reach each other's memory by, if not by file descriptors.
    fabric: Option<Fabric>,
}

impl Wire {
    /// Of a process that has made none.
    #[must_use]
    pub fn new(verdict: &Arc<Verdict>, fabric: Option<Fabric>) -> Arc<Self> {
        let (verdict, calls) = (Arc::clone(verdict), AtomicU64::new(0));
        Arc::new(Self { verdict, calls, dead: Mutex::default(), fabric })
    }

    /// A machine, as the engine gets it: over this wire.
    #[must_use]
    pub fn to(self: &Arc<Self>, machine: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Interposed::new(machine, Listener(Arc::clone(self))))
    }

    /// How many there were so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A stream was destroyed, or made, perhaps with the handle of a former one.
    pub fn set_dead(&self, stream: Stream, dead: bool) {
        let mut all = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        if dead {
            all.insert(stream)
        } else {
            all.remove(&stream)
        };
    }

    fn names(&self, method: &str, stream: Stream) {
        let dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner).contains(&stream);
        self.verdict
            .expect(!dead, "dead stream", || format!("{method} names {stream:?}, which was destroyed"));
    }
}

/// Stands between the engine and a machine.
#[derive(Debug)]
struct Listener(Arc<Wire>);

impl Hook for Listener {
    fn enter(&self, method: &'static str) -> Result<()> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        self.0.verdict.expect(alloc_core::may_call_drivers(), "lock", || format!("{method} under a lock"));
        Ok(())
    }

    /// The engine has streams of its own, perhaps with the handle of one that the program destroyed.
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let made = inner.create_stream(device, priority);
        if let Ok(stream) = made {
            self.0.set_dead(stream, false);
        }
        made
    }

    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        self.0.names("destroy_stream", stream);
        // SAFETY: passed on as it came.
        let destroyed = unsafe { inner.destroy_stream(stream) };
        if destroyed.is_ok() {
            self.0.set_dead(stream, true);
        }
        destroyed
    }

    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        match attribute {
            Attribute::FabricHandles if self.0.fabric.is_some() => Ok(1),
            _ => inner.attribute(device, attribute),
        }
    }

    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        let has_fabric = handle_type == HandleType::Fabric && self.0.fabric.is_some();
        inner.create_physical(device, bytes, if has_fabric { HandleType::PosixFd } else { handle_type })
    }

    fn export_physical(
        &self,
        inner: &dyn PhysicalSharing,
        handle: PhysicalHandle,
        handle_type: HandleType,
    ) -> Result<ShareableHandle> {
        match &self.0.fabric {
            Some(fabric) if handle_type == HandleType::Fabric => fabric.export(inner, handle),
            _ => inner.export_physical(handle, handle_type),
        }
    }

    fn import_physical(
        &self,
        inner: &dyn PhysicalSharing,
        device: DeviceIndex,
        shared: &ShareableHandle,
    ) -> Result<PhysicalHandle> {
        match (&self.0.fabric, shared) {
            (Some(fabric), ShareableHandle::Fabric(name)) => fabric.import(inner, device, name),
            _ => inner.import_physical(device, shared),
        }
    }

    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        self.0.names("query_stream", stream);
        inner.query_stream(stream)
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        self.0.names("synchronize_stream", stream);
        inner.synchronize_stream(stream)
    }

    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        self.0.names("wait_event", stream);
        inner.wait_event(stream, event)
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        self.0.names("record_event", stream);
        inner.record_event(event, stream)
    }

    fn status(&self, inner: &dyn Capture, stream: Stream) -> Result<CaptureStatus> {
        self.0.names("capture status", stream);
        inner.status(stream)
    }

    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        self.0.names("memset_async", stream);
        // SAFETY: passed on as it came.
        unsafe { inner.memset_async(dst, value, bytes, stream) }
    }

    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        self.0.names("copy_async", stream);
        // SAFETY: passed on as it came.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream) }
    }
}
