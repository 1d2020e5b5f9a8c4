//! Sources of pinned memory: the driver, pages that are registered with it, or the reserve.

pub(super) mod numa;
mod prefault;
mod slab;

use super::pinned_block::{Fresh, PinMethod};
use super::table::Knobs;
use crate::backend::{self, Backend, BackendError, DeviceGuard, ErrorKind, HostFlags, Unsupported};
use crate::config::Settings;
use crate::error::{AllocError, Result};
use crate::process::system::System;
use crate::process::unified::Unified;
use crate::sync::plain::AtomicBool;
use crate::sync::{Arc, Mutex, Rank, assert_unlocked};
use crate::types::{DeviceIndex, DevicePtr};
use numa::Preferring;
use slab::Slab;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The reserve: a range that was pinned at first use.
#[derive(Debug)]
struct PinnedRange {
    base: DevicePtr,
    bytes: u64,
    origin: PinMethod,
    slab: Slab,
}

#[derive(Debug)]
enum ReserveState {
    /// None is wanted, or another thread is making it.
    Absent,
    /// To be made at first use.
    Wanted(u64),
    Ready(PinnedRange),
}

/// Takes pinned memory, and gives it back. Needs no lock, and must not be called with one. Whoever calls says first that memory is
/// [on its way](Unified::moving).
#[derive(Debug)]
pub(super) struct PinnedSource {
    backend: Arc<dyn Backend>,
    /// The node it is placed on; `None` is the system's choice.
    node: Option<u32>,
    reserve: Mutex<ReserveState>,
    /// The memory that it takes, where devices have theirs there.
    unified: Option<&'static Unified>,
    /// True once told that pages cannot be registered.
    told: AtomicBool,
}

/// Every device reaches it, whichever was current.
const FLAGS: HostFlags = HostFlags::PORTABLE;

/// Nothing is passed off as page-locked that is not.
fn without_pinning(absent: Unsupported) -> BackendError {
    let reason = format!("{}; use ordinary memory, which can be copied too", absent.reason);
    Unsupported { reason, ..absent }.into()
}

impl PinnedSource {
    pub(super) fn new(backend: Arc<dyn Backend>, node: Option<u32>, settings: &Settings) -> Self {
        let reserve = settings.pinned_reserve_segment_size;
        let reserve = if reserve > 0 { ReserveState::Wanted(reserve) } else { ReserveState::Absent };
        let unified = Unified::of_pages(&System::at(&settings.system_root), &*backend, node);
        let reserve = Mutex::new(Rank::Registry, reserve);
        Self { backend, node, reserve, unified, told: AtomicBool::new(false) }
    }

    pub(super) fn node(&self) -> Option<u32> {
        self.node
    }

