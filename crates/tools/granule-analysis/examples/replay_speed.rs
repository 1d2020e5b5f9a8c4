//! How fast a recorded program is replayed and its file read, to be timed or counted.
//!
//! `replay_speed replay|load TRACE TIMES [POLICY [CONF]]` does it TIMES times in a row and prints the median of the
//! nanoseconds that an event took, the simulated device and the allocator made and dropped anew each time included; `replay_speed events TRACE` says how many events there are.
//! `cargo xtask bench replays` runs it, also under callgrind.

use alloc_core::config::{Flavour, PolicyName, Settings, pytorch};
use granule_analysis::replay::{ReplayOptions, replay};
use granule_snapshot::trace::Trace;
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["events", trace] => events(trace),
        [what, trace, times] => work(what, trace, times, "", ""),
        [what, trace, times, policy] => work(what, trace, times, policy, ""),
        [what, trace, times, policy, conf] => work(what, trace, times, policy, conf),
        _ => Err("replay_speed events TRACE, or replay_speed replay|load TRACE TIMES [POLICY [CONF]]".into()),
    };
    match outcome {
        Ok(ns) => {
            println!("{ns:.2}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// How many events the trace has.
fn events(path: &str) -> Result<f64, Box<dyn Error>> {
    #[allow(clippy::cast_precision_loss)]
    Ok(Trace::load(path)?.events.len() as f64)
}

/// Median nanoseconds an event.
fn work(what: &str, path: &str, times: &str, policy: &str, conf: &str) -> Result<f64, Box<dyn Error>> {
    let times = times.parse()?;
    let trace = Trace::load(path)?;
    let policy = PolicyName::ALL.iter().copied().find(|known| known.name() == policy);
    let settings = pytorch::parse(conf, &Settings::default(), Flavour::Cuda)?.settings;
    let options = ReplayOptions {
        settings: Settings { policy, ..settings },
        unwatched: true,
        ..ReplayOptions::default()
    };
    let mut took = Vec::new();
    for _ in 0..times {
        let start = Instant::now();
        match what {
            "load" => drop(Trace::load(path)?),
            "replay" => drop(replay(&trace, &options, |_| ())?),
            _ => return Err(format!("{what} is neither replay nor load").into()),
        }
        #[allow(clippy::cast_precision_loss)]
        took.push(start.elapsed().as_nanos() as f64 / trace.events.len().max(1) as f64);
    }
    took.sort_by(f64::total_cmp);
    Ok(took.get(took.len() / 2).copied().unwrap_or_default())
}
