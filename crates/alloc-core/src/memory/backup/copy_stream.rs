//! Copies between a device and backups, many in flight at a time.
//!
//! Page-locked stores are copied from and to directly. Files go through a ring of page-locked slots, so that the device
//! copies at the speed of its link while the host moves earlier contents.

use super::Store;
use crate::backend::{Backend, BackendError, CopyKind, Result};
use crate::memory::region::persist;
use crate::process::held_event::HeldEvent;
use crate::process::state;
use crate::sync::{Arc, assert_unlocked};
use crate::types::{DeviceIndex, DevicePtr, Stream};
use std::collections::VecDeque;

/// Streams that copies alternate on: one begins while the end of another is noticed.
const STREAMS: usize = 2;
/// Slots of a ring.
const SLOTS: usize = 4;
/// Bytes of a slot, at most.
const SLOT: u64 = 16 << 20;

/// Copies of one device, on streams of their own. Dropping it, with no lock held, waits for copies in flight.
pub(crate) struct CopyStream {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    /// Made with the first copy.
    streams: Vec<Stream>,
    ring: Option<PinnedSlots>,
    under_way: VecDeque<QueuedCopy>,
    /// Number of copies queued so far.
    queued: u64,
    /// First error: after it nothing is known of later copies.
    failed: Option<BackendError>,
}

/// Ticket for all copies up to this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

/// A copy that is queued.
struct QueuedCopy {
    until: HeldEvent,
    landing: Option<Landing>,
}

/// Place where a slot's bytes go once they have arrived.
struct Landing {
    slot: DevicePtr,
    store: Arc<Store>,
    offset: u64,
    bytes: u64,
}

/// Page-locked slots, used one after the other.
struct PinnedSlots {
    memory: Store,
    slot: u64,
    /// Number of the last copy that uses each slot.
    users: [u64; SLOTS],
    next: usize,
}

impl CopyStream {
    /// For copies of `device`. Costs no call.
    pub(crate) fn new(backend: &Arc<dyn Backend>, device: DeviceIndex) -> Self {
        Self {
            backend: Arc::clone(backend),
            device,
            streams: Vec::new(),
            ring: None,
            under_way: VecDeque::new(),
            queued: 0,
            failed: None,
        }
    }

    /// Queues copies of device memory into a store; they are done once [`land`](Self::land) returns. Blocks where the
    /// ring is full, and where there is none.
    ///
    /// # Safety
    /// Until then, `bytes` bytes at `from` are device memory that nobody writes, and at `offset` there is room for them that
    /// nobody else uses.
    pub(crate) unsafe fn save(
        &mut self,
        store: &Arc<Store>,
        offset: u64,
        from: DevicePtr,
        bytes: u64,
    ) -> Result<Ticket> {
        // SAFETY: this function's contract, passed on.
        self.carefully(|copy_stream| unsafe {
            copy_stream.queue_all(store, offset, from, bytes, CopyKind::DeviceToHost)
        })
    }

    /// Queues copies back; they are done once [`land`](Self::land) returns. Blocks where the ring is full, and where
    /// there is none.
    ///
    /// # Safety
    /// Until then, `bytes` bytes at `to` are device memory that nobody uses, and as many in the store were saved.
    pub(crate) unsafe fn restore(
        &mut self,
        store: &Arc<Store>,
        offset: u64,
        to: DevicePtr,
        bytes: u64,
    ) -> Result<Ticket> {
        // SAFETY: this function's contract, passed on.
        self.carefully(|copy_stream| unsafe {
            copy_stream.queue_all(store, offset, to, bytes, CopyKind::HostToDevice)
        })
    }

    /// Waits until these copies are done. Blocks.
    pub(crate) fn land(&mut self, until: Ticket) -> Result<()> {
        self.carefully(|copy_stream| copy_stream.land_up_to(until.0))
    }

    /// Waits for all copies in flight, whatever their outcome. Nothing can be queued any more. Blocks.
    pub(crate) fn abandon(&mut self) {
        assert_unlocked();
        if !self.under_way.is_empty() {
            for stream in &self.streams {
                let waited = persist("waiting for copies", || self.backend.synchronize_stream(*stream));
                if let Err(error) = waited {
                    self.backend.clear_error();
                    tracing::error!(%error, "copies of a backup could not be waited for");
                }
            }
            self.under_way.clear();
        }
    }

