//! A toy allocator that writes down what it does, and knows what is true at each moment.

use alloc_core::snapshot::{
    Action, BlockInfo, BlockState, Frame, Labels, SegmentInfo, Snapshot, Stack, TraceEntry,
};
use alloc_core::types::PoolId;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a fixed segment and a page of the growable one are multiples of.
pub(crate) const UNIT: u64 = 64 << 10;
const FIXED: u64 = 1 << 30;
const GROWABLE: u64 = 1 << 40;
const PAGES: u64 = 24;
/// What blocks are multiples of.
pub(crate) const BLOCK: u64 = 512;

/// What the program or the allocator does; numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Take { units: u64, stream: u64, pool: u64 },
    GiveBack(usize),
    Map { page: u64, pages: u64 },
    Unmap { page: u64, pages: u64 },
    Alloc { place: usize, bytes: u64, label: u8, site: u8 },
    Free { which: usize, completes: bool },
    Complete(usize),
    Refuse(u64),
}

/// Programs that mostly request and give back.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1u64..6, 0u64..3, 0u64..2).prop_map(|(units, stream, pool)| Step::Take { units, stream, pool }),
        1 => any::<usize>().prop_map(Step::GiveBack),
        3 => (0..PAGES, 1u64..6).prop_map(|(page, pages)| Step::Map { page, pages }),
        2 => (0..PAGES, 1u64..6).prop_map(|(page, pages)| Step::Unmap { page, pages }),
        12 => (any::<usize>(), 1..2 * UNIT, 0u8..3, 0u8..4)
            .prop_map(|(place, bytes, label, site)| Step::Alloc { place, bytes, label, site }),
        8 => (any::<usize>(), any::<bool>()).prop_map(|(which, completes)| Step::Free { which, completes }),
        3 => any::<usize>().prop_map(Step::Complete),
        1 => (1..9 * UNIT).prop_map(Step::Refuse),
    ];
    vec(step, 0..120)
}

/// What is true at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    /// Requested bytes by address.
    pub(crate) live: BTreeMap<u64, u64>,
    /// Given back and not reusable, by address.
    pub(crate) waiting: BTreeMap<u64, u64>,
    /// Bytes held from the device.
    pub(crate) reserved: u64,
}

/// A range that is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) size: u64,
    pub(crate) stream: u64,
    pub(crate) pool: u64,
}

/// The machine, with all that it did.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// Fixed segments by address.
    fixed: BTreeMap<u64, Held>,
    /// Which pages are mapped.
    pages: [bool; PAGES as usize],
    /// The next fixed segment's address.
    next: u64,
    now: Truth,
    entries: Vec<TraceEntry>,
    truths: Vec<Truth>,
}

impl Machine {
    /// One that has done all this.
    pub(crate) fn after(steps: &[Step]) -> Self {
        let mut machine = Self { next: FIXED, truths: vec![Truth::default()], ..Self::default() };
        for step in steps {
            machine.step(*step);
        }
        machine
    }

    /// What was true at each moment, with the first `lost` entries left out.
    pub(crate) fn truths(&self, lost: usize) -> &[Truth] {
        &self.truths[lost..]
    }

    /// The snapshot, whose history has lost its first entries.
    pub(crate) fn snapshot(&self, lost: usize) -> Snapshot {
        Snapshot {
            segments: self.segments(),
            device_traces: vec![self.entries[lost..].to_vec()],
            ..Snapshot::default()
        }
    }

