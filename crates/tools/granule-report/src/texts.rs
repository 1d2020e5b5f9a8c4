//! Names and stacks, each once.
//!
//! Stacks are kept as a tree from the outermost frame inwards: stacks of one program mostly share their outer frames.

use crate::bytes::Bytes;
use alloc_core::snapshot::Frame;
use granule_analysis::Run;
use granule_analysis::inspect::{Caller, program_frame};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Everything that has a name.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    strings: Vec<Arc<str>>,
    by_text: FxHashMap<Arc<str>, u32>,
    /// Name, file, line.
    frames: Vec<(u32, u32, u64)>,
    by_frame: FxHashMap<(u32, u32, u64), u32>,
    /// The node outside of it (0 is none, others are counted from 1) and its frame.
    nodes: Vec<(u32, u32)>,
    by_node: FxHashMap<(u32, u32), u32>,
}

impl Texts {
    /// The number of a stack's innermost node, counted from 1; 0 for an empty stack.
    pub(crate) fn stack(&mut self, stack: &[Frame]) -> u32 {
        let mut node = 0;
        for frame in stack.iter().rev() {
            let frame = (self.string(&frame.name), self.string(&frame.filename), frame.line);
            let next = self.frames.len() as u32;
            let frame = *self.by_frame.entry(frame).or_insert_with(|| {
                self.frames.push(frame);
                next
            });
            let next = self.nodes.len() as u32 + 1;
            node = *self.by_node.entry((node, frame)).or_insert_with(|| {
                self.nodes.push((node, frame));
                next
            });
        }
        node
    }

    fn string(&mut self, text: &Arc<str>) -> u32 {
        if let Some(number) = self.by_text.get(text) {
            return *number;
        }
        let number = self.strings.len() as u32;
        self.strings.push(text.clone());
        self.by_text.insert(text.clone(), number);
        number
    }

    /// All of the run's names and stacks, with what is known of each call site. `self` may have stacks already.
    pub(crate) fn write(mut self, bytes: &mut Bytes, run: &Run) {
        let sites: Vec<u32> = run.sites.iter().map(|stack| self.stack(stack)).collect();
        let name = |stack: &[Frame]| -> Arc<str> { Caller::of_stack(stack).place.short().into() };
        let names: Vec<u32> = run.sites.iter().map(|stack| self.string(&name(stack))).collect();
        let labels: Vec<u32> = run.labels.iter().map(|label| self.string(label)).collect();
        bytes.number(self.strings.len() as u64);
        for text in &self.strings {
            bytes.text(text);
        }
        bytes.number(self.frames.len() as u64);
        bytes.steps(self.frames.iter().map(|frame| u64::from(frame.0)));
        bytes.steps(self.frames.iter().map(|frame| u64::from(frame.1)));
        bytes.column(self.frames.iter().map(|frame| frame.2));
        bytes.number(self.nodes.len() as u64);
        bytes.steps(self.nodes.iter().map(|node| u64::from(node.0)));
        bytes.steps(self.nodes.iter().map(|node| u64::from(node.1)));
        let figures = figures(run);
        bytes.number(sites.len() as u64);
        bytes.steps(sites.iter().map(|node| u64::from(*node)));
        bytes.steps(names.iter().map(|name| u64::from(*name)));
        bytes.column(run.sites.iter().map(line_of));
        bytes.column(figures.iter().map(|site| site.allocations));
        bytes.column(figures.iter().map(|site| site.largest));
        bytes.column(figures.iter().map(|site| site.at_peak));
        bytes.number(labels.len() as u64);
        bytes.column(labels.iter().map(|text| u64::from(*text)));
        bytes.number(run.streams.len() as u64);
        bytes.column(run.streams.iter().copied());
        bytes.number(run.pools.len() as u64);
        bytes.column(run.pools.iter().map(|pool| pool.0));
        bytes.column(run.pools.iter().map(|pool| pool.1));
    }
}

/// Which frame stands for a stack, counted from 1, the innermost; 0 for none.
fn line_of(stack: &[Frame]) -> u64 {
    let found =
        program_frame(stack).and_then(|found| stack.iter().position(|frame| std::ptr::eq(frame, found)));
    found.map_or(0, |at| at as u64 + 1)
}

/// What is known of a call site.
#[derive(Clone, Debug, Default)]
struct Figures {
    allocations: u64,
    /// Bytes of the largest.
    largest: u64,
    /// Bytes live at the moment at which most was.
    at_peak: u64,
}

fn figures(run: &Run) -> Vec<Figures> {
    let (peak, _) = run.peak();
    let mut figures = vec![Figures::default(); run.sites.len()];
    for life in &run.allocations {
        let Some(site) = figures.get_mut(life.site as usize) else { continue };
        site.allocations += 1;
        site.largest = site.largest.max(life.size);
        if life.is_live(peak) {
            site.at_peak = site.at_peak.saturating_add(life.size);
        }
    }
    figures
}
