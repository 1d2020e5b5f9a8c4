//! Backends that break rules of this area: stream capture.

use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("capture.always_active", "every stream is captured")
        .status(|_| Ok(CaptureStatus::Active(1)))
        .caught_by("capture.status"),
    mutant("capture.one_id", "every capture has the same id")
        .status(|call| {
            call.changed(|it| {
                if let CaptureStatus::Active(id) = it {
                    *id = 1;
                }
            })
        })
        .caught_by("capture.ids_differ"),
    mutant("capture.begun_again", "a second begin is ignored")
        .begin(|call| call.answer_if(is_captured(call)?, ()))
        .caught_by("capture.begun_once"),
    mutant("capture.end_without_begin", "the end without begin gives a graph")
        .end(|call| call.answer_if(!is_captured(call)?, empty_graph(call)))
        .caught_by("capture.end_of_nothing"),
    mutant("capture.fills_run", "fills of a captured stream run at once")
        .memset_async(|call| {
            if is_captured(call)? {
                call.stream = call.inner.default_stream(call.stream.device);
            }
            call.go()
        })
        .caught_by("capture.nothing_runs"),
    mutant("capture.launch_once", "a second launch of a graph does nothing")
        .launch(|call| call.answer_if(!call.is_first(call.graph), ()))
        .caught_by("capture.launch_runs"),
    mutant("capture.launch_waits", "a launch waits for its stream")
        .launch(pauses)
        .caught_by("capture.launch_is_ordered"),
    mutant("capture.destroyed_at_once", "launches are put off until a wait, and dropped with their graph")
        .launch(|call| {
            let (graph, stream) = (call.graph, call.stream);
            call.hold_back(graph.raw, move |inner| {
                let family = inner.capture().expect("there was a graph");
                // SAFETY: the caller's promise at the launch; the graph is there, or the launch would be gone.
                let _ = unsafe { family.launch(graph, stream) };
            })
        })
        .destroy_graph(|call| call.drop_held(call.graph.raw))
        .synchronize_stream(flushes)
        .caught_by("capture.destroyed_graph_runs"),
    mutant("capture.foreign_graphs", "graphs of other backends are taken for its own")
        .launch(|call| call.with(|it| it.graph.backend = it.inner.id()))
        .caught_by("capture.foreign_graph"),
    mutant("capture.always_relaxed", "every capture is relaxed")
        .begin(|call| call.with(|it| it.mode = CaptureMode::Relaxed))
        .caught_by("capture.malloc_is_refused"),
    mutant("capture.never_relaxed", "the relaxed mode is the global one")
        .exchange_mode(|call| call.takes_mode(CaptureMode::Relaxed, CaptureMode::Global))
        .caught_by("capture.malloc_when_relaxed"),
    mutant("capture.global_is_local", "a global capture is thread-local")
        .begin(|call| call.takes_mode(CaptureMode::Global, CaptureMode::ThreadLocal))
        .caught_by("capture.global_stops_others"),
    mutant("capture.local_is_global", "a thread-local capture is global")
        .begin(|call| call.takes_mode(CaptureMode::ThreadLocal, CaptureMode::Global))
        .caught_by("capture.local_lets_others"),
    mutant("capture.mode_is_new", "exchange_mode returns the new mode")
        .exchange_mode(|call| call.go().map(|_| call.mode))
        .caught_by("capture.mode_is_exchanged"),
    mutant("capture.one_mode", "all threads have one mode")
        .exchange_mode(|call| {
            call.go()?;
            Ok(call.keep(|mode: &mut Option<_>| mode.replace(call.mode)).unwrap_or(CaptureMode::Global))
        })
        .caught_by("capture.mode_is_per_thread"),
    mutant("capture.synchronize_is_fine", "waiting for a captured stream does nothing")
        .synchronize_stream(|call| call.answer_if(is_captured(call)?, ()))
        .caught_by("capture.synchronize_is_refused"),
    mutant("capture.query_is_fine", "a captured stream is ready")
        .query_stream(|call| call.answer_if(is_captured(call)?, Readiness::Ready))
        .caught_by("capture.query_is_refused"),
    mutant("capture.event_query_is_fine", "an event of a capture is ready")
        .query_event(|call| call.answer_instead_of(ErrorKind::CaptureViolation, Readiness::Ready))
        .caught_by("capture.event_query_is_refused"),
    mutant("capture.broken_is_active", "a broken capture looks whole")
        .status(|call| {
            call.changed(|it| {
                if *it == CaptureStatus::Invalidated {
                    *it = CaptureStatus::Active(1);
                }
            })
        })
        .caught_by("capture.broken_is_told"),
    mutant("capture.broken_for_ever", "a stream whose capture was broken stays so")
        .end(|call| call.go().inspect_err(|_| call.note(call.stream, ())))
        .status(|call| {
            let is_broken = call.noted::<Stream, ()>(call.stream).is_some();
            call.answer_if(is_broken, CaptureStatus::Invalidated)
        })
        .caught_by("capture.broken_stream_recovers"),
    mutant("capture.questions_break", "pointer_info asks in a way that breaks captures")
        .pointer_info(|call| {
            // Like an allocation made only to look where it lies.
            let probe = call.inner.malloc(DeviceIndex(0), 512)?;
            // SAFETY: rule 3: taken above, not used.
            unsafe { call.inner.free(DeviceIndex(0), probe)? };
            call.go()
        })
        .caught_by("capture.queries_are_legal"),
    mutant("capture.waits_are_lost", "waits of streams that are not captured yet are dropped")
        .wait_event(|call| call.answer_if(!is_captured(call)?, ()))
        .caught_by("capture.events_join"),
    mutant("capture.unjoined_is_fine", "a capture that is not joined gives an empty graph")
        .end(|call| {
            let whole = matches!(call.inner.capture()?.status(call.stream)?, CaptureStatus::Active(_));
            call.go().or_else(|error| if whole { Ok(empty_graph(call)) } else { Err(error) })
        })
        .caught_by("capture.unjoined_is_refused"),
    mutant("capture.no_frontier", "the frontier is always empty")
        .frontier(|call| call.changed(Vec::clear))
        .caught_by("capture.frontier"),
    mutant("capture.no_dependencies", "no node depends on another")
        .dependencies(|call| call.changed(Vec::clear))
        .caught_by("capture.dependencies"),
];

fn is_captured<A>(call: &Call<'_, A>) -> Result<bool> {
    Ok(call.inner.capture()?.status(call.stream)? != CaptureStatus::None)
}

fn empty_graph<A>(call: &Call<'_, A>) -> Graph {
    Graph { raw: 0, backend: call.stream.backend }
}

impl<T> Call<'_, Result<T>> {
    /// Takes one mode for another.
    fn takes_mode(&mut self, one: CaptureMode, other: CaptureMode) -> Result<T> {
        self.with(|it| it.mode = if it.mode == one { other } else { it.mode })
    }
}
