//! Room for the tables of a long history.
//!
//! A million entries touch a hundred megabytes that were never used before, and on small pages the system
//! spends as long on handing those out as the reader does on filling them. Moving a growing table does it
//! again.

/// A table of the reader that is larger than this is expected to become very large.
const LARGE: usize = 1 << 20;

/// What such a table gets at once. What is not used of it is address space only.
const VERY_LARGE: usize = 64 << 20;

/// Makes room for `more` items of a list of the file.
#[inline]
pub(super) fn make_in_list<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        grow(list, more);
    }
}

/// Makes room for `more` items in one of the reader's own tables, of which there are few.
#[inline]
pub(super) fn make<T>(table: &mut Vec<T>, more: usize) {
    if table.capacity() - table.len() < more {
        let large = table.len() * size_of::<T>() >= LARGE;
        grow(table, if large { more.max(VERY_LARGE / size_of::<T>()) } else { more });
    }
}

/// Adds an item to one of the reader's own tables. The item is made in its place: `Vec::push` is not always
/// inlined and then copies it twice, which for an entry takes as long as reading it.
#[inline(always)]
pub(super) fn push<T>(table: &mut Vec<T>, item: impl FnOnce() -> T) {
    make(table, 1);
    let length = table.len();
    if let Some(place) = table.spare_capacity_mut().first_mut() {
        place.write(item());
        // SAFETY: there was spare capacity behind `length` items, and the first place of it was written.
        unsafe { table.set_len(length + 1) };
    }
}

/// On huge pages where the table is large and the system offers them.
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
