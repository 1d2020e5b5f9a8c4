//! Tables of what was live.

use super::{caller_text, figures, pool_text, share, stream_text, title};
use crate::console::counted;
use granule::round::size_text;
use granule_analysis::inspect::{Caller, Group, View};
use std::fmt::Write as _;

fn write_title(view: &View, text: &mut String) {
    let (bytes, count) = (size_text(view.live.bytes), counted(view.live.count, "block"));
    let _ = writeln!(text, "\nLive {}: {bytes} in {count}\n", title(view));
}

/// Who holds most, in a line each, or else which sizes.
pub(super) fn write_most(view: &View, top: usize, text: &mut String) {
    let live = &view.live;
    write_title(view, text);
    if live.by_caller.is_empty() {
        groups("size of each", &live.by_size, live.bytes, top, text, |group| size_text(group.key.size));
    } else {
        let line =
            |group: &Group<Caller>| caller_text(&group.key).lines().next().unwrap_or_default().to_owned();
        groups("who asked", &live.by_caller, live.bytes, top, text, line);
    }
}

/// Everything about what was live at a moment. Groups that say nothing, because there is only one, are left out.
pub(super) fn write(view: &View, top: usize, text: &mut String) {
    let live = &view.live;
    write_title(view, text);
    let total = live.bytes;
    groups("who asked", &live.by_caller, total, top, text, |group| caller_text(&group.key));
    groups("label", &live.by_label, total, top, text, |group| match group.key.label.as_str() {
        "" => "(none)".into(),
        label => label.to_owned(),
    });
    groups("size of each", &live.by_size, total, top, text, |group| size_text(group.key.size));
    groups("sizes up to", &live.by_class, total, top, text, |group| size_text(group.key.up_to));
    if live.by_stream.len() > 1 {
        groups("stream", &live.by_stream, total, top, text, |group| stream_text(group.key.stream));
    }
    if live.by_pool.len() > 1 {
        groups("pool", &live.by_pool, total, top, text, |group| pool_text(group.key.pool));
    }
}

fn groups<K>(
    what: &str,
    groups: &[Group<K>],
    total: u64,
    top: usize,
    text: &mut String,
    name: impl Fn(&Group<K>) -> String,
) {
    if groups.is_empty() {
        return;
    }
    let row = |bytes: u64, count: u64, name: String| {
        [size_text(bytes), share(bytes, total), count.to_string(), name]
    };
    // One more row says no less than a sum of one.
    let named = if groups.len() == top + 1 { groups.len() } else { groups.len().min(top) };
    let mut rows: Vec<_> =
        groups[..named].iter().map(|group| row(group.bytes, group.count, name(group))).collect();
    if named < groups.len() {
        let others = &groups[named..];
        let bytes = others.iter().fold(0u64, |sum, group| sum.saturating_add(group.bytes));
        let count = others.iter().map(|group| group.count).sum();
        rows.push(row(bytes, count, format!("({} others)", others.len())));
    }
    let _ = writeln!(text, "{}", figures(["live", "share", "blocks", what], rows, &[0, 1, 2]));
}
