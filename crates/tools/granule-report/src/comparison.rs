//! Several runs on one page, under each other: before and after a change, or the ranks of one job.
//!
//! The page has one time axis and one scale of bytes for all. A run is told in several times as many bins as a screen has pixels, and each
//! bin shows the moment in it at which most was live, as on the page of one run.

mod axis;
mod functions;
#[cfg(test)]
mod tests;

use crate::bytes::Bytes;
use crate::levels;
use crate::section::Section;
use crate::viewer;
use axis::Axis;
use functions::{Functions, Row};
use granule_analysis::Run;
use rayon::prelude::*;
use serde::Serialize;
use std::io::{self, Write};

/// What the page of several runs tells.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// Heading of the page.
    pub title: &'a str,
    /// The runs, in the order in which they are shown. Differences are from the first to the second where there are two.
    pub runs: Vec<Compared<'a>>,
}

/// One of the runs.
#[derive(Debug)]
pub struct Compared<'a> {
    /// What to call it.
    pub name: &'a str,
    /// The run.
    pub run: &'a Run,
    /// Bytes of the device, where they are known.
    pub capacity: Option<u64>,
    /// What it came to, in a few sentences; may be empty.
    pub verdict: String,
    /// What is not exact about it.
    pub remarks: Vec<String>,
}

/// The first section, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct About<'a> {
    title: &'a str,
    axis: Axis,
    bins: u32,
    /// What the charts' colours stand for.
    categories: &'a [String],
    /// Whether the last category is the rest of too many.
    rest: bool,
    runs: Vec<AboutRun<'a>>,
    rows: Vec<&'a Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AboutRun<'a> {
    name: &'a str,
    verdict: &'a str,
    remarks: &'a [String],
    allocations: usize,
    most: u64,
    reserved_most: u64,
    capacity: Option<u64>,
    refused: usize,
    /// Bins with a refused request.
    refusals: Vec<usize>,
}

impl Comparison<'_> {
    /// Writes the page. Uses all cores, and blocks on the output.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let runs: Vec<&Run> = self.runs.iter().map(|compared| compared.run).collect();
        let axis = Axis::of(&runs);
        let functions = Functions::of(&runs);
        let about = About {
            title: self.title,
            axis,
            bins: axis::BINS,
            categories: &functions.categories,
            rest: functions.rest,
            runs: self.runs.iter().map(|compared| about(compared, axis)).collect(),
            rows: functions.table(),
        };
        let of_run = |(index, run): (usize, &&Run)| {
            let ranges = axis.ranges(run).into_iter();
            let id = format!("run-{index}");
            levels::section_of_ranges(id, run, ranges, functions.categories.len(), |life| {
                functions.category(index, life)
            })
        };
        let sections: Vec<Section> = runs.par_iter().enumerate().map(of_run).collect::<io::Result<_>>()?;
        viewer::COMPARISON.write_head(self.title, out)?;
        Section::new("about", &Bytes(serde_json::to_vec(&about)?))?.write("", out)?;
        for section in sections {
            section.write("", out)?;
        }
        viewer::COMPARISON.write_script(out)?;
        viewer::write_end(out)
    }
}

fn about<'a>(compared: &'a Compared<'_>, axis: Axis) -> AboutRun<'a> {
    let Compared { name, run, capacity, verdict, remarks } = compared;
    let ranges = axis.ranges(run);
    let bin = |at| ranges.partition_point(|(_, last)| *last < at).min(ranges.len().saturating_sub(1));
    let mut refusals: Vec<usize> = run.refusals.iter().map(|refusal| bin(refusal.at)).collect();
    refusals.dedup();
    AboutRun {
        name,
        verdict,
        remarks,
        allocations: run.allocations.len(),
        most: run.peak().1,
        reserved_most: run.reserved_peak().1,
        capacity: *capacity,
        refused: run.refusals.len(),
        refusals,
    }
}
