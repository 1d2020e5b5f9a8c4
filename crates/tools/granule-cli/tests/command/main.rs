//! The `granule` command as a user runs it.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod cases;
mod check;
mod devices;
mod estimate;
mod export;
mod help;
mod inspect;
mod json;
mod min_capacity;
mod plan;
mod record;
mod recorded;
mod replay;
mod report;
mod screen;
mod shell;
mod verdict;
mod whatif;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The workload that comes with the command.
const BUNDLED: &[u8] = include_bytes!("../../data/resnet_train.trace.gz");

/// A run of the command that has ended.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, 0, "{}", self.err);
        assert_eq!(self.out.lines().count(), 1, "one object on one line");
        serde_json::from_str(&self.out).unwrap()
    }
}

/// An empty directory to run the command in, with none of this process's settings.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> &Self {
        std::fs::write(self.path(name), bytes).unwrap();
        self
    }

    /// A gzip'd trace of these lines, with the bundled file's header left out.
    fn trace(&self, name: &str, lines: &str) -> &Self {
        self.file(name, &gzip(format!("# {{}}\n{lines}").as_bytes()))
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, &[])
    }

    fn run_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Ran {
        let mut command = granule(self.0.path());
        command.args(args).envs(environment.iter().copied());
        ran(command.output().unwrap())
    }
}

fn ran(Output { status, stdout, stderr }: Output) -> Ran {
    Ran {
        code: status.code().expect("no signal"),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

fn granule(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_granule"));
    command.current_dir(directory);
    for variable in [
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "PYTORCH_NO_HIP_MEMORY_CACHING",
        "GRANULE_BACKEND",
        "GRANULE_CONF",
        "GRANULE_LOG",
        "GRANULE_RECORD",
        "PYTHONPATH",
        "LD_PRELOAD",
    ] {
        command.env_remove(variable);
    }
    command
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// The bundled trace's text.
fn bundled_text() -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(BUNDLED).read_to_string(&mut text).unwrap();
    text
}
