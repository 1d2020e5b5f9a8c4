//! Measures one allocator with one workload and prints a line of JSON; `cargo xtask bench` runs it for each in turn.
//!
//! A measurement is a process of its own, so that allocators do not share caches, and a figure is a median of batches.
//! Device memory is never touched: addresses are all that is handed out.

mod measure;
mod peer;
mod work;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use std::io::Write;
use std::path::PathBuf;

/// One measurement.
#[derive(Parser)]
struct Arguments {
    /// The allocator: offset, tlsf, mimalloc, or the path of a library with the C interface of the peer benchmark
    #[arg(long)]
    peer: String,
    /// What the allocator is told at its start, for example `policy=pytorch,conf=expandable_segments:True`
    #[arg(long, default_value = "")]
    config: String,
    /// The workload
    #[arg(long, value_enum)]
    work: Work,
    /// Bytes of the pairs (latency, threads)
    #[arg(long, default_value_t = 65_536)]
    size: usize,
    /// Live blocks (churn)
    #[arg(long, default_value_t = 1_000)]
    blocks: usize,
    /// Largest block of a churn, in bytes; by default 32 MiB, and 2 MiB from 20 000 blocks on
    #[arg(long)]
    largest: Option<usize>,
    /// Threads, each on a stream of its own
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// The trace of a recorded program
    #[arg(long)]
    trace: Option<PathBuf>,
    /// The device's memory in bytes
    #[arg(long, default_value_t = 64 << 30)]
    capacity: usize,
    /// How long is measured
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// What sizes and victims are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do exactly so many pairs and measure nothing: for a program that counts instructions
    #[arg(long)]
    pairs: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    /// Allocate and free one size, over and over
    Latency,
    /// Replace random ones among many live blocks of many sizes
    Churn,
    /// Pairs of one size by several threads
    Threads,
    /// A recorded program
    Program,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let peer = peer::start(&arguments.peer, arguments.capacity, &arguments.config)?;
    let answer = work::run(&*peer, &arguments)?;
    if arguments.pairs.is_none() {
        println!("{answer}");
    }
    std::io::stdout().flush()?;
    // What allocators do when a process ends is not measured, and not all of them end well.
    std::process::exit(0)
}
