//! Leftovers: what drivers, or pools' sources, refused to take back, and its retries.

use super::driver::release;
use super::{Mapping, Source};
use crate::backend::VirtualMemory;
use crate::process::callbacks::CallbackScope;
use crate::types::{DevicePtr, PhysicalHandle};

/// Leftovers of refused releases.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Mappings, by address and bytes, where nothing should be.
    mappings: Vec<(DevicePtr, u64)>,
    /// Memory that nothing maps on purpose, and where it came from.
    handles: Vec<(Mapping, Source)>,
    /// Views that are not needed any more: address, bytes reserved, bytes mapped from there on.
    views: Vec<(DevicePtr, u64, u64)>,
}

impl Leftovers {
    pub(crate) fn is_empty(&self) -> bool {
        self.mappings.is_empty() && self.handles.is_empty() && self.views.is_empty()
    }

    /// Bytes of memory that is not released.
    pub(crate) fn handle_bytes(&self) -> u64 {
        self.handles.iter().map(|(memory, _)| memory.bytes).sum()
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.mappings.append(&mut other.mappings);
        self.handles.append(&mut other.handles);
        self.views.append(&mut other.views);
    }

    /// A mapping where nothing should be, whose memory serves elsewhere.
    pub(crate) fn keep_mapping(&mut self, at: DevicePtr, bytes: u64) {
        self.mappings.push((at, bytes));
    }

    /// Memory that nothing maps on purpose, and where it came from.
    pub(super) fn keep_handle(&mut self, memory: Mapping, source: Source) {
        self.handles.push((memory, source));
    }

    /// The driver's memory, which nothing maps.
    pub(crate) fn keep_memory(&mut self, bytes: u64, handle: PhysicalHandle) {
        self.keep_handle(Mapping { addr: 0, bytes, handle }, None);
    }

    /// True if something is still mapped in a range where nothing should be.
    pub(super) fn maps_in(&self, base: u64, bytes: u64) -> bool {
        self.mappings.iter().any(|(at, _)| (base..base + bytes).contains(&at.0))
    }

    /// A view whose first `mapped` bytes could not be unmapped, or whose addresses could not be given back.
    pub(crate) fn keep_view(&mut self, base: DevicePtr, bytes: u64, mapped: u64) {
        self.views.push((base, bytes, mapped));
    }

    /// Tries again to take back what is the driver's, of each kind until one is refused. That one comes last the next time. So
    /// a driver that refuses all is asked about a few, however many there are. Returns what is left, and what only foreign
    /// code can take back. Calls the driver; hold no lock.
    pub(crate) fn retry(mut self, vm: &dyn VirtualMemory, calls: &CallbackScope<'_>) -> (Self, Self) {
        // SAFETY: rule 3: mapped by `back`, which failed, so it was never handed out.
        until_refused(&mut self.mappings, |(place, bytes)| unsafe { vm.unmap(*place, *bytes) }.is_ok());
        until_refused(&mut self.views, |(base, bytes, mapped)| {
            // SAFETY: rule 3: a view that nobody uses any more.
            if *mapped > 0 && unsafe { vm.unmap(*base, *mapped) }.is_err() {
                return false;
            }
            *mapped = 0;
            // SAFETY: rule 3: one whole reservation, with nothing mapped in it.
            unsafe { vm.release_address(*base, *bytes) }.is_ok()
        });
        let (callbacks, own) = self.handles.drain(..).partition(|(_, source)| source.is_some());
        self.append(Self { handles: own, ..Self::default() }.release(vm, calls));
        (self, Self { handles: callbacks, ..Self::default() })
    }

    /// Tries again to release the handles, until one is refused; returns what is left. Calls the driver, and sources; hold no
    /// lock.
    pub(crate) fn release(mut self, vm: &dyn VirtualMemory, calls: &CallbackScope<'_>) -> Self {
        let mut refused = Self::default();
        until_refused(&mut self.handles, |(memory, source)| {
            release(vm, &[*memory], source, &mut refused, calls);
            // Its pool may be gone.
            calls.end(source.take());
            refused.handles.is_empty()
        });
        self.handles.pop_if(|_| !refused.is_empty());
        self.append(refused);
        self
    }
}

/// Lets go of what `undo` succeeds with, up to the first that it does not. That becomes the last.
fn until_refused<T>(all: &mut Vec<T>, mut undo: impl FnMut(&mut T) -> bool) {
    let refused = all.iter_mut().position(|one| !undo(one));
    let rest = all.split_off(refused.unwrap_or(all.len()));
    *all = rest;
    if refused.is_some() {
        all.rotate_left(1);
    }
}
