//! Blocks that this process opened of others, on one device: each block once, each driver mapping once.

use super::export_table::{HeldBlock, LedgerView};
use super::handle::{BlockMemory, Handle};
use super::mapping::Undo;
use super::other_process::Process;
use crate::backend::{Backend, IpcMemoryHandle, ShareableHandle};
use crate::error::{AllocError, Result};
use crate::process::attention::Attention;
use crate::process::state;
use crate::sync::plain::{AtomicBool, AtomicU64};
use crate::sync::{Arc, Mutex, Ordering, Rank, Weak};
use crate::types::{DeviceIndex, DevicePtr};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::mem::ManuallyDrop;

/// Memory of another process, for use on the device that opened it. Dropping the last of these waits for the devices
/// that reach it, and closes it. It shows the whole segment, or the granules, that the shared block lies in: the block
/// itself is at [`SharedBlock::offset`](super::SharedBlock::offset).
///
/// The memory stays while this lives, even if its owner frees it or ends.
#[derive(Debug)]
pub struct ImportedMemory {
    parts: ManuallyDrop<OpenParts>,
}

#[derive(Debug)]
struct OpenParts {
    imports: Arc<Imports>,
    handle: Box<[u8]>,
    shown: Arc<OpenedMapping>,
    holding: HeldBlock,
}

impl ImportedMemory {
    /// First byte in this process.
    #[must_use]
    pub fn base(&self) -> DevicePtr {
        self.parts.shown.base
    }

    /// Bytes from [`base`](Self::base) on.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.shown.bytes
    }

    /// The device that opened it.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.parts.imports.device
    }
}

impl Drop for ImportedMemory {
    fn drop(&mut self) {
        // At an edge of the process nothing may be locked, called or destroyed.
        if !self.parts.imports.may_close() {
            return;
        }
        let this = std::ptr::from_ref::<Self>(self);
        // SAFETY: the parts are taken out once, here, and not used again.
        let OpenParts { imports, handle, shown, holding } = unsafe { ManuallyDrop::take(&mut self.parts) };
        imports.forget(&handle, this);
        imports.close(shown, holding);
    }
}

/// One mapping of the driver's. Several blocks of a fixed segment share one.
#[derive(Debug)]
struct OpenedMapping {
    base: DevicePtr,
    bytes: u64,
    mapping: Undo,
}

/// Identity of a fixed segment: the exporter's ledger, its number there, and the driver's handle.
type SegmentKey = (u64, u32, IpcMemoryHandle);

#[derive(Debug, Default)]
struct Table {
    /// Blocks by their handle's bytes, which are the same for the same block.
    blocks: FxHashMap<Box<[u8]>, Weak<ImportedMemory>>,
    segments: FxHashMap<SegmentKey, Weak<OpenedMapping>>,
    ledgers: Vec<Weak<LedgerView>>,
    /// Other devices that reach these mappings.
    peers: SmallVec<[DeviceIndex; 4]>,
    /// Mappings that the driver refused to close, or that may not be closed during a capture.
    left: Vec<Left>,
    /// The word of the device's allocator, while that is there.
    attention: Option<&'static Attention>,
}

/// Mappings to close later.
#[derive(Debug)]
enum Left {
    /// A block that work may still use.
    Block(Arc<OpenedMapping>, HeldBlock),
    /// A mapping that nothing uses; its block is held until it is gone.
    Mapping(Undo, u64, HeldBlock),
    /// A trial's mapping, which belongs to no block.
    Trial(Undo),
}

/// A device's imports. They outlive its allocator where the program does not drop them first.
#[derive(Debug)]
pub(crate) struct Imports {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    /// Held while a block is opened: a second opening of it waits and finds it.
    opening: Mutex<()>,
    table: Mutex<Table>,
    /// True if something is left to be closed.
    has_left: AtomicBool,
    /// Bytes of all mappings.
    bytes: AtomicU64,
    /// The allocator ended without its driver.
    abandoned: AtomicBool,
}