    /// How many entries there are.
    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Take { units, stream, pool } => {
                let (address, size) = (self.next, units * UNIT);
                // Some lie side by side.
                self.next += size + UNIT * (units % 2);
                self.fixed.insert(address, Held { size, stream, pool });
                self.now.reserved += size;
                self.record(Action::SegmentAlloc, address, size, stream, pool);
            }
            Step::GiveBack(which) => {
                let idle: Vec<_> =
                    self.fixed.iter().filter(|(at, held)| self.is_idle(**at, held.size)).collect();
                if let Some((&address, &held)) = pick(&idle, which).copied() {
                    self.fixed.remove(&address);
                    self.now.reserved -= held.size;
                    self.record(Action::SegmentFree, address, held.size, held.stream, held.pool);
                }
            }
            Step::Map { page, pages } => {
                let range = page..(page + pages).min(PAGES);
                if range.clone().all(|page| !self.pages[page as usize]) {
                    self.change_pages(range, true, Action::SegmentMap);
                }
            }
            Step::Unmap { page, pages } => {
                let range = page..(page + pages).min(PAGES);
                let (at, size) = (GROWABLE + range.start * UNIT, (range.end - range.start) * UNIT);
                if range.clone().all(|page| self.pages[page as usize]) && self.is_idle(at, size) {
                    self.change_pages(range, false, Action::SegmentUnmap);
                }
            }
            Step::Alloc { place, bytes, label, site } => self.alloc(place, bytes, label, site),
            Step::Free { which, completes } => {
                let live: Vec<_> = self.now.live.iter().map(|(at, size)| (*at, *size)).collect();
                if let Some(&(address, size)) = pick(&live, which) {
                    let (_, held) = self.holder(address);
                    self.now.live.remove(&address);
                    self.now.waiting.insert(address, size);
                    self.record(Action::FreeRequested, address, size, held.stream, held.pool);
                    if completes {
                        self.complete(address, size);
                    }
                }
            }
            Step::Complete(which) => {
                let waiting: Vec<_> = self.now.waiting.iter().map(|(at, size)| (*at, *size)).collect();
                if let Some(&(address, size)) = pick(&waiting, which) {
                    self.complete(address, size);
                }
            }
            Step::Refuse(size) => self.record(Action::Oom, 5 * UNIT, size, 0, 0),
        }
    }

    fn alloc(&mut self, place: usize, bytes: u64, label: u8, site: u8) {
        let size = bytes.next_multiple_of(BLOCK);
        let places: Vec<_> = self.gaps().into_iter().filter(|(_, gap, _)| *gap >= size).collect();
        if let Some(&(address, _, held)) = pick(&places, place) {
            self.now.live.insert(address, bytes);
            self.record(Action::Alloc, address, bytes, held.stream, held.pool);
            let Some(entry) = self.entries.last_mut() else { unreachable!("just recorded") };
            entry.frames = (site > 0).then(|| stack(site));
            let text = ["", "weights", "activations"][label as usize];
            let labels = Labels { user_metadata: Some(text.into()), ..Labels::clone(&entry.labels) };
            entry.labels = Arc::new(labels);
        }
    }

    fn complete(&mut self, address: u64, size: u64) {
        let (_, held) = self.holder(address);
        self.now.waiting.remove(&address);
        self.record(Action::FreeCompleted, address, size, held.stream, held.pool);
    }

    fn change_pages(&mut self, range: std::ops::Range<u64>, mapped: bool, action: Action) {
        let (address, size) = (GROWABLE + range.start * UNIT, (range.end - range.start) * UNIT);
        for page in range {
            self.pages[page as usize] = mapped;
        }
        self.now.reserved = if mapped { self.now.reserved + size } else { self.now.reserved - size };
        self.record(action, address, size, 0, 0);
    }

    fn record(&mut self, action: Action, addr: u64, size: u64, stream: u64, pool: u64) {
        let labels = Labels { pool_id: Some(PoolId(0, pool)), ..Labels::default() };
        let time_us = 1_000_000 + self.entries.len() as i64;
        let labels = Arc::new(labels);
        self.entries.push(TraceEntry { action, addr, size, stream, time_us, labels, frames: None });
        self.truths.push(self.now.clone());
    }

    fn is_idle(&self, address: u64, size: u64) -> bool {
        self.used().all(|(at, end)| end <= address || address + size <= at)
    }

    /// What blocks take.
    fn used(&self) -> impl Iterator<Item = (u64, u64)> {
        let blocks = self.now.live.iter().chain(&self.now.waiting);
        blocks.map(|(at, size)| (*at, at + size.next_multiple_of(BLOCK)))
    }

    /// Stretches that are held, by address; mapped pages side by side are one.
    fn stretches(&self) -> Vec<(u64, Held)> {
        let mut all: Vec<_> = self.fixed.iter().map(|(at, held)| (*at, *held)).collect();
        let mut page = 0;
        while page < PAGES {
            let run = (page..PAGES).take_while(|page| self.pages[*page as usize]).count() as u64;
            if run > 0 {
                all.push((GROWABLE + page * UNIT, Held { size: run * UNIT, stream: 0, pool: 0 }));
            }
            page += run + 1;
        }
        all
    }

    fn holder(&self, address: u64) -> (u64, Held) {
        let holds = |(at, held): &(u64, Held)| (*at..at + held.size).contains(&address);
        self.stretches().into_iter().find(holds).expect("blocks lie in held memory")
    }

    /// Free stretches: address, bytes, and in what they are.
    pub(crate) fn gaps(&self) -> Vec<(u64, u64, Held)> {
        let mut gaps = Vec::new();
        for (at, held) in self.stretches() {
            let mut used: Vec<_> =
                self.used().filter(|(from, _)| (at..at + held.size).contains(from)).collect();
            used.sort_unstable();
            let mut from = at;
            for (block, end) in used.into_iter().chain([(at + held.size, at + held.size)]) {
                if block > from {
                    gaps.push((from, block - from, held));
                }
                from = end;
            }
        }
        gaps
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        let segment = |(address, held): (u64, Held)| {
            let inside = |(at, _): &(&u64, &u64)| (address..address + held.size).contains(*at);
            let block = |state| {
                move |(at, size): (&u64, &u64)| BlockInfo {
                    address: *at,
                    size: size.next_multiple_of(BLOCK),
                    requested_size: *size,
                    state,
                    frames: None,
                    extra: Vec::new(),
                }
            };
            let live = self.now.live.iter().filter(inside).map(block(BlockState::ActiveAllocated));
            let waiting = self.now.waiting.iter().filter(inside).map(block(BlockState::ActivePendingFree));
            let mut blocks: Vec<_> = live.chain(waiting).collect();
            blocks.sort_by_key(|block| block.address);
            SegmentInfo {
                device: 0,
                address,
                total_size: held.size,
                allocated_size: 0,
                active_size: 0,
                requested_size: 0,
                stream: held.stream,
                segment_type: "large".into(),
                pool_id: PoolId(0, held.pool),
                is_expandable: address >= GROWABLE,
                registration: None,
                frames: None,
                blocks,
                extra: Vec::new(),
            }
        };
        self.stretches().into_iter().map(segment).collect()
    }
}

fn pick<T>(from: &[T], which: usize) -> Option<&T> {
    from.get(which.checked_rem(from.len())?)
}

/// A stack of PyTorch's own frames in a line of the program.
fn stack(site: u8) -> Stack {
    let frame = |name: &str, filename: &str, line| Frame {
        name: name.into(),
        filename: filename.into(),
        line,
        extra: Vec::new(),
    };
    Stack::from([
        frame("linear", "/env/lib/python3.12/site-packages/torch/nn/functional.py", 10),
        frame("forward", "/home/someone/model.py", u64::from(site)),
    ])
}
