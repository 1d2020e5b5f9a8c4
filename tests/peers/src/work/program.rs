//! A recorded program: its requests and frees as fast as they go, several times. What ran before is warm.

use crate::Arguments;
use crate::peer::Peer;
use anyhow::Result;
use granule_snapshot::trace::{Event, Trace};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
enum Step {
    Malloc { place: u32, stream: u32, bytes: usize },
    Free { place: u32 },
    EmptyCache,
}

/// The steps, with places for blocks that are used again; how many places there are; the most bytes live at once.
fn steps(trace: &Trace) -> (Vec<Step>, usize, u64) {
    let (mut steps, mut places, mut spare, mut count) = (Vec::new(), HashMap::new(), Vec::new(), 0_u32);
    let (mut live, mut peak) = (0_u64, 0_u64);
    for event in &trace.events {
        match *event {
            Event::Alloc { id, size, stream } => {
                let place = spare.pop().unwrap_or_else(|| {
                    count += 1;
                    count - 1
                });
                places.insert(id, (place, size));
                live += size;
                peak = peak.max(live);
                steps.push(Step::Malloc { place, stream, bytes: size as usize });
            }
            Event::Free { id } | Event::Refused { id, .. } => {
                let Some((place, size)) = places.remove(&id) else { continue };
                live -= size;
                spare.push(place);
                steps.push(Step::Free { place });
            }
            Event::EmptyCache => steps.push(Step::EmptyCache),
            _ => {}
        }
    }
    (steps, count as usize, peak)
}

pub(super) fn run(peer: &dyn Peer, path: &Path, arguments: &Arguments) -> Result<Value> {
    let (steps, places, peak_live) = steps(&Trace::load(path)?);
    let mut blocks = vec![(0_usize, 0_usize, 0_usize); places];
    let mut refused = 0_usize;
    let mut pass = || {
        let start = Instant::now();
        for step in &steps {
            match *step {
                Step::Malloc { place, stream, bytes } => {
                    let block = peer.malloc(bytes, stream as usize);
                    refused += usize::from(block == 0);
                    blocks[place as usize] = (block, bytes, stream as usize);
                }
                Step::Free { place } => {
                    let (block, bytes, stream) = std::mem::take(&mut blocks[place as usize]);
                    if block != 0 {
                        peer.free(block, bytes, stream);
                    }
                }
                Step::EmptyCache => peer.empty_cache(),
            }
        }
        let each = start.elapsed().as_nanos() as f64 / steps.len() as f64;
        for (block, bytes, stream) in blocks.iter_mut().map(std::mem::take) {
            if block != 0 {
                peer.free(block, bytes, stream);
            }
        }
        each
    };
    let cold = pass();
    let (reserved, calls) = (peer.peak_reserved(), peer.driver_calls());
    let start = Instant::now();
    let mut warm = Vec::new();
    while warm.len() < 3 || start.elapsed() < Duration::from_secs_f64(arguments.seconds) {
        warm.push(pass());
    }
    warm.sort_by(f64::total_cmp);
    Ok(json!({
        "ns": warm[warm.len() / 2],
        "ns_cold": cold,
        "refused": refused,
        "peak_live": peak_live,
        "peak_reserved": reserved,
        "driver_calls": calls,
    }))
}
