//! The workloads.

mod churn;
mod program;

use crate::measure::Batches;
use crate::peer::Peer;
use crate::{Arguments, Work};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps before anything is measured.
const WARM_UP: usize = 20_000;

pub(crate) fn run(peer: &dyn Peer, arguments: &Arguments) -> Result<Value> {
    match arguments.work {
        Work::Latency => Ok(latency(peer, arguments)),
        Work::Churn => Ok(churn::run(peer, arguments)),
        Work::Threads => Ok(threads(peer, arguments)),
        Work::Program => {
            let trace = arguments.trace.as_ref().context("a recorded program needs --trace")?;
            program::run(peer, trace, arguments)
        }
    }
}

fn pair(peer: &dyn Peer, size: usize, stream: usize) {
    let block = peer.malloc(size, stream);
    if block != 0 {
        peer.free(block, size, stream);
    }
}

fn latency(peer: &dyn Peer, arguments: &Arguments) -> Value {
    let step = || pair(peer, arguments.size, 1);
    for _ in 0..arguments.pairs.map_or(WARM_UP, |_| 1_000) {
        step();
    }
    if let Some(pairs) = arguments.pairs {
        (0..pairs).for_each(|_| step());
        return Value::Null;
    }
    let end = Duration::from_secs_f64(arguments.seconds);
    let batches = Batches::run(256, |elapsed| elapsed < end, step);
    json!({ "ns": batches.quantile(0.5), "ns_p99": batches.quantile(0.99) })
}

fn threads(peer: &dyn Peer, arguments: &Arguments) -> Value {
    let (stop, line) = (AtomicBool::new(false), Barrier::new(arguments.threads + 1));
    let (batches, elapsed) = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=arguments.threads)
            .map(|stream| {
                let (stop, line) = (&stop, &line);
                scope.spawn(move || {
                    let step = || pair(peer, arguments.size, stream);
                    (0..WARM_UP).for_each(|_| step());
                    line.wait();
                    Batches::run(64, |_| !stop.load(Ordering::Relaxed), step)
                })
            })
            .collect();
        line.wait();
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(arguments.seconds));
        stop.store(true, Ordering::Relaxed);
        let elapsed = start.elapsed();
        let joined = workers.into_iter().filter_map(|worker| worker.join().ok());
        (Batches::joined(joined), elapsed)
    });
    let pairs = batches.count() as f64 * 64.0;
    json!({ "ns": batches.quantile(0.5), "million_pairs_per_second": pairs / elapsed.as_secs_f64() / 1e6 })
}
