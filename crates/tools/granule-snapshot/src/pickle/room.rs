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
    const HUGE: usize = 2 << 20;
    if bytes >= HUGE {
        let pages = touched_pages(start.addr(), bytes, rustix::param::page_size());
        // SAFETY: every page holds bytes of one live allocation; this advice changes no content.
        let _ = unsafe { madvise(start.with_addr(pages.start).cast(), pages.len(), Advice::LinuxHugepage) };
    }
}

/// The pages with any of `bytes` at `start`, to the ends of the outermost ones: the system moves only areas that are advised
/// as a whole, and takes advice on whole pages only.
#[cfg(target_os = "linux")]
fn touched_pages(start: usize, bytes: usize, page: usize) -> std::ops::Range<usize> {
    start / page * page..(start + bytes).next_multiple_of(page)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn advice_is_for_whole_pages_whatever_their_size() {
        for page in [4096, 16 << 10, 64 << 10, rustix::param::page_size()] {
            assert_eq!(super::touched_pages(page + 100, 3 * page, page), page..5 * page);
            assert_eq!(super::touched_pages(page, page, page), page..2 * page);
        }
    }
}
