//! Backends that break rules of this area: stream capture.

mod graphs;

use super::{hook, mutants};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use graphs::{DestroyedAtOnce, ForeignGraphs, LaunchOnce, LaunchWaits};
use std::sync::{Mutex, MutexGuard, PoisonError};

mutants! {
    AlwaysActive: "capture.always_active", "every stream is captured" => "capture.status",
    OneId: "capture.one_id", "every capture has the same id" => "capture.ids_differ",
    BegunAgain: "capture.begun_again", "a second begin is ignored" => "capture.begun_once",
    EndOfNothing: "capture.end_without_begin",
        "the end without begin gives a graph" => "capture.end_of_nothing",
    FillsRun: "capture.fills_run", "fills of a captured stream run at once" => "capture.nothing_runs",
    LaunchOnce: "capture.launch_once", "a second launch of a graph does nothing" => "capture.launch_runs",
    LaunchWaits: "capture.launch_waits", "a launch waits for its stream" => "capture.launch_is_ordered",
    DestroyedAtOnce: "capture.destroyed_at_once",
        "launches are put off until a wait, and dropped with their graph" => "capture.destroyed_graph_runs",
    ForeignGraphs: "capture.foreign_graphs",
        "graphs of other backends are taken for its own" => "capture.foreign_graph",
    AlwaysRelaxed: "capture.always_relaxed", "every capture is relaxed" => "capture.malloc_is_refused",
    NeverRelaxed: "capture.never_relaxed",
        "the relaxed mode is the global one" => "capture.malloc_when_relaxed",
    GlobalIsLocal: "capture.global_is_local",
        "a global capture is thread-local" => "capture.global_stops_others",
    LocalIsGlobal: "capture.local_is_global",
        "a thread-local capture is global" => "capture.local_lets_others",
    ModeIsNew: "capture.mode_is_new", "exchange_mode returns the new mode" => "capture.mode_is_exchanged",
    OneMode: "capture.one_mode", "all threads have one mode" => "capture.mode_is_per_thread",
    SynchronizeIsFine: "capture.synchronize_is_fine",
        "waiting for a captured stream does nothing" => "capture.synchronize_is_refused",
    QueryIsFine: "capture.query_is_fine", "a captured stream is ready" => "capture.query_is_refused",
    EventQueryIsFine: "capture.event_query_is_fine",
        "an event of a capture is ready" => "capture.event_query_is_refused",
    BrokenIsActive: "capture.broken_is_active", "a broken capture looks whole" => "capture.broken_is_told",
    BrokenForEver: "capture.broken_for_ever",
        "a stream whose capture was broken stays so" => "capture.broken_stream_recovers",
    QuestionsBreak: "capture.questions_break",
        "pointer_info asks in a way that breaks captures" => "capture.queries_are_legal",
    WaitsAreLost: "capture.waits_are_lost",
        "waits for events of a capture are dropped" => "capture.events_join",
    UnjoinedIsFine: "capture.unjoined_is_fine",
        "a capture that is not joined gives an empty graph" => "capture.unjoined_is_refused",
    NoFrontier: "capture.no_frontier", "the frontier is always empty" => "capture.frontier",
    NoDependencies: "capture.no_dependencies", "no node depends on another" => "capture.dependencies",
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

hook! { AlwaysActive {
    fn status(&self, _: &dyn Capture, _: Stream) -> Result<CaptureStatus> {
        Ok(CaptureStatus::Active(1))
    }
} }

hook! { OneId {
    fn status(&self, inner: &dyn Capture, stream: Stream) -> Result<CaptureStatus> {
        Ok(match inner.status(stream)? {
            CaptureStatus::Active(_) => CaptureStatus::Active(1),
            other => other,
        })
    }
} }

hook! { BegunAgain {
    fn begin(&self, inner: &dyn Capture, stream: Stream, mode: CaptureMode) -> Result<()> {
        match inner.status(stream)? {
            CaptureStatus::None => inner.begin(stream, mode),
            _ => Ok(()),
        }
    }
} }

hook! { EndOfNothing {
    fn end(&self, inner: &dyn Capture, stream: Stream) -> Result<Graph> {
        match inner.status(stream)? {
            CaptureStatus::None => Ok(Graph { raw: 0, backend: stream.backend }),
            _ => inner.end(stream),
        }
    }
} }

hook! { FillsRun {
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let captured = inner.capture()?.status(stream)? != CaptureStatus::None;
        let stream = if captured { inner.default_stream(stream.device) } else { stream };
        // SAFETY: the caller's promise, passed on; the default stream is always there.
        unsafe { inner.memset_async(dst, value, bytes, stream) }
    }
} }

