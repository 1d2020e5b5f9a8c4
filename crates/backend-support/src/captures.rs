//! Captures under way, and graphs that were launched.

use backend_api::types::Stream;
use backend_api::{CaptureMode, Graph, Result};
use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The drivers' number of a mode.
pub(crate) fn mode_number(mode: CaptureMode) -> c_uint {
    match mode {
        CaptureMode::Global => 0,
        CaptureMode::ThreadLocal => 1,
        CaptureMode::Relaxed => 2,
    }
}

/// The mode with the drivers' number.
pub(crate) fn mode_of(number: c_uint) -> Option<CaptureMode> {
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed]
        .into_iter()
        .find(|&mode| mode_number(mode) == number)
}

/// A capture that this backend began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    thread: ThreadId,
    mode: CaptureMode,
}

/// Captures under way, by the stream's handle, for drivers that do not refuse all that a capture forbids.
#[derive(Debug, Default)]
pub(crate) struct Captures(Mutex<HashMap<u64, Began>>);

impl Captures {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Began>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn began(&self, stream: Stream, mode: CaptureMode) {
        self.lock().insert(stream.raw, Began { thread: thread::current().id(), mode });
    }

    pub(crate) fn forget(&self, stream: Stream) -> Option<Began> {
        self.lock().remove(&stream.raw)
    }

    pub(crate) fn put_back(&self, stream: Stream, capture: Option<Began>) {
        if let Some(capture) = capture {
            self.lock().insert(stream.raw, capture);
        }
    }

    /// Whether the captures under way forbid unsafe calls to the calling thread.
    pub(crate) fn forbids(&self) -> Forbids {
        let own = thread::current().id();
        let captures = self.lock();
        Forbids {
            thread_local: captures.values().any(|c| c.thread == own && c.mode != CaptureMode::Relaxed),
            global: captures.values().any(|c| c.mode == CaptureMode::Global),
        }
    }
}

/// Whether captures forbid unsafe calls to a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forbids {
    /// This thread began one.
    thread_local: bool,
    /// One forbids it to every thread.
    global: bool,
}

impl Forbids {
    pub(crate) fn to_thread_in(self, mode: CaptureMode) -> bool {
        match mode {
            CaptureMode::Relaxed => false,
            CaptureMode::ThreadLocal => self.thread_local,
            CaptureMode::Global => self.thread_local || self.global,
        }
    }
}

/// A graph's executable form. Drivers do not order calls about it: who launches it holds the lock.
type Executable = Arc<Mutex<u64>>;

/// The executable form of every graph that was launched, by the graph's handle.
#[derive(Debug, Default)]
pub(crate) struct Executables(Mutex<HashMap<u64, Executable>>);

impl Executables {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Executable>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Launches a graph's executable form, which `instantiate` makes at the first launch. One thread at a time.
    pub(crate) fn launch(
        &self,
        graph: Graph,
        instantiate: impl FnOnce() -> Result<u64>,
        launch: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let executable = self.executable(graph, instantiate)?;
        let raw = executable.lock().unwrap_or_else(PoisonError::into_inner);
        launch(*raw)
    }

    fn executable(&self, graph: Graph, instantiate: impl FnOnce() -> Result<u64>) -> Result<Executable> {
        // Held over the call, so that two first launches make one.
        let mut executables = self.lock();
        if let Some(known) = executables.get(&graph.raw) {
            return Ok(Arc::clone(known));
        }
        let executable = Arc::new(Mutex::new(instantiate()?));
        executables.insert(graph.raw, Arc::clone(&executable));
        Ok(executable)
    }

    /// Forgets a graph's executable form where there is one; it stays known where `destroy` is refused.
    pub(crate) fn destroying(&self, graph: Graph, destroy: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        let Some(executable) = self.lock().remove(&graph.raw) else { return Ok(()) };
        let raw = *executable.lock().unwrap_or_else(PoisonError::into_inner);
        destroy(raw).inspect_err(|_| {
            self.lock().insert(graph.raw, executable);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::types::{BackendId, DeviceIndex};

    #[test]
    fn a_capture_forbids_by_its_mode_and_the_threads() {
        use CaptureMode::{Global, Relaxed, ThreadLocal};
        let stream = |raw| Stream { raw, device: DeviceIndex(0), backend: BackendId(1) };
        let forbidden =
            |captures: &Captures| [Global, ThreadLocal, Relaxed].map(|m| captures.forbids().to_thread_in(m));

        let captures = Captures::default();
        assert_eq!(forbidden(&captures), [false, false, false]);
        captures.began(stream(1), Relaxed);
        assert_eq!(forbidden(&captures), [false, false, false]);
        captures.began(stream(2), ThreadLocal);
        assert_eq!(forbidden(&captures), [true, true, false]);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(forbidden(&captures), [false, false, false], "another thread"));
        });
        captures.began(stream(3), Global);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(forbidden(&captures), [true, false, false], "another thread"));
        });
        let forgotten = captures.forget(stream(3));
        captures.put_back(stream(3), forgotten);
        captures.forget(stream(2));
        assert_eq!(forbidden(&captures), [true, true, false]);
        captures.forget(stream(3));
        assert_eq!(forbidden(&captures), [false, false, false]);
    }

    #[test]
    fn modes_are_the_drivers_numbers_both_ways() {
        let modes = [(CaptureMode::Global, 0), (CaptureMode::ThreadLocal, 1), (CaptureMode::Relaxed, 2)];
        for (mode, number) in modes {
            assert_eq!(mode_number(mode), number);
            assert_eq!(mode_of(number), Some(mode));
        }
        assert_eq!(mode_of(3), None);
    }
}
