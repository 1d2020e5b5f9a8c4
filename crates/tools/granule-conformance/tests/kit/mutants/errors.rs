//! Backends that break rules of this area: errors, and the current device across calls.

use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("errors.any_stream", "streams' ids are not compared")
        .query_stream(adopts_stream)
        .synchronize_stream(adopts_stream)
        .destroy_stream(adopts_stream)
        .copy_async(adopts_stream)
        .memset_async(adopts_stream)
        .launch_host_function(adopts_stream)
        .wait_event(adopts_stream)
        .record_event(adopts_stream)
        .caught_by("errors.foreign_stream_is_not_queried"),
    mutant("errors.any_event", "events' ids are not compared")
        .wait_event(adopts_events)
        .record_event(adopts_events)
        .query_event(adopts_events)
        .synchronize_event(adopts_events)
        .destroy_event(adopts_events)
        .elapsed_ms(adopts_events)
        .caught_by("errors.foreign_event_is_not_queried"),
    mutant("errors.runs_refused", "a host function that was refused runs")
        .launch_host_function(|call| {
            if call.stream.backend == call.inner.id() {
                return call.go();
            }
            call.run_function();
            Err(error(ErrorKind::InvalidValue))
        })
        .caught_by("errors.foreign_stream_runs_nothing"),
    mutant("errors.no_call", "errors name no call")
        .malloc(|call| call.changed_error(|it| it.call = ""))
        .free(|call| call.changed_error(|it| it.call = ""))
        .caught_by("errors.name_the_call"),
    mutant("errors.no_device", "errors are about device 0")
        .malloc(|call| call.changed_error(|it| it.device = DeviceIndex(0)))
        .free(|call| call.changed_error(|it| it.device = DeviceIndex(0)))
        .caught_by("errors.name_the_device"),
    mutant("errors.no_detail", "errors have no detail")
        .malloc(|call| call.changed_error(|it| it.detail.clear()))
        .free(|call| call.changed_error(|it| it.detail.clear()))
        .caught_by("errors.say_something"),
    mutant("errors.no_names", "no code has a name")
        .error_name(|_| "unknown".into())
        .caught_by("errors.codes_have_names"),
    mutant("errors.names_all", "every code has a name")
        .error_name(|call| format!("error {}", call.code))
        .caught_by("errors.unknown_codes"),
    mutant("errors.codes_change", "codes are others at every call")
        .malloc(|call| {
            let code = call.turn() as i32;
            call.changed_error(|it| it.code = code)
        })
        .caught_by("errors.are_repeatable"),
    mutant("errors.always_out_of_memory", "every refused malloc is OutOfMemory")
        .malloc(|call| call.changed_error(|it| it.kind = ErrorKind::OutOfMemory))
        .free(|call| call.changed_error(|it| it.kind = ErrorKind::OutOfMemory))
        .caught_by("errors.out_of_memory_is_its_own"),
    mutant("errors.clear_ends_work", "after clear_error a query says Ready")
        .clear_error(|call| {
            call.go();
            call.keep(|cleared: &mut bool| *cleared = true);
        })
        .query_stream(|call| {
            let cleared = call.keep(std::mem::take::<bool>);
            call.answer_if(cleared, Readiness::Ready)
        })
        .caught_by("errors.clear_error_is_harmless"),
    mutant("errors.sticky_malloc", "a refused call leaves an error for the next")
        .malloc(leaves_its_error)
        // A second refusal is one anyway; what works otherwise shows it.
        .enter(|call| match call.method {
            "Backend::create_stream" | "Backend::record_event" => strikes(call),
            _ => Ok(()),
        })
        .caught_by("errors.leave_the_device_usable"),
    mutant("errors.sticky_kind", "a refusal has the kind of the one before")
        .malloc(has_the_kind_before)
        .caught_by("errors.do_not_need_clearing_between_kinds"),
    mutant("errors.memory_moves_current", "memory calls leave their device current")
        .malloc(|call| call.leave_current(call.device))
        .caught_by("errors.current_device_after_memory_calls"),
    mutant("errors.questions_move_current", "calls that ask leave their device current")
        .memory_info(|call| call.leave_current(call.device))
        .caught_by("errors.current_device_after_questions"),
    mutant("errors.copies_move_current", "copies leave their device current")
        .memset_async(|call| call.leave_current(call.stream.device))
        .caught_by("errors.current_device_after_copies"),
    mutant("errors.streams_move_current", "stream calls leave their device current")
        .launch_host_function(|call| call.leave_current(call.stream.device))
        .caught_by("errors.current_device_after_stream_calls"),
    mutant("errors.events_move_current", "event calls leave their device current")
        .record_event(|call| call.leave_current(call.stream.device))
        .caught_by("errors.current_device_after_event_calls"),
    mutant("errors.host_memory_moves_current", "page-locked memory leaves device 0 current")
        .host_malloc(|call| call.leave_current(DeviceIndex(0)))
        .caught_by("errors.current_device_after_host_memory"),
    mutant("errors.waits_move_current", "calls that wait leave their device current")
        .synchronize_stream(|call| call.leave_current(call.stream.device))
        .caught_by("errors.current_device_after_synchronize"),
    mutant("errors.refused_malloc_moves_current", "a refused malloc leaves its device current")
        .malloc(|call| call.leave_current_if_refused(call.device))
        .caught_by("errors.current_device_after_refused_malloc"),
    mutant("errors.refused_free_moves_current", "a refused free leaves its device current")
        .free(|call| call.leave_current_if_refused(call.device))
        .caught_by("errors.current_device_after_refused_free"),
    mutant("errors.refused_copy_moves_current", "a refused copy leaves its device current")
        .copy_async(|call| call.leave_current_if_refused(call.stream.device))
        .caught_by("errors.current_device_after_refused_copy"),
    mutant("errors.unknown_device_moves_current", "an unknown device leaves device 0 current")
        .create_stream(|call| call.leave_current_if_refused(call.device))
        .caught_by("errors.current_device_after_unknown_device"),
    mutant("errors.unknown_handle_moves_current", "a refused handle leaves its device current")
        .query_stream(|call| call.leave_current_if_refused(call.stream.device))
        .caught_by("errors.current_device_after_unknown_handle"),
];

pub(super) fn adopts_stream<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    call.stream.backend = call.inner.id();
    call.go()
}

fn adopts_events<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    call.event.backend = call.inner.id();
    call.start.backend = call.inner.id();
    call.end.backend = call.inner.id();
    call.go()
}

fn has_the_kind_before(call: &mut Call<'_, Result<DevicePtr>>) -> Result<DevicePtr> {
    let before = call.kept::<Option<ErrorKind>>();
    call.changed_error(|error| {
        let now = if error.is_out_of_memory() { error.kind } else { ErrorKind::InvalidValue };
        error.kind = lock(&before).replace(now).unwrap_or(error.kind);
    })
}