    fn carefully<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        assert_unlocked();
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => act(self).inspect_err(|error| {
                self.backend.clear_error();
                self.failed = Some(error.clone());
            }),
        }
    }

    /// # Safety
    /// As for [`save`](Self::save) from device memory, or [`restore`](Self::restore) to it, as `kind` says.
    unsafe fn queue_all(
        &mut self,
        store: &Arc<Store>,
        offset: u64,
        memory: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<Ticket> {
        let saves = kind == CopyKind::DeviceToHost;
        if store.is_pinned() {
            // SAFETY: by this function's contract; the holder of the ticket keeps the store.
            unsafe { self.queue(memory, store.at(offset), bytes, kind, None) }?;
        } else if self.has_ring(bytes) {
            let mut done = 0;
            while done < bytes {
                let (slot, room) = self.next_slot()?;
                let (offset, bytes) = (offset + done, room.min(bytes - done));
                if !saves {
                    // SAFETY: nobody uses the slot any more, which is that long.
                    unsafe { store.read(&*self.backend, offset, slot, bytes) }?;
                }
                let landing = saves.then(|| Landing { slot, store: Arc::clone(store), offset, bytes });
                // SAFETY: nobody uses the slot any more, which is that long; the rest by this function's contract.
                unsafe { self.queue(memory.add(done), slot, bytes, kind, landing) }?;
                done += bytes;
            }
        } else if saves {
            // SAFETY: by this function's contract.
            unsafe { store.save(&*self.backend, offset, memory, bytes) }?;
        } else {
            // SAFETY: by this function's contract.
            unsafe { store.restore(&*self.backend, offset, memory, bytes) }?;
        }
        Ok(Ticket(self.queued))
    }

    /// Queues one copy between device memory and the host.
    ///
    /// # Safety
    /// Both ranges stay as they are until the copy has landed, or is abandoned.
    unsafe fn queue(
        &mut self,
        memory: DevicePtr,
        host: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        landing: Option<Landing>,
    ) -> Result<()> {
        while self.streams.len() < STREAMS {
            self.streams.push(self.backend.create_stream(self.device, 0)?);
        }
        let stream = self.streams[(self.queued % STREAMS as u64) as usize];
        let until = HeldEvent::new(&self.backend, self.device)?;
        let (to, from) = if kind == CopyKind::DeviceToHost { (host, memory) } else { (memory, host) };
        // SAFETY: by this function's contract.
        unsafe { self.backend.copy_async(to, from, bytes, kind, stream) }?;
        let recorded = until.record(stream);
        // In any case: queued copies are waited for.
        self.under_way.push_back(QueuedCopy { until, landing });
        self.queued += 1;
        recorded
    }

    /// A slot that nobody uses any more, and its length. Blocks where all are in use.
    fn next_slot(&mut self) -> Result<(DevicePtr, u64)> {
        let Some(ring) = &self.ring else { unreachable!("asked for where there is one") };
        self.land_up_to(ring.users[ring.next])?;
        let user = self.queued + 1;
        let Some(ring) = &mut self.ring else { unreachable!("it stays") };
        let slot = ring.memory.at(ring.next as u64 * ring.slot);
        ring.users[ring.next] = user;
        ring.next = (ring.next + 1) % SLOTS;
        Ok((slot, ring.slot))
    }

    /// True if there is a ring. Makes one for copies of so many bytes, if possible.
    fn has_ring(&mut self, bytes: u64) -> bool {
        if self.ring.as_ref().is_some_and(|ring| ring.slot >= bytes.min(SLOT)) {
            return true;
        }
        // A small ring serves on where no larger one can be had.
        let slot = bytes.min(SLOT);
        // Nobody gives anything up for it.
        match Store::of_driver(&self.backend, slot * SLOTS as u64) {
            Ok(memory) if self.land_up_to(self.queued).is_ok() => {
                self.ring = Some(PinnedSlots { memory, slot, users: [0; SLOTS], next: 0 });
            }
            _ => self.backend.clear_error(),
        }
        self.ring.is_some()
    }

    fn land_up_to(&mut self, until: u64) -> Result<()> {
        while self.queued - (self.under_way.len() as u64) < until
            && let Some(QueuedCopy { until, landing }) = self.under_way.front()
        {
            until.wait()?;
            if let Some(Landing { slot, store, offset, bytes }) = landing {
                // SAFETY: the slot has that many bytes; the store has room for them that is this copy's.
                unsafe { store.write(&*self.backend, *offset, *slot, *bytes) }?;
            }
            self.under_way.pop_front();
        }
        Ok(())
    }
}

impl Drop for CopyStream {
    fn drop(&mut self) {
        self.abandon();
        if !state::may_destroy(self.backend.id()) {
            return;
        }
        for stream in self.streams.drain(..) {
            // SAFETY: rule 1: made by this copy stream, and nobody else has it.
            if let Err(error) = persist("ending a stream", || unsafe { self.backend.destroy_stream(stream) })
            {
                self.backend.clear_error();
                tracing::warn!(%error, "the stream of a backup's copies could not be ended");
            }
        }
    }
}
