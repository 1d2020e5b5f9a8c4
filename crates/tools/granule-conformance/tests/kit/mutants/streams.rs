//! Backends that break rules of this area: streams.

mod running;

pub(crate) use running::MUTANTS as RUNNING_MUTANTS;
pub(super) use running::not_ready_leaves_an_error;

use super::{Call, Mutant, error, lock, mutant, takes_unknown_device};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, Stream};
use backend_api::{ErrorKind, PriorityRange, Result};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) const MUTANTS: &[Mutant] =
    &[
        mutant("streams.of_first_device", "handles say device 0")
            .create_stream(|call| call.changed(|it| it.device = DeviceIndex(0)))
            .caught_by("streams.handle_names_its_device"),
        mutant("streams.of_no_backend", "handles carry no id")
            .create_stream(|call| call.changed(|it| it.backend = BackendId(0)))
            .caught_by("streams.handle_names_its_backend"),
        mutant("streams.always_default", "create_stream gives the default stream")
            .create_stream(|call| {
                call.inner.has_primary_context(call.device).map(|_| call.inner.default_stream(call.device))
            })
            .caught_by("streams.handle_is_not_the_default"),
        mutant("streams.same_stream", "a stream that lives is given again")
            .create_stream(|call| {
                let device = call.device;
                call.again_if(|stream| stream.device == device)
            })
            .destroy_stream(|call| call.forget(call.stream))
            .caught_by("streams.handles_differ"),
        mutant("streams.sixteen", "no more than 16 streams live")
            .create_stream(|call| {
                if live(call).len() < 16 { keeps(call) } else { Err(error(ErrorKind::ResourceLimit)) }
            })
            .destroy_stream(forgets)
            .caught_by("streams.many_at_once"),
        mutant("streams.busy_at_first", "a new stream has work")
            .create_stream(|call| {
                let stream = call.go()?;
                let work = Box::new(|| std::thread::sleep(Duration::from_millis(5)));
                call.inner.launch_host_function(stream, work).map(|()| stream)
            })
            .caught_by("streams.ready_at_first"),
        mutant("streams.synchronizes_once", "an idle stream cannot be waited for again")
            .enter(|call| {
                if call.method != "Backend::synchronize_stream" {
                    *lock(&call.kept::<Option<Stream>>()) = None;
                }
                Ok(())
            })
            .synchronize_stream(|call| {
                let again = lock(&call.kept::<Option<Stream>>()).replace(call.stream) == Some(call.stream);
                call.refuse_if(ErrorKind::InvalidValue, again)
            })
            .caught_by("streams.synchronize_idle"),
        mutant("streams.default_has_number", "the default stream has a handle")
            // The simulator's own number of it.
            .default_stream(|call| Stream { raw: u64::from(call.device.0) + 1, ..call.go() })
            .caught_by("streams.default_is_the_null_handle"),
        mutant("streams.no_default", "the default stream cannot be asked")
            .query_stream(|call| call.refuse_if(ErrorKind::InvalidValue, call.stream.raw == 0))
            .caught_by("streams.default_exists"),
        mutant("streams.default_fills_nothing", "the default stream fills nothing")
            .memset_async(|call| call.answer_if(call.stream.raw == 0, ()))
            .caught_by("streams.default_runs_work"),
        mutant("streams.inverted_range", "priorities are inverted, as in OpenReg's library")
            .priority_range(|call| {
                call.changed(|it| *it = PriorityRange { least: it.greatest, greatest: it.least })
            })
            .caught_by("streams.priorities_in_order"),
        mutant("streams.range_changes", "the priorities are others at every call")
            .priority_range(|call| {
                let greatest = if call.is_turn(2) { -2 } else { -1 };
                call.changed(|it| it.greatest = greatest)
            })
            .caught_by("streams.priorities_are_stable"),
        mutant("streams.normal_only", "urgent priorities are refused")
            .create_stream(|call| call.refuse_if(ErrorKind::InvalidValue, call.priority < 0))
            .caught_by("streams.each_priority_works"),
        mutant("streams.refuses_out_of_range", "priorities out of range are refused")
            .create_stream(|call| {
                let PriorityRange { least, greatest } = call.inner.priority_range(call.device)?;
                call.refuse_if(ErrorKind::InvalidValue, !(greatest..=least).contains(&call.priority))
            })
            .caught_by("streams.priorities_are_clamped"),
        mutant("streams.destroy_drops_fill", "a destroyed stream drops the work queued last")
            .memset_async(holds_fill_back)
            .copy_async(flushes)
            .query_stream(flushes)
            .synchronize_stream(flushes)
            .synchronize_device(flushes)
            .destroy_stream(|call| {
                lock(&call.kept::<Held>()).take_if(|held| held.3 == call.stream);
                call.go()
            })
            .caught_by("streams.destroyed_work_runs"),
        mutant("streams.destroy_drops_functions", "a destroyed stream runs no host functions")
            .launch_host_function(|call| {
                let (destroyed, stream) = (call.kept::<BTreeSet<Stream>>(), call.stream);
                call.with(|it| {
                    let function = it.function.take();
                    it.function = Some(Box::new(move || {
                        let is_gone = lock(&destroyed).contains(&stream);
                        if let Some(function) = function.filter(|_| !is_gone) {
                            function();
                        }
                    }));
                })
            })
            .destroy_stream(|call| {
                lock(&call.kept::<BTreeSet<Stream>>()).insert(call.stream);
                call.go()
            })
            .caught_by("streams.destroyed_work_runs_in_order"),
        mutant("streams.destroys_another", "destroy_stream destroys the stream made last")
            .create_stream(keeps)
            .destroy_stream(|call| {
                let last = live(call).last().copied();
                call.stream = last.unwrap_or(call.stream);
                forgets(call)
            })
            .caught_by("streams.destroy_leaves_others"),
        mutant("streams.destroy_fails_at_times", "every 150th destroy_stream is refused")
            .destroy_stream(|call| {
                call.go()?;
                if call.is_turn(150) { Err(error(ErrorKind::Other)) } else { Ok(()) }
            })
            .caught_by("streams.create_and_destroy_many"),
        mutant("streams.only_on_current", "streams of a device that is not current fill nothing")
            .memset_async(|call| call.answer_if(call.inner.current_device()? != call.stream.device, ()))
            .caught_by("streams.runs_on_its_device"),
        mutant("streams.takes_unknown_device", "an unknown device gets a stream of device 0")
            .create_stream(takes_unknown_device)
            .caught_by("streams.create_unknown_device_is_refused"),
        mutant("streams.range_of_anything", "an unknown device has priorities")
            .priority_range(takes_unknown_device)
            .caught_by("streams.priority_unknown_device_is_refused"),
    ];

