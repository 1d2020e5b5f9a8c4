//! Benchmarks beside the peers, in one interleaved run.

use crate::process::{cargo, command, root, run as run_process, target};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};

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
    /// Measure only how cost grows from 1 000 to 100 000 live blocks of the same sizes
    #[arg(long)]
    growth: bool,
    /// Measure only what the masquerade costs the hot path, in instructions (needs valgrind, and no rig)
    #[arg(long)]
    masquerade: bool,
    /// Measure only what the history costs, on and off (needs valgrind, and no rig)
    #[arg(long)]
    history: bool,
    /// Measure only sleep and wake: 60 GiB under the cost model, 2 GiB of real bytes with each backup (needs no rig)
    #[arg(long)]
    sleep: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.masquerade {
        return masquerade();
    }
    if options.history {
        return history();
    }
    if options.sleep {
        return sleep();
    }
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
    if options.growth {
        return growth(&peers, library, options.rounds);
    }
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

/// Sizes of the growth measurement: log-uniform, the same for every number of blocks.
const MIX: [&str; 4] = ["--lo", "512", "--hi", "2M"];

/// Churn among 1 000 and among 100 000 live blocks, in turn: medians of nanoseconds and instructions per pair.
fn growth(peers: &Path, library: &str, rounds: u32) -> Result<()> {
    let peer = peers.join("ad_torch_native.so");
    let mut subjects = vec![("granule", library.to_owned())];
    if peer.exists() {
        subjects.push(("PyTorch native", peer.display().to_string()));
    }
    println!(
        "| allocator | ns at 1 000 | ns at 100 000 | growth | instructions at 1 000 | at 100 000 | growth |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, adaptor) in subjects {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (n, times) in ["1000", "100000"].into_iter().zip(&mut times) {
                times.push(churn_ns(peers, &adaptor, n)?);
            }
        }
        let [small, large] = times.map(|mut t| {
            t.sort_by(f64::total_cmp);
            t[t.len() / 2]
        });
        let counts =
            [churn_instructions(peers, &adaptor, "1000")?, churn_instructions(peers, &adaptor, "100000")?];
        println!(
            "| {name} | {small:.0} | {large:.0} | {:.2} | {:.0} | {:.0} | {:.2} |",
            large / small,
            counts[0],
            counts[1],
            counts[1] / counts[0]
        );
    }
    Ok(())
}

fn churn_ns(peers: &Path, adaptor: &str, n: &str) -> Result<f64> {
    let mut bench = command(peers.join("bench"));
    bench.args(["--adaptor", adaptor, "--work", "W2", "--n", n, "--secs", "0.5"]).args(MIX);
    let output = bench.output().context("could not start the peer benchmark")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .rev()
        .find(|line| line.starts_with('{'))
        .context("the peer benchmark printed no result")?;
    let result: serde_json::Value = serde_json::from_str(line)?;
    result["ns"].as_f64().context("the result has no ns")
}

/// Instructions of a pair of allocate and free, over a backend and over the masquerade before it.
fn masquerade() -> Result<()> {
    cargo(&["build", "--release", "-p", "granule-tests", "--bin", "hot-path"])?;
    let program = target().join("release/hot-path");
    let count = |subject: &str| -> Result<f64> {
        let run = |pairs: &str| {
            instructions(command("valgrind").args(CALLGRIND).arg(&program).args([subject, pairs]))
        };
        Ok((run("22000")? - run("2000")?) / 20_000.0)
    };
    let (bare, masked) = (count("bare")?, count("masquerade")?);
    println!("| instructions a pair, bare | through the masquerade | ratio |\n|---|---|---|");
    println!("| {bare:.1} | {masked:.1} | {:.4} |", masked / bare);
    Ok(())
}

/// Instructions of a pair of allocate and free with history off, on, and compiled out; and the time of snapshots without
/// traces, which must not depend on the history.
fn history() -> Result<()> {
    let build = ["build", "--release", "-p", "granule-tests", "--bin", "history-cost"];
    cargo(&build)?;
    let program = target().join("release/history-cost");
    // A build folder of its own: the flag would make everything anew in each.
    let without = target().join("without-history");
    let mut build_without = command("cargo");
    build_without.args(build).env("CARGO_TARGET_DIR", &without);
    run_process(build_without.env("RUSTFLAGS", "--cfg granule_no_history"))?;
    let without = without.join("release/history-cost");
    let pair = |program: &Path, mode: &str| -> Result<f64> {
        let run = |pairs: &str| {
            let mut valgrind = command("valgrind");
            valgrind.args(CALLGRIND).arg("--toggle-collect=*free_and_allocate*");
            instructions(valgrind.arg(program).args([mode, pairs]))
        };
        Ok((run("24000")? - run("4000")?) / 20_000.0)
    };
    let (none, off) = (pair(&without, "off")?, pair(&program, "off")?);
    let (numbered, on) = (pair(&program, "numbered")?, pair(&program, "on")?);
    // A pair makes three records.
    let record = |pair: f64| (pair - off) / 3.0;
    println!("| instructions | a pair | more than off, a record |\n|---|---|---|");
    println!("| recording compiled out | {none:.1} | |");
    println!("| history off | {off:.1} ({:+.1}) | |", off - none);
    println!("| history on, numbers for the time | {numbered:.1} | {:.1} |", record(numbered));
    println!("| history on | {on:.1} | {:.1} |", record(on));
    for entries in ["0", "1000000"] {
        run_process(command(&program).args(["snapshot", "5000", entries]))?;
    }
    Ok(())
}

/// What sleeping and waking cost: see `tests/src/bin/sleep-cost.rs`.
fn sleep() -> Result<()> {
    cargo(&["build", "--release", "-p", "granule-tests", "--bin", "sleep-cost"])?;
    let program = target().join("release/sleep-cost");
    run_process(command(&program).args(["modelled", "60"]))?;
    run_process(command(&program).args(["bytes", "2"]))
}

const CALLGRIND: [&str; 2] = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];

/// What callgrind counts of a command.
fn instructions(valgrind: &mut std::process::Command) -> Result<f64> {
    let output = valgrind.output().context("could not start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text
        .lines()
        .find_map(|line| line.split("Collected :").nth(1))
        .with_context(|| format!("callgrind counted nothing: {text}"))?;
    Ok(line.trim().parse()?)
}

/// Instructions of 20 000 pairs more, over 20 000.
fn churn_instructions(peers: &Path, adaptor: &str, n: &str) -> Result<f64> {
    let count = |pairs: &str| -> Result<f64> {
        let mut valgrind = command("valgrind");
        valgrind.args(CALLGRIND).arg(peers.join("bench"));
        valgrind.args(["--adaptor", adaptor, "--work", "W2", "--n", n, "--pairs", pairs]).args(MIX);
        // Valgrind has little address space for the fake device.
        instructions(valgrind.env("FK_VA_BITS", "34"))
    };
    Ok((count("22000")? - count("2000")?) / 20_000.0)
}

fn traces(shared: &Path) -> Result<Vec<PathBuf>> {
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
