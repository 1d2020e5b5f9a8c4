//! Stream capture.
//!
//! A stream joins a capture by waiting for an event that was recorded in it, and must be joined back to the
//! origin stream before the end. Calls that could disturb a capture are refused by the rules of
//! [`CaptureMode`], and break it: then it can only be ended.

use crate::gate::call::Call;
use crate::machine::graph::GraphBody;
use crate::machine::graph::Member;
use crate::machine::{Locked, Simulated};
use crate::openreg::OpenReg;
use crate::refusal::{Answer, Refusal};
use crate::space::Span;
use crate::thread;
use backend_api::types::{DeviceIndex, Stream};
use backend_api::*;
use std::sync::Arc;

const BROKEN: &str = "the capture was broken by an earlier call; end it and begin again";

impl Simulated {
    /// The capture that a stream takes part in.
    pub(crate) fn capture_of(&self, key: u64) -> Option<u64> {
        self.queues.streams.get(key)?.member.as_ref().map(|member| member.capture)
    }

    /// The stream's part in a capture that is whole.
    pub(crate) fn captured_member(&self, key: u64) -> Answer<&Member> {
        let member = self.queues.stream(key)?.member.as_ref();
        let member = member.ok_or_else(|| Refusal::invalid("the stream is not captured"))?;
        match self.captures.active.get(&member.capture) {
            Some(capture) if !capture.invalidated => Ok(member),
            _ => Err(Refusal::capture(BROKEN)),
        }
    }
}

impl OpenReg {
    /// What a wait means to captures: true where it was recorded as a dependency and nothing is queued.
    pub(crate) fn joins_capture(&self, state: &mut Locked<'_>, key: u64, event: u64) -> Answer<bool> {
        if state.captures.active.is_empty() {
            return Ok(false);
        }
        let event = state.queues.event(event)?;
        let (captured, was_recorded) = (event.captured.clone(), event.point.is_some());
        let own = state.capture_of(key);
        let Some(captured) = captured.filter(|member| state.captures.active.contains_key(&member.capture))
        else {
            let Some(own) = own else { return Ok(false) };
            if !was_recorded {
                return Ok(true);
            }
            state.captures.invalidate(own);
            return Err(Refusal::capture(
                "a captured stream cannot wait for work outside its capture; the capture is broken now",
            ));
        };
        if let Some(own) = own.filter(|&own| own != captured.capture) {
            state.captures.invalidate(own);
            state.captures.invalidate(captured.capture);
            return Err(Refusal::capture("two captures cannot depend on each other; both are broken now"));
        }
        let Simulated { queues, captures, .. } = &mut **state;
        let capture = captures.active.get_mut(&captured.capture).filter(|capture| !capture.invalidated);
        let capture = capture.ok_or_else(|| Refusal::capture(BROKEN))?;
        let stream = queues.stream_mut(key)?;
        let idle = stream.is_idle();
        match &mut stream.member {
            Some(member) => {
                for node in captured.frontier {
                    if !member.frontier.contains(&node) {
                        member.frontier.push(node);
                    }
                }
            }
            None if !idle => {
                capture.invalidated = true;
                return Err(Refusal::capture(
                    "a stream with queued work cannot join a capture; the capture is broken now",
                ));
            }
            None => {
                capture.members.push(key);
                stream.member = Some(captured);
            }
        }
        Ok(true)
    }
}

impl Capture for OpenReg {
    fn status(&self, stream: Stream) -> Result<CaptureStatus> {
        self.call(Call::CaptureStatus, stream.device, |state| {
            let key = self.names.stream(&state, stream)?;
            Ok(match state.capture_of(key) {
                None => CaptureStatus::None,
                Some(_) if state.captured_member(key).is_err() => CaptureStatus::Invalidated,
                Some(capture) => CaptureStatus::Active(capture),
            })
        })
    }

