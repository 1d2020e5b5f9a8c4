//! Whole pages of memory, and who may touch them.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;

/// What the host may do with pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Closed,
    Open,
}

/// A mapping of this process; dropping it unmaps it.
#[derive(Debug)]
pub(crate) struct Pages {
    base: usize,
    bytes: usize,
}

/// `bytes` rounded up to whole pages, if that is a number.
pub(crate) fn whole(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(rustix::param::page_size())
}

impl Pages {
    /// New zeroed pages, open. They are private: a forked child has copies of its own.
    pub(crate) fn take(bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so the kernel chooses one that is free.
        let at = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
        }?;
        Ok(Self { base: at.expose_provenance(), bytes })
    }

    /// A file's first `bytes`, shared with everyone who has mapped them.
    pub(crate) fn of_file(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so the kernel chooses one that is free.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Self { base: at.expose_provenance(), bytes })
    }

    pub(crate) const fn base(&self) -> usize {
        self.base
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.base)
    }

    pub(crate) fn set_access(&self, access: Access) -> io::Result<()> {
        let flags = match access {
            Access::Closed => MprotectFlags::empty(),
            Access::Open => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        // SAFETY: the pages are this mapping's, and no Rust object lives in them. Who closes them while the
        // host uses them breaks the rule that they are there to check.
        Ok(unsafe { rustix::mm::mprotect(self.pointer(), self.bytes, flags) }?)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours since it was made, and its user has given it back.
        let unmapped = unsafe { rustix::mm::munmap(self.pointer(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "pages that were mapped can be unmapped");
    }
}
