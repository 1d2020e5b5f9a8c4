//! What the viewer must know before anything else.

use crate::Report;
use crate::classes::{Classes, Way};
use crate::contents::Contents;
use crate::levels::{self, Levels, TILE};
use crate::lives::Addresses;
use crate::texts::Texts;
use crate::tree::{Interval, LEAF};
use crate::what_if::WhatIf;
use granule_analysis::inspect::Caller;
use serde::Serialize;

/// Marks that a chart can show; beyond that a run has lost its way.
const MOST_MARKS: usize = 100_000;

/// The first section, as JSON. Numbers are exact up to 2^53, beyond which only damaged files go.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct About<'a> {
    title: &'a str,
    /// The titles of all devices.
    devices: &'a [&'a str],
    version: &'static str,
    /// What the run came to.
    verdict: &'a str,
    /// Entries; moments are from 0 to this.
    length: u32,
    allocations: usize,
    spans: usize,
    most: Peak,
    reserved_most: Peak,
    capacity: Option<u64>,
    /// What is known of the run, as name and value.
    facts: &'a [(String, String)],
    /// What is not exact about it.
    remarks: &'a [String],
    what_if: &'a WhatIf,
    contents: Vec<Contents>,
    ways: &'a [Way],
    /// The lowest address, as text: it need not be exact as a number.
    address_base: String,
    address_shift: u32,
    leaf: u32,
    tile: usize,
    /// Windows of up to so many moments are drawn from allocations.
    narrow: u64,
    /// Shift and number of bins, finest first.
    levels: Vec<(u32, usize)>,
    /// Height and index of the intervals that hold anything.
    intervals: Vec<(u32, u32)>,
    /// Moment and number.
    iterations: Vec<(u32, u64)>,
    refusals: Vec<Refused<'a>>,
    flushes: &'a [u32],
    /// Moment and text.
    notes: Vec<(u32, &'a str)>,
}

#[derive(Serialize)]
struct Peak {
    at: u32,
    bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Refused<'a> {
    at: u32,
    size: u64,
    stream: u32,
    device_free: Option<u64>,
    /// See [`Texts::stack`].
    stack: u32,
    /// A name for where it was asked for.
    place: &'a str,
    /// Why it was refused; empty where that was not looked into.
    why: &'a str,
}

/// Makes the section's bytes. Stacks of refused requests are added to `texts`.
pub(crate) fn json(
    report: &Report<'_>,
    devices: &[&str],
    classes: &Classes,
    levels: &Levels,
    intervals: &[Interval],
    addresses: Addresses,
    texts: &mut Texts,
) -> serde_json::Result<Vec<u8>> {
    let run = report.run;
    let (peak, reserved) = (run.peak(), run.reserved_peak());
    let places: Vec<String> = run.refusals.iter().take(MOST_MARKS).map(place).collect();
    let mut reasons = report.reasons.iter();
    let refusals = run.refusals.iter().zip(&places).map(|(refusal, place)| Refused {
        at: refusal.at,
        size: refusal.size,
        stream: refusal.stream,
        device_free: refusal.device_free,
        stack: texts.stack(refusal.frames.as_deref().unwrap_or_default()),
        place,
        why: reasons.next().map_or("", String::as_str),
    });
    let about = About {
        title: report.title,
        devices,
        version: env!("CARGO_PKG_VERSION"),
        verdict: &report.verdict,
        length: run.length,
        allocations: run.allocations.len(),
        spans: run.spans.len(),
        most: Peak { at: peak.0, bytes: peak.1 },
        reserved_most: Peak { at: reserved.0, bytes: reserved.1 },
        capacity: report.capacity,
        facts: &report.facts,
        remarks: &report.remarks,
        what_if: &report.what_if,
        contents: Contents::of(run, report.title, &report.facts),
        ways: &classes.ways,
        address_base: format!("{:#x}", addresses.base),
        address_shift: addresses.shift,
        leaf: LEAF,
        tile: TILE,
        narrow: levels::narrow(run),
        levels: levels.levels.iter().map(|level| (level.shift, level.bins.len())).collect(),
        intervals: intervals.iter().map(|interval| (interval.height, interval.index)).collect(),
        iterations: run.iterations.iter().take(MOST_MARKS).map(|mark| (mark.at, mark.number)).collect(),
        refusals: refusals.collect(),
        flushes: &run.flushes[..run.flushes.len().min(MOST_MARKS)],
        notes: run.notes.iter().take(MOST_MARKS).map(|(at, text)| (*at, &**text)).collect(),
    };
    serde_json::to_vec(&about)
}

fn place(refusal: &granule_analysis::run::Refusal) -> String {
    Caller::of_stack(refusal.frames.as_deref().unwrap_or_default()).place.short()
}
