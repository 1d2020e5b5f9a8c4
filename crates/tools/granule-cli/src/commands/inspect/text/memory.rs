//! Tables of how memory lay: what was free where, what kept it apart, what rounding cost, why a request was refused.

use super::{caller_text, figures, held_text, pool_text, stream_text, title};
use crate::console::{self, counted};
use granule::round::size_text;
use granule_analysis::inspect::{Blocker, Memory, PoolMemory, Refused, View, Waste};
use std::fmt::Write as _;

/// How memory lay at a moment.
pub(super) fn write(view: &View, top: usize, text: &mut String) {
    let Some(memory) = &view.memory else { return };
    let _ = writeln!(text, "\nFree memory {}, by pool, stream and kind\n", title(view));
    pools(memory, top, text);
    if memory.outside > 0 {
        let _ = writeln!(
            text,
            "{} of live memory lie in no segment: the file does not say what was reserved there.",
            size_text(memory.outside)
        );
    }
    held_open(memory, top, text);
    if !memory.blockers.is_empty() {
        let _ = writeln!(text, "\nBlocks that keep more free memory apart than they have themselves\n");
        blockers(&memory.blockers, top, text);
    }
    waste(&view.waste, top, text);
}

fn pools(memory: &Memory, top: usize, text: &mut String) {
    let row = |names: [String; 3], reserved, free, pieces: u64, largest| {
        let [pool, stream, kind] = names;
        let figures = [size_text(reserved), size_text(free), pieces.to_string(), size_text(largest)];
        let [reserved, free, pieces, largest] = figures;
        [pool, stream, kind, reserved, free, pieces, largest]
    };
    let named = memory.by_pool.iter().take(top).map(|group| {
        let kind = if group.small { "small" } else { "large" };
        let names = [pool_text(group.pool), stream_text(group.stream), kind.into()];
        row(names, group.reserved, group.free, group.free_pieces, group.largest_free)
    });
    let mut rows: Vec<_> = named.collect();
    if memory.by_pool.len() > top {
        let others = &memory.by_pool[top..];
        let sum = |of: fn(&PoolMemory) -> u64| others.iter().map(of).sum::<u64>();
        let names = [format!("({})", counted(others.len(), "other")), String::new(), String::new()];
        let largest = others.iter().map(|group| group.largest_free).max().unwrap_or(0);
        let (reserved, free) = (sum(|group| group.reserved), sum(|group| group.free));
        rows.push(row(names, reserved, free, sum(|group| group.free_pieces), largest));
    }
    let header = ["pool", "stream", "kind", "reserved", "free", "pieces", "largest fit"];
    let _ = writeln!(text, "{}", figures(header, rows, &[3, 4, 5, 6]));
}

fn held_open(memory: &Memory, top: usize, text: &mut String) {
    if memory.held_open.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nSegments in use by a quarter or less: {}, with {} kept from the device\n",
        memory.held_open_count,
        size_text(memory.held_open_free)
    );
    let rows = memory.held_open.iter().take(top).map(|segment| {
        let named: Vec<_> = segment.blocks.iter().map(held_text).collect();
        let mut why = named.join("\n");
        if segment.block_count > named.len() as u64 {
            let _ =
                write!(why, "\nand {}", counted(segment.block_count - named.len() as u64, "smaller block"));
        }
        [size_text(segment.size), size_text(segment.free), why]
    });
    let _ = writeln!(text, "{}", figures(["segment", "free", "held open by"], rows.collect(), &[0, 1]));
}

fn blockers(blockers: &[Blocker], top: usize, text: &mut String) {
    let rows = blockers
        .iter()
        .take(top)
        .map(|blocker| [size_text(blocker.beside), size_text(blocker.would_free), held_text(&blocker.block)]);
    let header = ["free beside it", "free without it", "block"];
    let _ = writeln!(text, "{}", figures(header, rows.collect(), &[0, 1]));
}

fn waste(waste: &[Waste], top: usize, text: &mut String) {
    if waste.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nWhat rounding costs, by requested size\n");
    let row = |rounding: u64, tails: u64, count: u64, size: String| {
        let all = size_text(rounding.saturating_add(tails));
        [all, size_text(rounding), size_text(tails), count.to_string(), size]
    };
    let named = waste.iter().take(top);
    let mut rows: Vec<_> =
        named.map(|waste| row(waste.rounding, waste.tails, waste.count, size_text(waste.size))).collect();
    if waste.len() > top {
        let others = &waste[top..];
        let sum = |of: fn(&Waste) -> u64| others.iter().map(of).sum::<u64>();
        let name = format!("({})", counted(others.len(), "other"));
        rows.push(row(sum(|waste| waste.rounding), sum(|waste| waste.tails), sum(|waste| waste.count), name));
    }
    let header = ["wasted", "rounding", "tails", "blocks", "size of each"];
    let _ = writeln!(text, "{}", figures(header, rows, &[0, 1, 2, 3]));
}

/// The first refused request.
pub(super) fn write_refused(refused: &Refused, count: u64, top: usize, text: &mut String) {
    let iteration = refused.iteration.map(|number| format!(", iteration {number}")).unwrap_or_default();
    let which =
        if count == 1 { "The refused request".to_owned() } else { format!("The first of {count} refused") };
    let said = format!(
        "{which}: {} at entry {}{iteration}, stream {}: {}",
        refused.asked(),
        refused.at,
        stream_text(refused.stream),
        refused.why()
    );
    let _ = writeln!(text, "\n{}\n", console::wrapped(&said));
    let row = |name: &str, bytes: u64| [name.to_owned(), size_text(bytes)];
    let mut rows =
        vec![row("the block it takes", refused.block), row("what the device was asked for", refused.segment)];
    if let Some(free) = refused.device_free {
        rows.push(row("the device had free", free));
    }
    rows.extend([
        row("free memory it may use", refused.usable_free),
        row("the largest piece of that", refused.usable_largest),
        row("free memory of other streams, pools and sizes", refused.other_free),
        row("the largest piece of that", refused.other_largest),
        row("waiting for other streams", refused.waiting),
        row("missing, however it lay", refused.missing),
    ]);
    rows.retain(|[_, bytes]| bytes != "0 bytes");
    let _ = writeln!(text, "{}", figures(["it needed, and there was", "bytes"], rows, &[1]));
    if let Some(caller) = &refused.caller {
        let _ = writeln!(text, "asked for by {}", caller_text(caller));
    }
    if top > 0 && !refused.in_the_way.is_empty() {
        let _ = writeln!(text, "\nWithout one of these it would have fitted\n");
        blockers(&refused.in_the_way, top, text);
    }
}
