//! Fresh pages: an anonymous mapping whose pages exist before the driver pins them.
//!
//! Pages that come into being one fault at a time under the driver's lock are slow to pin; touched by many threads
//! before, they are not.

use crate::backend::{BackendError, ErrorKind, Result};
use crate::types::{DeviceIndex, DevicePtr};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr;

/// Address space with nothing behind it yet.
pub(super) fn map(bytes: u64) -> Result<DevicePtr> {
    let failed = |kind, detail: String| BackendError::new(kind, 0, "mmap", DeviceIndex(0), detail);
    let length =
        usize::try_from(bytes).map_err(|_| failed(ErrorKind::OutOfMemory, "too many bytes".into()))?;
    // SAFETY: a new mapping where the system likes: no memory of anybody's changes.
    let mapped = unsafe {
        mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let at = mapped.map_err(|error| failed(ErrorKind::OutOfMemory, error.to_string()))?;
    Ok(DevicePtr(at.expose_provenance() as u64))
}

/// Gives a mapping back.
///
/// # Safety
/// `at` and `bytes` are those of one [`map`], and nobody uses the memory any more.
pub(super) unsafe fn unmap(at: DevicePtr, bytes: u64) {
    // SAFETY: a whole mapping of this module's, by this function's contract.
    if let Err(error) = unsafe { munmap(address(at).cast(), bytes as usize) } {
        tracing::error!(%error, "pages could not be unmapped");
    }
}

/// Touches every page of a mapping, in `threads` threads where each has a page at least.
///
/// # Safety
/// `at` and `bytes` are those of one [`map`], and nobody else uses the memory yet.
pub(super) unsafe fn touch(at: DevicePtr, bytes: u64, threads: u64) {
    let (length, page_size) = (bytes as usize, rustix::param::page_size());
    let threads = if threads > 1 && length >= page_size * threads as usize { threads as usize } else { 1 };
    let share = length.div_ceil(threads).next_multiple_of(page_size);
    let part = |n: usize| {
        let end = length.min((n + 1) * share);
        for offset in (n * share..end).step_by(page_size) {
            // SAFETY: inside of the mapping.
            let page = unsafe { address(at).add(offset) };
            // SAFETY: mapped for writing; each page is one thread's.
            unsafe { page.write_volatile(0) };
        }
    };
    let part = &part;
    std::thread::scope(|scope| {
        for n in 1..threads {
            let helper = std::thread::Builder::new().spawn_scoped(scope, move || part(n));
            if helper.is_err() {
                part(n);
            }
        }
        part(0);
    });
}

fn address(at: DevicePtr) -> *mut u8 {
    ptr::with_exposed_provenance_mut(at.0 as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Existing pages among a mapping's `count`.
    fn resident(at: DevicePtr, bytes: u64, count: usize) -> usize {
        const UNKNOWN: u8 = 0xff;
        // No page is smaller than that, so there is room for an answer about each.
        let mut seen = vec![UNKNOWN; (bytes as usize).div_ceil(4096)];
        // SAFETY: the mapping is the test's, and there is a byte for each page.
        let asked = unsafe { libc::mincore(address(at).cast(), bytes as usize, seen.as_mut_ptr().cast()) };
        assert_eq!(asked, 0);
        let answers: Vec<u8> = seen.into_iter().take_while(|answer| *answer != UNKNOWN).collect();
        // An emulator with larger pages than its host's answers for each of those, of which one is touched.
        let of_a_page = answers.len().div_ceil(count);
        answers.chunks(of_a_page).filter(|page| page.iter().any(|answer| answer & 1 == 1)).count()
    }

    #[test]
    fn every_page_is_there_whatever_the_number_of_threads() {
        let page_size = rustix::param::page_size();
        for (pages, threads) in [(1, 1), (33, 1), (33, 8), (100, 128), (257, 128), (7, 4)] {
            let bytes = (pages * page_size - 100) as u64;
            let at = map(bytes).unwrap();
            assert_eq!(resident(at, bytes, pages), 0, "nothing is there before");
            // SAFETY: the test's own mapping.
            unsafe { touch(at, bytes, threads) };
            assert_eq!(resident(at, bytes, pages), pages, "{threads} threads");
            // SAFETY: the test's own mapping, not used again.
            unsafe { unmap(at, bytes) };
        }
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert_eq!(map(1 << 60).unwrap_err().kind, ErrorKind::OutOfMemory);
    }
}
