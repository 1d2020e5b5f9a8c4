//! Wrong launches and wrong ends of graphs.

use super::{Known, lock};
use backend_api::types::Stream;
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::sync::Mutex;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct LaunchOnce(Mutex<Vec<Graph>>);

impl Hook for LaunchOnce {
    unsafe fn launch(&self, inner: &dyn Capture, graph: Graph, stream: Stream) -> Result<()> {
        let mut launched = lock(&self.0);
        if launched.contains(&graph) {
            return Ok(());
        }
        launched.push(graph);
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.launch(graph, stream) }
    }
}

#[derive(Debug, Default)]
pub(super) struct LaunchWaits;

impl Hook for LaunchWaits {
    unsafe fn launch(&self, inner: &dyn Capture, graph: Graph, stream: Stream) -> Result<()> {
        // As long as a check needs to see it, instead of until the stream is done.
        std::thread::sleep(Duration::from_millis(150));
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.launch(graph, stream) }
    }
}

/// Launches that were put off.
#[derive(Debug, Default)]
pub(super) struct DestroyedAtOnce(Mutex<Vec<(Graph, Stream)>>);

impl Hook for DestroyedAtOnce {
    unsafe fn launch(&self, _: &dyn Capture, graph: Graph, stream: Stream) -> Result<()> {
        lock(&self.0).push((graph, stream));
        Ok(())
    }

    unsafe fn destroy_graph(&self, inner: &dyn Capture, graph: Graph) -> Result<()> {
        lock(&self.0).retain(|put_off| put_off.0 != graph);
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.destroy_graph(graph) }
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        for (graph, on) in lock(&self.0).drain(..) {
            // SAFETY: the caller's promise at the launch; the graph is there, or the launch would be gone.
            unsafe { inner.capture()?.launch(graph, on)? };
        }
        inner.synchronize_stream(stream)
    }
}

/// Knows its own id only from the graphs it makes.
#[derive(Debug, Default)]
pub(super) struct ForeignGraphs(Known);

impl Hook for ForeignGraphs {
    fn end(&self, inner: &dyn Capture, stream: Stream) -> Result<Graph> {
        let graph = inner.end(stream)?;
        *lock(&self.0) = Some(graph.backend);
        Ok(graph)
    }

    unsafe fn launch(&self, inner: &dyn Capture, graph: Graph, stream: Stream) -> Result<()> {
        let own = lock(&self.0).unwrap_or(graph.backend);
        // SAFETY: the caller's promise; a simulated device checks the handle.
        unsafe { inner.launch(Graph { backend: own, ..graph }, stream) }
    }
}
