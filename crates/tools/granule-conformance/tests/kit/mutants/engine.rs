//! Backends that break rules of this area: the allocator's promises.

use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("engine.one_byte_short", "copies lose the last byte")
        .copy(|call| call.moves(call.bytes.saturating_sub(1)))
        .caught_by("engine.memory_works"),
    mutant("engine.misaligned", "memory is aligned to 8 bytes")
        .malloc(shifts_up::<8>)
        .free(shifts_down::<8>)
        .caught_by("engine.blocks_are_aligned"),
    mutant("engine.same_memory", "all memory of a device is at one address")
        .malloc(|call| call.again_if(|_, _| true))
        .caught_by("engine.wrong_pointers"),
    mutant("engine.record_waits", "recording an event waits for its stream")
        .record_event(pauses)
        .caught_by("engine.free_does_not_wait"),
    mutant("engine.record_fails", "no event can be recorded")
        .record_event(refuses)
        .caught_by("engine.free_only_records"),
    mutant("engine.always_ready", "every event is complete")
        .query_event(|_| Ok(Readiness::Ready))
        .caught_by("engine.reuse_waits"),
    mutant("engine.never_ready", "no event is ever complete")
        .query_event(|_| Ok(Readiness::NotReady))
        .caught_by("engine.pending_comes_back"),
    mutant("engine.one_stream", "all streams of a device are one")
        .create_stream(|call| call.again_if(|_, _| true))
        .caught_by("engine.streams_are_apart"),
    mutant("engine.wrong_kind_when_full", "too little memory is some other error")
        .malloc(|call| call.changed_error(|it| it.kind = ErrorKind::Other))
        .caught_by("engine.oom_is_typed"),
    mutant("engine.synchronize_returns", "waiting for an event does not wait")
        .synchronize_event(does_nothing)
        .caught_by("engine.oom_waits_for_pending"),
    mutant("engine.free_refuses", "no memory can be given back")
        .free(refuses)
        .caught_by("engine.oom_releases_cache"),
    mutant("engine.full_at_first", "every other request is out of memory")
        .malloc(|call| call.refuse_as(ErrorKind::OutOfMemory, !call.is_turn(2)))
        .caught_by("engine.no_retry_without_need"),
    mutant("engine.free_errs_late", "free gives the memory back, and an error")
        .free(errs_late)
        .caught_by("engine.any_call_may_fail"),
    mutant("engine.free_leaks", "free does nothing").free(does_nothing).caught_by("engine.cache_is_emptied"),
    mutant("engine.full", "every request is out of memory")
        .malloc(|call| call.refuse_as(ErrorKind::OutOfMemory, true))
        .caught_by("engine.history_is_complete"),
    mutant("engine.full_at_times", "every fifth request is out of memory")
        .malloc(|call| call.refuse_as(ErrorKind::OutOfMemory, call.is_turn(5)))
        .caught_by("engine.same_order_same_places"),
    mutant("engine.first_device", "all memory comes from the first device")
        .malloc(on_first_device)
        .caught_by("engine.devices_are_apart"),
    mutant("engine.device_left_behind", "a request leaves its device current")
        .malloc(|call| call.leave_current(call.device))
        .caught_by("engine.current_device_stays"),
    mutant("engine.wrong_id", "the backend has another id than its streams")
        .id(|call| BackendId(call.go().0 ^ 0x4000))
        .caught_by("engine.foreign_stream"),
    mutant("engine.access_forgotten", "setting access does nothing")
        .set_access(does_nothing)
        .caught_by("engine.segments_grow"),
    mutant("engine.nothing_maps", "no physical memory can be mapped")
        .map(refuses)
        .caught_by("engine.growth_is_limited"),
];
