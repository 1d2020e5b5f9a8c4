//! The allocators that are timed, and one measurement.

use super::Options;
use super::instructions::{callgrind, of_a_pair};
use crate::process::{cargo, command, root, target};
use crate::table::{Table, figure, median};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// A policy with settings.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) name: &'static str,
    pub(super) policy: &'static str,
    pub(super) conf: &'static str,
}

/// The first that a build accepts is what others are compared with.
pub(super) const CONFIGURATIONS: [Configuration; 3] = [
    Configuration { name: "granule", policy: "granule", conf: "" },
    Configuration { name: "pytorch policy", policy: "pytorch", conf: "" },
    Configuration { name: "pytorch policy, expandable", policy: "pytorch", conf: "expandable_segments:True" },
];

/// An allocator, as `tests/peers` takes it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: String,
    /// The name of one from a registry, or a library.
    peer: String,
    config: String,
}

/// The driver and whom it measures; the first is what the others are compared with.
pub(super) struct Peers {
    program: PathBuf,
    pub(super) all: Vec<Peer>,
}

/// Allocators from registries.
const REGISTRY: [(&str, &str); 3] =
    [("offset-allocator", "offset"), ("rlsf (TLSF)", "tlsf"), ("mimalloc (host)", "mimalloc")];

/// Libraries of the peer benchmark.
const LIBRARIES: [(&str, &str, &str); 4] = [
    ("PyTorch native", "ad_torch_native.so", ""),
    ("PyTorch native, expandable", "ad_torch_native.so", "conf=expandable_segments:True"),
    ("TensorFlow BFC", "ad_tf_bfc.so", "grow"),
    ("cubecl-server", "libad_cubecl.so", "adaptive"),
];

/// One case of a benchmark.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
}

impl Case {
    pub(super) fn new(name: impl Into<String>, arguments: &[&str]) -> Self {
        Self { name: name.into(), arguments: arguments.iter().map(ToString::to_string).collect() }
    }
}

impl Peers {
    /// Builds the driver and Granule's adaptor; peers that are not there are named.
    pub(super) fn build(options: &Options) -> Result<Self> {
        cargo(&["build", "--profile", "dist", "-p", "granule-peer-adaptor"])?;
        let folder = target().join("peers");
        let manifest = root().join("tests/peers/Cargo.toml");
        let mut build = command("cargo");
        build.args(["build", "--release", "--manifest-path"]).arg(manifest);
        crate::process::run(build.env("CARGO_TARGET_DIR", &folder))?;
        let adaptor = target().join("dist/libgranule_peer_adaptor.so");
        let adaptor = adaptor.to_str().context("the build folder's path is not UTF-8")?;
        let mut peers = Self { program: folder.join("release/peers"), all: Vec::new() };
        for of in &CONFIGURATIONS {
            let config = format!("policy={},conf={}", of.policy, of.conf);
            peers.offer(of.name, adaptor, &config, options);
        }
        for (name, peer) in REGISTRY {
            peers.offer(name, peer, "", options);
        }
        for (name, library, config) in LIBRARIES {
            match options.peers.as_ref().map(|folder| folder.join(library)).filter(|path| path.exists()) {
                Some(path) => peers.offer(name, &path.to_string_lossy(), config, options),
                None => println!("skipped: {name}, no {library} (PEERS names the folder)"),
            }
        }
        ensure!(!peers.all.is_empty(), "none of the allocators is there");
        Ok(peers)
    }

    /// Adds one that is wanted and starts.
    fn offer(&mut self, name: &str, peer: &str, config: &str, options: &Options) {
        let wanted =
            options.only.is_empty() || options.only.iter().any(|only| name.starts_with(only.as_str()));
        let peer = Peer { name: name.into(), peer: peer.into(), config: config.into() };
        if !wanted {
            return;
        }
        let probe = ["--work", "latency", "--pairs", "1"].map(ToOwned::to_owned);
        match self.driver(None, &peer, &probe).output() {
            Ok(output) if output.status.success() => self.all.push(peer),
            Ok(output) => println!("skipped: {name}: {}", String::from_utf8_lossy(&output.stderr).trim()),
            Err(error) => println!("skipped: {name}: {error}"),
        }
    }

