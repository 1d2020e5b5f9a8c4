//! Caching off: every request goes straight to the driver, every free straight back. A table says which memory came
//! from the driver, so caching may be turned on or off between an allocation and its free.

use crate::backend::{Backend, BackendError, ErrorKind};
use crate::error::Result;
use crate::features::share::Share;
use crate::process::attention::{Attention, Reason};
use crate::process::host_reserve::{HostReserve, HostRoom};
use crate::process::state;
use crate::sync::{Arc, Mutex, Rank, assert_unlocked};
use crate::types::{DeviceIndex, DevicePtr, Stream};
use crate::watch::pointer::Problem;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A live allocation that came straight from the driver.
#[derive(Debug, Default)]
struct UncachedBlock {
    /// Devices besides its own whose streams use it.
    users: SmallVec<[DeviceIndex; 1]>,
    /// A value owns it, and frees it.
    owned: bool,
    /// Bytes requested.
    bytes: u64,
    /// Share, once other processes were given it.
    share: Option<Arc<Share>>,
}

/// Memory that was freed and that other processes still have: the driver's free would take it from them.
type Freed = (DevicePtr, Arc<Share>);

/// Memory straight from the driver, taken while caching was off.
#[derive(Debug)]
pub(crate) struct Uncached {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    attention: &'static Attention,
    live: Mutex<FxHashMap<DevicePtr, UncachedBlock>>,
    /// Memory freed while other processes had it.
    freed: Mutex<Vec<Freed>>,
}

impl Uncached {
    pub(crate) fn new(backend: Arc<dyn Backend>, device: DeviceIndex, attention: &'static Attention) -> Self {
        Self {
            backend,
            device,
            attention,
            live: Mutex::new(Rank::Registry, FxHashMap::default()),
            freed: Mutex::new(Rank::Registry, Vec::new()),
        }
    }

    /// Sends requests straight to the driver from here on, or to the cache again.
    pub(crate) fn turn(&self, on: bool) {
        self.attention.set(Reason::UNCACHED, on);
    }

    /// Takes memory from the driver, even if some is cached, and without relaxing the thread's capture mode. Leaves the
    /// host its reserve.
    pub(crate) fn malloc(&self, bytes: u64, reserve: Option<&HostReserve>) -> Result<DevicePtr> {
        assert_unlocked();
        let take = || {
            let coming = reserve.map_or(Ok(None), |reserve| reserve.admit(bytes));
            let _coming = coming.map_err(|room| self.refusal(&room))?;
            self.backend.malloc(self.device, bytes).inspect_err(|_| self.backend.clear_error())
        };
        let ptr = take().or_else(|error| {
            let waits = !self.freed.lock().is_empty() && !state::captures_over(self.backend.id());
            if !error.is_out_of_memory() || !waits {
                return Err(error);
            }
            // Other processes may have let go of some.
            self.free_unshared();
            take()
        })?;
        self.live.lock().insert(ptr, UncachedBlock { bytes, ..UncachedBlock::default() });
        Ok(ptr)
    }

    fn refusal(&self, room: &HostRoom) -> BackendError {
        let error = BackendError::new(ErrorKind::OutOfMemory, 0, "malloc", self.device, room.to_string());
        error.of(self.backend.name())
    }

    /// Gives memory back to the driver, once all work of the devices that use it is done: drivers' own frees wait, the
    /// contract's need not. Blocks. `Ok(false)` where `ptr` is no such memory, or a value owns it; after an error it is
    /// as before.
    pub(crate) fn free(&self, ptr: DevicePtr) -> Result<bool> {
        let Some(mut memory) = self.take(ptr) else { return Ok(false) };
        assert_unlocked();
        let mut devices = std::iter::once(self.device).chain(memory.users.iter().copied());
        let waited = devices.try_for_each(|device| self.backend.synchronize_device(device));
        let given = waited.and_then(|()| match memory.share.take() {
            Some(share) if share.is_held_once_closed() => {
                self.keep(ptr, share);
                Ok(())
            }
            // SAFETY: rule 3: the base of memory from `malloc`, taken out of the table by this thread only; all devices that
            // use it have just finished their work, and no other process has it.
            _ => unsafe { self.backend.free(self.device, ptr) },
        });
        if let Err(error) = given {
            self.backend.clear_error();
            self.live.lock().insert(ptr, memory);
            return Err(error.into());
        }
        Ok(true)
    }

