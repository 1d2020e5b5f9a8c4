//! The program behind `cargo xtask night`.

use clap::Parser;
use night::features::Pairs;
use night::history::{self, Outcome};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Whole histories of everything at once, on simulated devices.
#[derive(Debug, Parser)]
#[command(name = "night")]
struct Options {
    /// How long, in minutes
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The first seed; with --seeds 1, the only one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, whatever the time
    #[arg(long)]
    seeds: Option<u64>,
    /// Operations of each seed
    #[arg(long, default_value_t = 4000)]
    ops: usize,
    /// Only these operations, by number
    #[arg(long, value_delimiter = ',')]
    only: Vec<usize>,
    /// Print every operation before it is done
    #[arg(long)]
    trace: bool,
    /// Print a finding as it is
    #[arg(long)]
    no_shrink: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    history::keep_panics();
    let (begun, mut pairs, mut done) = (Instant::now(), Pairs::default(), 0);
    let end = begun + Duration::from_secs_f64(options.minutes * 60.0);
    for seed in options.seed.. {
        let over = options.seeds.map_or_else(|| Instant::now() >= end, |seeds| seed >= options.seed + seeds);
        if over {
            break;
        }
        let all = history::of_seed(seed, options.ops).into_iter().enumerate();
        let ops: Vec<_> = all.filter(|(n, _)| options.only.is_empty() || options.only.contains(n)).collect();
        let Outcome { ops: count, hash, met, finding } = history::run(seed, ops, options.trace);
        println!("seed={seed} ops={count} hash={hash:016x}");
        done += count;
        pairs.add(met);
        if let Some((op, found)) = finding {
            println!("{}", found.what);
            if !options.no_shrink && options.only.is_empty() {
                let kept = night::shrink::shrink(seed, op, found.oracle);
                let listed: Vec<_> = kept.iter().map(usize::to_string).collect();
                println!("// --seed {seed} --seeds 1 --ops {} --only {}", op + 1, listed.join(","));
                let all = history::of_seed(seed, op + 1).into_iter().enumerate();
                let ops: Vec<_> = all.filter(|(n, _)| kept.contains(n)).collect();
                println!("{}", night::shrink::as_test(seed, &ops, found.oracle));
            }
            println!("seed={seed} op={op} oracle={}", found.oracle);
            return ExitCode::from(1);
        }
    }
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    println!("{done} operations, {rate:.0} a second");
    for (one, other, count) in pairs.iter().filter(|pair| pair.2 == 0) {
        println!("never met: {one} and {other} ({count})");
    }
    ExitCode::SUCCESS
}
