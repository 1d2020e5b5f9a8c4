//! What is wrong with a pointer that is no live block, and what the history knows about an address. Only ever used on
//! the way to an error.

use super::DeviceAllocator;
use crate::memory::block::{Block, State};
use crate::memory::segment::Segment;
use crate::process::foreign::{Calls, Kind};
use crate::types::DevicePtr;
use crate::watch::history::{Context, Labelling, Recorder, entry};
use crate::watch::pointer::Problem;
use crate::watch::snapshot::{Action, TraceEntry};

/// Entries of the history that a report has.
const ENTRIES: usize = 8;

/// An entry with its place in the order, before its frames are looked up.
type Found = (u64, TraceEntry, Option<Context>);

impl DeviceAllocator {
    /// What is wrong with `ptr`; `None` where it lies in no memory of this device.
    pub(crate) fn diagnose(&self, ptr: DevicePtr) -> Option<Problem> {
        if let Some(problem) = self.uncached.diagnose(ptr) {
            return Some(problem);
        }
        let quarantined = self.is_quarantined(ptr);
        self.arenas.all().into_iter().find_map(|arena| {
            let state = arena.lock();
            let holds = |segment: &Segment| (segment.base..segment.base + segment.bytes).contains(&ptr.0);
            let (id, segment) = state.segments.iter().find(|(_, segment)| holds(segment))?;
            let (_, block) =
                state.segment_blocks(id).find(|(_, block)| (block.addr..block.end()).contains(&ptr.0))?;
            Some(match block {
                Block { addr, state: State::Pending, requested, .. } if *addr == ptr.0 => {
                    let requested = *requested;
                    if quarantined {
                        Problem::Quarantined { requested }
                    } else {
                        Problem::PendingFree { requested }
                    }
                }
                Block { addr, state: State::Owned | State::OwnedAsleep, .. } if *addr == ptr.0 => {
                    Problem::Owned
                }
                // A live block that begins there has been handed out since the pointer was refused.
                Block { addr, state: State::Allocated, .. } if *addr == ptr.0 => Problem::Freed,
                // In epoch 0 is what was never in the program's hands.
                Block { addr, state: State::Free, epoch: 1.., .. } if *addr == ptr.0 => Problem::Freed,
                Block { addr, state: State::Dormant, .. } if *addr == ptr.0 => Problem::Freed,
                Block { addr, size, state, requested, .. } if state.is_live() => {
                    Problem::InsideBlock { block: DevicePtr(*addr), bytes: *size, requested: *requested }
                }
                _ => Problem::NotHandedOut {
                    device: self.device,
                    segment: DevicePtr(segment.base),
                    bytes: segment.bytes,
                },
            })
        })
    }

    /// The newest entries about the memory at `ptr`, oldest first, with their frames. Hold no lock: frames are looked up
    /// by foreign code.
    pub(crate) fn history_of(&self, ptr: DevicePtr, calls: &Calls<'_>) -> Vec<TraceEntry> {
        let Some(recording) = self.state.lock().recording.clone() else { return Vec::new() };
        let mut labelling = Labelling::default();
        let mut found: Vec<Found> = Vec::new();
        let mut collect = |recorder: &Recorder| {
            for (record, details) in recorder.iter() {
                let about = !matches!(record.action, Action::Oom | Action::Snapshot)
                    && record.addr <= ptr.0
                    && ptr.0 - record.addr < record.size.max(1);
                if about {
                    let (stream, pool) = recorder.owner_of(record);
                    let labels = labelling.labels(details, pool);
                    let time = recording.stamps.microseconds(record);
                    let context = details.and_then(|details| details.context.clone());
                    found.push((record.sequence, entry(record, details, stream, time, labels), context));
                }
            }
        };
        for arena in self.arenas.all() {
            collect(&arena.lock().history);
        }
        collect(&self.state.lock().history);
        found.sort_unstable_by_key(|(sequence, ..)| *sequence);
        let newest = found.split_off(found.len().saturating_sub(ENTRIES));
        let with_frames = |(_, mut entry, context): Found| {
            entry.frames = context.as_ref().and_then(|context| calls.call(Kind::Lookup, || context.frames()));
            calls.end(context);
            entry
        };
        newest.into_iter().map(with_frames).collect()
    }
}
