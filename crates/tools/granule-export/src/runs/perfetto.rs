//! A run as a trace that ui.perfetto.dev opens (Chrome's JSON format): counters of what was live and held, iterations,
//! refused requests, and the largest allocations as slices.

mod counters;
mod packet;
mod slices;

use crate::runs::Source;
use crate::runs::clock::Clock;
use granule_analysis::run::{Moment, Run};
use packet::{Args, Packet, Phase, Track};
use serde_json::json;
use std::io::{self, Write};

/// How much of a run goes into the trace. The viewer reads all of it into the browser's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The largest allocations, this many, are slices.
    pub slices: usize,
    /// Points of one counter; where there are more, each stretch of time keeps its highest and its last.
    pub points: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { slices: 20_000, points: 200_000 }
    }
}

/// What was written, and what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Allocations that are slices.
    pub slices: usize,
    /// Allocations that the run has.
    pub allocations: usize,
    /// Bytes of the smallest allocation that is a slice.
    pub least: u64,
    /// Whether counters were thinned out.
    pub thinned: bool,
    /// Streams and pools that have no counter of their own.
    pub without_counter: usize,
}

/// Writes the trace. Blocks on output.
///
/// Times are the history's; without a clock, entries are a microsecond apart.
///
/// # Errors
/// What `output` reports.
pub fn write(source: &Source<'_>, options: &Options, output: impl Write) -> io::Result<Written> {
    let run = source.run;
    let clock = Clock::new(run);
    let mut trace = Trace::begin(source, output)?;
    let mut written = Written { allocations: run.allocations.len(), ..Written::default() };

    let (all, without) = counters::of(run);
    written.without_counter = without;
    for counter in all {
        let points = counters::on_axis(&counter.points, &clock);
        let thin = counters::thin(&points, options.points);
        written.thinned |= thin.len() < points.len();
        for (time, value) in thin {
            trace.packet(&Packet::counter(&counter.name, time, value))?;
        }
    }
    trace.iterations(run, &clock)?;
    trace.happenings(run, &clock)?;

    let largest = slices::largest(run, options.slices);
    written.slices = largest.len();
    written.least = largest.iter().map(|index| run.allocations[*index].size).min().unwrap_or_default();
    trace.allocations(run, &clock, &largest)?;
    trace.finish(source, &written)?;
    Ok(written)
}

/// Between two moments; 0 in a damaged file that has them in the wrong order.
fn length(clock: &Clock, begin: Moment, end: Moment) -> i64 {
    clock.on_axis(end).saturating_sub(clock.on_axis(begin)).max(0)
}

/// A trace that is being written: an object with the packets in a list, one on a line.
struct Trace<W> {
    output: W,
}

impl<W: Write> Trace<W> {
    fn begin(source: &Source<'_>, mut output: W) -> io::Result<Self> {
        write!(output, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        let mut trace = Self { output };
        let process = format!("{} (device {})", source.name, source.device);
        let named = |name, track, text: &str| Packet {
            phase: Phase::Metadata,
            name,
            track,
            args: Args::from_iter([("name".to_owned(), text.into())]),
            ..Packet::default()
        };
        trace.raw(&named("process_name", Track::Process, &process))?;
        trace.packet(&named("thread_name", Track::Iterations, "iterations"))?;
        trace.packet(&named("thread_name", Track::Happenings, "refused requests, notes, flushes"))?;
        Ok(trace)
    }

    fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        self.output.write_all(b",")?;
        self.raw(packet)
    }

    fn raw(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        self.output.write_all(b"\n")?;
        serde_json::to_writer(&mut self.output, packet)?;
        Ok(())
    }

    fn iterations(&mut self, run: &Run, clock: &Clock) -> io::Result<()> {
        for figures in &run.iteration_figures() {
            self.packet(&Packet {
                phase: Phase::Complete,
                name: &format!("iteration {}", figures.number),
                category: "iteration",
                time: clock.on_axis(figures.begin),
                duration: Some(length(clock, figures.begin, figures.end)),
                track: Track::Iterations,
                args: slices::iteration(figures),
                ..Packet::default()
            })?;
        }
        Ok(())
    }

    /// Refused requests, notes, flushes.
    fn happenings(&mut self, run: &Run, clock: &Clock) -> io::Result<()> {
        for refusal in &run.refusals {
            self.packet(&Packet {
                phase: Phase::Instant,
                name: "out of memory",
                category: "oom",
                time: clock.on_axis(refusal.at),
                scope: Some("p"),
                track: Track::Happenings,
                args: slices::refusal(run, refusal),
                ..Packet::default()
            })?;
        }
        let notes = run.notes.iter().map(|(at, text)| (*at, &**text, "note"));
        let flushes = run.flushes.iter().map(|at| (*at, "empty_cache", "flush"));
        for (at, name, category) in notes.chain(flushes) {
            let (time, track) = (clock.on_axis(at), Track::Happenings);
            let instant = Packet { phase: Phase::Instant, name, category, time, track, ..Packet::default() };
            self.packet(&Packet { scope: Some("t"), ..instant })?;
        }
        Ok(())
    }

    /// The lives of these allocations, as slices.
    fn allocations(&mut self, run: &Run, clock: &Clock, indices: &[usize]) -> io::Result<()> {
        for &index in indices {
            let life = &run.allocations[index];
            let name = &slices::name(run, life);
            let begin = Packet {
                phase: Phase::AsyncBegin,
                name,
                category: "allocation",
                id: Some(index),
                time: clock.on_axis(life.begin),
                args: slices::allocation(run, life),
                ..Packet::default()
            };
            let time = clock.on_axis(life.end.min(run.length)).max(begin.time);
            let end = Packet { phase: Phase::AsyncEnd, time, args: Args::new(), ..begin.clone() };
            self.packet(&begin)?;
            self.packet(&end)?;
        }
        Ok(())
    }

    /// Closes the list, with what there is to know about the file.
    fn finish(mut self, source: &Source<'_>, written: &Written) -> io::Result<()> {
        let about = json!({
            "run": source.id,
            "file": source.file,
            "source": source.kind.name(),
            "settings": source.settings,
            "notes": source.notes.join("\n"),
            "slices": written.slices,
            "allocations": written.allocations,
            "smallest slice in bytes": written.least,
            "counters thinned out": written.thinned,
            "clock": if source.run.clock.is_empty() { "an entry of the history is a microsecond" } else { "recorded" },
            "written by": concat!("granule ", env!("CARGO_PKG_VERSION")),
        });
        write!(self.output, "\n],\"otherData\":{about}}}\n")?;
        self.output.flush()
    }
}
