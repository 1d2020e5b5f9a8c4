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

/// A graph's executable form, once there is one. Drivers do not order calls about it: who makes it, or launches it, holds
/// the lock.
type Executable = Arc<Mutex<Option<u64>>>;

/// The executable form of every graph that was to be launched, by the graph's handle.
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
        let executable = Arc::clone(self.lock().entry(graph.raw).or_default());
        let mut made = executable.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = match *made {
            Some(raw) => raw,
            None => *made.insert(instantiate()?),
        };
        launch(raw)
    }

    /// Forgets a graph's executable form where there is one; it stays known where `destroy` is refused.
    pub(crate) fn destroying(&self, graph: Graph, destroy: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        let Some(executable) = self.lock().remove(&graph.raw) else { return Ok(()) };
        let made = *executable.lock().unwrap_or_else(PoisonError::into_inner);
        made.map_or(Ok(()), destroy).inspect_err(|_| {
            self.lock().insert(graph.raw, executable);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::types::{BackendId, DeviceIndex};
    use backend_api::{BackendError, ErrorKind};
    use std::sync::mpsc;
    use std::time::Duration;

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

    /// To instantiate a large graph takes long.
    #[test]
    fn a_first_launch_holds_up_no_other_graph() {
        let graph = |raw| Graph { raw, backend: BackendId(1) };
        let executables = Executables::default();
        let (begun, begins) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        thread::scope(|scope| {
            let executables = &executables;
            let large = scope.spawn(move || {
                let instantiate = || {
                    begun.send(()).unwrap();
                    goes.recv().unwrap();
                    Ok(10)
                };
                executables.launch(graph(1), instantiate, |raw| {
                    assert_eq!(raw, 10);
                    Ok(())
                })
            });
            begins.recv().unwrap();
            scope.spawn(|| {
                executables.launch(graph(2), || Ok(20), |_| Ok(())).unwrap();
                executables.destroying(graph(2), |_| Ok(())).unwrap();
                done.send(()).unwrap();
            });
            let other = is_done.recv_timeout(Duration::from_secs(5));
            go.send(()).unwrap();
            large.join().unwrap().unwrap();
            assert_eq!(other, Ok(()), "the other graph was launched, and destroyed");
        });
        executables.launch(graph(1), || unreachable!("it is there"), |_| Ok(())).unwrap();
    }

    #[test]
    fn what_could_not_be_instantiated_is_tried_again_and_not_destroyed() {
        let executables = Executables::default();
        let graph = Graph { raw: 1, backend: BackendId(1) };
        let refused = || BackendError::new(ErrorKind::OutOfMemory, 2, "instantiate", DeviceIndex(0), "");
        executables.launch(graph, || Err(refused()), |_| unreachable!("there is none")).unwrap_err();
        executables.destroying(graph, |_| unreachable!("there is none")).unwrap();
        executables.launch(graph, || Ok(7), |raw| (raw == 7).then_some(()).ok_or_else(refused)).unwrap();
        let mut destroyed = Vec::new();
        executables.destroying(graph, |_| Err(refused())).unwrap_err();
        let destroy = |raw| {
            destroyed.push(raw);
            Ok(())
        };
        executables.destroying(graph, destroy).unwrap();
        assert_eq!(destroyed, [7], "it was known until the driver took it");
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
