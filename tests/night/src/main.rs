//! The program behind `cargo xtask night`.

use clap::Parser;
use night::features::Pairs;
use night::history::{self, Outcome};
use night::shrink;
use night::verdict::keep_panics;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Whole histories of everything at once, on simulated devices.
#[derive(Debug, Parser)]
#[command(name = "night")]
struct Options {
    /// How long, in minutes
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// From one seed to the next
    #[arg(long, default_value_t = 1)]
    stride: u64,
    /// At most so many seeds
    #[arg(long, default_value_t = MOST)]
    seeds: u64,
    /// Operations of each seed
    #[arg(long, default_value_t = 4000)]
    ops: usize,
    /// Only these operations, by number
    #[arg(long, value_delimiter = ',')]
    only: Vec<usize>,
    /// Write what became of it to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Print every operation before it is done
    #[arg(long)]
    trace: bool,
    /// Print a finding as it is
    #[arg(long)]
    no_shrink: bool,
}

/// Seeds that one process can run: each makes machines, and a process can make 65 535.
const MOST: u64 = 20_000;

/// What was done so far.
#[derive(Default)]
struct Done {
    seeds: u64,
    ops: u64,
    pairs: Pairs,
    failure: Option<Value>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    keep_panics();
    let (begun, mut done) = (Instant::now(), Done::default());
    let end = begun + Duration::from_secs_f64(options.minutes * 60.0);
    let mut seed = options.seed;
    while done.failure.is_none()
        && done.seeds < options.seeds.min(MOST)
        && (done.seeds == 0 || Instant::now() < end)
    {
        run(&options, seed, &mut done);
        seed = seed.wrapping_add(options.stride);
    }
    if let Some(file) = &options.json {
        let pairs: serde_json::Map<_, _> =
            done.pairs.iter().map(|(one, other, count)| (format!("{one} + {other}"), count.into())).collect();
        let failures: Vec<_> = done.failure.iter().collect();
        let rate = (done.ops as f64 / processor_seconds().unwrap_or(f64::INFINITY)).round();
        let report = json!({
            "seeds": done.seeds, "next": seed, "ops": done.ops, "ops_per_core_second": rate, "failures": failures, "pairs": pairs,
        });
        if let Err(error) = std::fs::write(file, format!("{report:#}\n")) {
            eprintln!("{}: {error}", file.display());
            return ExitCode::from(2);
        }
    }
    match done.failure {
        Some(failure) => {
            // The last line says how to find it again.
            println!(
                "seed={} op={} oracle={}",
                failure["seed"],
                failure["op"],
                failure["oracle"].as_str().unwrap_or("")
            );
            ExitCode::from(1)
        }
        None => ExitCode::SUCCESS,
    }
}

/// What a processor did for this program, which has one thread: a shared machine takes longer by the clock.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_whitespace().next()?.parse::<f64>().ok().map(|ns| ns / 1e9)
}

fn run(options: &Options, seed: u64, done: &mut Done) {
    let all = || history::of_seed(seed, options.ops).into_iter().enumerate();
    let chosen = |n: &usize| options.only.is_empty() || options.only.binary_search(n).is_ok();
    let Outcome { ops, hash, met, finding } =
        history::run(seed, all().filter(|(n, _)| chosen(n)), options.trace);
    println!("seed={seed} ops={ops} hash={hash:016x}");
    done.seeds += 1;
    done.ops += ops as u64;
    done.pairs.add(met);
    let Some((op, found)) = finding else { return };
    println!("{}", found.what);
    let mut program = String::new();
    if !options.no_shrink && options.only.is_empty() {
        let kept = shrink::shrink(seed, op, found.oracle);
        let listed: Vec<_> = kept.iter().map(usize::to_string).collect();
        println!("// night --seed {seed} --seeds 1 --ops {} --only {}", op + 1, listed.join(","));
        let ops: Vec<_> = all().filter(|(n, _)| kept.contains(n)).collect();
        program = shrink::as_test(seed, &ops, found.oracle);
        println!("{program}");
    }
    done.failure =
        Some(json!({ "seed": seed, "op": op, "oracle": found.oracle, "what": found.what, "test": program }));
}