    /// The memory that it takes, where devices have theirs there.
    pub(super) fn unified(&self) -> Option<&'static Unified> {
        self.unified
    }

    /// Memory of `size` bytes, of the reserve only where it `may_be_reserve`: that goes with the allocator.
    pub(super) fn take(&self, size: u64, may_be_reserve: bool, knobs: &Knobs) -> Result<Fresh> {
        let made = if may_be_reserve { self.make_reserve(knobs) } else { None };
        if may_be_reserve && let Some(ptr) = self.cut(size) {
            return Ok(Fresh { ptr, size, origin: PinMethod::Reserve, took: made });
        }
        let (ptr, origin, time) = self.pin(size, knobs)?;
        Ok(Fresh { ptr, size, origin, took: Some(made.unwrap_or_default() + time) })
    }

    fn cut(&self, size: u64) -> Option<DevicePtr> {
        match &mut *self.reserve.lock() {
            ReserveState::Ready(reserve) => reserve.slab.take(size).map(|offset| reserve.base.add(offset)),
            _ => None,
        }
    }

    /// Makes the reserve if it is wanted. Where that fails it is wanted again at the next request.
    fn make_reserve(&self, knobs: &Knobs) -> Option<Duration> {
        let bytes = {
            let mut reserve = self.reserve.lock();
            let ReserveState::Wanted(bytes) = *reserve else { return None };
            *reserve = ReserveState::Absent;
            bytes
        };
        let pinned = self.pin(bytes, knobs);
        let (state, time) = match pinned {
            Ok((base, origin, time)) => {
                (ReserveState::Ready(PinnedRange { base, bytes, origin, slab: Slab::new(bytes) }), Some(time))
            }
            Err(error) => {
                self.backend.clear_error();
                tracing::warn!(%error, bytes, "the reserve of pinned memory could not be made");
                (ReserveState::Wanted(bytes), None)
            }
        };
        *self.reserve.lock() = state;
        time
    }

    /// Bytes of the reserve, and how many of them no block has.
    pub(super) fn reserve_bytes(&self) -> (u64, u64) {
        match &*self.reserve.lock() {
            ReserveState::Ready(reserve) => (reserve.bytes, reserve.slab.free_bytes()),
            _ => (0, 0),
        }
    }

    /// Takes pinned memory from the driver, as far as devices that share it admit that.
    fn pin(&self, bytes: u64, knobs: &Knobs) -> Result<(DevicePtr, PinMethod, Duration)> {
        let claimed = self.unified.map_or(Ok(None), |unified| unified.claim(bytes));
        let _coming = claimed.map_err(AllocError::PinnedOutOfMemory)?;
        self.pin_unasked(bytes, knobs).map_err(|mut error| {
            self.give_up(bytes);
            if error.kind == ErrorKind::OutOfMemory
                && let Some(host) = self.unified.and_then(|unified| unified.short_host(bytes))
            {
                error.detail = format!("{}. {host}", error.detail);
            }
            AllocError::Backend(error)
        })
    }

    /// Bytes are pinned no more.
    fn give_up(&self, bytes: u64) {
        if let Some(unified) = self.unified {
            unified.give_up(bytes);
        }
    }

    fn pin_unasked(&self, bytes: u64, knobs: &Knobs) -> backend::Result<(DevicePtr, PinMethod, Duration)> {
        assert_unlocked();
        let _device = self.device()?;
        let begun = Instant::now();
        let pinned = self.backend.pinned_host();
        // Pages of our own can be placed before they exist; the driver's only by the thread's policy.
        let registers = self.node.is_some() || pinned.is_err();
        if knobs.use_host_register || registers && self.backend.host_registration().is_ok() {
            match self.register(bytes, knobs.register_threads) {
                Ok(ptr) => return Ok((ptr, PinMethod::Registered, begun.elapsed())),
                // Registering is one way to pin, and the driver has another.
                Err(error) if error.kind == ErrorKind::NotSupported && pinned.is_ok() => {
                    self.allocates(&error)
                }
                Err(error) => return Err(error),
            }
        }
        let _placed = self.node.and_then(Preferring::node);
        let ptr = pinned.map_err(without_pinning)?.host_malloc(bytes, FLAGS)?;
        Ok((ptr, PinMethod::Driver, begun.elapsed()))
    }

    /// Tells once that pages are not registered here.
    fn allocates(&self, error: &BackendError) {
        self.backend.clear_error();
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "pages are not registered here; pinned memory is allocated by the driver instead");
        }
    }

    /// New pages, brought into being and registered.
    fn register(&self, bytes: u64, threads: u64) -> backend::Result<DevicePtr> {
        let registration = self.backend.host_registration()?;
        let ptr = prefault::map(bytes)?;
        if let Some(node) = self.node {
            // SAFETY: the mapping just made.
            unsafe { numa::prefer(ptr, bytes, node) };
        }
        // SAFETY: the mapping just made, which nobody else knows.
        unsafe { prefault::touch(ptr, bytes, threads) };
        // SAFETY: the mapping stays until it is unregistered.
        let registered = unsafe { registration.register(ptr, bytes, FLAGS) };
        if registered.is_err() {
            // SAFETY: the mapping just made; the driver does not have it (rule 6).
            unsafe { prefault::unmap(ptr, bytes) };
        }
        registered.map(|()| ptr)
    }

    /// The first device whose context exists, so that pinning makes none. One that cannot be asked is passed over: it may
    /// be lost, and the memory is for the others, too.
    fn device(&self) -> backend::Result<Option<DeviceGuard<'_>>> {
        for device in (0..self.backend.device_count()?).map(DeviceIndex) {
            let entered = match self.backend.has_primary_context(device) {
                Ok(false) => continue,
                Ok(true) => DeviceGuard::new(&*self.backend, device),
                Err(error) => Err(error),
            };
            match entered {
                Ok(guard) => return Ok(Some(guard)),
                Err(error) => {
                    self.backend.clear_error();
                    tracing::debug!(%error, %device, "memory is pinned in another device's name");
                }
            }
        }
        Ok(None)
    }

    /// Gives memory back that [`take`](Self::take) gave; says how long the driver took, where it was asked. What it
    /// refuses is as it was.
    ///
    /// # Safety
    /// Rule 3, for these three values of one `take`.
    pub(super) unsafe fn give_back(
        &self,
        ptr: DevicePtr,
        size: u64,
        origin: PinMethod,
    ) -> backend::Result<Option<Duration>> {
        if origin == PinMethod::Reserve {
            if let ReserveState::Ready(reserve) = &mut *self.reserve.lock() {
                reserve.slab.put(ptr.0 - reserve.base.0, size);
            }
            return Ok(None);
        }
        assert_unlocked();
        let begun = Instant::now();
        if origin == PinMethod::Registered {
            // SAFETY: rule 3, which the caller keeps.
            unsafe { self.backend.host_registration()?.unregister(ptr) }?;
            // SAFETY: a mapping of `register`, which nobody uses any more.
            unsafe { prefault::unmap(ptr, size) };
        } else {
            // SAFETY: rule 3, which the caller keeps.
            unsafe { self.backend.pinned_host()?.host_free(ptr) }?;
        }
        self.give_up(size);
        Ok(Some(begun.elapsed()))
    }

    /// Gives the reserve back, if no block has a piece of it.
    pub(super) fn give_reserve_back(&self) -> backend::Result<()> {
        let reserve = {
            let mut state = self.reserve.lock();
            match std::mem::replace(&mut *state, ReserveState::Absent) {
                ReserveState::Ready(reserve) if reserve.slab.is_whole() => reserve,
                other => {
                    *state = other;
                    return Ok(());
                }
            }
        };
        let PinnedRange { base, bytes, origin, .. } = reserve;
        // SAFETY: rule 3: made by `pin`, and no block has any of it.
        let given = unsafe { self.give_back(base, bytes, origin) };
        if given.is_err() {
            *self.reserve.lock() = ReserveState::Ready(reserve);
        }
        given.map(drop)
    }
}
