//! Real accelerators, where there are any: the conformance kit and the recorded workloads on each backend that
//! finds a device. The results are written as a page with date, driver and commit.

pub(crate) mod torch;

use crate::process::{self, cargo, command, root, target};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// How the run is done.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the page goes
    #[arg(long, default_value = "docs/results")]
    into: PathBuf,
    /// The page's date, for its name
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
    /// Skip the build: the command is there already
    #[arg(long, value_name = "PATH")]
    granule: Option<PathBuf>,
}

/// Backends of real devices.
const BACKENDS: [&str; 3] = ["cuda", "hip", "hip-as-cuda"];
/// What of the free memory a replay may need.
const SHARE: f64 = 0.8;

pub(crate) fn run(options: &Options) -> Result<()> {
    let granule = match &options.granule {
        Some(path) => path.clone(),
        None => {
            cargo(&["build", "--profile", "dist", "-p", "granule-cli", "--features", "full"])?;
            target().join("dist/granule")
        }
    };
    let devices = json(&granule, &["devices", "--json"])?;
    let found = devices["backends"].as_array().context("`granule devices` names no backends")?;
    // Before the run, which takes long.
    let into = root().join(&options.into);
    std::fs::create_dir_all(&into).with_context(|| format!("{} cannot be made", into.display()))?;
    let mut reasons = String::new();
    let mut failed = Vec::new();
    let mut written = 0;
    for report in found.iter().filter(|r| BACKENDS.iter().any(|name| r["name"] == *name)) {
        let name = report["name"].as_str().unwrap_or_default();
        let Some(device) = report["devices"].as_array().and_then(|all| all.first()) else {
            let _ = writeln!(reasons, "  {name}: {}", report["reason"].as_str().unwrap_or_default());
            continue;
        };
        let (page, failures) = page(&granule, name, device, &report["capabilities"])?;
        let date = match &options.date {
            Some(date) => date.clone(),
            None => output(command("date").arg("+%Y-%m-%d"))?,
        };
        let file = into.join(format!("{date}-{name}.md"));
        std::fs::write(&file, page).with_context(|| format!("{} cannot be written", file.display()))?;
        println!("written: {}", file.display());
        written += 1;
        if failures > 0 {
            failed.push(format!("{failures} on {name}"));
        }
    }
    if written == 0 {
        bail!(
            "there is no real device on this machine:\n{reasons}install a driver, or run this where there is a GPU"
        );
    }
    if !failed.is_empty() {
        bail!("checks failed ({}); the pages say which", failed.join(", "));
    }
    Ok(())
}

/// The page of one backend, and how many checks failed.
fn page(granule: &Path, name: &str, device: &Value, capabilities: &Value) -> Result<(String, u64)> {
    let commit = output(command("git").args(["describe", "--always", "--dirty"])).unwrap_or("unknown".into());
    let mut page = format!(
        "# {name} on {}\n\nCommit {commit}. Driver: {}. Memory: {} bytes, {} free before the run.\n",
        device["name"].as_str().unwrap_or("a device"),
        driver(),
        device["total_bytes"],
        device["free_bytes"]
    );
    let _ = writeln!(page, "\n| capability | available | why not |\n|---|---|---|");
    for capability in capabilities.as_array().into_iter().flatten() {
        let available = if capability["available"] == true { "yes" } else { "no" };
        let why = capability["reason"].as_str().unwrap_or_default();
        let _ =
            writeln!(page, "| {} | {available} | {why} |", capability["name"].as_str().unwrap_or_default());
    }
    println!("{name}: conformance");
    let card = json(granule, &["conformance", "--json", "--backend", name])?;
    let _ = writeln!(
        page,
        "\n## Conformance\n\n{} passed, {} failed, {} skipped.\n",
        card["passed"], card["failed"], card["skipped"]
    );
    for check in card["checks"].as_array().into_iter().flatten().filter(|c| c["outcome"] != "passed") {
        let (outcome, check_name) = (check["outcome"].as_str(), check["name"].as_str());
        let why = check["why"].as_str().unwrap_or_default();
        let _ =
            writeln!(page, "- {} `{}`: {why}", outcome.unwrap_or_default(), check_name.unwrap_or_default());
    }
    if matches!(name, "cuda" | "hip") {
        let _ = writeln!(page, "\n## Sleep, wake, and memory shared between processes\n");
        for (program, module) in [("sleep", "drivers::"), ("sharing", "processes::")] {
            let test = format!("{program} {module}");
            println!("{name}: {test}");
            let mut run = command("cargo");
            run.args(["test", "--release", "-p", "granule-tests", "--test", program, "--", module]);
            let verdict = match process::run(run.env("GRANULE_REAL_DRIVERS", name)) {
                Ok(()) => "passed".into(),
                Err(error) => format!("FAILED ({error}); run it again by itself to see why"),
            };
            let _ = writeln!(page, "- `{test}`: {verdict}");
        }
    }
    let _ = writeln!(
        page,
        "\n## Replays\n\nEach beside the simulated device under the same settings and scale.\n\n\
         | trace | settings | scale | peak reserved | device allocations | ns per operation | same counters |\n\
         |---|---|---|---|---|---|---|"
    );
    let free = device["free_bytes"].as_f64().unwrap_or_default();
    for trace in traces()? {
        for conf in ["", "expandable_segments:True"] {
            println!("{name}: {} '{conf}'", trace.display());
            page.push_str(&replay(granule, name, &trace, conf, free)?);
        }
    }
    Ok((page, card["failed"].as_u64().unwrap_or_default()))
}

