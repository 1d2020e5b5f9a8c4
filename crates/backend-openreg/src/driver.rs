//! What a driver in front of a machine asks beyond the contract.

mod memory;

use crate::config::MemoryMode;
use crate::gate::call::Call;
use crate::machine::graph::Node;
use crate::machine::memo::{MOST, Place};
use crate::machine::work::{HostCall, Pattern, Side, Spans, Work};
use crate::openreg::OpenReg;
use crate::refusal::Refusal;
use crate::space::Span;
use backend_api::types::{DevicePtr, Stream};
use backend_api::{CaptureNode, HostFunction, Result};
use std::sync::Arc;

pub use memory::{PhysicalProperties, PoolFigure};

/// A machine, as a driver in front of it sees it.
#[derive(Clone, Copy, Debug)]
pub struct Driver<'m>(pub &'m OpenReg);

impl Driver<'_> {
    /// Nanoseconds that passed by the cost model, with copies on their links
    /// ([`OpenRegConfig::links`](crate::OpenRegConfig::links)); without links the same as
    /// [`OpenReg::modelled_driver_time`]. Costs no call.
    #[must_use]
    pub fn elapsed(&self) -> u64 {
        let called = self.0.modelled_driver_time();
        self.0.machine.lock().timeline.as_ref().map_or(called, |timeline| timeline.now(called))
    }

    /// Whether work is queued anywhere. Costs no call.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.machine.lock().queues.is_busy()
    }

    /// Queues a fill of `bytes` at `to` with `pattern`, 1, 2, 4 or 8 bytes over and over. Does not block; stream-ordered;
    /// legal during capture.
    ///
    /// # Errors
    /// `InvalidValue` for an empty fill, and, with a trap, where the memory is not allocated.
    pub fn fill(&self, stream: Stream, to: DevicePtr, pattern: &[u8], bytes: u64) -> Result<()> {
        self.0.enqueue(Call::MemsetAsync, stream, |state, device| {
            if bytes == 0 {
                return Err(Refusal::invalid("0 bytes are no fill"));
            }
            state.memory.check(device, to.0, bytes, true, false)?;
            self.0.gate.charge(Call::MemsetAsync, bytes);
            let extents = state.memory.extents(to.0, bytes);
            let pattern = Pattern::new(pattern);
            let work = if extents.is_empty() { Work::Touch } else { Work::Fill { to: extents, pattern } };
            Ok((work, [Span::new(to.0, bytes), Span::default()]))
        })
    }

    /// Queues a copy of bytes that it keeps until then, as drivers do with memory of the host that may change. Does not
    /// block; stream-ordered; legal during capture.
    ///
    /// # Errors
    /// `InvalidValue`, and a trap, where the memory is not allocated.
    pub fn copy_kept(&self, stream: Stream, to: DevicePtr, kept: Arc<[u8]>) -> Result<()> {
        self.0.enqueue(Call::CopyAsync, stream, |state, device| {
            let bytes = kept.len() as u64;
            state.memory.check(device, to.0, bytes, true, false)?;
            self.0.gate.charge(Call::CopyAsync, bytes);
            let extents = state.memory.extents(to.0, bytes);
            let work = if extents.is_empty() {
                // Without bytes it happens now: nothing else of reserved memory is in order.
                let from = Place::Host(kept.as_ptr().expose_provenance() as u64);
                self.0.machine.memo.copy(Place::Device(to.0), from, bytes);
                Work::Touch
            } else {
                Work::Copy { to: Side::Device(extents), from: Side::Kept(kept), bytes }
            };
            Ok((work, [Span::new(to.0, bytes), Span::default()]))
        })
    }

    /// Whether a copy of so many bytes to a device leaves anything there.
    #[must_use]
    pub fn keeps(&self, bytes: u64) -> bool {
        self.0.config.memory == MemoryMode::Mapped || (bytes <= MOST && self.0.machine.memo.remembers())
    }

    /// Queues a function of the program that runs with every launch, where a graph captures it.
    ///
    /// # Errors
    /// `InvalidValue` where the stream is not this machine's.
    pub fn host_call(&self, stream: Stream, call: impl Fn() + Send + Sync + 'static) -> Result<()> {
        self.0.enqueue(Call::LaunchHostFunction, stream, |_, _| {
            Ok((Work::Host(HostCall::Always(Arc::new(call))), Spans::default()))
        })
    }

    /// Runs `release` when the graph under capture on `stream` and all its launches are gone.
    ///
    /// # Errors
    /// `InvalidValue` where the stream is not captured; `CaptureViolation` where its capture is broken.
    pub fn retain_until_graph_ends(&self, stream: Stream, release: HostFunction) -> Result<()> {
        self.0.call(Call::RetainUserObject, stream.device, |mut state| {
            let key = self.0.names.stream(&state, stream)?;
            let capture = state.captured_member(key)?.capture;
            if let Some(capture) = state.captures.active.get_mut(&capture) {
                capture.releases.push(release);
            }
            Ok(())
        })
    }

    /// Adds a node that does nothing to a stream's capture, after these; the stream's next work does not wait for it.
    ///
    /// # Errors
    /// `InvalidValue` where the stream is not captured; `CaptureViolation` where its capture is broken.
    pub fn add_empty_node(&self, stream: Stream, after: &[CaptureNode]) -> Result<CaptureNode> {
        self.0.call(Call::CaptureFrontier, stream.device, |mut state| {
            let key = self.0.names.stream(&state, stream)?;
            let capture = state.captured_member(key)?.capture;
            let capture = state.captures.active.get_mut(&capture);
            let capture = capture.ok_or_else(|| Refusal::invalid("the capture has ended"))?;
            let after = after.iter().map(|node| node.0).collect();
            Ok(CaptureNode(capture.add(Node { after, work: Work::Touch, uses: Spans::default() })))
        })
    }

    /// Sets what a captured stream's next work waits for; `adds` leaves what it waits for already.
    ///
    /// # Errors
    /// `InvalidValue` where the stream is not captured, or for no node of its capture; `CaptureViolation` where that is
    /// broken.
    pub fn set_frontier(&self, stream: Stream, nodes: &[CaptureNode], adds: bool) -> Result<()> {
        self.0.call(Call::CaptureFrontier, stream.device, |mut state| {
            let key = self.0.names.stream(&state, stream)?;
            let capture = state.captured_member(key)?.capture;
            let count = state.captures.active.get(&capture).map_or(0, |capture| capture.nodes.len() as u64);
            if let Some(node) = nodes.iter().find(|node| !(1..=count).contains(&node.0)) {
                return Err(Refusal::invalid(format!("the capture has no node {}", node.0)));
            }
            if let Some(member) = &mut state.queues.stream_mut(key)?.member {
                if !adds {
                    member.frontier.clear();
                }
                for node in nodes {
                    if !member.frontier.contains(&node.0) {
                        member.frontier.push(node.0);
                    }
                }
            }
            Ok(())
        })
    }

    /// The byte that copies of reserved memory to the host find; see [`OpenRegConfig::read_back`](crate::OpenRegConfig::read_back).
    pub fn set_read_back(&self, byte: u8) {
        self.0.machine.memo.set_otherwise(byte);
    }

    /// Lets copies of up to 1 MiB to reserved memory leave their bytes there, or forgets all of them again.
    pub fn remember(&self, remembers: bool) {
        self.0.machine.memo.remember(remembers);
    }
}
