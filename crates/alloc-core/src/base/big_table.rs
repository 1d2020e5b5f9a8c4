//! Growing large tables without paying for it at every look-up.
//!
//! A table of many megabytes that is read at random costs a TLB miss for nearly every read when it lies on
//! small pages. Where the system offers huge pages on request, large tables ask for them.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

/// Tables from this size on ask for huge pages. It is the size of a huge page where small pages have 4 KiB. Where they
/// are larger, so are huge ones, and the system decides which it uses.
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
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn prefer_huge_pages(start: *mut u8, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    let pages = whole_pages(start.addr(), bytes, rustix::param::page_size());
    if pages.len() >= HUGE {
        // SAFETY: whole pages inside one allocation of the caller's; this advice changes no content.
        let _ = unsafe { madvise(start.with_addr(pages.start).cast(), pages.len(), Advice::LinuxHugepage) };
    }
}

/// The same for `part` of a table, widened to whole huge pages within the table.
pub(crate) fn prefer_huge_pages_around<T>(table: &[T], part: Range<usize>) {
    let all = table.as_ptr_range();
    let at = |index: usize| all.start.addr() + index * size_of::<T>();
    let start = (at(part.start) / HUGE * HUGE).max(all.start.addr());
    let end = at(part.end).next_multiple_of(HUGE).min(all.end.addr());
    prefer_huge_pages(all.start.with_addr(start).cast_mut().cast(), end - start);
}

/// The pages that lie wholly in `bytes` at `start`. The system refuses advice on anything else.
#[cfg(all(target_os = "linux", not(miri)))]
fn whole_pages(start: usize, bytes: usize, page: usize) -> Range<usize> {
    let end = (start + bytes) / page * page;
    start.next_multiple_of(page).min(end)..end
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) fn prefer_huge_pages(_: *mut u8, _: usize) {}

/// Zeroed memory that the system backs when it is touched: on small pages, whatever it does elsewhere, until
/// [others are preferred](prefer_huge_pages). Miri knows no such mappings.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn reserve_zeroed(layout: Layout) -> NonNull<u8> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let (size, room) = (layout.size(), layout.size() + HUGE);
    // SAFETY: a new mapping at an address of the system's choice disturbs nothing.
    let all = unsafe {
        mmap_anonymous(std::ptr::null_mut(), room, access, MapFlags::PRIVATE | MapFlags::NORESERVE)
    };
    let all = all.unwrap_or_else(|_| handle_alloc_error(layout)).cast::<u8>();
    // The table begins at the border of a huge page.
    let before = all.addr().next_multiple_of(HUGE) - all.addr();
    for (at, bytes) in [(0, before), (before + size, room - before - size)] {
        // SAFETY: a part of the mapping made above that nothing uses. Parts that are not whole pages are refused, and
        // stay reserved.
        let _ = unsafe { munmap(all.wrapping_add(at).cast(), bytes) };
    }
    let Some(raw) = NonNull::new(all.wrapping_add(before)) else { handle_alloc_error(layout) };
    // SAFETY: the mapping made above; this advice changes no content. A system without huge pages refuses it.
    let _ = unsafe { madvise(raw.as_ptr().cast(), size, Advice::LinuxNoHugepage) };
    raw
}

/// Gives memory of [`reserve_zeroed`] back.
///
/// # Safety
/// `raw` came from there with this layout, and is not used again.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) unsafe fn release_zeroed(raw: *mut u8, layout: Layout) {
    // SAFETY: by this function's contract, a mapping that nothing uses.
    if let Err(error) = unsafe { rustix::mm::munmap(raw.cast(), layout.size()) } {
        tracing::debug!(%error, "a table could not be unmapped");
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) fn reserve_zeroed(layout: Layout) -> NonNull<u8> {
    // SAFETY: tables have a size above 0.
    let raw = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Gives memory of [`reserve_zeroed`] back.
///
/// # Safety
/// `raw` came from there with this layout, and is not used again.
#[cfg(any(not(target_os = "linux"), miri))]
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

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn advice_is_for_whole_pages_of_this_host() {
        use super::whole_pages;
        let host = rustix::param::page_size();
        for page in [4096, 16 << 10, 64 << 10, host] {
            let pages = whole_pages(page + 4096 / 2, 4 * page, page);
            assert_eq!(pages, 2 * page..5 * page, "of {page} bytes");
            assert!(whole_pages(page + 1, page, page).is_empty(), "no page lies wholly in it");
        }
        let mut table: Vec<u8> = Vec::with_capacity(4 << 20);
        let pages = whole_pages(table.as_mut_ptr().addr(), table.capacity(), host);
        assert!(pages.start.is_multiple_of(host) && pages.end.is_multiple_of(host));
        assert!(pages.len() >= super::HUGE);
    }
}