    /// The driver on one allocator, by itself or under a program that counts instructions.
    fn driver(&self, counter: Option<Command>, peer: &Peer, arguments: &[String]) -> Command {
        let mut driver = match counter {
            None => command(&self.program),
            Some(mut counter) => {
                // It has little address space for a fake device.
                counter.arg(&self.program).args(["--capacity", "8589934592"]).env("FK_VA_BITS", "34");
                counter
            }
        };
        driver.args(["--peer", &peer.peer, "--config", &peer.config]).args(arguments);
        driver
    }

    /// Instructions of a pair of a case.
    pub(super) fn instructions(&self, peer: &Peer, case: &Case) -> Result<f64> {
        of_a_pair(2_000, 22_000, |pairs| {
            let pairs = ["--pairs".to_owned(), pairs.to_owned()];
            self.driver(Some(callgrind()), peer, &[&case.arguments[..], &pairs].concat())
        })
    }

    fn measure(&self, peer: &Peer, arguments: &[String], options: &Options) -> Result<Value> {
        let mut driver = self.driver(None, peer, arguments);
        driver.args(["--seconds", &options.seconds.to_string()]);
        let text = crate::process::output(&mut driver)?;
        let line =
            text.lines().rev().find(|line| line.starts_with('{')).context("the driver printed no result")?;
        Ok(serde_json::from_str(line)?)
    }

    /// The cases on all allocators, in turn: for each the median of the rounds.
    pub(super) fn rounds(&self, cases: &[Case], field: &str, options: &Options) -> Result<Vec<Vec<Rounds>>> {
        let mut found: Vec<Vec<Rounds>> =
            self.all.iter().map(|_| vec![Rounds::default(); cases.len()]).collect();
        for round in 0..options.rounds.max(1) as usize {
            for (at, case) in cases.iter().enumerate() {
                for turn in 0..self.all.len() {
                    let number = (turn + round) % self.all.len();
                    let peer = &self.all[number];
                    // It would need the memory that the others only name.
                    let real = peer.peer == "mimalloc" && !case.is_small();
                    let value = if real {
                        None
                    } else {
                        self.measure(peer, &case.arguments, options)?[field].as_f64()
                    };
                    found[number][at].0.push(value);
                }
            }
        }
        Ok(found)
    }

    /// A table with a row for each allocator and a column for each case: ratio to the first allocator, and the figure.
    pub(super) fn table(&self, cases: &[Case], rounds: &[Vec<Rounds>]) -> String {
        let mut columns = vec!["allocator".to_owned()];
        columns.extend(cases.iter().map(|case| case.name.clone()));
        let mut table = Table::new(columns);
        for (peer, row) in self.all.iter().zip(rounds) {
            let cells = row.iter().zip(&rounds[0]).map(|(own, base)| own.cell(base));
            table.row(std::iter::once(peer.name.clone()).chain(cells));
        }
        table.text()
    }
}

impl Case {
    /// Whether host memory is enough for it.
    fn is_small(&self) -> bool {
        self.arguments.iter().any(|argument| argument == "latency" || argument == "threads")
    }
}

/// One figure of each round.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds(Vec<Option<f64>>);

impl Rounds {
    pub(super) fn median(&self) -> Option<f64> {
        median(&self.0.iter().flatten().copied().collect::<Vec<_>>())
    }

    /// The median of the ratios within a round, and of the figures.
    fn cell(&self, base: &Self) -> String {
        let ratios: Vec<f64> =
            self.0.iter().zip(&base.0).filter_map(|(own, base)| Some((*own)? / (*base)?)).collect();
        match (median(&ratios), self.median()) {
            (Some(ratio), Some(value)) => format!("{ratio:.2} ({})", figure(value)),
            (None, Some(value)) => format!("({})", figure(value)),
            _ => "–".into(),
        }
    }
}
