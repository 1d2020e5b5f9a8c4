//! Backends that break rules of this area: events.

use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("events.of_first_device", "handles say device 0")
        .create_event(|call| call.changed(|it| it.device = DeviceIndex(0)))
        .caught_by("events.handle_names_its_device"),
    mutant("events.of_no_backend", "handles carry no id")
        .create_event(|call| call.changed(|it| it.backend = BackendId(0)))
        .caught_by("events.handle_names_its_backend"),
    mutant("events.same_event", "an event that lives is given again")
        .create_event(|call| call.again_if(|it, event| it.device == event.device))
        .destroy_event(|call| call.forget(call.event))
        .caught_by("events.handles_differ"),
    mutant("events.not_ready_at_first", "an event that was never recorded is not ready")
        .record_event(notes_record)
        .query_event(|call| call.answer_if(recorded_on(call).is_none(), Readiness::NotReady))
        .caught_by("events.complete_at_first"),
    mutant("events.unrecorded_is_error", "an event that was never recorded cannot be waited for")
        .record_event(notes_record)
        .synchronize_event(|call| call.refuse_if(recorded_on(call).is_none()))
        .caught_by("events.synchronize_unrecorded"),
    mutant("events.no_blocking_sync", "BLOCKING_SYNC is refused")
        .create_event(|call| call.refuse_if(is_blocking(call.flags)))
        .caught_by("events.each_flag_works"),
    mutant("events.hundred", "no more than 100 events live")
        .create_event(|call| {
            let full = call.keep(|live: &mut u32| *live >= 100);
            let event = call.refuse_as(ErrorKind::ResourceLimit, full)?;
            call.keep(|live: &mut u32| *live += 1);
            Ok(event)
        })
        .destroy_event(|call| call.go().inspect(|()| call.keep(|live: &mut u32| *live -= 1)))
        .caught_by("events.many_at_once"),
    mutant("events.ready_early", "an event is ready before the work")
        .query_event(|call| call.changed(|it| *it = Readiness::Ready))
        .caught_by("events.not_ready_behind_work"),
    mutant("events.seldom_ready", "one event in fifty is ready before the work")
        .query_event(|call| call.answer_if(call.is_turn(50), Readiness::Ready))
        .caught_by("events.none_of_many_is_ready_early"),
    mutant("events.seldom_waits", "one synchronize_event in fifty returns at once")
        .synchronize_event(|call| call.answer_if(call.is_turn(50), ()))
        .caught_by("events.synchronize_waits_every_time"),
    mutant("events.never_ready", "an event is never ready")
        .query_event(|call| call.changed(|it| *it = Readiness::NotReady))
        .caught_by("events.ready_after_work"),
    mutant("events.sticky_not_ready", "NotReady leaves an error for the next call")
        .query_event(|call| call.leave_error_if(|it| *it == Ok(Readiness::NotReady)))
        .enter(strikes)
        .caught_by("events.not_ready_leaves_no_error"),
    mutant("events.asks_its_stream", "an event is ready when its stream is")
        .record_event(notes_record)
        .query_event(|call| {
            let readiness = call.go()?;
            recorded_on(call).map_or(Ok(readiness), |stream| call.inner.query_stream(stream))
        })
        .caught_by("events.later_work_does_not_count"),
    mutant("events.records_once", "an event is recorded once only")
        .record_event(|call| if recorded_on(call).is_some() { Ok(()) } else { notes_record(call) })
        .caught_by("events.record_again_moves_it"),
    mutant("events.keeps_first_record", "a record before the last one was passed is ignored")
        .record_event(|call| call.answer_if(is_pending(call)?, ()))
        .caught_by("events.record_elsewhere_moves_it"),
    mutant("events.asks_last_recorded", "query_event is about the event recorded last")
        .record_event(|call| call.go().inspect(|()| call.keep(|last| *last = Some(call.event))))
        .query_event(|call| {
            let own = call.go()?;
            let last = call.keep(|last: &mut Option<Event>| *last);
            // One that was destroyed since is no answer.
            Ok(last.and_then(|last| call.inner.query_event(last).ok()).unwrap_or(own))
        })
        .caught_by("events.each_event_is_its_own"),
    mutant("events.records_anywhere", "a record on another device is taken, and ignored")
        .record_event(|call| call.answer_if(call.event.device != call.stream.device, ()))
        .caught_by("events.of_other_device_is_refused"),
    mutant("events.refused_record_resets", "a refused record makes the event ready")
        .record_event(|call| {
            let (inner, event) = (call.inner, call.event);
            call.go().inspect_err(|_| {
                let _ = inner.record_event(event, inner.default_stream(event.device));
                let _ = inner.synchronize_event(event);
            })
        })
        .caught_by("events.refused_record_changes_nothing"),
    mutant("events.never_waits", "synchronize_event returns at once")
        .synchronize_event(|call| call.inner.query_event(call.event).map(drop))
        .caught_by("events.synchronize_waits"),
    mutant("events.blocking_never_waits", "an event with BLOCKING_SYNC is not waited for")
        .create_event(|call| call.go().inspect(|event| call.note(*event, call.flags)))
        .synchronize_event(|call| call.answer_if(call.noted(call.event).is_some_and(is_blocking), ()))
        .caught_by("events.blocking_synchronize_waits"),
    mutant("events.waits_for_stream", "synchronize_event waits for its stream")
        .record_event(notes_record)
        .synchronize_event(|call| {
            call.go()?;
            recorded_on(call).map_or(Ok(()), |stream| call.inner.synchronize_stream(stream))
        })
        .caught_by("events.synchronize_waits_for_its_record_only"),
    mutant("events.no_default", "records on the default stream are lost")
        .record_event(|call| call.answer_if(call.stream.raw == 0, ()))
        .caught_by("events.record_on_default_stream"),
    mutant("events.pending_stays", "a pending event cannot be destroyed")
        .destroy_event(|call| call.refuse_if(is_pending(call)?))
        .caught_by("events.destroy_pending"),
    mutant("events.seconds", "elapsed_ms is in seconds")
        .elapsed_ms(|call| call.changed(|it| *it /= 1000.0))
        .caught_by("events.elapsed_measures_work"),
    mutant("events.backwards", "elapsed_ms runs backwards")
        .elapsed_ms(|call| call.changed(|it| *it = -1e-3 - *it))
        .caught_by("events.elapsed_is_not_negative"),
    mutant("events.never_zero", "elapsed_ms adds its own time")
        .elapsed_ms(|call| call.changed(|it| *it += 0.5))
        .caught_by("events.elapsed_of_itself"),
    mutant("events.time_without_timing", "events without TIMING have a time")
        .elapsed_ms(|call| call.answer_instead_of(ErrorKind::NotSupported, 0.0))
        .caught_by("events.elapsed_without_timing_is_refused"),
    mutant("events.takes_unknown_device", "an unknown device gets an event of device 0")
        .create_event(takes_unknown_device)
        .caught_by("events.create_unknown_device_is_refused"),
];

fn is_pending<A>(call: &Call<'_, A>) -> Result<bool> {
    Ok(!call.inner.query_event(call.event)?.is_ready())
}

fn is_blocking(flags: EventFlags) -> bool {
    flags.contains(EventFlags::BLOCKING_SYNC)
}

pub(super) fn notes_record(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.go().inspect(|()| call.note(call.event, call.stream))
}

/// Where the event was recorded last.
pub(super) fn recorded_on<A>(call: &Call<'_, A>) -> Option<Stream> {
    call.noted(call.event)
}
