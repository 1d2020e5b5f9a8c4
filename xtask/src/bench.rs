//! Benchmarks beside the peers, in one interleaved run.

use crate::process::{cargo, command, root, run as run_process, target};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::PathBuf;

/// What is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// The peer benchmark's sources (driver, adaptors, bench.py)
    #[arg(long, env = "GRANULE_PEER_BENCH")]
    rig: Option<PathBuf>,
    /// Its build folder, which holds `bench` and the peers' libraries
    #[arg(long, env = "PEERS")]
    peers: Option<PathBuf>,
    /// Workloads, comma separated (W1 W2 W3 W4pair W4churn W5grow W5rand)
    #[arg(long, default_value = "W1,W2,W3")]
    works: String,
    /// Peers, comma separated, besides Granule; all that were built if absent
    #[arg(long)]
    labels: Option<String>,
    /// Interleaved rounds; the report takes medians of ratios within a round
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Shorter measurements
    #[arg(long)]
    quick: bool,
    /// Count instructions with callgrind instead of measuring time
    #[arg(long)]
    instructions: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let shared = root().join("../shared");
    let rig = options.rig.clone().unwrap_or_else(|| shared.join("peer-bench"));
    if !rig.join("bench.py").exists() {
        bail!("no peer benchmark at {}: name its folder with --rig or GRANULE_PEER_BENCH", rig.display());
    }
    let Some(peers) = options.peers.clone() else {
        bail!(
            "no build of the peers: run the rig's setup script and name its build folder with --peers or PEERS"
        );
    };
    cargo(&["build", "--release", "-p", "granule-peer-adaptor"])?;
    let library = target().join("release/libgranule_peer_adaptor.so");
    let library = library.to_str().context("the build folder's path is not UTF-8")?;
    let add = [format!("granule={library}:"), format!("granule-exp={library}:conf=expandable_segments:True")];
    let bench = |verb: &str| {
        let mut bench = command("python3");
        bench.arg(rig.join("bench.py")).arg(verb).arg("--build").arg(&peers);
        for label in &add {
            bench.args(["--add", label]);
        }
        if let Some(labels) = &options.labels {
            bench.args(["--labels", labels]);
        }
        bench
    };
    if options.instructions {
        return run_process(&mut bench("instr"));
    }
    let results = target().join("bench.jsonl");
    let mut measure = bench("run");
    measure.arg("--out").arg(&results).args(["--works", &options.works]);
    measure.args(["--rounds", &options.rounds.to_string()]);
    if options.quick {
        measure.arg("--quick");
    }
    let _ = std::fs::remove_file(&results);
    for trace in traces(&shared)? {
        measure.arg("--trace").arg(trace);
    }
    run_process(&mut measure)?;
    run_process(command("python3").arg(rig.join("bench.py")).arg("report").arg(&results))
}

fn traces(shared: &std::path::Path) -> Result<Vec<PathBuf>> {
    let Ok(folder) = std::fs::read_dir(shared.join("traces")) else { return Ok(Vec::new()) };
    let mut traces: Vec<PathBuf> = Vec::new();
    for entry in folder {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "gz") {
            traces.push(path);
        }
    }
    traces.sort();
    Ok(traces)
}
