//! Runs whose every allocation is known.

use alloc_core::snapshot::{
    Action, BlockInfo, BlockState, Frame, Labels, SegmentInfo, Snapshot, Stack, TraceEntry,
};
use alloc_core::types::{MIB, PoolId};
use granule_analysis::Run;
use granule_analysis::run::{Allocation, Iteration, NEVER, Span};
use std::sync::Arc;

/// Bytes of the one allocation that no other is as large as.
pub const NEEDLE: u64 = 300 * MIB;
/// Its function, file and line.
pub const NEEDLE_PLACE: (&str, &str, u64) = ("the_needle", "model.py", 77);

/// Names in a run.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The function that asks for activations.
    pub function: &'a str,
    /// Its file.
    pub file: &'a str,
    /// What the program says its weights are.
    pub label: &'a str,
    /// A note.
    pub note: &'a str,
}

/// Names as programs have them.
pub const USUAL: Names<'_> =
    Names { function: "forward", file: "model.py", label: "weights", note: "warm-up is over" };

/// A run of 10 iterations: weights that stay, activations that come and go, one large allocation in iteration 5 that lives for
/// 20 entries, a refused request in iteration 7.
#[must_use]
pub fn training(names: &Names<'_>) -> Run {
    let mut history = History::new(names, place, 832 * MIB);
    for number in 0..4 {
        history.alloc(number, 64 * MIB, 0, "build", 12);
    }
    let mut marks = Vec::new();
    for iteration in 0..10 {
        marks.push(Iteration { at: history.moment(), number: iteration });
        for block in 0..12 {
            history.alloc(10 + block, (8 + block) * MIB, block % 3, names.function, 50 + block);
        }
        if iteration == 1 {
            history.note(names.note);
        }
        if iteration == 5 {
            history.alloc(40, NEEDLE, 0, NEEDLE_PLACE.0, NEEDLE_PLACE.2);
            for _ in 0..5 {
                history.alloc(50, 4 * MIB, 0, "loss", 90);
                history.free(50, 4 * MIB);
            }
            history.free(40, NEEDLE);
        }
        if iteration == 7 {
            history.refuse(20 << 30);
        }
        for block in (0..12).rev() {
            history.free(10 + block, (8 + block) * MIB);
        }
    }
    let mut run = Run::of_snapshot(&history.snapshot(), 0);
    run.iterations = marks;
    run
}

/// Two mappings of 20 MiB side by side in a growable segment, and one allocation of 30 MiB that reaches from the first into the
/// second.
#[must_use]
pub fn growable() -> Run {
    let address = 0x3000_0000;
    let span = |begin, address| Span {
        begin,
        end: NEVER,
        address,
        size: 20 * MIB,
        stream: 0,
        pool: 0,
        growable: true,
    };
    let life = Allocation {
        begin: 3,
        end: NEVER,
        reusable: NEVER,
        address,
        size: 30 * MIB,
        stream: 0,
        pool: 0,
        site: 0,
        label: 0,
    };
    Run {
        length: 4,
        allocations: vec![life],
        spans: vec![span(1, address), span(2, address + 20 * MIB)],
        streams: vec![0],
        pools: vec![PoolId::DEFAULT],
        labels: vec!["".into()],
        ..Run::default()
    }
}

/// Requests that the allocator rounds up, and large ones that keep what is left behind them: two pieces are free.
#[must_use]
pub fn rounded() -> Run {
    let [small, large] = [0x3000_0000, 0x4000_0000];
    let span =
        |address, size| Span { begin: 0, end: NEVER, address, size, stream: 0, pool: 0, growable: false };
    let life = |address, size| Allocation {
        begin: 1,
        end: NEVER,
        reusable: NEVER,
        address,
        size,
        stream: 0,
        pool: 0,
        site: 0,
        label: 0,
    };
    let half = MIB / 2;
    Run {
        length: 4,
        allocations: vec![
            life(small, 1000),
            life(small + 1024, 700),
            life(small + 4096, 512),
            life(large, 20 * MIB - half),
            life(large + 20 * MIB, 20 * MIB - half),
        ],
        spans: vec![span(small, 2 * MIB), span(large, 40 * MIB)],
        streams: vec![0],
        pools: vec![PoolId::DEFAULT],
        labels: vec!["".into()],
        ..Run::default()
    }
}

