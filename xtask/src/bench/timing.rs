//! Host time beside the peers.

use super::Options;
use super::instructions;
use super::peers::{Case, Peers};
use crate::process::{self, files};
use crate::table::{Table, figure};
use anyhow::Result;

/// What stands above every table of ratios.
const HOW: &str = "In each cell: ratio to the first row (median of ratios within a round), then the figure.";

fn sizes() -> [Case; 4] {
    [("512 B", "512"), ("64 KiB", "65536"), ("2 MiB", "2097152"), ("20 MiB", "20971520")]
        .map(|(name, bytes)| Case::new(name, &["--work", "latency", "--size", bytes]))
}

/// Allocate and free of one size from a warm cache.
pub(super) fn latency(options: &Options) -> Result<String> {
    let (peers, cases) = (Peers::build(options)?, sizes());
    let rounds = peers.rounds(&cases, "ns", options)?;
    let mut text = format!(
        "## Latency: allocate and free of a cached size, ns a pair\n\n{HOW}\n\n{}",
        peers.table(&cases, &rounds)
    );
    if !instructions::available() {
        println!("skipped: instructions; valgrind is not installed");
        return Ok(text);
    }
    let mut table = Table::new(["allocator", "512 B", "64 KiB", "2 MiB", "20 MiB", "churn among 1 000"]);
    let churn = Case::new("churn", &["--work", "churn", "--blocks", "1000"]);
    for peer in &peers.all {
        let cells = cases.iter().chain([&churn]).map(|case| {
            // Not every library lives under valgrind.
            peers.instructions(peer, case).map_or_else(|_| "–".into(), figure)
        });
        table.row(std::iter::once(peer.name.clone()).chain(cells));
    }
    text += &format!("\nInstructions a pair (callgrind):\n\n{}", table.text());
    Ok(text)
}

/// Blocks replaced at random among many.
pub(super) fn churn(options: &Options) -> Result<String> {
    let peers = Peers::build(options)?;
    let cases = ["100", "1000", "10000", "100000"]
        .map(|blocks| Case::new(blocks, &["--work", "churn", "--blocks", blocks]));
    let rounds = peers.rounds(&cases, "ns", options)?;
    Ok(format!(
        "## Churn: one of N live blocks replaced, ns a pair\n\nSizes log-uniform from 512 B to 32 MiB (to 2 MiB at \
         100 000). {HOW}\n\n{}",
        peers.table(&cases, &rounds)
    ))
}

/// Threads, each with pairs of 64 KiB on a stream of its own.
pub(super) fn threads(options: &Options) -> Result<String> {
    let peers = Peers::build(options)?;
    let cases = ["1", "2", "4"]
        .map(|threads| Case::new(format!("{threads} threads"), &["--work", "threads", "--threads", threads]));
    let rounds = peers.rounds(&cases, "million_pairs_per_second", options)?;
    let mut scaling = Table::new(["allocator", "2 threads over 1", "4 threads over 1"]);
    for (peer, row) in peers.all.iter().zip(&rounds) {
        let over = |many: usize| match (row[many].median(), row[0].median()) {
            (Some(many), Some(one)) => format!("{:.2}", many / one),
            _ => "–".into(),
        };
        scaling.row([peer.name.clone(), over(1), over(2)]);
    }
    let cores = process::cores();
    Ok(format!(
        "## Threads on streams of their own, 64 KiB, on {cores} cores\n\n{}\nMillion pairs a second of all threads \
         together. {HOW}\n\n{}",
        scaling.text(),
        peers.table(&cases, &rounds)
    ))
}

/// Recorded programs.
pub(super) fn programs(options: &Options) -> Result<String> {
    let (peers, traces) = (Peers::build(options)?, options.traces()?);
    let cases: Vec<Case> = traces
        .iter()
        .map(|path| {
            let file = path.to_string_lossy();
            Case::new(
                files::stem(path),
                &["--work", "program", "--trace", &file, "--capacity", "85899345920"],
            )
        })
        .collect();
    let rounds = peers.rounds(&cases, "ns", options)?;
    Ok(format!("## Recorded programs, ns a call (warm)\n\n{HOW}\n\n{}", peers.table(&cases, &rounds)))
}
