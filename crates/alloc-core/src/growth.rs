//! Growing large tables without paying for it at every look-up.
//!
//! A table of many megabytes that is read at random costs a TLB miss for nearly every read when it lies on
//! small pages. Where the system offers huge pages on request, large tables ask for them.

/// Tables from this size on ask for huge pages: 2 MiB is the size of one.
const HUGE: usize = 2 << 20;

/// Appends to a table, doubling its room when it is full.
pub(crate) fn push<T>(table: &mut Vec<T>, value: T) {
    if table.len() == table.capacity() {
        // Fresh memory instead of a grown one: the advice works on pages that were not touched yet.
        let mut roomier: Vec<T> = Vec::with_capacity((table.capacity() * 2).max(64));
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
    const PAGE: usize = 4096;
    let first = start.addr().next_multiple_of(PAGE);
    let end = (start.addr() + bytes) / PAGE * PAGE;
    if end.saturating_sub(first) >= HUGE {
        // SAFETY: whole pages inside one allocation of the caller's; this advice changes no content.
        let _ = unsafe { madvise(start.with_addr(first).cast(), end - first, Advice::LinuxHugepage) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn prefer_huge_pages(_: *mut u8, _: usize) {}

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
