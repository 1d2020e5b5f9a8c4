//! Handed-over granules that this stream owns again without a driver call: where the granules that own them are free.

use crate::arena::Heap;
use crate::arena::directory::Arena;
use crate::arena::granule::{Borders, FreePart, Granule, Parts, Slot, SlotState, free_range, granule_at};
use crate::base::steps::Counted;
use crate::device::Device;
use crate::device::{frees, hand_over};
use crate::lifetimes::call::Call;
use crate::memory::block::SegmentId;
use crate::memory::region::{HandedOver, Place};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// A granule in a row of granules that lie side by side.
#[derive(Clone, Copy)]
struct RowGranule {
    /// Free part, once it is the owner.
    free: FreePart,
    bytes: u64,
    /// Index among the callable aliases.
    alias: Option<usize>,
}

/// Gap in a row.
const GAP: RowGranule = RowGranule { free: FreePart { prefix: 0, suffix: 0 }, bytes: 1, alias: None };

/// Links of a row that together hold a request.
struct Best {
    /// Bytes to take back.
    called: u64,
    aliases: Vec<usize>,
}

/// Takes back aliases that lie free with other streams, where `size` bytes are side by side then, in a segment or in a
/// view. Returns true if any came. Asks the driver about these streams.
pub(super) fn call_home(device: &Device, arena: &Arena, size: u64, call: &Call<'_>) -> bool {
    if call.capturing || device.accounting.lock().regions().alias_bytes() == 0 {
        return false;
    }
    let mut callable = callable(device, arena);
    while !callable.is_empty() {
        let Some(best) = best(arena.lock().granule().heap(), &callable, size) else { return false };
        let mut of: BTreeMap<u16, Vec<HandedOver>> = BTreeMap::new();
        for handed in best.aliases.into_iter().map(|number| callable[number]) {
            of.entry(handed.owner.arena).or_default().push(handed);
        }
        let newest =
            |number| Some((number, frees::newest_spare(device, device.arenas.directory().get(number)?)));
        let newest: BTreeMap<_, _> = of.keys().filter_map(|number| newest(*number)).collect();
        if newest.values().all(Option::is_some) {
            return newest.into_iter().fold(false, |came, (number, newest)| {
                let all = of.remove(&number).unwrap_or_default();
                newest.is_some_and(|newest| bring(device, arena, number, &all, newest, call)) || came
            });
        }
        // Others may do without the streams that keep theirs.
        callable.retain(|handed| newest.get(&handed.owner.arena).is_none_or(Option::is_some));
    }
    false
}

/// Takes these back, as far as they are free still. Returns true if any came.
fn bring(
    device: &Device,
    arena: &Arena,
    from: u16,
    all: &[HandedOver],
    newest: u64,
    call: &Call<'_>,
) -> bool {
    let Some(from) = device.arenas.directory().get(from) else { return false };
    let _memory = device.slow_path.begin();
    let mut state = from.lock();
    let take = |HandedOver { owner: Place { segment, addr, .. }, .. }: &HandedOver| {
        let granule = granule_at(state.granule().heap(), *segment, *addr)?;
        let holder = free_range(state.granule().heap(), *segment, granule.start, granule.end)?;
        let was_free = state.granule().heap().layout().blocks()[holder].epoch <= newest;
        was_free.then(|| state.granule_mut().heap_mut().take_range(holder, granule.start, granule.end))
    };
    let parts: Vec<_> = all.iter().filter_map(take).collect();
    drop(state);
    hand_over::hand_over(device, from, arena, &parts, call).is_some_and(|came| came > 0)
}

/// An arena's granules that lie free with other streams.
fn callable(device: &Device, arena: &Arena) -> Vec<HandedOver> {
    let number = arena.lock().binding().number();
    let mut of: BTreeMap<u16, Vec<HandedOver>> = BTreeMap::new();
    for handed in device.accounting.lock().regions().aliases_of(number) {
        of.entry(handed.owner.arena).or_default().push(handed);
    }
    let mut callable = Vec::new();
    for (number, mut all) in of {
        let Some(from) = device.arenas.directory().get(number) else { continue };
        let state = from.lock();
        let is_free = |HandedOver { owner: Place { segment, addr, .. }, .. }: &HandedOver| {
            let granule = granule_at(state.granule().heap(), *segment, *addr);
            granule.is_some_and(|granule| {
                free_range(state.granule().heap(), *segment, granule.start, granule.end).is_some()
            })
        };
        all.retain(is_free);
        callable.append(&mut all);
    }
    callable
}

/// Links of one row that hold `size` bytes side by side, and take the fewest bytes back.
fn best(heap: &Heap<Granule>, callable: &[HandedOver], size: u64) -> Option<Best> {
    let memory = heap.known();
    let rows: Vec<_> =
        memory.borders().iter().map(|(id, borders)| (id, row(heap, id, borders, callable))).collect();
    let mut best = None;
    for (_, row) in &rows {
        look_along(with_gaps(row), size, &mut best);
    }
    // Only what shows one of them may do better than without.
    let places = |HandedOver { alias, .. }: &HandedOver| {
        let granule = granule_at(heap, alias.segment, alias.addr);
        let borders = memory.borders().get(alias.segment).zip(granule);
        borders.map_or(&[][..], |(borders, granule)| borders.places(borders.number(granule.start)))
    };
    let views: BTreeSet<u64> = callable.iter().counted().flat_map(places).map(|place| place.view).collect();
    for view in views.into_iter().filter_map(|number| memory.place_of_number(number)) {
        let links = memory.views()[view].slots.iter().counted().map(|slot| {
            let Slot { shown, state, .. } = *slot;
            let row = rows.binary_search_by_key(&shown.segment, |(id, _)| *id).ok().map(|at| &rows[at].1);
            let at = row.and_then(|row| row.binary_search_by_key(&shown.addr, |(addr, _)| *addr).ok());
            let link = row.zip(at).map(|(row, at)| row[at].1).filter(|_| state == SlotState::Mapped);
            link.unwrap_or(GAP)
        });
        look_along(links, size, &mut best);
    }
    best
}

