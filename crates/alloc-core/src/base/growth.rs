//! Growing large tables without paying for it at every look-up.
//!
//! A table of many megabytes that is read at random costs a TLB miss for nearly every read when it lies on
//! small pages. Where the system offers huge pages on request, large tables ask for them.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

/// Tables from this size on ask for huge pages: 2 MiB is the size of one.
const HUGE: usize = 2 << 20;

/// Appends to a table, doubling its room when it is full.
pub(crate) fn push<T>(table: &mut Vec<T>, value: T) {
    if table.len() == table.capacity() {
        // Fresh memory instead of a grown one: the advice works on pages that were not touched yet.
        let mut roomier: Vec<T> = Vec::with_capacity((table.capacity() * 2).max(8));
        prefer_huge_pages(roomier.as_mut_ptr().cast(), roomier.capacity() * size_of::<T>());
        roomier.append(table);
        *table = roomier;
    }
    table.push(value);
}

/// Asks for huge pages behind `bytes` at `start`, an allocation of this process; a refusal changes nothing.
#[cfg(target_os = "linux")]
pub(crate) fn prefer_huge_pages(start: *mut u8, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    let page = rustix::param::page_size();
    let first = start.addr().next_multiple_of(page);
    let end = (start.addr() + bytes) / page * page;
    if end.saturating_sub(first) >= HUGE {
        // SAFETY: whole pages inside one allocation of the caller's; this advice changes no content.
        let _ = unsafe { madvise(start.with_addr(first).cast(), end - first, Advice::LinuxHugepage) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn prefer_huge_pages(_: *mut u8, _: usize) {}

/// Zeroed memory that the system backs when it is touched, on `huge` pages where it offers them.
#[cfg(target_os = "linux")]
pub(crate) fn reserve_zeroed(layout: Layout, huge: bool) -> NonNull<u8> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the system's choice disturbs nothing.
    let raw = unsafe {
        mmap_anonymous(std::ptr::null_mut(), layout.size(), access, MapFlags::PRIVATE | MapFlags::NORESERVE)
    };
    let raw = raw.ok().and_then(|raw| NonNull::new(raw.cast::<u8>()));
    let raw = raw.unwrap_or_else(|| handle_alloc_error(layout));
    if huge {
        prefer_huge_pages(raw.as_ptr(), layout.size());
    }
    raw
}

/// Gives memory of [`reserve_zeroed`] back.
///
/// # Safety
/// `raw` came from there with this layout, and is not used again.
#[cfg(target_os = "linux")]
pub(crate) unsafe fn release_zeroed(raw: *mut u8, layout: Layout) {
    // SAFETY: by this function's contract, one whole mapping that nothing uses.
    if let Err(error) = unsafe { rustix::mm::munmap(raw.cast(), layout.size()) } {
        tracing::debug!(%error, "a table could not be unmapped");
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn reserve_zeroed(layout: Layout, _: bool) -> NonNull<u8> {
    // SAFETY: tables have a size above 0.
    let raw = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Gives memory of [`reserve_zeroed`] back.
///
/// # Safety
/// `raw` came from there with this layout, and is not used again.
#[cfg(not(target_os = "linux"))]
pub(crate) unsafe fn release_zeroed(raw: *mut u8, layout: Layout) {
    // SAFETY: by this function's contract.
    unsafe { std::alloc::dealloc(raw, layout) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_table_keeps_its_values_while_it_grows() {
        let mut table = Vec::new();
        (0..1_000_000u64).for_each(|n| super::push(&mut table, n));
        assert!(table.iter().copied().eq(0..1_000_000));
        assert!(table.capacity() >= 1_000_000 && table.capacity() < 2_500_000);
    }
}
