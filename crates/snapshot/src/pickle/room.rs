//! Room for the tables of a long history.
//!
//! A million entries touch more than 100 MB that were never used before, and on small pages the system
//! spends as long on handing those out as the reader does on filling them.

/// Makes room for `more` items, on huge pages where the table is large and the system offers them.
#[inline]
pub(super) fn make<T>(table: &mut Vec<T>, more: usize) {
    if table.capacity() - table.len() < more {
        grow(table, more);
    }
}

#[cold]
fn grow<T>(table: &mut Vec<T>, more: usize) {
    table.reserve(more);
    #[cfg(target_os = "linux")]
    prefer_huge_pages(table.as_mut_ptr().cast(), table.capacity() * size_of::<T>());
}

/// Asks for huge pages behind an allocation; a refusal changes nothing.
#[cfg(target_os = "linux")]
fn prefer_huge_pages(start: *mut u8, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    const PAGE: usize = 4096;
    const HUGE: usize = 2 << 20;
    if bytes >= HUGE {
        // To the ends of the outermost pages: the system moves only areas that are advised as a whole.
        let first = start.addr() / PAGE * PAGE;
        let end = (start.addr() + bytes).next_multiple_of(PAGE);
        // SAFETY: every page holds bytes of one live allocation; this advice changes no content.
        let _ = unsafe { madvise(start.with_addr(first).cast(), end - first, Advice::LinuxHugepage) };
    }
}
