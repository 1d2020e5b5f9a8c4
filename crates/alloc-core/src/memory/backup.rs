//! Stores for contents while their memory sleeps.

mod copy_stream;
pub(crate) mod refused;

pub(crate) use copy_stream::{CopyStream, Ticket};

use crate::backend::{Backend, BackendError, CopyKind, ErrorKind, HostFlags, Result};
use crate::process::pinned::{self, Pins};
use crate::process::state;
use crate::sync::{Arc, assert_unlocked};
use crate::types::{BackendId, DeviceIndex, DevicePtr};
use memmap2::{Advice, MmapRaw};
use std::path::{Path, PathBuf};

/// Treatment of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backup {
    /// They are lost: woken memory has the contents of the driver's new memory.
    Discard,
    /// Page-locked host memory: the fastest, as large as the sleeping memory. Refused where the device's memory is the
    /// host's.
    HostPinned(Retention),
    /// A file without a name in this directory, mapped into memory: the system may write it out when it needs its
    /// memory for something else. It goes with the wake, and with the end of the process, however that comes.
    File(PathBuf),
}

/// Fate of a backup's host memory after the wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Retention {
    /// It is given back.
    #[default]
    Release,
    /// It is kept for the next sleep, which then needs no page-locking, until
    /// [`drop_backups`](crate::allocator::SleepMode::drop_backups).
    Keep,
}

/// Host memory of a backup.
enum BackupMemory {
    /// Of the driver, or of the allocator of pinned memory that has it by a name.
    Pinned {
        backend: Arc<dyn Backend>,
        ptr: DevicePtr,
        bytes: u64,
        of: Option<(Arc<dyn Pins>, u64)>,
    },
    File(MmapRaw),
}

