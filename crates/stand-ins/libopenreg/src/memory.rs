//! Memory of the devices and page-locked host memory: what is allocated where, and copies between it.

use crate::device;
use crate::pages::{self, Access, Pages};
use crate::status::{Answer, Refused};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Host,
    Device(c_int),
}

#[derive(Debug)]
struct Allocation {
    kind: Kind,
    pages: Pages,
    /// How often a device's block is open to the host.
    opened: u64,
}

impl Allocation {
    const fn is_device(&self) -> bool {
        matches!(self.kind, Kind::Device(_))
    }

    fn open(&mut self) -> Answer {
        if self.is_device() && self.opened == 0 {
            self.pages.set_access(Access::Open)?;
        }
        self.opened += 1;
        Ok(())
    }

    /// Undoes one `open`. Without one there is nothing to undo.
    fn close(&mut self) -> Answer {
        if self.is_device() && self.opened == 1 {
            self.pages.set_access(Access::Closed)?;
        }
        self.opened = self.opened.saturating_sub(1);
        Ok(())
    }
}

/// A live allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    pub(crate) base: usize,
    pub(crate) bytes: usize,
}

/// All live allocations by their address. One lock for all of them, also during a copy: no one can free a
/// block while it is copied.
#[derive(Debug)]
pub(crate) struct Memory {
    blocks: BTreeMap<usize, Allocation>,
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory { blocks: BTreeMap::new() });

pub(crate) fn lock() -> MutexGuard<'static, Memory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes whole pages of the calling thread's device, closed to the host.
pub(crate) fn allocate_device(bytes: usize) -> Answer<usize> {
    let pages = take(bytes)?;
    // Closed only now: the system has counted the pages as ones that can be opened.
    pages.set_access(Access::Closed)?;
    Ok(keep(Kind::Device(device::current()), pages))
}

/// Takes whole pages of host memory.
pub(crate) fn allocate_host(bytes: usize) -> Answer<usize> {
    Ok(keep(Kind::Host, take(bytes)?))
}

fn take(bytes: usize) -> Answer<Pages> {
    if bytes == 0 {
        return Err(Refused);
    }
    Ok(Pages::take(pages::whole(bytes).ok_or(Refused)?)?)
}

fn keep(kind: Kind, pages: Pages) -> usize {
    let base = pages.base();
    lock().blocks.insert(base, Allocation { kind, pages, opened: 0 });
    base
}

/// Which sides of a copy must be device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Direction {
    from_device: bool,
    to_device: bool,
}

impl Direction {
    /// Reads an `orMemcpyKind`.
    pub(crate) fn of_kind(kind: c_int) -> Answer<Self> {
        let (from_device, to_device) = match kind {
            0 => (false, false),
            1 => (false, true),
            2 => (true, false),
            3 => (true, true),
            _ => return Err(Refused),
        };
        Ok(Self { from_device, to_device })
    }
}

/// One copy, as asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) to: usize,
    pub(crate) from: usize,
    pub(crate) bytes: usize,
    pub(crate) kind: c_int,
}

impl Copy {
    /// Checks the copy and does it.
    ///
    /// # Safety
    /// Where `to` or `from` lies in no live allocation, it is host memory of `bytes` that may be written or
    /// read. No one else uses the memory meanwhile, or writes what is read.
    pub(crate) unsafe fn run(self) -> Answer {
        if self.to == 0 || self.from == 0 || self.bytes == 0 {
            return Err(Refused);
        }
        let direction = Direction::of_kind(self.kind)?;
        let mut memory = lock();
        let to = memory.side(self.to, self.bytes, direction.to_device)?;
        let from = memory.side(self.from, self.bytes, direction.from_device)?;
        memory.open(to)?;
        if let Err(refused) = memory.open(from) {
            memory.close(to)?;
            return Err(refused);
        }
        // Both sides may be the same block, so the copy may overlap.
        // SAFETY: a side in a live allocation lies in it whole, is open, and lives while the lock is held;
        // the caller promises the rest.
        unsafe {
            std::ptr::copy(
                std::ptr::with_exposed_provenance::<u8>(self.from),
                std::ptr::with_exposed_provenance_mut::<u8>(self.to),
                self.bytes,
            );
        }
        let closed = memory.close(from);
        memory.close(to).and(closed)
    }
}

impl Memory {
    /// Gives an allocation back, by its base only.
    pub(crate) fn free(&mut self, base: usize) -> Answer {
        self.blocks.remove(&base).map(drop).ok_or(Refused)
    }

    fn containing(&mut self, at: usize) -> Option<&mut Allocation> {
        let (&base, block) = self.blocks.range_mut(..=at).next_back()?;
        (at - base < block.pages.bytes()).then_some(block)
    }

    /// The allocation that `at` lies in.
    pub(crate) fn find(&mut self, at: usize) -> Option<Found> {
        self.containing(at).map(|block| Found {
            kind: block.kind,
            base: block.pages.base(),
            bytes: block.pages.bytes(),
        })
    }

    /// Opens the device block that `at` lies in to the host, once more. Other memory is always open.
    pub(crate) fn open(&mut self, at: usize) -> Answer {
        self.containing(at).filter(|block| block.is_device()).map_or(Ok(()), Allocation::open)
    }

    /// Closes the device block that `at` lies in to the host, once.
    pub(crate) fn close(&mut self, at: usize) -> Answer {
        self.containing(at).filter(|block| block.is_device()).map_or(Ok(()), Allocation::close)
    }

    /// Checks one side of a copy; memory that was not allocated here counts as the host's.
    fn side(&mut self, at: usize, bytes: usize, device: bool) -> Answer<usize> {
        let Some(block) = self.containing(at) else { return if device { Err(Refused) } else { Ok(at) } };
        let room = block.pages.bytes() - (at - block.pages.base());
        if block.is_device() == device && bytes <= room { Ok(at) } else { Err(Refused) }
    }
}
