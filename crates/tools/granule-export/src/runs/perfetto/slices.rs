//! What the viewer says about allocations, iterations and refused requests.

use super::packet::Args;
use alloc_core::snapshot::Frame;
use granule_analysis::Run;
use granule_analysis::inspect::{Place, program_frame};
use granule_analysis::run::{Allocation, IterationFigures, NEVER, Refusal};
use serde_json::Value;
use std::cmp::Reverse;

/// Frames of a stack that are written with each slice.
const FRAMES: usize = 48;
/// Longer names are cut: nothing that was recorded has them.
const NAME: usize = 512;

/// The largest allocations by their index, in the order in which they began.
pub(super) fn largest(run: &Run, most: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..run.allocations.len()).collect();
    if indices.len() > most {
        indices.select_nth_unstable_by_key(most, |index| (Reverse(run.allocations[*index].size), *index));
        indices.truncate(most);
        indices.sort_unstable();
    }
    indices
}

/// A slice's name: the program's line, by which the viewer groups slices.
pub(super) fn name(run: &Run, life: &Allocation) -> String {
    let line = program_frame(run.sites.get(life.site)).map(|frame| Place::of(frame).short());
    line.map_or_else(|| "allocation".into(), |line| cut(&line).to_owned())
}

pub(super) fn allocation(run: &Run, life: &Allocation) -> Args {
    let mut args = Args::new();
    args.insert("bytes".into(), life.size.into());
    if run.has_addresses() {
        args.insert("address".into(), format!("{:#x}", life.address).into());
    }
    add_stream(&mut args, run, life.stream);
    if let Some(pool) = run.pools.get(life.pool as usize) {
        args.insert("pool".into(), pool.to_string().into());
    }
    if let Some(label) = run.labels.get(life.label as usize).filter(|label| !label.is_empty()) {
        args.insert("label".into(), cut(label).into());
    }
    args.insert("allocated at entry".into(), life.begin.into());
    let freed = if life.end == NEVER { Value::from("alive at the end") } else { life.end.into() };
    args.insert("freed at entry".into(), freed);
    add_stack(&mut args, run.sites.get(life.site));
    args
}

pub(super) fn refusal(run: &Run, refusal: &Refusal) -> Args {
    let mut args = Args::new();
    args.insert("bytes".into(), refusal.size.into());
    if let Some(free) = refusal.device_free {
        args.insert("free on the device".into(), free.into());
    }
    add_stream(&mut args, run, refusal.stream);
    args.insert("at entry".into(), refusal.at.into());
    add_stack(&mut args, refusal.frames.as_deref().unwrap_or_default());
    args
}

pub(super) fn iteration(figures: &IterationFigures) -> Args {
    let figures = [
        ("peak live in bytes", figures.peak_live.into()),
        ("peak reserved in bytes", figures.peak_reserved.into()),
        ("growth in bytes", figures.growth().into()),
        ("allocations", figures.allocations.into()),
        ("frees", figures.frees.into()),
        ("never freed in bytes", figures.never_freed.into()),
    ];
    figures.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect()
}

fn add_stream(args: &mut Args, run: &Run, stream: u32) {
    let handle = run.streams.get(stream as usize).copied().unwrap_or(u64::from(stream));
    args.insert("stream".into(), format!("{handle:#x}").into());
}

fn add_stack(args: &mut Args, frames: &[Frame]) {
    if frames.is_empty() {
        return;
    }
    let line = |frame: &Frame| format!("{} {}:{}", cut(&frame.name), cut(&frame.filename), frame.line);
    let mut lines: Vec<Value> = frames.iter().take(FRAMES).map(|frame| line(frame).into()).collect();
    if frames.len() > FRAMES {
        lines.push(format!("and {} more", frames.len() - FRAMES).into());
    }
    args.insert("stack".into(), lines.into());
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME)]
}
