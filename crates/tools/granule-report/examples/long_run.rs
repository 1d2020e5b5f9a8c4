//! Writes the page of a made-up training run of as many entries as wanted, and says how long that took and how large the
//! page is: `cargo run --profile dist -p granule-report --example long_run -- 5000000 long.html [long.pickle]`.
//!
//! Each iteration allocates activations layer by layer, of lengths that vary, and gives them back in reverse; weights and
//! optimizer state stay. Every allocation has a stack of the frames a transformer's training has.

use alloc_core::config::Settings;
use alloc_core::snapshot::{Action, Frame, Labels, Snapshot, Stack, TraceEntry};
use alloc_core::types::PoolId;
use granule_analysis::Run;
use granule_analysis::rules::Rules;
use granule_report::{Report, WhatIf};
use granule_snapshot::pickle::Protocol;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;
use std::time::Instant;

const LAYERS: usize = 48;
const STEP: u64 = 512;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let entries = args.next().and_then(|text| text.parse().ok()).unwrap_or(5_000_000);
    let page = args.next().unwrap_or_else(|| "long.html".to_owned());
    let snapshot = Program::new().run(entries);
    if let Some(pickle) = args.next() {
        granule_snapshot::pickle::write(
            &snapshot,
            BufWriter::new(File::create(pickle)?),
            Protocol::default(),
        )?;
    }
    let began = Instant::now();
    let run = Run::of_snapshot(&snapshot, 0);
    println!(
        "run of {} entries and {} allocations: {:.2?}",
        run.length,
        run.allocations.len(),
        began.elapsed()
    );
    let began = Instant::now();
    let report = Report {
        run: &run,
        title: "long run",
        rules: Rules::new(&Settings::default()),
        verdict: String::new(),
        reasons: Vec::new(),
        capacity: Some(80 << 30),
        facts: Vec::new(),
        remarks: Vec::new(),
        what_if: WhatIf::default(),
    };
    let file = File::create(&page)?;
    report.write(&mut BufWriter::new(&file))?;
    println!("{page}: {} bytes, {:.2?}", file.metadata()?.len(), began.elapsed());
    Ok(())
}

/// A program with an allocator that takes the lowest place that is free.
struct Program {
    entries: Vec<TraceEntry>,
    /// Free stretches by address.
    free: BTreeMap<u64, u64>,
    held: u64,
    labels: Arc<Labels>,
    random: u64,
    sites: Vec<Stack>,
}

impl Program {
    fn new() -> Self {
        let labels = Labels { pool_id: Some(PoolId::DEFAULT), ..Labels::default() };
        let sites = (0..LAYERS * 12).map(site).collect();
        Self {
            entries: Vec::new(),
            free: BTreeMap::new(),
            held: 0,
            labels: Arc::new(labels),
            random: 1,
            sites,
        }
    }

    fn run(mut self, entries: usize) -> Snapshot {
        for layer in 0..LAYERS {
            for weight in 0..12 {
                self.alloc((8 << 20) << (weight % 4), layer * 12 + weight);
            }
        }
        while self.entries.len() < entries {
            let tokens = 256 + self.below(3840);
            let mut alive = Vec::new();
            for layer in 0..LAYERS {
                for part in 0..12 {
                    alive.push(self.alloc(tokens * 2048 * (1 + part as u64 % 4), layer * 12 + part));
                    let scratch = 1 + self.below(1 << 16);
                    let scratch = self.alloc(scratch, layer * 12 + part);
                    self.free(scratch);
                }
            }
            while let Some(block) = alive.pop() {
                let gradient = self.alloc(block.1, block.0 as usize % (LAYERS * 12));
                self.free(block);
                self.free(gradient);
            }
        }
        self.entries.truncate(entries);
        Snapshot { device_traces: vec![self.entries], ..Snapshot::default() }
    }

    fn alloc(&mut self, size: u64, site: usize) -> (u64, u64) {
        let rounded = size.next_multiple_of(STEP);
        let place = self.free.iter().find(|(_, free)| **free >= rounded).map(|(at, free)| (*at, *free));
        let (at, free) = place.unwrap_or_else(|| {
            let size = rounded.next_multiple_of(2 << 20).max(20 << 20);
            let at = (0x7f00_0000_0000) + self.held;
            self.held += size;
            self.entry(Action::SegmentAlloc, at, size, site);
            (at, size)
        });
        self.free.remove(&at);
        if free > rounded {
            self.free.insert(at + rounded, free - rounded);
        }
        self.entry(Action::Alloc, at, size, site);
        (at, size)
    }

    fn free(&mut self, (at, size): (u64, u64)) {
        self.entry(Action::FreeRequested, at, size, 0);
        self.entry(Action::FreeCompleted, at, size, 0);
        let (mut from, mut to) = (at, at + size.next_multiple_of(STEP));
        if let Some((before, size)) = self.free.range(..from).next_back().map(|(at, size)| (*at, *size))
            && before + size == from
        {
            from = before;
        }
        if let Some(size) = self.free.remove(&to) {
            to += size;
        }
        self.free.insert(from, to - from);
    }

    fn entry(&mut self, action: Action, addr: u64, size: u64, site: usize) {
        let frames = Some(self.sites[site].clone());
        let time_us = 1_700_000_000_000_000 + 7 * self.entries.len() as i64;
        let labels = self.labels.clone();
        self.entries.push(TraceEntry { action, addr, size, stream: 0, time_us, labels, frames });
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % end
    }
}

fn site(number: usize) -> Stack {
    let frame = |name: &str, filename: &str, line| Frame {
        name: name.into(),
        filename: filename.into(),
        line,
        extra: Vec::new(),
    };
    let native = ["at::empty_cuda", "at::native::matmul", "at::_ops::linear::call", "THPVariable_linear"];
    let native = native.into_iter().map(|name| frame(name, "libtorch_cuda.so", 0));
    let (layer, part) = (number / 12, number % 12);
    let library = (0..12).map(|depth| {
        frame("_call_impl", "/usr/lib/python3/site-packages/torch/nn/modules/module.py", 1700 + depth)
    });
    let names = ["attention", "mlp", "norm", "dropout"];
    let own = [
        frame(names[part % 4], "/home/me/model.py", 100 + part as u64),
        frame("forward", "/home/me/model.py", 300 + layer as u64),
        frame("train_step", "/home/me/train.py", 42),
        frame("<module>", "/home/me/train.py", 99),
    ];
    native.chain(library).chain(own).collect()
}
