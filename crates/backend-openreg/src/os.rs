//! What the operating system gives: memory files, address windows, page protection, host pages.

mod file;

pub(crate) use file::SharedFile;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of the host's pages: what can be mapped and protected by itself.
pub(crate) fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// What the host may do with a range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    None,
    ReadWrite,
}

/// A stretch of this process's addresses, closed to everyone until something is mapped into it.
#[derive(Debug)]
pub(crate) struct Window {
    base: u64,
    bytes: u64,
}

fn address(at: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(at as usize)
}

impl Window {
    /// Takes exactly `[base, base + bytes)`; fails where any of it is in use.
    pub(crate) fn reserve(base: u64, bytes: u64) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: FIXED_NOREPLACE never replaces a mapping, so no memory that Rust knows of changes.
        let at =
            unsafe { rustix::mm::mmap_anonymous(address(base), bytes as usize, ProtFlags::empty(), flags) }?;
        let window = Self { base: at.expose_provenance() as u64, bytes };
        if window.base == base {
            Ok(window)
        } else {
            // An old kernel took the address as a mere hint; dropping the window undoes it.
            Err(io::Error::from(io::ErrorKind::AddrInUse))
        }
    }

    fn contains(&self, at: u64, bytes: u64) -> io::Result<()> {
        let inside =
            at >= self.base && at.checked_add(bytes).is_some_and(|end| end <= self.base + self.bytes);
        inside.then_some(()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    }

    /// Shows a part of `file` at `at`, closed to the host.
    pub(crate) fn show(&self, at: u64, bytes: u64, file: &SharedFile, offset: u64) -> io::Result<()> {
        self.contains(at, bytes)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range lies in this window, which holds device memory only: no Rust object lives there.
        unsafe { rustix::mm::mmap(address(at), bytes as usize, ProtFlags::empty(), flags, file, offset) }?;
        Ok(())
    }

    /// Gives the range pages of its own, open to the host.
    pub(crate) fn open(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.contains(at, bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as for `show`.
        unsafe { rustix::mm::mmap_anonymous(address(at), bytes as usize, protection, flags) }?;
        Ok(())
    }

    /// Takes away what is shown there; the addresses stay reserved.
    pub(crate) fn hide(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.contains(at, bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as for `show`.
        unsafe { rustix::mm::mmap_anonymous(address(at), bytes as usize, ProtFlags::empty(), flags) }?;
        Ok(())
    }

    /// Opens a range to the host or closes it.
    pub(crate) fn protect(&self, at: u64, bytes: u64, protection: Protection) -> io::Result<()> {
        self.contains(at, bytes)?;
        let flags = match protection {
            Protection::None => MprotectFlags::empty(),
            Protection::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        // SAFETY: as for `show`; who opened the range to the host answers for its use (rule 2).
        unsafe { rustix::mm::mprotect(address(at), bytes as usize, flags) }?;
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the window is ours from `reserve` on, and nothing outlives it: memory handed out in it
        // ends with the machine.
        let unmapped = unsafe { rustix::mm::munmap(address(self.base), self.bytes as usize) };
        debug_assert!(unmapped.is_ok(), "a window that was mapped can be unmapped");
    }
}

/// Page-aligned host memory.
#[derive(Debug)]
pub(crate) struct HostPages {
    pub(crate) base: u64,
    bytes: u64,
}

impl HostPages {
    /// Where nobody writes to them, there may be more than the host has.
    pub(crate) fn take(bytes: u64, untouched: bool) -> io::Result<Self> {
        let flags = if untouched { MapFlags::PRIVATE | MapFlags::NORESERVE } else { MapFlags::PRIVATE };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: no address is asked for, so the kernel chooses one that is free.
        let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }?;
        Ok(Self { base: at.expose_provenance() as u64, bytes })
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: the pages are ours from `take` on, and rule 3 says that no one uses them any more.
        let unmapped = unsafe { rustix::mm::munmap(address(self.base), self.bytes as usize) };
        debug_assert!(unmapped.is_ok(), "pages that were mapped can be unmapped");
    }
}

/// How often an event was recorded, and up to which record it was passed: visible in several processes.
#[derive(Debug)]
pub(crate) struct SharedFlag {
    file: SharedFile,
    page: u64,
}

/// Of the file: the same on every host. Mapped, it takes up a page of any size.
const FLAG_BYTES: usize = 4096;

impl SharedFlag {
    pub(crate) fn create() -> io::Result<Self> {
        Self::open(SharedFile::create("openreg-event", FLAG_BYTES as u64)?)
    }

    pub(crate) fn open(file: SharedFile) -> io::Result<Self> {
        if file.file().metadata()?.len() < FLAG_BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so the kernel chooses one that is free.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), FLAG_BYTES, protection, MapFlags::SHARED, &file, 0)
        }?;
        Ok(Self { file, page: at.expose_provenance() as u64 })
    }

    fn word(&self, index: u64) -> &AtomicU64 {
        let at = std::ptr::with_exposed_provenance_mut((self.page + 8 * index) as usize);
        // SAFETY: the page is mapped, writable and aligned while `self` lives, and every process that has
        // it touches these words atomically only.
        unsafe { AtomicU64::from_ptr(at) }
    }

    pub(crate) const fn shared_file(&self) -> &SharedFile {
        &self.file
    }

    /// A new record; returns its number.
    pub(crate) fn record(&self) -> u64 {
        self.word(0).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the last record.
    pub(crate) fn recorded(&self) -> u64 {
        self.word(0).load(Ordering::Acquire)
    }

    /// The stream has passed record `number`.
    pub(crate) fn pass(&self, number: u64) {
        self.word(1).fetch_max(number, Ordering::AcqRel);
    }

    /// Whether record `number` was passed.
    pub(crate) fn passed(&self, number: u64) -> bool {
        self.word(1).load(Ordering::Acquire) >= number
    }
}

impl Drop for SharedFlag {
    fn drop(&mut self) {
        // SAFETY: the page is ours from `open` on, and `word` hands out nothing that outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(address(self.page), FLAG_BYTES) };
        debug_assert!(unmapped.is_ok(), "a page that was mapped can be unmapped");
    }
}