/// A line of the table of replays.
fn replay(granule: &Path, name: &str, trace: &Path, conf: &str, free: f64) -> Result<String> {
    let file = trace.to_str().context("a path is not UTF-8")?;
    let on = |backend: &str, scale: &str| {
        json(granule, &["replay", file, "--json", "--backend", backend, "--conf", conf, "--scale", scale])
    };
    let peak = on("openreg", "1")?["reserved_bytes_peak"].as_f64().unwrap_or_default();
    let scale = if peak > free * SHARE { format!("{:.6}", free * SHARE / peak) } else { "1".into() };
    let (simulated, real) = (on("openreg", &scale)?, on(name, &scale)?);
    let counters =
        ["reserved_bytes_peak", "allocated_bytes_peak", "num_device_alloc", "num_device_free", "marks"];
    let different: Vec<_> =
        counters.into_iter().filter(|counter| simulated[counter] != real[counter]).collect();
    let verdict = if different.is_empty() { "yes".into() } else { format!("no: {}", different.join(", ")) };
    Ok(format!(
        "| {} | {} | {scale} | {} | {} | {:.0} | {verdict} |\n",
        trace.file_stem().unwrap_or_default().to_string_lossy().trim_end_matches(".trace"),
        if conf.is_empty() { "default" } else { conf },
        real["reserved_bytes_peak"],
        real["num_device_alloc"],
        real["ns_per_op"].as_f64().unwrap_or_default()
    ))
}

/// The recordings at hand; one is in the tree.
fn traces() -> Result<Vec<PathBuf>> {
    let beside = root().join("../shared");
    let folder = std::env::var_os("GRANULE_SHARED").map_or(beside, PathBuf::from).join("traces");
    let folder = if folder.is_dir() { folder } else { root().join("crates/granule-cli/data") };
    let mut traces: Vec<_> = std::fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(".trace.gz"))
        .collect();
    traces.sort();
    Ok(traces)
}

/// The driver as its own tool names it.
fn driver() -> String {
    let nvidia = ["--query-gpu=driver_version", "--format=csv,noheader"];
    output(command("nvidia-smi").args(nvidia))
        .map(|text| format!("NVIDIA {}", text.lines().next().unwrap_or_default()))
        .or_else(|_| {
            std::fs::read_to_string("/sys/module/amdgpu/version").map(|v| format!("amdgpu {}", v.trim()))
        })
        .unwrap_or_else(|_| "version unknown".into())
}

/// What a command of granule prints; a failed conformance run prints its scorecard, too.
fn json(granule: &Path, arguments: &[&str]) -> Result<Value> {
    let output = command(granule).args(arguments).output()?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        let (said, status) = (String::from_utf8_lossy(&output.stderr), output.status);
        format!("granule {} ended with {status}: {}", arguments.join(" "), said.trim())
    })
}

fn output(command: &mut std::process::Command) -> Result<String> {
    let output = process::output(command)?;
    Ok(output.trim().to_owned())
}