/// Host memory for one run of granules. Dropping the last share gives it back, which calls the driver: hold no lock.
pub(crate) struct Store(BackupMemory);

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Store {
    /// Memory of the program's pinned memory, where there is an allocator of it.
    fn pinned(backend: &Arc<dyn Backend>, bytes: u64) -> Result<Self> {
        assert_unlocked();
        let Some(pins) = pinned::of(backend.id()) else { return Self::of_driver(backend, bytes) };
        let (ptr, id) = pins.take(bytes)?;
        Ok(Self(BackupMemory::Pinned { backend: Arc::clone(backend), ptr, bytes, of: Some((pins, id)) }))
    }

    /// Memory of the driver's, for a while.
    fn of_driver(backend: &Arc<dyn Backend>, bytes: u64) -> Result<Self> {
        assert_unlocked();
        let ptr = backend.pinned_host()?.host_malloc(bytes, HostFlags::PORTABLE)?;
        Ok(Self(BackupMemory::Pinned { backend: Arc::clone(backend), ptr, bytes, of: None }))
    }

    fn file(directory: &Path, bytes: u64, device: DeviceIndex) -> Result<Self> {
        let map = || -> std::io::Result<MmapRaw> {
            let file = tempfile::tempfile_in(directory)?;
            // Its blocks are reserved now: a full disk must not show as a signal in the middle of the copy.
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
            // Nobody else has the file, which has no name; so it neither shrinks nor changes under the map.
            let map = MmapRaw::map_raw(&file)?;
            // A forked child would keep the file's blocks after the wake. It never touches them: it leaks its parent's allocators.
            map.advise(Advice::DontFork)?;
            Ok(map)
        };
        map().map(|map| Self(BackupMemory::File(map))).map_err(|error| {
            let detail = format!("no backup file of {bytes} bytes in {}: {error}", directory.display());
            BackendError::new(ErrorKind::ResourceLimit, 0, "backup file", device, &detail)
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        match &self.0 {
            BackupMemory::Pinned { bytes, .. } => *bytes,
            BackupMemory::File(map) => map.len() as u64,
        }
    }

    /// The place `offset` bytes into it.
    fn at(&self, offset: u64) -> DevicePtr {
        match &self.0 {
            BackupMemory::Pinned { ptr, .. } => ptr.add(offset),
            BackupMemory::File(map) => DevicePtr(map.as_mut_ptr() as u64 + offset),
        }
    }

    /// True if devices copy from and to it directly, while the host goes on.
    fn is_pinned(&self) -> bool {
        matches!(self.0, BackupMemory::Pinned { .. })
    }

    /// Copies device memory into the store. Blocks.
    ///
    /// # Safety
    /// `bytes` bytes at `from` are device memory that nobody writes, and at `offset` there is room for them that nobody
    /// else uses.
    unsafe fn save(&self, backend: &dyn Backend, offset: u64, from: DevicePtr, bytes: u64) -> Result<()> {
        assert_unlocked();
        debug_assert!(offset + bytes <= self.bytes(), "a run fits its store");
        // SAFETY: rule 2: the store lives and is long enough; the rest by this function's contract.
        unsafe { backend.copy(self.at(offset), from, bytes, CopyKind::DeviceToHost) }
    }

    /// Copies back. Blocks.
    ///
    /// # Safety
    /// `bytes` bytes at `to` are device memory that nobody uses.
    unsafe fn restore(&self, backend: &dyn Backend, offset: u64, to: DevicePtr, bytes: u64) -> Result<()> {
        assert_unlocked();
        debug_assert!(offset + bytes <= self.bytes(), "a run fits its store");
        // SAFETY: rule 2: the store lives and is long enough; the rest by this function's contract.
        unsafe { backend.copy(to, self.at(offset), bytes, CopyKind::HostToDevice) }
    }

    /// Copies other host memory into the store. Blocks.
    ///
    /// # Safety
    /// `bytes` bytes at `from` are host memory that nobody writes, and at `offset` there is room for them that nobody else
    /// uses.
    unsafe fn write(&self, backend: &dyn Backend, offset: u64, from: DevicePtr, bytes: u64) -> Result<()> {
        assert_unlocked();
        debug_assert!(offset + bytes <= self.bytes(), "a run fits its store");
        // SAFETY: rule 2: the store lives and is long enough; the rest by this function's contract.
        unsafe { backend.copy(self.at(offset), from, bytes, CopyKind::HostToHost) }
    }

    /// Copies to other host memory. Blocks.
    ///
    /// # Safety
    /// `bytes` bytes at `to` are host memory that nobody uses, and as many in the store were saved.
    pub(crate) unsafe fn read(
        &self,
        backend: &dyn Backend,
        offset: u64,
        to: DevicePtr,
        bytes: u64,
    ) -> Result<()> {
        assert_unlocked();
        debug_assert!(offset + bytes <= self.bytes(), "a run fits its store");
        // SAFETY: rule 2: the store lives and is long enough; the rest by this function's contract.
        unsafe { backend.copy(to, self.at(offset), bytes, CopyKind::HostToHost) }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let BackupMemory::Pinned { backend, ptr, of, .. } = &self.0
            && state::may_destroy(backend.id())
        {
            match of {
                Some((pins, id)) => pins.end(*id),
                None => refused::give_back(&**backend, *ptr),
            }
        }
    }
}

/// Contents of a granule: a place in a store. `None` where they are not kept.
pub(crate) type Saved = Option<(Arc<Store>, u64)>;

/// Stores that are kept between sleeps.
#[derive(Debug, Default)]
pub(crate) struct Spares(Vec<Arc<Store>>);

impl Spares {
    /// The smallest unused spare store that has room for `bytes`.
    pub(crate) fn find(&self, backend: BackendId, bytes: u64) -> Option<Arc<Store>> {
        let idle = |store: &&Arc<Store>| Arc::strong_count(store) == 1 && store.bytes() >= bytes;
        let own = |store: &&Arc<Store>| match &store.0 {
            BackupMemory::Pinned { backend: own, .. } => own.id() == backend,
            BackupMemory::File(_) => false,
        };
        self.0.iter().filter(idle).filter(own).min_by_key(|store| store.bytes()).cloned()
    }

    pub(crate) fn keep(&mut self, store: &Arc<Store>) {
        self.0.push(Arc::clone(store));
    }

    /// Takes unused stores, to be dropped without a lock.
    pub(crate) fn take_idle(&mut self) -> Vec<Arc<Store>> {
        self.0.extract_if(.., |store| Arc::strong_count(store) == 1).collect()
    }

    /// Bytes of unused stores.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.0.iter().filter(|store| Arc::strong_count(store) == 1).map(|store| store.bytes()).sum()
    }
}

impl Backup {
    /// A store for `bytes` of `device`, and `true` if it is to be kept; `None` where contents are not kept. May block.
    pub(crate) fn store(
        &self,
        backend: &Arc<dyn Backend>,
        device: DeviceIndex,
        bytes: u64,
    ) -> Result<Option<(Store, bool)>> {
        Ok(match self {
            Self::Discard => None,
            Self::HostPinned(retention) => {
                Some((Store::pinned(backend, bytes)?, *retention == Retention::Keep))
            }
            Self::File(directory) => Some((Store::file(directory, bytes, device)?, false)),
        })
    }
}
