//! Captures under way, and the graphs they leave.

use crate::machine::work::{Spans, Work};
use crate::slab::Slab;
use backend_api::{CaptureMode, HostFunction};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

/// One captured operation.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) after: Vec<u64>,
    pub(crate) work: Work,
    pub(crate) uses: Spans,
}

/// Functions that run when the last holder is gone. The lock makes them shareable; no one waits for it.
#[derive(Default)]
pub(crate) struct Releases(Mutex<Vec<HostFunction>>);

impl Releases {
    pub(crate) fn push(&mut self, release: HostFunction) {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).push(release);
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        for release in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A panic must reach neither a worker nor a caller who only finished some work.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(release));
        }
    }
}

impl std::fmt::Debug for Releases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Releases")
    }
}

/// A finished graph.
#[derive(Debug)]
pub(crate) struct GraphBody {
    pub(crate) nodes: Vec<Node>,
    #[expect(dead_code, reason = "held for its drop")]
    releases: Releases,
}

/// A capture under way. Node `n` has the number `n + 1`.
#[derive(Debug)]
pub(crate) struct CaptureState {
    /// The stream it began on.
    pub(crate) origin: u64,
    pub(crate) mode: CaptureMode,
    /// The thread that began it.
    pub(crate) thread: ThreadId,
    pub(crate) invalidated: bool,
    pub(crate) nodes: Vec<Node>,
    pub(crate) releases: Releases,
    /// Every stream that takes part.
    pub(crate) members: Vec<u64>,
}

impl CaptureState {
    pub(crate) fn add(&mut self, node: Node) -> u64 {
        self.nodes.push(node);
        self.nodes.len() as u64
    }

    /// Whether `ends` come after all of `last`, what the streams of the capture did last: none was left out of the end.
    pub(crate) fn is_joined(&self, ends: &[u64], last: &[u64]) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        let mut open = ends.to_vec();
        while let Some(number) = open.pop() {
            let index = (number - 1) as usize;
            if !std::mem::replace(&mut reached[index], true) {
                open.extend(&self.nodes[index].after);
            }
        }
        last.iter().all(|&number| reached[(number - 1) as usize])
    }

    pub(crate) fn into_body(self) -> GraphBody {
        GraphBody { nodes: self.nodes, releases: self.releases }
    }
}

/// A stream that takes part in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) capture: u64,
    pub(crate) frontier: Vec<u64>,
}

/// All captures and graphs of a machine.
#[derive(Debug)]
pub(crate) struct Captures {
    pub(crate) active: HashMap<u64, CaptureState>,
    pub(crate) graphs: Slab<Arc<GraphBody>>,
    last: u64,
}

impl Captures {
    pub(crate) fn new() -> Self {
        Self { active: HashMap::new(), graphs: Slab::new(false), last: 0 }
    }

    pub(crate) fn begin(&mut self, origin: u64, mode: CaptureMode) -> Member {
        self.last += 1;
        let state = CaptureState {
            origin,
            mode,
            thread: std::thread::current().id(),
            invalidated: false,
            nodes: Vec::new(),
            releases: Releases::default(),
            members: vec![origin],
        };
        self.active.insert(self.last, state);
        Member { capture: self.last, frontier: Vec::new() }
    }

    /// Breaks a capture; it can only be ended now.
    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(state) = self.active.get_mut(&capture) {
            state.invalidated = true;
        }
    }

    /// Breaks every capture that forbids calls that could disturb it to a thread in `mode`; true where
    /// there was one.
    ///
    /// A thread in relaxed mode may do anything. Another is stopped by its own captures, unless they are
    /// relaxed, and in global mode also by global captures of other threads.
    pub(crate) fn invalidate_for_unsafe_call(&mut self, mode: CaptureMode) -> bool {
        if self.active.is_empty() || mode == CaptureMode::Relaxed {
            return false;
        }
        let thread = std::thread::current().id();
        let mut stopped = false;
        for state in self.active.values_mut() {
            let own = state.thread == thread && state.mode != CaptureMode::Relaxed;
            let others =
                mode == CaptureMode::Global && state.thread != thread && state.mode == CaptureMode::Global;
            if own || others {
                state.invalidated = true;
                stopped = true;
            }
        }
        stopped
    }
}
