//! Many live blocks of many sizes, of which a random one is replaced by one of another size.

use super::WARM_UP;
use crate::Arguments;
use crate::measure::{Batches, Chance};
use crate::peer::Peer;
use serde_json::{Value, json};
use std::time::Duration;

const SMALLEST: usize = 512;
/// Victims and sizes are drawn before; so many, then again from the first.
const DRAWN: usize = 1 << 18;

struct Churn<'a> {
    peer: &'a dyn Peer,
    live: Vec<(usize, usize)>,
    drawn: Vec<(u32, usize)>,
    at: usize,
    bytes: usize,
    peak: usize,
    refused: usize,
}

impl Churn<'_> {
    fn step(&mut self) {
        let (victim, size) = self.drawn[self.at & (DRAWN - 1)];
        self.at += 1;
        let (block, bytes) = self.live[victim as usize];
        if block != 0 {
            self.peer.free(block, bytes, 1);
            self.bytes -= bytes;
        }
        self.live[victim as usize] = self.take(size);
    }

    fn take(&mut self, size: usize) -> (usize, usize) {
        let block = self.peer.malloc(size, 1);
        if block == 0 {
            self.refused += 1;
        } else {
            self.bytes += size;
            self.peak = self.peak.max(self.bytes);
        }
        (block, size)
    }
}

pub(super) fn run(peer: &dyn Peer, arguments: &Arguments) -> Value {
    let largest = arguments.largest.unwrap_or(if arguments.blocks > 20_000 { 2 << 20 } else { 32 << 20 });
    let mut chance = Chance(arguments.seed);
    let drawn = (0..DRAWN)
        .map(|_| (chance.below(arguments.blocks) as u32, chance.log_uniform(SMALLEST, largest)))
        .collect();
    let mut churn = Churn { peer, live: Vec::new(), drawn, at: 0, bytes: 0, peak: 0, refused: 0 };
    for _ in 0..arguments.blocks {
        let block = churn.take(chance.log_uniform(SMALLEST, largest));
        churn.live.push(block);
    }
    let warm_up = if arguments.pairs.is_some() { WARM_UP } else { WARM_UP.max(3 * arguments.blocks) };
    (0..warm_up).for_each(|_| churn.step());
    if let Some(pairs) = arguments.pairs {
        (0..pairs).for_each(|_| churn.step());
        return Value::Null;
    }
    let end = Duration::from_secs_f64(arguments.seconds);
    let batches = Batches::run(64, |elapsed| elapsed < end, || churn.step());
    json!({
        "ns": batches.quantile(0.5),
        "ns_p99": batches.quantile(0.99),
        "refused": churn.refused,
        "peak_live": churn.peak,
        "peak_reserved": peer.peak_reserved(),
        "driver_calls": peer.driver_calls(),
    })
}