    fn take(&self, ptr: DevicePtr) -> Option<UncachedBlock> {
        let mut live = self.live.lock();
        if live.get(&ptr)?.owned { None } else { live.remove(&ptr) }
    }

    /// Gives these bytes of such memory to a value, or takes them back. `false` where that is so already, or `ptr` is
    /// none, or of fewer bytes.
    pub(crate) fn set_owned(&self, ptr: DevicePtr, owned: Option<u64>) -> bool {
        let mut live = self.live.lock();
        let fits = |memory: &&mut UncachedBlock| owned.is_none_or(|bytes| bytes <= memory.bytes);
        let Some(memory) = live.get_mut(&ptr).filter(fits) else { return false };
        std::mem::replace(&mut memory.owned, owned.is_some()) != owned.is_some()
    }

    /// True if such memory is owned by a value; `None` where `ptr` is none.
    pub(crate) fn is_owned(&self, ptr: DevicePtr) -> Option<bool> {
        self.live.lock().get(&ptr).map(|memory| memory.owned)
    }

    /// Notes that `stream` uses memory that came straight from the driver. `false` where `ptr` is none.
    pub(crate) fn record_stream(&self, ptr: DevicePtr, stream: Stream) -> bool {
        let mut live = self.live.lock();
        let Some(memory) = live.get_mut(&ptr) else { return false };
        if stream.device != self.device && !memory.users.contains(&stream.device) {
            memory.users.push(stream.device);
        }
        true
    }

    /// Share of live memory straight from the driver, if other processes were given it.
    pub(crate) fn share(&self, ptr: DevicePtr) -> Option<Arc<Share>> {
        self.live.lock().get(&ptr)?.share.clone()
    }

    /// Notes that such memory was shared. Returns the share that counts, if another thread was first; `None` where the
    /// memory was freed.
    pub(crate) fn note_share(&self, ptr: DevicePtr, share: Arc<Share>) -> Option<Arc<Share>> {
        let mut live = self.live.lock();
        let known = &mut live.get_mut(&ptr)?.share;
        if known.is_none() {
            *known = Some(Arc::clone(&share));
        }
        known.clone()
    }

    fn keep(&self, ptr: DevicePtr, share: Arc<Share>) {
        self.attention.add_pending();
        self.freed.lock().push((ptr, share));
    }

    /// Gives memory back to the driver that other processes have let go of. May block.
    pub(crate) fn free_unshared(&self) {
        let freed = std::mem::take(&mut *self.freed.lock());
        let (held, over): (Vec<Freed>, Vec<Freed>) =
            freed.into_iter().partition(|(_, share)| share.is_held_once_closed());
        self.freed.lock().extend(held);
        for (ptr, share) in over {
            assert_unlocked();
            // SAFETY: rule 3: the base of memory from `malloc`, taken out of the list by this thread only; its devices finished
            // their work before it was put there, and no other process has it.
            if let Err(error) = unsafe { self.backend.free(self.device, ptr) } {
                self.backend.clear_error();
                tracing::warn!(%error, "memory that other processes had could not be freed; it is tried again later");
                self.freed.lock().push((ptr, share));
            } else {
                self.attention.remove_pending();
            }
        }
    }

    /// True if `ptr` is live memory straight from the driver.
    pub(crate) fn has(&self, ptr: DevicePtr) -> bool {
        self.live.lock().contains_key(&ptr)
    }

    pub(crate) fn diagnose(&self, ptr: DevicePtr) -> Option<Problem> {
        let owned = self.is_owned(ptr)?;
        Some(if owned { Problem::Owned } else { Problem::NotCached })
    }
}