hook! { AlwaysRelaxed {
    fn begin(&self, inner: &dyn Capture, stream: Stream, _: CaptureMode) -> Result<()> {
        inner.begin(stream, CaptureMode::Relaxed)
    }
} }

hook! { NeverRelaxed {
    fn exchange_mode(&self, inner: &dyn Capture, mode: CaptureMode) -> Result<CaptureMode> {
        inner.exchange_mode(if mode == CaptureMode::Relaxed { CaptureMode::Global } else { mode })
    }
} }

hook! { GlobalIsLocal {
    fn begin(&self, inner: &dyn Capture, stream: Stream, mode: CaptureMode) -> Result<()> {
        inner.begin(stream, if mode == CaptureMode::Global { CaptureMode::ThreadLocal } else { mode })
    }
} }

hook! { LocalIsGlobal {
    fn begin(&self, inner: &dyn Capture, stream: Stream, mode: CaptureMode) -> Result<()> {
        inner.begin(stream, if mode == CaptureMode::ThreadLocal { CaptureMode::Global } else { mode })
    }
} }

hook! { ModeIsNew {
    fn exchange_mode(&self, inner: &dyn Capture, mode: CaptureMode) -> Result<CaptureMode> {
        inner.exchange_mode(mode).map(|_| mode)
    }
} }

#[derive(Debug, Default)]
struct OneMode(Mutex<Option<CaptureMode>>);

impl Hook for OneMode {
    fn exchange_mode(&self, inner: &dyn Capture, mode: CaptureMode) -> Result<CaptureMode> {
        inner.exchange_mode(mode)?;
        Ok(lock(&self.0).replace(mode).unwrap_or(CaptureMode::Global))
    }
}

hook! { SynchronizeIsFine {
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        match inner.capture()?.status(stream)? {
            CaptureStatus::None => inner.synchronize_stream(stream),
            _ => Ok(()),
        }
    }
} }

hook! { QueryIsFine {
    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        match inner.capture()?.status(stream)? {
            CaptureStatus::None => inner.query_stream(stream),
            _ => Ok(Readiness::Ready),
        }
    }
} }

hook! { EventQueryIsFine {
    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        match inner.query_event(event) {
            Err(error) if error.kind == ErrorKind::CaptureViolation => Ok(Readiness::Ready),
            answer => answer,
        }
    }
} }

hook! { BrokenIsActive {
    fn status(&self, inner: &dyn Capture, stream: Stream) -> Result<CaptureStatus> {
        Ok(match inner.status(stream)? {
            CaptureStatus::Invalidated => CaptureStatus::Active(1),
            other => other,
        })
    }
} }

#[derive(Debug, Default)]
struct BrokenForEver(Mutex<Vec<Stream>>);

impl Hook for BrokenForEver {
    fn end(&self, inner: &dyn Capture, stream: Stream) -> Result<Graph> {
        inner.end(stream).inspect_err(|_| lock(&self.0).push(stream))
    }

    fn status(&self, inner: &dyn Capture, stream: Stream) -> Result<CaptureStatus> {
        if lock(&self.0).contains(&stream) {
            return Ok(CaptureStatus::Invalidated);
        }
        inner.status(stream)
    }
}

hook! { QuestionsBreak {
    fn pointer_info(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<PointerInfo> {
        // Like an allocation made only to look where it lies.
        let probe = inner.malloc(DeviceIndex(0), 512)?;
        // SAFETY: rule 3: taken above, not used.
        unsafe { inner.free(DeviceIndex(0), probe)? };
        inner.pointer_info(ptr)
    }
} }

hook! { WaitsAreLost {
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        let captured = inner.capture()?.status(stream)? != CaptureStatus::None;
        if captured { inner.wait_event(stream, event) } else { Ok(()) }
    }
} }

hook! { UnjoinedIsFine {
    fn end(&self, inner: &dyn Capture, stream: Stream) -> Result<Graph> {
        let whole = matches!(inner.status(stream)?, CaptureStatus::Active(_));
        match inner.end(stream) {
            Err(_) if whole => Ok(Graph { raw: 0, backend: stream.backend }),
            answer => answer,
        }
    }
} }

hook! { NoFrontier {
    fn frontier(&self, inner: &dyn Capture, stream: Stream) -> Result<Vec<CaptureNode>> {
        inner.frontier(stream).map(|_| Vec::new())
    }
} }

hook! { NoDependencies {
    fn dependencies(
        &self,
        inner: &dyn Capture,
        stream: Stream,
        node: CaptureNode,
    ) -> Result<Vec<CaptureNode>> {
        inner.dependencies(stream, node).map(|_| Vec::new())
    }
} }

/// A backend's id, once seen.
type Known = Mutex<Option<BackendId>>;
