//! Benchmarks beside the peers: medians of interleaved runs, ratios first.
//!
//! Host time is measured with `tests/peers` (its own workspace: the peers come from registries) on Granule's adaptor, on
//! the peers, and on the libraries of the peer benchmark where these were built. What is held, and what that costs in the
//! driver, is judged on the [`corpus`].

pub(crate) mod corpus;
mod hot_path;
mod instructions;
mod page;
mod peers;
mod planner;
mod replays;
mod scale;
mod timing;

use crate::process::files;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// Which benchmarks; without any: latency, churn, threads, programs, planner
    #[arg(value_enum)]
    which: Vec<Which>,
    /// A folder with built libraries of the peer benchmark (PyTorch's own allocator, TensorFlow's, CubeCL's)
    #[arg(long, env = "PEERS")]
    peers: Option<PathBuf>,
    /// Allocators, comma separated, by the beginning of their names; all if absent
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Recorded programs
    #[arg(long = "trace")]
    traces: Vec<PathBuf>,
    /// With `planner`: a folder of instances `id,lower,upper,size`, each for 1 MiB; minimalloc's beside the repository
    /// if absent
    #[arg(long)]
    instances: Option<PathBuf>,
    /// Interleaved rounds, of which the median is shown
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// How long a round measures one case, in seconds
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Write a page with the results, the machine and the commit into docs/results
    #[arg(long)]
    write: bool,
}

impl Options {
    /// The recorded programs that were named, else those that lie beside the repository.
    fn traces(&self) -> Result<Vec<PathBuf>> {
        if !self.traces.is_empty() {
            return Ok(self.traces.clone());
        }
        files::in_folder(files::shared("traces"), "gz")
            .context("there are no traces beside the repository: name some with --trace")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Allocate and free of a cached size: nanoseconds, and instructions where valgrind is installed
    Latency,
    /// Replacing blocks among 100 to 100 000 live ones
    Churn,
    /// Threads on streams of their own
    Threads,
    /// Recorded programs, time of a single call
    Programs,
    /// Offline placement
    Planner,
    /// What an operation costs beside many blocks, streams, pools, views, users, history entries: time and counted steps
    Scale,
    /// What the history costs, on and off (needs valgrind)
    History,
    /// Replays of recorded programs: what most tools are made of
    Replays,
    /// Sleep and wake: 60 GiB under the cost model, 2 GiB of real bytes with each backup
    Sleep,
}

impl Which {
    const USUAL: [Self; 5] = [Self::Latency, Self::Churn, Self::Threads, Self::Programs, Self::Planner];

    /// The report in Markdown.
    fn report(self, options: &Options) -> Result<String> {
        match self {
            Self::Latency => timing::latency(options),
            Self::Churn => timing::churn(options),
            Self::Threads => timing::threads(options),
            Self::Programs => timing::programs(options),
            Self::Planner => planner::report(options),
            Self::Scale => scale::report(),
            Self::History => hot_path::history(),
            Self::Replays => replays::report(options),
            Self::Sleep => hot_path::sleep(),
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let which = if options.which.is_empty() { &Which::USUAL[..] } else { &options.which };
    let mut reports = Vec::new();
    for which in which {
        let report = which.report(options)?;
        println!("{report}");
        reports.push(report);
    }
    if options.write { page::write(&reports) } else { Ok(()) }
}