/// The granules of a segment of which something is free, or will be, by address.
type Row = Vec<(u64, RowGranule)>;

fn row(heap: &Heap<Granule>, id: SegmentId, borders: &Borders, callable: &[HandedOver]) -> Row {
    let granules = &heap.layout().segments()[id].granules;
    let bytes_of = |granule: &Range<u64>| granule.end - granule.start;
    let link = |granule: &Range<u64>, prefix: u64, suffix: u64| {
        (
            granule.start,
            RowGranule { free: FreePart { prefix, suffix }, bytes: bytes_of(granule), alias: None },
        )
    };
    let mut row = Row::new();
    for (_, Parts { end, whole, beginning }) in borders.all(granules).counted() {
        row.extend(end.map(|(granule, bytes)| link(&granule, 0, bytes)));
        let all = |granule: Range<u64>| link(&granule, bytes_of(&granule), bytes_of(&granule));
        row.extend(granules.each(whole).counted().map(all));
        row.extend(beginning.map(|(granule, bytes)| link(&granule, bytes, 0)));
    }
    for (number, HandedOver { alias, .. }) in
        callable.iter().enumerate().filter(|(_, handed)| handed.alias.segment == id)
    {
        if let Some(granule) = granule_at(heap, id, alias.addr) {
            let (addr, all) = link(&granule, bytes_of(&granule), bytes_of(&granule));
            row.push((addr, RowGranule { alias: Some(number), ..all }));
        }
    }
    row.sort_unstable_by_key(|(addr, _)| *addr);
    // Two free blocks may hold the beginning and the end of one.
    row.dedup_by(|(addr, link), (before, kept)| {
        let is_same = addr == before;
        if is_same {
            kept.free.prefix = kept.free.prefix.max(link.free.prefix);
            kept.free.suffix = kept.free.suffix.max(link.free.suffix);
            kept.alias = kept.alias.or(link.alias);
        }
        is_same
    });
    row
}

/// The links of a row, with one of which nothing is free wherever they do not lie side by side.
fn with_gaps(row: &Row) -> impl Iterator<Item = RowGranule> {
    let mut end = 0;
    row.iter().flat_map(move |(at, link)| {
        let gap = (*at != end).then_some(GAP);
        end = at + link.bytes;
        gap.into_iter().chain([*link])
    })
}

/// Looks for `size` bytes side by side in a row of granules.
fn look_along(links: impl Iterator<Item = RowGranule>, size: u64, best: &mut Option<Best>) {
    // Links side by side up to here: of the first an end, of the others all.
    let mut window: VecDeque<(u64, Option<usize>)> = VecDeque::new();
    let (mut free, mut called) = (0, 0);
    for RowGranule { free: FreePart { prefix, suffix }, bytes, alias } in links {
        // No more aliases than are needed.
        while let Some((first, alias)) = window.front().filter(|(first, _)| free - first + prefix >= size) {
            called -= alias.map_or(0, |_| *first);
            free -= first;
            window.pop_front();
        }
        let coming = called + alias.map_or(0, |_| bytes);
        if free + prefix >= size && coming > 0 && best.as_ref().is_none_or(|best| coming < best.called) {
            let aliases = window.iter().filter_map(|(_, alias)| *alias).chain(alias).collect();
            *best = Some(Best { called: coming, aliases });
        }
        if prefix < bytes {
            window.clear();
            (free, called) = (0, 0);
        }
        if suffix > 0 {
            window.push_back((suffix, alias));
            free += suffix;
            called += alias.map_or(0, |_| bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aliases in a row of granules of 8 bytes that `size` bytes need. A granule is written as what is free from its
    /// first byte on and up to its last, and whether it is an alias.
    fn called(row: &[(u64, u64, bool)], size: u64) -> Option<Vec<usize>> {
        let links = row.iter().enumerate().map(|(number, &(prefix, suffix, is_alias))| RowGranule {
            free: FreePart { prefix, suffix },
            bytes: 8,
            alias: is_alias.then_some(number),
        });
        let mut best = None;
        look_along(links, size, &mut best);
        best.map(|best| best.aliases)
    }

    #[test]
    fn as_little_comes_home_as_does() {
        let (free, alias, used) = ((8, 8, false), (8, 8, true), (0, 0, false));
        assert_eq!(called(&[alias, alias, used, free, alias, free], 24), Some(vec![4]));
        assert_eq!(called(&[alias, alias, alias], 16), Some(vec![0, 1]));
        assert_eq!(called(&[(0, 3, false), alias, (5, 0, false)], 16), Some(vec![1]));
        assert_eq!(called(&[(0, 3, false), alias, (4, 0, false)], 16), None, "a byte is missing");
        assert_eq!(called(&[alias, used, alias], 16), None, "they do not lie side by side");
        assert_eq!(called(&[free, free], 16), None, "nothing has to come");
    }
}
