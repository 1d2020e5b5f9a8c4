//! Backends that leave another device current (rule 5).

use crate::mutants::{Mutant, mutant};
use backend_api::types::DeviceIndex;

pub(crate) const MUTANTS: &[Mutant] = &[
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
