//! The file of a [`Plan`]: one JSON object, plain or gzip'd.

use crate::plan::{BadPlan, Plan, Step};
use granule_snapshot::Input;
use granule_snapshot::pickle::Limits;
use serde::{Deserialize, Serialize};
use std::io::{self, BufReader, Read, Write};

/// What tells the file from others.
const FORMAT: &str = "granule-plan";
/// Raised whenever a reader of the older one would misread a file.
const VERSION: u32 = 1;
/// Unpacked bytes that are read; a plan of ten million steps has less.
const MAX_BYTES: u64 = 1 << 30;

/// Why a file is no plan.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading failed.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// Not JSON, or not the fields of a plan.
    #[error("no plan, or a damaged one: {0}")]
    Json(serde_json::Error),
    /// Another kind of file.
    #[error("no plan: its format is {0:?}; granule plan makes plans")]
    Format(String),
    /// Written by another version.
    #[error("a plan of version {0}; this program reads version {VERSION}: make it again")]
    Version(u32),
    /// A plan that must not be followed.
    #[error("a wrong plan: {0}; make it again")]
    Bad(#[from] BadPlan),
}

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    version: u32,
    workload: String,
    iteration: Option<u64>,
    repeats: bool,
    alignment: u64,
    waits: bool,
    streams: usize,
    max_load: u64,
    height: u64,
    resident_bytes: u64,
    /// Hexadecimal: JSON numbers are not exact beyond 53 bits everywhere.
    pattern: String,
    steps: Vec<Row>,
}

/// Size, stream, nth, offset or null, lifetime on every stream.
#[derive(Serialize, Deserialize)]
struct Row(u64, u32, u32, Option<u64>, Vec<u64>);

impl Plan {
    /// Writes the plan as one line of JSON. Blocks on the writer.
    ///
    /// # Errors
    /// What `output` reports.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        let step = |step: &Step| Row(step.size, step.stream, step.nth, step.offset, step.lives.clone());
        let file = File {
            format: FORMAT.into(),
            version: VERSION,
            workload: self.workload.clone(),
            iteration: self.iteration,
            repeats: self.repeats,
            alignment: self.alignment,
            waits: self.waits,
            streams: self.streams,
            max_load: self.max_load,
            height: self.height,
            resident_bytes: self.resident_bytes,
            pattern: format!("{:016x}", self.pattern()),
            steps: self.steps().iter().map(step).collect(),
        };
        serde_json::to_writer(&mut output, &file)?;
        writeln!(output)?;
        output.flush()
    }

    /// Reads a plan, plain or gzip'd, and checks it: one that would put two blocks on the same bytes is refused.
    /// Blocks on the reader.
    ///
    /// # Errors
    /// [`ReadError`] says what is wrong.
    pub fn read(input: impl Read) -> Result<Self, ReadError> {
        Self::read_with(input, &Limits::default())
    }

    /// As [`read`](Self::read), with limits of the caller's choice.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with(input: impl Read, limits: &Limits) -> Result<Self, ReadError> {
        let file = parse(BufReader::new(Input::new(input, limits)?.take(MAX_BYTES)))?;
        let step = |Row(size, stream, nth, offset, lives)| Step { size, stream, nth, offset, lives };
        let plan = Self {
            workload: file.workload,
            iteration: file.iteration,
            repeats: file.repeats,
            alignment: file.alignment,
            waits: file.waits,
            streams: file.streams,
            max_load: file.max_load,
            height: file.height,
            resident_bytes: file.resident_bytes,
            steps: file.steps.into_iter().map(step).collect(),
        };
        let (found, written) = (plan.pattern(), u64::from_str_radix(&file.pattern, 16).ok());
        if written != Some(found) {
            return Err(BadPlan::Pattern { found, written: written.unwrap_or(0) }.into());
        }
        plan.check()?;
        Ok(plan)
    }
}

fn parse(input: impl Read) -> Result<File, ReadError> {
    /// Read first, so that another version is told from a damaged file.
    #[derive(Deserialize)]
    struct Kind {
        format: Option<String>,
        version: Option<u32>,
    }
    let unreadable =
        |e: serde_json::Error| if e.is_io() { ReadError::Read(e.into()) } else { ReadError::Json(e) };
    let value: serde_json::Value = serde_json::from_reader(input).map_err(unreadable)?;
    let kind = Kind::deserialize(&value).map_err(ReadError::Json)?;
    let format = kind.format.unwrap_or_default();
    if format != FORMAT {
        return Err(ReadError::Format(format));
    }
    match kind.version {
        Some(VERSION) => File::deserialize(value).map_err(ReadError::Json),
        other => Err(ReadError::Version(other.unwrap_or(0))),
    }
}
