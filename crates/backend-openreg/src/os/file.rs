//! Memory files, and how copies reach their bytes.

use super::address;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that can be mapped several times and sent to other processes.
#[derive(Debug)]
pub(crate) struct SharedFile {
    file: File,
    /// Where copies reach them; without it they go through the system, which finds each page anew.
    view: Option<View>,
    /// Whether others may have them, too.
    is_shared: AtomicBool,
}

impl SharedFile {
    /// A file of zeroes. Pages are taken when they are first written.
    pub(crate) fn create(name: &str, bytes: u64) -> io::Result<Self> {
        let file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
        file.set_len(bytes)?;
        Ok(Self { file, view: None, is_shared: AtomicBool::new(false) })
    }

    /// The same, and copies reach its bytes by a mapping of their own, if there is room for one: a page that is there is
    /// found without the system.
    pub(crate) fn create_in_view(name: &str, bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(name, flags)?);
        file.set_len(bytes)?;
        // Whoever gets it cannot take bytes from under the view.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let view = View::of(&file, bytes).ok();
        Ok(Self { file, view, is_shared: AtomicBool::new(false) })
    }

    /// Another's file.
    pub(crate) const fn from_file(file: File) -> Self {
        Self { file, view: None, is_shared: AtomicBool::new(true) }
    }

    /// A descriptor for others. From now on they may have the bytes, too.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.is_shared.store(true, Ordering::Relaxed);
        self.file.as_fd().try_clone_to_owned()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(view) = &self.view else { return self.file.read_exact_at(into, offset) };
        let from = view.at(offset, into.len())?;
        // SAFETY: so many bytes of the view, which is mapped while `self` lives; the file is sealed against getting
        // shorter. No Rust object lives there, and `into` lies elsewhere; who else writes them meanwhile answers for it (rule 2).
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    pub(crate) fn write(&self, from: &[u8], offset: u64) -> io::Result<()> {
        let Some(view) = &self.view else { return self.file.write_all_at(from, offset) };
        let into = view.at(offset, from.len())?;
        // SAFETY: as for `read`, with `from` elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
        Ok(())
    }

    /// Gives the pages of a range back; it reads as zeroes afterwards.
    pub(crate) fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, offset, bytes)?)
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A whole file as copies see it, at an address that nobody else knows.
#[derive(Debug)]
struct View {
    base: u64,
    bytes: u64,
}

impl View {
    fn of(file: &File, bytes: u64) -> io::Result<Self> {
        let (flags, protection) =
            (MapFlags::SHARED | MapFlags::NORESERVE, ProtFlags::READ | ProtFlags::WRITE);
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: no address is asked for, so the kernel chooses one that is free.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, file, 0) }?;
        Ok(Self { base: at.expose_provenance() as u64, bytes })
    }

    /// Where `bytes` bytes at `offset` are.
    fn at(&self, offset: u64, bytes: usize) -> io::Result<*mut u8> {
        let inside = offset.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes);
        if !inside {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(address(self.base + offset).cast())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the view is ours from `of` on, and only calls of the file that owns it use it.
        let unmapped = unsafe { rustix::mm::munmap(address(self.base), self.bytes as usize) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