/// A run of so many entries, for measuring.
#[must_use]
pub fn long(entries: usize) -> Run {
    let mut history = History::new(&USUAL, |slot| 5 * MIB * slot, 320 * MIB);
    let mut number = 0_u64;
    while history.entries.len() < entries {
        let kind = number % 17;
        history.alloc(
            number % 61,
            (1 + kind) * MIB / 4,
            number % 2,
            ["forward", "loss", "step"][(kind % 3) as usize],
            50 + kind,
        );
        // Sixty live at once, each as long as sixty others come.
        if number >= 60 {
            let old = number - 60;
            history.free(old % 61, (1 + old % 17) * MIB / 4);
        }
        number += 1;
    }
    Run::of_snapshot(&history.snapshot(), 0)
}

/// Where a slot of the training run is in its segment: weights, activations, the needle, losses.
const fn place(slot: u64) -> u64 {
    match slot {
        0..10 => slot * 64 * MIB,
        10..40 => 256 * MIB + (slot - 10) * 20 * MIB,
        40..50 => 512 * MIB,
        _ => 820 * MIB,
    }
}

/// A history in the making: one segment, with slots in it.
struct History<'n> {
    names: &'n Names<'n>,
    /// Where a slot is in the segment.
    place: fn(u64) -> u64,
    /// Bytes of the segment.
    held: u64,
    entries: Vec<TraceEntry>,
    stacks: std::collections::HashMap<(String, u64), Stack>,
    plain: Arc<Labels>,
    labelled: Arc<Labels>,
}

/// The segment's first address.
const BASE: u64 = 0x7f00_0000_0000;

impl<'n> History<'n> {
    fn new(names: &'n Names<'n>, place: fn(u64) -> u64, held: u64) -> Self {
        let labels = |text: &str| {
            Arc::new(Labels {
                user_metadata: Some(text.into()),
                pool_id: Some(PoolId::DEFAULT),
                ..Labels::default()
            })
        };
        let (plain, labelled) = (labels(""), labels(names.label));
        let mut history = Self {
            names,
            place,
            held,
            entries: Vec::new(),
            stacks: std::collections::HashMap::new(),
            plain,
            labelled,
        };
        history.push(Action::SegmentAlloc, BASE, held, 0, None);
        history
    }

    fn moment(&self) -> u32 {
        self.entries.len() as u32
    }

    fn stack(&mut self, function: &str, line: u64) -> Stack {
        let file = self.names.file;
        let key = (function.to_owned(), line);
        let frame = |name: &str, file: &str, line| Frame {
            name: name.into(),
            filename: file.into(),
            line,
            extra: Vec::new(),
        };
        let make = || -> Stack { [frame(function, file, line), frame("main", "train.py", 3)].into() };
        self.stacks.entry(key).or_insert_with(make).clone()
    }

    fn push(&mut self, action: Action, addr: u64, size: u64, stream: u64, frames: Option<Stack>) {
        let labels = if stream == 1 { &self.labelled } else { &self.plain };
        let time_us = 1_700_000_000_000_000 + 10 * self.entries.len() as i64;
        let labels = labels.clone();
        self.entries.push(TraceEntry { action, addr, size, stream, time_us, labels, frames });
    }

    fn alloc(&mut self, slot: u64, size: u64, stream: u64, function: &str, line: u64) {
        let stack = self.stack(function, line);
        self.push(Action::Alloc, BASE + (self.place)(slot), size, stream, Some(stack));
    }

    fn free(&mut self, slot: u64, size: u64) {
        self.push(Action::FreeRequested, BASE + (self.place)(slot), size, 0, None);
        self.push(Action::FreeCompleted, BASE + (self.place)(slot), size, 0, None);
    }

    fn refuse(&mut self, size: u64) {
        let stack = self.stack("too_much", 99);
        self.push(Action::Oom, 1 << 30, size, 0, Some(stack));
    }

    fn note(&mut self, text: &str) {
        let labels = Labels { user_metadata: Some(text.into()), ..Labels::default() };
        self.push(Action::Annotate, 0, 0, 0, None);
        if let Some(last) = self.entries.last_mut() {
            last.labels = Arc::new(labels);
        }
    }

    fn snapshot(self) -> Snapshot {
        let block = BlockInfo {
            address: BASE,
            size: self.held,
            requested_size: 0,
            state: BlockState::Inactive,
            frames: None,
            extra: Vec::new(),
        };
        let segment = SegmentInfo {
            device: 0,
            address: BASE,
            total_size: self.held,
            allocated_size: 0,
            active_size: 0,
            requested_size: 0,
            stream: 0,
            segment_type: "large".into(),
            pool_id: PoolId::DEFAULT,
            is_expandable: false,
            registration: None,
            frames: None,
            blocks: vec![block],
            extra: Vec::new(),
        };
        Snapshot { segments: vec![segment], device_traces: vec![self.entries], ..Snapshot::default() }
    }
}