    fn begin(&self, stream: Stream, mode: CaptureMode) -> Result<()> {
        self.call(Call::BeginCapture, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            if stream.raw == 0 {
                return Err(Refusal::capture("a default stream cannot be captured; create one"));
            }
            if state.capture_of(key).is_some() {
                return Err(Refusal::capture("the stream is captured already"));
            }
            let member = state.captures.begin(key, mode);
            state.queues.stream_mut(key)?.member = Some(member);
            Ok(())
        })
    }

    fn end(&self, stream: Stream) -> Result<Graph> {
        self.call(Call::EndCapture, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            let capture = state.capture_of(key).ok_or_else(|| Refusal::invalid("the stream is not captured"))?;
            let Some(active) = state.captures.active.get(&capture) else {
                return Err(Refusal::invalid("the capture has ended"));
            };
            if active.origin != key {
                state.captures.invalidate(capture);
                return Err(Refusal::capture("a capture ends on the stream where it began; it is broken now"));
            }
            if active.mode != CaptureMode::Relaxed && active.thread != std::thread::current().id() {
                return Err(Refusal::capture("a capture that is not relaxed ends in the thread that began it"));
            }
            let ends = state.queues.stream(key)?.member.as_ref().map_or_else(Vec::new, |member| member.frontier.clone());
            let Some(ended) = state.captures.active.remove(&capture) else {
                return Err(Refusal::invalid("the capture has ended"));
            };
            let mut last = Vec::new();
            for &member in &ended.members {
                if let Ok(stream) = state.queues.stream_mut(member) {
                    last.extend(stream.member.take().map_or_else(Vec::new, |member| member.frontier));
                }
            }
            let refused = if ended.invalidated {
                Some(BROKEN)
            } else if !ended.is_joined(&ends, &last) {
                Some("work of another stream was not joined back before the end; wait for it on the origin stream")
            } else {
                None
            };
            let body: Arc<GraphBody> = Arc::new(ended.into_body());
            if let Some(refused) = refused {
                // What the capture retained is released by foreign code, which the lock must not see.
                drop(state);
                drop(body);
                return Err(Refusal::capture(refused));
            }
            Ok(self.names.new_graph(state.captures.graphs.insert(body)))
        })
    }

    /// A graph knows addresses, not memory: what is mapped there now is what it uses.
    unsafe fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        self.call(Call::LaunchGraph, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            let body = self.names.graph(&state, graph)?;
            if state.capture_of(key).is_some() {
                return Err(Refusal::unsupported("graphs inside graphs are not simulated"));
            }
            for used in body.nodes.iter().flat_map(|node| node.uses).filter(|used| used.start < used.end) {
                let (at, bytes) = (used.start, used.end - used.start);
                // Host ranges were promised by the caller (rule 2); device ranges may be gone by now.
                if state.memory.is_device_address(at) {
                    state.memory.check(usize::from(stream.device.0), at, bytes, false, false)?;
                }
            }
            self.machine.prepare(&mut state, key)?;
            for node in &body.nodes {
                let resolve = |used: Span| state.memory.extents(used.start, used.end - used.start);
                let work = node.work.at_addresses(node.uses, resolve);
                self.machine.submit(state, key, work, node.uses, Some(Arc::clone(&body)))?;
                state = self.machine.lock();
            }
            Ok(())
        })
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        self.call(Call::DestroyGraph, DeviceIndex(0), |mut state| {
            self.names.graph(&state, graph)?;
            let body = state.captures.graphs.remove(graph.raw);
            drop(state);
            drop(body);
            Ok(())
        })
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.enter(Call::ExchangeCaptureMode, DeviceIndex(0))?;
        Ok(thread::exchange_mode(self.names.id(), mode))
    }

    fn frontier(&self, stream: Stream) -> Result<Vec<CaptureNode>> {
        self.call(Call::CaptureFrontier, stream.device, |state| {
            let key = self.names.stream(&state, stream)?;
            Ok(state.captured_member(key)?.frontier.iter().map(|&node| CaptureNode(node)).collect())
        })
    }

    fn dependencies(&self, stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>> {
        self.call(Call::NodeDependencies, stream.device, |state| {
            let key = self.names.stream(&state, stream)?;
            let capture = state.captured_member(key)?.capture;
            let nodes = state.captures.active.get(&capture).map(|capture| &capture.nodes);
            let index = node.0.checked_sub(1).and_then(|index| usize::try_from(index).ok());
            let found = nodes.zip(index).and_then(|(nodes, index)| nodes.get(index));
            let found =
                found.ok_or_else(|| Refusal::invalid(format!("the capture has no node {}", node.0)))?;
            Ok(found.after.iter().map(|&node| CaptureNode(node)).collect())
        })
    }
}
