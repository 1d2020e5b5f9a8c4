//! Backends that break rules of this area: what waits for what.

use super::events::{notes_record, recorded_on};
use super::streams::{forgets, keeps, live};
use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("ordering.ignores_waits", "wait_event does nothing")
        .wait_event(does_nothing)
        .caught_by("ordering.wait_holds_later_work"),
    mutant("ordering.loses_waiters", "fills behind a wait are lost")
        .wait_event(notes_wait)
        .memset_async(|call| call.answer_if(awaited(call, call.stream).is_some(), ()))
        .caught_by("ordering.wait_lets_go"),
    mutant("ordering.waits_block", "wait_event waits for the event itself")
        .wait_event(blocks)
        .caught_by("ordering.wait_does_not_block"),
    mutant("ordering.holds_earlier_work", "a wait holds work queued before it too")
        .wait_event(notes_wait)
        .record_event(notes_record)
        .query_event(|call| {
            let readiness = call.go()?;
            let awaited = recorded_on(call).and_then(|stream| awaited(call, stream));
            // An awaited event that was destroyed since holds nothing.
            Ok(awaited.and_then(|awaited| call.inner.query_event(awaited).ok()).unwrap_or(readiness))
        })
        .caught_by("ordering.wait_spares_earlier_work"),
    mutant("ordering.holds_all_streams", "a wait holds all streams of the device")
        .create_stream(keeps)
        .destroy_stream(forgets)
        .wait_event(|call| {
            call.go()?;
            let mut of_device = live(call).into_iter().filter(|other| other.device == call.stream.device);
            of_device.try_for_each(|other| call.inner.wait_event(other, call.event))
        })
        .caught_by("ordering.wait_spares_other_streams"),
    mutant("ordering.unrecorded_holds", "an event that was never recorded holds for a while")
        .record_event(notes_record)
        .wait_event(|call| {
            call.go()?;
            if recorded_on(call).is_some() {
                return Ok(());
            }
            let pause = || std::thread::sleep(Duration::from_millis(500));
            call.inner.launch_host_function(call.stream, Box::new(pause))
        })
        .caught_by("ordering.wait_for_unrecorded"),
    mutant("ordering.waits_for_stream", "a wait is for the whole stream of the event")
        .record_event(notes_record)
        .wait_event(waits_for_stream)
        .caught_by("ordering.wait_for_passed"),
    mutant("ordering.not_its_own", "a stream cannot wait for its own event")
        .record_event(notes_record)
        .wait_event(|call| call.refuse_if(recorded_on(call) == Some(call.stream)))
        .caught_by("ordering.wait_for_own_event"),
    mutant("ordering.late_binding", "a wait follows the event, as in OpenReg's library")
        .wait_event(notes_wait)
        .record_event(|call| {
            call.go()?;
            // A stream that was destroyed since does not wait.
            call.keep(|waiting: &mut HashMap<Stream, Event>| {
                let others = waiting.iter().filter(|(waiter, _)| **waiter != call.stream);
                for (waiter, _) in others.filter(|(_, awaited)| **awaited == call.event) {
                    let _ = call.inner.wait_event(*waiter, call.event);
                }
            });
            Ok(())
        })
        .caught_by("ordering.later_record_does_not_hold"),
    mutant("ordering.ignores_other_devices", "waits for another device's events do nothing")
        .wait_event(|call| call.answer_if(call.stream.device != call.event.device, ()))
        .caught_by("ordering.wait_across_devices"),
    mutant("ordering.default_never_waits", "waits of the default stream do nothing")
        .wait_event(|call| call.answer_if(call.stream.raw == 0, ()))
        .caught_by("ordering.wait_on_default_stream"),
    mutant("ordering.seldom_holds", "one wait_event in fifty does nothing")
        .wait_event(|call| call.answer_if(call.is_turn(50), ()))
        .caught_by("ordering.wait_holds_every_time"),
    mutant("ordering.device_seldom_waits", "one synchronize_device in fifty returns at once")
        .synchronize_device(|call| call.answer_if(call.is_turn(50), ()))
        .caught_by("ordering.device_waits_every_time"),
    mutant("ordering.one_wait_only", "a second wait does nothing")
        .wait_event(|call| if awaited(call, call.stream).is_some() { Ok(()) } else { notes_wait(call) })
        .query_stream(|call| call.with(|it| it.take_note::<_, Event>(it.stream)))
        .caught_by("ordering.wait_for_two"),
    mutant("ordering.device_never_waits", "synchronize_device returns at once")
        .synchronize_device(|call| call.inner.has_primary_context(call.device).map(drop))
        .caught_by("ordering.device_waits_for_all_streams"),
    mutant("ordering.device_forgets_default", "synchronize_device waits for created streams only")
        .create_stream(keeps)
        .destroy_stream(forgets)
        .synchronize_device(|call| wait_for(call, live(call)))
        .caught_by("ordering.device_waits_for_default_stream"),
    mutant("ordering.device_forgets_destroyed", "synchronize_device waits for streams that live only")
        .create_stream(keeps)
        .destroy_stream(forgets)
        .synchronize_device(|call| {
            let default = call.inner.default_stream(call.device);
            wait_for(call, live(call).into_iter().chain([default]))
        })
        .caught_by("ordering.device_waits_for_destroyed_streams"),
    mutant("ordering.all_devices", "synchronize_device waits for all devices")
        .synchronize_device(|call| {
            call.go()?;
            let mut all = (0..call.inner.device_count()?).map(DeviceIndex);
            all.try_for_each(|device| call.inner.synchronize_device(device))
        })
        .caught_by("ordering.device_waits_for_itself_only"),
    mutant("ordering.current_device", "synchronize_device waits for the current device")
        .synchronize_device(|call| {
            call.inner.has_primary_context(call.device)?;
            call.inner.synchronize_device(call.inner.current_device()?)
        })
        .caught_by("ordering.second_device_waits"),
    mutant("ordering.never_through_waits", "synchronize_stream does not wait behind a wait")
        .wait_event(notes_wait)
        .synchronize_stream(|call| call.answer_if(awaited(call, call.stream).is_some(), ()))
        .caught_by("ordering.synchronize_behind_wait"),
];

fn notes_wait(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.go().inspect(|()| call.note(call.stream, call.event))
}

/// What a stream waited for last.
fn awaited<A>(call: &Call<'_, A>, by: Stream) -> Option<Event> {
    call.noted(by)
}

fn waits_for_stream(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.go()?;
    let inner = call.inner;
    let Some(source) = recorded_on(call).filter(|source| inner.query_stream(*source).is_ok()) else {
        return Ok(());
    };
    let now = inner.create_event(source.device, EventFlags::empty())?;
    inner.record_event(now, source)?;
    inner.wait_event(call.stream, now)?;
    // SAFETY: rule 1: made here, destroyed once; the wait on it still holds.
    unsafe { inner.destroy_event(now) }
}

/// Waits for streams of the device, one after the other.
fn wait_for<A>(call: &Call<'_, A>, streams: impl IntoIterator<Item = Stream>) -> Result<()> {
    call.inner.has_primary_context(call.device)?;
    let mut streams = streams.into_iter().filter(|stream| stream.device == call.device);
    streams.try_for_each(|stream| call.inner.synchronize_stream(stream))
}
