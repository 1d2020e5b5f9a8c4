//! What the engine asks of drivers, watched call by call: with which locks held, about which streams, and how often.

use crate::fabric::Fabric;
use crate::verdict::Verdict;
use alloc_core::backend::{
    Attribute, Backend, Capture, CaptureStatus, CopyKind, HandleType, PhysicalSharing, Readiness, Result,
    ShareableHandle, VirtualMemory,
};
use alloc_core::types::{DeviceIndex, DevicePtr, Event, PhysicalHandle, Stream};
use granule_conformance::interpose::{Hook, Interposed};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls of one process.
#[derive(Debug)]
pub struct Wire {
    verdict: Arc<Verdict>,
    calls: AtomicU64,
    /// Streams that were destroyed, and whose handles no other stream has.
    dead: Mutex<HashSet<Stream>>,
    /// Events that could not be waited for, and were not found to have passed since.
    broken: Mutex<HashSet<Event>>,
    /// Memory that came in one piece.
    pieces: Mutex<Pieces>,
    /// What processes reach each other's memory by, if not by file descriptors.
    fabric: Option<Fabric>,
}

/// Memory that comes in one piece, mapped nowhere.
#[derive(Debug, Default)]
struct Pieces {
    /// How often it came.
    count: u64,
    /// How long those are that there are.
    lengths: HashMap<DevicePtr, u64>,
    /// Where those were that went back, and how long, one after another.
    back: Vec<(DevicePtr, u64)>,
}

/// Nobody panics over what is locked here.
fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    /// Of a process that has made none.
    #[must_use]
    pub fn new(verdict: &Arc<Verdict>, fabric: Option<Fabric>) -> Arc<Self> {
        let (verdict, calls) = (Arc::clone(verdict), AtomicU64::new(0));
        let (dead, broken, pieces) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { verdict, calls, dead, broken, pieces, fabric })
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
        let mut all = locked(&self.dead);
        if dead {
            all.insert(stream)
        } else {
            all.remove(&stream)
        };
    }

    fn names(&self, method: &str, stream: Stream) {
        let dead = locked(&self.dead).contains(&stream);
        self.verdict
            .expect(!dead, "dead stream", || format!("{method} names {stream:?}, which was destroyed"));
    }

    /// How often memory came in one piece so far, mapped nowhere.
    #[must_use]
    pub fn pieces(&self) -> u64 {
        locked(&self.pieces).count
    }

    /// How many such pieces went back so far.
    #[must_use]
    pub fn pieces_back(&self) -> usize {
        locked(&self.pieces).back.len()
    }

    /// Whether the piece at an address went back, after so many others.
    #[must_use]
    pub fn went_back(&self, base: DevicePtr, after: usize) -> bool {
        locked(&self.pieces).back.iter().skip(after).any(|(piece, _)| *piece == base)
    }

    /// A piece that went back after so many others, and has to do with what is asked for.
    #[must_use]
    pub fn back_since(
        &self,
        after: usize,
        concerns: impl Fn(DevicePtr, u64) -> bool,
    ) -> Option<(DevicePtr, u64)> {
        locked(&self.pieces).back.iter().skip(after).copied().find(|(ptr, bytes)| concerns(*ptr, *bytes))
    }

    fn note_wait(&self, event: Event, works: bool) {
        let mut broken = locked(&self.broken);
        if works {
            broken.remove(&event)
        } else {
            broken.insert(event)
        };
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

    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let piece = inner.malloc(device, bytes)?;
        let mut pieces = locked(&self.0.pieces);
        pieces.count += 1;
        pieces.lengths.insert(piece, bytes);
        Ok(piece)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: passed on as it came.
        unsafe { inner.free(device, ptr) }?;
        let mut pieces = locked(&self.0.pieces);
        let bytes = pieces.lengths.remove(&ptr).unwrap_or(0);
        pieces.back.push((ptr, bytes));
        Ok(())
    }

    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        let found = inner.query_event(event)?;
        if found == Readiness::Ready {
            self.0.note_wait(event, true);
        }
        Ok(found)
    }

    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        let waited = inner.synchronize_event(event);
        self.0.note_wait(event, waited.is_ok());
        waited
    }

    unsafe fn destroy_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        // SAFETY: passed on as it came.
        let destroyed = unsafe { inner.destroy_event(event) };
        self.0.note_wait(event, true);
        destroyed
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        self.0.names("record_event", stream);
        // Another thread may have found it ready before, and may have given it away.
        let broken = !cfg!(shuttle) && locked(&self.0.broken).contains(&event);
        self.0.verdict.expect(!broken, "broken event", || {
            format!("{event:?} is recorded on {stream:?}, and could not be waited for before")
        });
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
