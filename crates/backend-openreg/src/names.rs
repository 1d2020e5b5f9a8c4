//! The names that a machine gives to what it makes, and whether one that comes back is its own.

use crate::machine::Locked;
use crate::machine::graph::GraphBody;
use crate::machine::queue::Queues;
use crate::memory::index;
use crate::refusal::{Answer, Refusal};
use backend_api::Graph;
use backend_api::types::{BackendId, DeviceIndex, Event, PhysicalHandle, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One machine's names.
#[derive(Debug)]
pub(crate) struct Names {
    id: BackendId,
    last_identity: AtomicU64,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { id: BackendId::fresh(), last_identity: AtomicU64::new(0) }
    }

    /// What all of them begin with.
    pub(crate) fn id(&self) -> BackendId {
        self.id
    }

    /// Tells a piece of physical memory from all others of this machine.
    pub(crate) fn fresh_identity(&self) -> u64 {
        self.last_identity.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn new_stream(&self, raw: u64, device: DeviceIndex) -> Stream {
        Stream { raw, device, backend: self.id }
    }

    pub(crate) fn new_event(&self, raw: u64, device: DeviceIndex) -> Event {
        Event { raw, device, backend: self.id }
    }

    pub(crate) fn new_graph(&self, raw: u64) -> Graph {
        Graph { raw, backend: self.id }
    }

    pub(crate) fn new_physical(&self, raw: u64) -> PhysicalHandle {
        PhysicalHandle { raw, backend: self.id }
    }

    /// The key of a stream of this machine.
    pub(crate) fn stream(&self, state: &Locked<'_>, stream: Stream) -> Answer<u64> {
        self.own(stream.backend, "the stream belongs to another backend")?;
        let key = if stream.raw == 0 { Queues::default_stream(index(stream.device)) } else { stream.raw };
        if state.queues.stream(key)?.device != index(stream.device) {
            return Err(Refusal::invalid("the stream is of another device than it says"));
        }
        Ok(key)
    }

    /// The key of an event of this machine.
    pub(crate) fn event(&self, state: &Locked<'_>, event: Event) -> Answer<u64> {
        self.own(event.backend, "the event belongs to another backend")?;
        if state.queues.event(event.raw)?.device != index(event.device) {
            return Err(Refusal::invalid("the event is of another device than it says"));
        }
        Ok(event.raw)
    }

    /// A graph of this machine.
    pub(crate) fn graph(&self, state: &Locked<'_>, graph: Graph) -> Answer<Arc<GraphBody>> {
        self.own(graph.backend, "the graph belongs to another backend")?;
        let found = state.captures.graphs.get(graph.raw).cloned();
        found.ok_or_else(|| Refusal::invalid("the graph is not, or no longer, one of this machine"))
    }

    /// The key of physical memory of this machine.
    pub(crate) fn physical(&self, handle: PhysicalHandle) -> Answer<u64> {
        self.own(handle.backend, "the physical handle belongs to another backend").map(|()| handle.raw)
    }

    fn own(&self, backend: BackendId, otherwise: &'static str) -> Answer<()> {
        if backend == self.id { Ok(()) } else { Err(Refusal::invalid(otherwise)) }
    }
}
