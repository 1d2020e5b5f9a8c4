//! The rows of the tables, of a run.

use crate::runs::Source;
use crate::runs::clock::Clock;
use crate::runs::events::{Event, Events, What};
use crate::runs::schema::{AllocationRow, EventRow, IterationRow, RunRow, SegmentRow, SiteRow};
use alloc_core::snapshot::Frame;
use granule_analysis::Run;
use granule_analysis::inspect::program_frame;
use granule_analysis::run::{Allocation, Moment, NEVER};
use std::fmt::Write;

/// A run, with what its rows have in common.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    source: &'a Source<'a>,
    run: &'a Run,
    clock: Clock,
    /// The pools' names.
    pools: Vec<String>,
    notes: String,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(source: &'a Source<'a>) -> Self {
        let run = source.run;
        Self {
            source,
            run,
            clock: Clock::new(run),
            pools: run.pools.iter().map(ToString::to_string).collect(),
            notes: source.notes.join("\n"),
        }
    }

    pub(crate) fn run(&self) -> RunRow<'_> {
        let (source, run) = (self.source, self.run);
        let (peak_live_at, peak_live) = run.peak();
        let (peak_reserved_at, peak_reserved) = run.reserved_peak();
        let live_at = |at| sum(run.allocations.iter().filter(|life| life.is_live(at)).map(|life| life.size));
        RunRow {
            run: source.id,
            name: source.name,
            file: source.file,
            source: source.kind.name(),
            settings: source.settings,
            device: count(source.device),
            capacity: source.capacity.map(bytes),
            complete: !source.window,
            notes: &self.notes,
            entries: i64::from(run.length),
            began_us: self.clock.time(0),
            ended_us: self.clock.time(run.length),
            allocations: count(run.allocations.len()),
            iterations: count(run.iterations.len()),
            refusals: count(run.refusals.len()),
            bytes_requested: sum(run
                .allocations
                .iter()
                .filter(|life| !life.is_older())
                .map(|life| life.size)),
            live_at_begin: bytes(run.live_before()),
            live_at_end: live_at(run.length),
            peak_live: bytes(peak_live),
            peak_live_at: i64::from(peak_live_at),
            reserved_at_end: run.reserved().last().map_or(0, |(_, held)| bytes(*held)),
            peak_reserved: bytes(peak_reserved),
            peak_reserved_at: i64::from(peak_reserved_at),
            live_at_peak_reserved: live_at(peak_reserved_at),
            written_by: concat!("granule ", env!("CARGO_PKG_VERSION")),
        }
    }

    pub(crate) fn iterations(&self) -> impl Iterator<Item = IterationRow<'_>> {
        self.run.iteration_figures().into_iter().enumerate().map(|(index, figures)| IterationRow {
            run: self.source.id,
            iteration: count(index),
            number: bytes(figures.number),
            begins_at: i64::from(figures.begin),
            ends_at: i64::from(figures.end),
            begins_us: self.clock.time(figures.begin),
            ends_us: self.clock.time(figures.end),
            live_at_begin: bytes(figures.live_at_begin),
            live_at_end: bytes(figures.live_at_end),
            growth: figures.growth(),
            peak_live: bytes(figures.peak_live),
            peak_live_at: i64::from(figures.peak_live_at),
            peak_reserved: bytes(figures.peak_reserved),
            allocations: bytes(figures.allocations),
            bytes_requested: bytes(figures.requested),
            frees: bytes(figures.frees),
            bytes_never_freed: bytes(figures.never_freed),
        })
    }

    pub(crate) fn allocations(&self) -> impl Iterator<Item = AllocationRow<'_>> {
        self.run.allocations.iter().enumerate().map(|(index, life)| AllocationRow {
            run: self.source.id,
            allocation: count(index),
            allocated_at: i64::from(life.begin),
            freed_at: moment(life.end),
            reusable_at: moment(life.reusable),
            allocated_us: self.clock.time(life.begin),
            freed_us: self.clock.time(life.end),
            reusable_us: self.clock.time(life.reusable),
            address: self.address(life),
            size: bytes(life.size),
            stream: self.stream(life.stream),
            pool: self.pool(life.pool),
            site: site(life.site),
            label: self.label(life.label),
            iteration: self.iteration(life.begin),
            live_at_end: life.end == NEVER,
            older: life.is_older(),
        })
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = SegmentRow<'_>> {
        self.run.spans.iter().map(|span| SegmentRow {
            run: self.source.id,
            taken_at: i64::from(span.begin),
            returned_at: moment(span.end),
            taken_us: self.clock.time(span.begin),
            returned_us: self.clock.time(span.end),
            address: span.address,
            size: bytes(span.size),
            stream: self.stream(span.stream),
            pool: self.pool(span.pool),
            growable: span.growable,
            older: span.begin == 0,
        })
    }

    /// All but the one of allocations without a stack.
    pub(crate) fn sites(&self) -> impl Iterator<Item = SiteRow<'_>> {
        self.run.sites.iter().enumerate().skip(1).map(|(index, frames)| {
            let named = program_frame(frames);
            SiteRow {
                run: self.source.id,
                site: count(index),
                function: named.map_or("", |frame| &frame.name),
                file: named.map_or("", |frame| &frame.filename),
                line: named.map_or(0, |frame| bytes(frame.line)),
                frames: count(frames.len()),
                stack: stack_text(frames),
            }
        })
    }

    pub(crate) fn events<'r>(&'r self, events: &'r Events) -> impl Iterator<Item = EventRow<'r>> {
        events.events.iter().map(|event| self.event(events, event))
    }

    fn event(&self, all: &Events, event: &Event) -> EventRow<'_> {
        let index = event.index as usize;
        let mut row = EventRow {
            run: self.source.id,
            moment: i64::from(event.at),
            time_us: self.clock.time(event.at),
            action: event.what.name(),
            allocation: None,
            address: None,
            size: None,
            device_free: None,
            stream: None,
            pool: None,
            site: None,
            label: None,
            iteration: self.iteration(event.at),
            stack: None,
        };
        match event.what {
            What::Alloc | What::FreeRequested | What::FreeCompleted => {
                let life = &self.run.allocations[index];
                row.allocation = Some(i64::from(event.index));
                row.address = self.address(life);
                row.size = Some(bytes(life.size));
                row.stream = Some(self.stream(life.stream));
                row.pool = Some(self.pool(life.pool));
                row.site = site(life.site);
                row.label = self.label(life.label);
            }
            What::SegmentAlloc | What::SegmentMap | What::SegmentFree | What::SegmentUnmap => {
                let stretch = &all.stretches[index];
                row.address = Some(stretch.address);
                row.size = Some(bytes(stretch.size));
                row.stream = Some(self.stream(stretch.stream));
                row.pool = Some(self.pool(stretch.pool));
            }
            What::Oom => {
                let refusal = &self.run.refusals[index];
                row.size = Some(bytes(refusal.size));
                row.device_free = refusal.device_free.map(bytes);
                row.stream = Some(self.stream(refusal.stream));
                row.stack = refusal.frames.as_deref().map(stack_text);
            }
            What::Annotate => row.label = Some(&self.run.notes[index].1),
            What::Iteration => row.iteration = Some(i64::from(event.index)),
            What::EmptyCache => {}
        }
        row
    }

    fn address(&self, life: &Allocation) -> Option<u64> {
        self.run.has_addresses().then_some(life.address)
    }

    fn stream(&self, index: u32) -> u64 {
        self.run.streams.get(index as usize).copied().unwrap_or(u64::from(index))
    }

    fn pool(&self, index: u32) -> &str {
        self.pools.get(index as usize).map_or("", String::as_str)
    }

    fn label(&self, index: u32) -> Option<&str> {
        self.run.labels.get(index as usize).map(|label| &**label).filter(|label| !label.is_empty())
    }

    /// In which iteration what holds from that moment on was done.
    fn iteration(&self, at: Moment) -> Option<i64> {
        let begun = self.run.iterations.partition_point(|iteration| iteration.at < at);
        begun.checked_sub(1).map(count)
    }
}

/// Longer texts of stacks are cut: no program has them, but frames of a damaged file could share a long name.
const STACK: usize = 1 << 20;

/// A stack as text, innermost frame first, one on a line.
pub(crate) fn stack_text(frames: &[Frame]) -> String {
    let mut text = String::new();
    for frame in frames {
        if text.len() + frame.name.len() + frame.filename.len() > STACK {
            text.push_str("\n...");
            break;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{} {}:{}", frame.name, frame.filename, frame.line);
    }
    text
}

fn moment(at: Moment) -> Option<i64> {
    (at != NEVER).then_some(i64::from(at))
}

fn site(index: u32) -> Option<i64> {
    (index != 0).then_some(i64::from(index))
}

/// Bytes beyond what the column takes are as many as it takes.
fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn sum(sizes: impl Iterator<Item = u64>) -> i64 {
    bytes(sizes.fold(0, u64::saturating_add))
}
