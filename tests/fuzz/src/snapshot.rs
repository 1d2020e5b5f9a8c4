//! Snapshot pickles: reading, writing, converting, and all that is said of the run.

use crate::in_words;
use alloc_core::config::Settings;
use alloc_core::snapshot::{Action, Snapshot};
use alloc_core::types::MIB;
use granule_analysis::inspect::{Comparison, When};
use granule_analysis::rules::Rules;
use granule_analysis::{Inspection, Run};
use granule_snapshot::pickle::{self, Protocol};
use granule_snapshot::trace::{Event, Trace, TraceHeader};
use granule_snapshot::{Loaded, convert, json, load_from};

/// Reads a file, whatever it is, and looks at what there is.
///
/// # Panics
/// Where a promise is broken.
pub fn run(input: &[u8]) {
    match load_from(input, "input") {
        Ok(Loaded::Snapshot(snapshot)) => look(&snapshot),
        // A target of its own.
        Ok(Loaded::Trace(_)) => {}
        Err(error) => {
            in_words(&error, 2000);
            assert!(error.to_string().starts_with("input"), "{error}");
        }
    }
}

fn look(snapshot: &Snapshot) {
    for protocol in [Protocol::V2, Protocol::V4] {
        let written = pickled(snapshot, protocol);
        let back = pickle::read(&written[..]).expect("what is written is read");
        // Bytes are compared: they tell nan from nan.
        assert!(pickled(&back, protocol) == written, "{protocol:?}: read back to something else");
    }
    let mut text = Vec::new();
    json::to_json(snapshot, &mut text).expect("memory takes all");
    serde_json::from_slice::<serde_json::Value>(&text).expect("the JSON is JSON");
    if let Ok(conversions) = convert::to_traces(snapshot) {
        for conversion in conversions {
            assert_eq!(conversion.exact, conversion.reasons.is_empty(), "what is not exact has reasons");
            rewrites(&conversion.trace);
        }
    }
    let devices = [0, 1].map(|device| inspect(&Run::of_snapshot(snapshot, device)));
    let _ = Comparison::new(&devices[0], &devices[1]);
}

fn pickled(snapshot: &Snapshot, protocol: Protocol) -> Vec<u8> {
    let mut bytes = Vec::new();
    pickle::write(snapshot, &mut bytes, protocol).expect("memory takes all");
    bytes
}

/// A trace is written and read the same.
pub(crate) fn rewrites(trace: &Trace) {
    let text = |trace: &Trace| {
        let mut text = Vec::new();
        trace.write_plain(&mut text).expect("memory takes all");
        String::from_utf8(text).expect("a trace is a text")
    };
    let written = text(trace);
    let back = Trace::from_reader(written.as_bytes()).expect("what is written is read");
    assert_eq!(text(&back), written);
    assert!(back.events == trace.events, "other events");
}

/// Everything that is said of a run; the parts of what was held are all of it.
pub(crate) fn inspect(run: &Run) -> Inspection {
    let moments = [When::Peak, When::End, When::Oom, When::At(3)];
    let inspection = Inspection::new(run, &Rules::new(&Settings::default()), &moments);
    for memory in inspection.moments.iter().filter_map(|view| view.memory.as_ref()) {
        let parts = [memory.requested, memory.rounding, memory.tails, memory.waiting, memory.free];
        let sum: u128 = parts.iter().map(|bytes| u128::from(*bytes)).sum();
        assert_eq!(sum, u128::from(memory.reserved), "what is held is not the sum of its parts");
    }
    let _ = (run.iteration_figures(), run.reserved_peak(), run.live_before());
    inspection
}

/// Small runs of the allocator itself, by both protocols, and what is only a list.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let sizes = [1000, 3 * MIB, 20 * MIB, 600];
    let allocs =
        sizes.iter().zip(0..).map(|(size, id)| Event::Alloc { id, size: *size, stream: id as u32 % 2 });
    let frees = [Event::Free { id: 1 }, Event::EmptyCache, Event::Free { id: 0 }];
    let events = allocs.chain(frees).collect();
    let trace = Trace { header: TraceHeader::default(), events };
    let settings =
        [false, true].map(|expandable_segments| Settings { expandable_segments, ..Settings::default() });
    let mut seeds = vec![b"]q\x00.".to_vec(), b"\x80\x04]\x94.".to_vec(), b"}.".to_vec()];
    for settings in settings {
        let options = granule_analysis::replay::ReplayOptions {
            settings,
            history: 64,
            ..granule_analysis::replay::ReplayOptions::default()
        };
        let replay = granule_analysis::replay::replay(&trace, &options, |_| {}).expect("it fits");
        let mut snapshot = replay.allocator.snapshot(true);
        for protocol in [Protocol::V2, Protocol::V4] {
            seeds.push(pickled(&snapshot, protocol));
        }
        // Short enough to be changed all over.
        snapshot.segments.truncate(1);
        snapshot
            .device_traces
            .iter_mut()
            .for_each(|trace| trace.retain(|entry| entry.action != Action::Alloc));
        seeds.push(pickled(&snapshot, Protocol::V4));
    }
    seeds
}
