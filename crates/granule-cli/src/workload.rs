//! What is replayed: a trace file, a snapshot's history, or the trace that comes with the command.

use crate::console;
use crate::failure::Failure;
use clap::Args;
use granule::files::trace::Trace;
use granule::files::{Loaded, convert, load};
use granule::snapshot::Snapshot;
use std::path::{Path, PathBuf};

/// A training run of a convolutional network, recorded from PyTorch.
const BUNDLED: &[u8] = include_bytes!("../data/resnet_train.trace.gz");

/// Where the workload comes from.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkloadArgs {
    /// A trace, or a snapshot that PyTorch's torch.cuda.memory._dump_snapshot wrote (plain or gzip'd)
    #[arg(value_name = "TRACE|SNAPSHOT")]
    input: PathBuf,

    /// Whose history to take from a snapshot [default: the first device that has one]
    #[arg(long, value_name = "INDEX")]
    device: Option<usize>,
}

/// A workload and what to call it.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) trace: Trace,
}

impl Workload {
    /// Reads the file, and says what is not exact about it.
    pub(crate) fn read(args: &WorkloadArgs) -> Result<Self, Failure> {
        let path = args.input.as_path();
        let spinner = console::spinner(format!("reading {}", path.display()));
        let loaded = load(path);
        spinner.finish_and_clear();
        let workload = match loaded? {
            Loaded::Trace(trace) => {
                if args.device.is_some() {
                    console::warning("--device is ignored: a trace has one device");
                }
                Self { name: name(&trace, path), trace: *trace }
            }
            Loaded::Snapshot(snapshot) => Self::convert(&snapshot, args)?,
        };
        let trace = &workload.trace;
        tracing::info!(name = workload.name, events = trace.events.len(), "read");
        if trace.is_cut() {
            console::warning(format_args!(
                "{}: holds {} of {} events; it was cut: figures in its header are those of the whole run",
                path.display(),
                trace.events.len(),
                trace.header.events.unwrap_or_default()
            ));
        }
        Ok(workload)
    }

    /// The workload in this binary.
    pub(crate) fn bundled() -> Result<Self, Failure> {
        let trace = Trace::from_reader(BUNDLED).map_err(Failure::Bundled)?;
        Ok(Self { name: name(&trace, Path::new("bundled")), trace })
    }

    fn convert(snapshot: &Snapshot, args: &WorkloadArgs) -> Result<Self, Failure> {
        let failed = |error| Failure::Convert { path: args.input.clone(), error };
        let conversion = match args.device {
            Some(device) => convert::to_trace(snapshot, device).map_err(failed)?,
            None => {
                let mut all = convert::to_traces(snapshot).map_err(failed)?;
                let others: Vec<_> = all.iter().skip(1).map(|c| c.device.to_string()).collect();
                if !others.is_empty() {
                    console::note(format_args!(
                        "the snapshot also has histories of the devices {}; --device chooses",
                        others.join(", ")
                    ));
                }
                // There is one at least, or it would have been an error.
                all.swap_remove(0)
            }
        };
        console::note(format_args!(
            "{}: a snapshot; its history of device {} became {} events",
            args.input.display(),
            conversion.device,
            conversion.trace.events.len()
        ));
        for reason in &conversion.reasons {
            console::note(format_args!("not exact: {reason}"));
        }
        if let Some(conf) = recorded_conf(snapshot) {
            console::note(format_args!(
                "the recorded program ran with the settings '{conf}'; --conf can replay it with them"
            ));
        }
        Ok(Self { name: file_name(&args.input), trace: conversion.trace })
    }
}

fn name(trace: &Trace, path: &Path) -> String {
    trace.header.workload.clone().unwrap_or_else(|| file_name(path))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// What `PYTORCH_CUDA_ALLOC_CONF` was when the snapshot was recorded, if it was set.
fn recorded_conf(snapshot: &Snapshot) -> Option<&str> {
    use granule::snapshot::Value;
    let conf = snapshot.allocator_settings.iter().find(|(key, _)| key.as_ref() == "PYTORCH_CUDA_ALLOC_CONF");
    match conf {
        Some((_, Value::Str(text))) if !text.is_empty() => Some(text),
        _ => None,
    }
}
