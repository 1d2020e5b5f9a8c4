//! Refused requests, for people and as JSON.

use crate::console::{self, counted};
use granule::oom::{Blocker, OomReport, Remedy};
use granule::round::size_text;
use granule_analysis::replay::{Refusal, ReplayResult};
use serde::Serialize;

/// Says on standard error what was refused first, where, and how much followed. `has_lines` says that events
/// are lines of a file.
pub(crate) fn report(refusal: Option<&Refusal>, result: &ReplayResult, has_lines: bool) {
    if let Some(refusal) = refusal {
        let place = place(refusal, has_lines);
        match &refusal.report {
            Some(report) => console::warning(format_args!("the first refused request: {place}\n{report}")),
            None => console::warning(format_args!(
                "the first refused request: {place}; it was refused before the device was asked"
            )),
        }
    }
    match result.refused {
        0 => return,
        1 => console::warning(format_args!("1 request was refused, of {}", counted(result.ops, "operation"))),
        refused => console::warning(format_args!(
            "{refused} requests were refused, of {}; {} after the first",
            counted(result.ops, "operation"),
            refused - 1
        )),
    }
    console::hint("granule min-capacity finds the smallest device on which nothing is refused");
}

fn place(refusal: &Refusal, has_lines: bool) -> String {
    let Refusal { event, id, stream, requested, .. } = refusal;
    let line = if has_lines { format!(" (line {})", event + 1) } else { String::new() };
    let iteration = refusal.iteration.map(|n| format!(", iteration {n}")).unwrap_or_default();
    format!(
        "event {event}{line}, block {id}{iteration}, stream {stream}, {requested} bytes ({})",
        size_text(*requested)
    )
}

/// The first refused request, under the names of [`OomReport`]. Bytes unless said otherwise.
#[derive(Debug, Serialize)]
pub(crate) struct FirstOom<'a> {
    /// The event's number, from 1.
    event: usize,
    /// The block's number.
    block: u64,
    iteration: Option<u64>,
    stream: u32,
    requested: u64,
    /// Absent where it was refused before the device was asked.
    #[serde(flatten)]
    report: Option<Figures<'a>>,
}

#[derive(Debug, Serialize)]
struct Figures<'a> {
    block_size: u64,
    tried: u64,
    device_total: u64,
    device_free: u64,
    allowed: Option<u64>,
    allocated: u64,
    reserved: u64,
    pending: u64,
    largest_fit: u64,
    largest_anywhere: u64,
    shortfall: u64,
    blockers: Vec<BlockerFigures>,
    remedies: Vec<RemedyFigures<'a>>,
    message: String,
}

#[derive(Debug, Serialize)]
struct BlockerFigures {
    address: String,
    size: u64,
    beside: u64,
    would_free: u64,
}

#[derive(Debug, Serialize)]
struct RemedyFigures<'a> {
    what: &'a str,
    bytes: u64,
    enough: bool,
}

impl<'a> From<&'a Refusal> for FirstOom<'a> {
    fn from(refusal: &'a Refusal) -> Self {
        Self {
            event: refusal.event,
            block: refusal.id,
            iteration: refusal.iteration,
            stream: refusal.stream,
            requested: refusal.requested,
            report: refusal.report.as_deref().map(Figures::from),
        }
    }
}

impl<'a> From<&'a OomReport> for Figures<'a> {
    fn from(report: &'a OomReport) -> Self {
        let blocker = |blocker: &Blocker| BlockerFigures {
            address: blocker.ptr.to_string(),
            size: blocker.size,
            beside: blocker.beside,
            would_free: blocker.would_free(),
        };
        let remedy = |Remedy { what, bytes, enough }: &'a Remedy| RemedyFigures {
            what,
            bytes: *bytes,
            enough: *enough,
        };
        Self {
            block_size: report.block_size,
            tried: report.tried,
            device_total: report.device_total,
            device_free: report.device_free,
            allowed: report.allowed,
            allocated: report.allocated,
            reserved: report.reserved,
            pending: report.pending,
            largest_fit: report.largest_fit,
            largest_anywhere: report.largest_anywhere,
            shortfall: report.shortfall(),
            blockers: report.blockers.iter().map(blocker).collect(),
            remedies: report.remedies.iter().map(remedy).collect(),
            message: report.pytorch_message(),
        }
    }
}