/// The created streams that live, where a mutant keeps them.
pub(super) fn live<A>(call: &Call<'_, A>) -> Vec<Stream> {
    lock(&call.kept::<Vec<Stream>>()).clone()
}

pub(super) fn keeps(call: &mut Call<'_, Result<Stream>>) -> Result<Stream> {
    call.go().inspect(|stream| lock(&call.kept::<Vec<Stream>>()).push(*stream))
}

pub(super) fn forgets(call: &mut Call<'_, Result<()>>) -> Result<()> {
    lock(&call.kept::<Vec<Stream>>()).retain(|stream| *stream != call.stream);
    call.go()
}

/// A fill that is held back until its stream or device is asked for.
type Held = Option<(DevicePtr, u8, u64, Stream)>;

fn holds_fill_back(call: &mut Call<'_, Result<()>>) -> Result<()> {
    fill_held(call);
    if call.bytes == 0 || call.stream.backend != call.inner.id() {
        return call.go();
    }
    *lock(&call.kept::<Held>()) = Some((call.dst, call.value, call.bytes, call.stream));
    Ok(())
}

fn flushes<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    fill_held(call);
    call.go()
}

fn fill_held<A>(call: &Call<'_, A>) {
    let held = lock(&call.kept::<Held>()).take();
    if let Some((dst, value, bytes, stream)) = held {
        // SAFETY: rule 2: checks free memory only after they waited for the stream or device.
        let _ = unsafe { call.inner.memset_async(dst, value, bytes, stream) };
    }
}
