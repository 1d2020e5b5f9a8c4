//! What several calls check or do alike.

use crate::config::OpenRegConfig;
use crate::machine::memo::{self, MOST, Memo};
use crate::machine::work::{Side, Spans, Work};
use crate::machine::{Locked, Machine};
use crate::memory::{Place, RangeKind};
use crate::refusal::{Answer, Refusal};
use crate::space::Span;
use crate::trap::TrapKind;
use backend_api::{CopyKind, Readiness};
use std::sync::Arc;

pub(super) fn readiness(ready: bool) -> Readiness {
    if ready { Readiness::Ready } else { Readiness::NotReady }
}

/// Refuses, and breaks the capture, where the stream is captured.
pub(super) fn not_captured(state: &mut Locked<'_>, key: u64) -> Answer<()> {
    match state.capture_of(key) {
        None => Ok(()),
        Some(capture) => {
            state.captures.invalidate(capture);
            Err(Refusal::capture("the stream is captured and runs nothing now; the capture is broken"))
        }
    }
}

/// Refuses, and breaks the capture, where the event stands for captured work.
pub(super) fn not_captured_event(state: &mut Locked<'_>, key: u64) -> Answer<()> {
    match state.queues.event(key)?.captured.as_ref().map(|member| member.capture) {
        None => Ok(()),
        Some(capture) => {
            state.captures.invalidate(capture);
            Err(Refusal::capture(
                "the event was recorded in a capture and never happens itself; record it again",
            ))
        }
    }
}

/// A synchronisation lets the driver pool give back what is above its threshold.
pub(super) fn settle_pool(state: &mut Locked<'_>, device: usize) -> Answer<()> {
    let threshold = state.memory.devices[device].pool.release_threshold;
    state.memory.pool_trim(device, threshold)
}

/// What copies find in memory without bytes, where the machine is to say.
pub(super) fn memo<'m>(config: &OpenRegConfig, machine: &'m Machine) -> Option<&'m Arc<Memo>> {
    config.read_back.then_some(&machine.memo)
}

/// What a copy does where a side has no bytes. A side is an address, and whether it is a device's.
fn recall(memo: Option<&Arc<Memo>>, to: (u64, bool), from: (u64, bool), bytes: u64) -> Work {
    let place = |(at, is_device)| if is_device { memo::Place::Device(at) } else { memo::Place::Host(at) };
    match memo {
        // What nobody reads is not read: a copy to memory that remembers nothing.
        Some(memo) if bytes <= MOST && (!to.1 || memo.remembers()) => {
            Work::Recall { to: place(to), from: place(from), bytes, memo: Arc::clone(memo) }
        }
        _ => Work::Touch,
    }
}

/// Checks a copy's sides and makes its work.
pub(super) fn prepare_copy(
    memo: Option<&Arc<Memo>>,
    state: &Locked<'_>,
    device: usize,
    (to, from): (u64, u64),
    bytes: u64,
    kind: CopyKind,
) -> Answer<(Work, Spans)> {
    if bytes == 0 || to == 0 || from == 0 {
        return Err(Refusal::invalid("a copy needs two addresses and a size"));
    }
    let (device_to, device_from) = match kind {
        CopyKind::HostToHost => (false, false),
        CopyKind::HostToDevice => (true, false),
        CopyKind::DeviceToHost => (false, true),
        CopyKind::DeviceToDevice => (true, true),
    };
    let side = |at, on_device: bool, write| -> Answer<Side> {
        if on_device {
            state.memory.check(device, at, bytes, write, false)?;
            return Ok(Side::Device(state.memory.extents(at, bytes)));
        }
        match state.memory.place_of(at) {
            Some(Place::Range(_, range)) if matches!(range.kind, RangeKind::Managed) => {}
            Some(_) => {
                return Err(Refusal::invalid(format!(
                    "{at:#x} is device memory, and {kind:?} says it is not"
                )));
            }
            None if state.memory.is_device_address(at) => {
                let detail = format!("{at:#x} is a device address where nothing is allocated");
                return Err(Refusal::trap(TrapKind::Unallocated, at, bytes, detail));
            }
            None => {}
        }
        Ok(Side::Host(at))
    };
    let (write, read) = (side(to, device_to, true)?, side(from, device_from, false)?);
    let reserved = |side: &Side| matches!(side, Side::Device(extents) if extents.is_empty());
    let work = if reserved(&write) || reserved(&read) {
        recall(memo, (to, device_to), (from, device_from), bytes)
    } else {
        Work::Copy { to: write, from: read, bytes }
    };
    Ok((work, [Span::new(to, bytes), Span::new(from, bytes)]))
}