impl Imports {
    pub(crate) fn new(backend: Arc<dyn Backend>, device: DeviceIndex, attention: &'static Attention) -> Self {
        let table = Table { attention: Some(attention), ..Table::default() };
        Self {
            backend,
            device,
            opening: Mutex::new(Rank::Synchronisation, ()),
            table: Mutex::new(Rank::Registry, table),
            has_left: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Notes that the device's allocator ends, and its word goes to another.
    pub(crate) fn orphan(&self) {
        self.table.lock().attention = None;
    }

    /// Notes that the device's allocator ends without its driver, which its word will not say any more. Takes no lock.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// True if the driver may still be called to close something.
    fn may_close(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire) && state::may_destroy(self.backend.id())
    }

    /// Bytes of address space that show other processes' memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Opens the block of these bytes, or finds it open. Calls the driver, and may block.
    pub(crate) fn open(self: &Arc<Self>, bytes: &[u8], handle: Handle) -> Result<Arc<ImportedMemory>> {
        let _alone = self.opening.lock();
        self.retry();
        if let Some(known) = self.table.lock().blocks.get(bytes).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let refused = |problem: String| AllocError::Open { problem: problem.into() };
        let me = Process::current().map_err(|error| {
            refused(format!(
                "this process cannot be looked up in /proc ({error}); mount it where blocks are shared"
            ))
        })?;
        let view = self.ledger(&handle).map_err(refused)?;
        // Noted before anything is opened: from here on the exporter keeps the block.
        let holding = view.hold(me, handle.ticket).map_err(refused)?;
        let (shown, holding) = self.show(&handle, holding)?;
        let parts = OpenParts { imports: Arc::clone(self), handle: bytes.into(), shown, holding };
        let opened = Arc::new(ImportedMemory { parts: ManuallyDrop::new(parts) });
        let mut table = self.table.lock();
        table.blocks.insert(bytes.into(), Arc::downgrade(&opened));
        Ok(opened)
    }

    fn ledger(&self, handle: &Handle) -> std::result::Result<Arc<LedgerView>, String> {
        let exporter = handle.exporter;
        {
            let mut table = self.table.lock();
            table.ledgers.retain(|view| view.strong_count() > 0);
            let mut known = table.ledgers.iter().filter_map(Weak::upgrade);
            if let Some(view) = known.find(|view| view.is_of(exporter.process, exporter.nonce)) {
                return Ok(view);
            }
        }
        let view = Arc::new(LedgerView::open(exporter.process, exporter.ledger, exporter.nonce)?);
        self.table.lock().ledgers.push(Arc::downgrade(&view));
        Ok(view)
    }

    /// Shows a block's memory. A failure undoes its calls, now or later.
    fn show(&self, handle: &Handle, holding: HeldBlock) -> Result<(Arc<OpenedMapping>, HeldBlock)> {
        let key = match &handle.memory {
            BlockMemory::Fixed(ipc) => Some((handle.exporter.nonce, handle.registration, *ipc)),
            BlockMemory::Descriptors(_) | BlockMemory::Fabric(_) => None,
        };
        if let Some(key) = &key {
            let mut table = self.table.lock();
            if let Some(shown) = table.segments.get(key).and_then(Weak::upgrade) {
                return Ok((shown, holding));
            }
            table.segments.retain(|_, shown| shown.strong_count() > 0);
        }
        let mut mapping = Undo::default();
        let base = match self.map(handle, &mut mapping) {
            Ok(base) => base,
            Err(error) => {
                self.backend.clear_error();
                if let Err(refused) = mapping.undo(&*self.backend) {
                    self.backend.clear_error();
                    tracing::warn!(%refused, "an opening that failed could not be undone; it is tried again later");
                    self.bytes.fetch_add(handle.whole, Ordering::Relaxed);
                    self.keep(Left::Mapping(mapping, handle.whole, holding));
                }
                return Err(error);
            }
        };
        self.bytes.fetch_add(handle.whole, Ordering::Relaxed);
        let shown = Arc::new(OpenedMapping { base, bytes: handle.whole, mapping });
        if let Some(key) = key {
            self.table.lock().segments.insert(key, Arc::downgrade(&shown));
        }
        Ok((shown, holding))
    }

    fn map(&self, handle: &Handle, mapping: &mut Undo) -> Result<DevicePtr> {
        let shared = match &handle.memory {
            BlockMemory::Fixed(ipc) => {
                let base = mapping.open(&*self.backend, self.device, ipc)?;
                // A handle that claims more than there is would lead past its end.
                if self.backend.address_range(base).is_ok_and(|range| range.bytes < handle.whole) {
                    let problem = "the handle describes more memory than the driver has opened for it".into();
                    return Err(AllocError::Open { problem });
                }
                return Ok(base);
            }
            BlockMemory::Descriptors(granules) => {
                let (sizes, numbers): (Vec<_>, Vec<_>) = granules.iter().copied().unzip();
                let taken = handle.exporter.process.descriptors(&numbers);
                let taken = taken.map_err(|problem| AllocError::Open { problem })?;
                sizes.into_iter().zip(taken.into_iter().map(ShareableHandle::PosixFd)).collect()
            }
            BlockMemory::Fabric(granules) => {
                granules.iter().map(|(bytes, handle)| (*bytes, ShareableHandle::Fabric(*handle))).collect()
            }
        };
        Ok(mapping.map(&*self.backend, &self.users(), shared)?)
    }

    /// The device, and those that reach its memory.
    fn users(&self) -> SmallVec<[DeviceIndex; 4]> {
        let mut users: SmallVec<_> = [self.device].into_iter().collect();
        users.extend_from_slice(&self.table.lock().peers);
        users
    }

    /// Lets `peer` reach these mappings, now and from here on. Calls the driver.
    pub(crate) fn open_to(&self, peer: DeviceIndex) -> crate::backend::Result<()> {
        let _alone = self.opening.lock();
        let blocks: Vec<_> = {
            let mut table = self.table.lock();
            if table.peers.contains(&peer) {
                return Ok(());
            }
            table.peers.push(peer);
            table.blocks.values().filter_map(Weak::upgrade).collect()
        };
        let allow = |block: &Arc<ImportedMemory>| block.parts.shown.mapping.allow(&*self.backend, peer);
        let allowed = blocks.iter().try_for_each(allow);
        if allowed.is_err() {
            self.backend.clear_error();
            self.table.lock().peers.retain(|known| *known != peer);
        }
        allowed
    }

    /// Forgets an open block, unless it was opened again meanwhile.
    fn forget(&self, handle: &[u8], ended: *const ImportedMemory) {
        let mut table = self.table.lock();
        if table.blocks.get(handle).is_some_and(|known| std::ptr::eq(known.as_ptr(), ended)) {
            table.blocks.remove(handle);
        }
    }

    /// Keeps it to be closed later.
    fn keep(&self, left: Left) -> bool {
        self.table.lock().left.push(left);
        self.has_left.store(true, Ordering::Release);
        false
    }

    /// Closes what is left, until the driver refuses one, which comes last the next time. Calls the driver, and may
    /// block.
    pub(crate) fn retry(&self) {
        if !self.has_left.load(Ordering::Acquire) || self.captures() {
            return;
        }
        let mut left = {
            let mut table = self.table.lock();
            self.has_left.store(false, Ordering::Release);
            std::mem::take(&mut table.left).into_iter()
        };
        let is_closed = |one| match one {
            Left::Block(shown, holding) => self.close(shown, holding),
            Left::Mapping(mapping, bytes, holding) => self.unmap(mapping, bytes, holding),
            Left::Trial(mapping) => self.undo_trial(mapping),
        };
        if !left.by_ref().all(is_closed) {
            self.table.lock().left.splice(0..0, left);
        }
    }

    /// True if a capture is under way, in which nothing can be waited for.
    fn captures(&self) -> bool {
        let is_alive = self.table.lock().attention.is_some();
        is_alive && state::captures_over(self.backend.id())
    }

    /// Waits for the devices that reach the memory, and closes it. `false` where that is left for later.
    fn close(&self, shown: Arc<OpenedMapping>, holding: HeldBlock) -> bool {
        if self.captures() {
            return self.keep(Left::Block(shown, holding));
        }
        let waited = self.users().into_iter().try_for_each(|device| self.backend.synchronize_device(device));
        if let Err(error) = waited {
            self.backend.clear_error();
            tracing::warn!(%error, "the users of another process's memory could not be waited for; it is closed later");
            return self.keep(Left::Block(shown, holding));
        }
        // Exactly one of those that let go of it gets it. The others hold the memory that they still show.
        if let Some(OpenedMapping { bytes, mapping, .. }) = Arc::into_inner(shown) {
            return self.unmap(mapping, bytes, holding);
        }
        true
    }

    /// Gives a trial's mapping back to the driver. `false` where that is left for later.
    pub(super) fn undo_trial(&self, mut mapping: Undo) -> bool {
        if let Err(error) = mapping.undo(&*self.backend) {
            self.backend.clear_error();
            tracing::warn!(%error, "a trial's memory could not be given back; it is tried again later");
            return self.keep(Left::Trial(mapping));
        }
        true
    }

    /// Gives a mapping that nothing uses back to the driver, then the block to its owner. `false` where that is left for later.
    fn unmap(&self, mut mapping: Undo, bytes: u64, holding: HeldBlock) -> bool {
        if let Err(error) = mapping.undo(&*self.backend) {
            self.backend.clear_error();
            tracing::warn!(%error, "another process's memory could not be closed; it is tried again later");
            return self.keep(Left::Mapping(mapping, bytes, holding));
        }
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        true
    }
}

impl Drop for Imports {
    /// A last try of each. Mappings that cannot be closed are held until the process ends: work may still use them.
    fn drop(&mut self) {
        if self.may_close() {
            let left = self.table.lock().left.len();
            (0..left).for_each(|_| self.retry());
        }
        self.table.lock().left.drain(..).for_each(std::mem::forget);
    }
}
