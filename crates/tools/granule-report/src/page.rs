//! The page: policy, style, viewer, and the sections in the order in which they are wanted.

use crate::Report;
use crate::about;
use crate::bytes::Bytes;
use crate::classes::Classes;
use crate::levels::{self, Levels};
use crate::lives::Addresses;
use crate::room;
use crate::section::Section;
use crate::texts::Texts;
use crate::tree::{self, Content, Interval};
use crate::viewer;
use granule_analysis::Run;
use rayon::prelude::*;
use std::io::{self, Write};

/// Sections that are made at once, and kept until they are written.
const AT_ONCE: usize = 64;

/// Writes the page.
pub(crate) fn write(devices: &[Report<'_>], out: &mut dyn Write) -> io::Result<()> {
    let titles: Vec<&str> = devices.iter().map(|report| report.title).collect();
    viewer::REPORT.write_head(titles.first().unwrap_or(&""), out)?;
    for (device, report) in devices.iter().enumerate() {
        write_device(device, report, &titles, out)?;
    }
    viewer::write_end(out)
}

/// Writes a device's sections. The viewer comes with the first one's, before most of the data, so that it draws while that is
/// still being read.
fn write_device(device: usize, report: &Report<'_>, titles: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let prefix = &if device == 0 { String::new() } else { format!("device-{device}-") };
    let run = report.run;
    let addresses = Addresses::of(run);
    let ((classes, levels), intervals) = rayon::join(
        || {
            let classes = Classes::of(run);
            let levels = Levels::of(run, &classes);
            (classes, levels)
        },
        || tree::intervals(run),
    );
    let mut texts = Texts::default();
    let places: Vec<Interval> = intervals.iter().map(|(interval, _)| *interval).collect();
    let about = about::json(report, titles, &classes, &levels, &places, addresses, &mut texts)?;

    Section::new("about", &Bytes(about))?.write(prefix, out)?;
    class_section(&classes, report, addresses)?.write(prefix, out)?;
    let first = first_wanted(report, &levels, intervals.len());
    let mut of_levels: Vec<_> =
        levels.levels.iter().flat_map(|level| levels::sections(&levels, level, run, addresses)).collect();
    // The coarsest level is one section: the picture of the whole run.
    if let Some(whole) = of_levels.pop() {
        whole()?.write(prefix, out)?;
    }
    let (now, later): (Vec<_>, Vec<_>) = intervals.iter().partition(|(interval, _)| first.wants(*interval));
    write_intervals(&now, run, addresses, prefix, out)?;
    if device == 0 {
        viewer::REPORT.write_script(out)?;
    }
    let mut bytes = Bytes::default();
    texts.write(&mut bytes, run);
    Section::new("texts", &bytes)?.write(prefix, out)?;
    write_all(&of_levels, prefix, out)?;
    write_intervals(&later, run, addresses, prefix, out)
}

/// Categories by number, the clock where there is one, the addresses that were ever in use, and what requests take.
fn class_section(classes: &Classes, report: &Report<'_>, addresses: Addresses) -> io::Result<Section> {
    /// Times that are kept: others are between two of them.
    const MOST: usize = 1 << 16;
    let mut bytes = Bytes::default();
    classes.write(&mut bytes);
    let run = report.run;
    let step = run.clock.len().div_ceil(MOST).max(1);
    let times = || run.clock.iter().step_by(step);
    bytes.number(step as u64);
    bytes.number(times().len() as u64);
    bytes.steps(times().map(|time| *time as u64));
    areas(&mut bytes, run, addresses);
    room::write(&mut bytes, run, &report.rules);
    Section::new("classes", &bytes)
}

/// Stretches of addresses that were held at some time, by address. Where they are in the map never changes.
fn areas(bytes: &mut Bytes, run: &Run, addresses: Addresses) {
    let mut spans: Vec<_> =
        run.spans.iter().map(|span| (span.address, span.address.saturating_add(span.size))).collect();
    spans.sort_unstable();
    let mut areas: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match areas.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => areas.push((from, to)),
        }
    }
    bytes.number(areas.len() as u64);
    bytes.steps(areas.iter().map(|area| addresses.code(area.0)));
    bytes.column(areas.iter().map(|area| area.1 - area.0));
}

/// What the first picture needs: all of a short run, else what was there when most was live.
struct First {
    all: bool,
    at: u32,
}

impl First {
    fn wants(&self, interval: Interval) -> bool {
        self.all || interval.holds(self.at)
    }
}

fn first_wanted(report: &Report<'_>, levels: &Levels, intervals: usize) -> First {
    First { all: levels.levels.is_empty() && intervals < AT_ONCE, at: report.run.peak().0 }
}

fn write_intervals(
    intervals: &[&(Interval, Content)],
    run: &Run,
    addresses: Addresses,
    prefix: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let sections: Vec<_> = intervals
        .iter()
        .map(|(interval, content)| move || tree::section(run, *interval, content, addresses))
        .collect();
    write_all(&sections, prefix, out)
}

/// Makes sections on all cores and writes them in order.
fn write_all(
    sections: &[impl Fn() -> io::Result<Section> + Sync],
    prefix: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    for some in sections.chunks(AT_ONCE) {
        let made: Vec<Section> = some.par_iter().map(|section| section()).collect::<io::Result<_>>()?;
        for section in made {
            section.write(prefix, out)?;
        }
    }
    Ok(())
}
