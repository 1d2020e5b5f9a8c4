//! Backends that break rules of this area: streams.

use super::*;
use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

pub(crate) const MUTANTS: &[Mutant] = &[
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
        .create_stream(|call| call.again_if(|it, stream| it.device == stream.device))
        .destroy_stream(|call| call.forget(call.stream))
        .caught_by("streams.handles_differ"),
    mutant("streams.sixteen", "no more than 16 streams live")
        .create_stream(|call| match live(call).len() {
            16.. => Err(error(ErrorKind::ResourceLimit)),
            _ => keeps(call),
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
                call.keep(|last: &mut Option<Stream>| *last = None);
            }
            Ok(())
        })
        .synchronize_stream(|call| {
            let again = call.keep(|last: &mut Option<_>| last.replace(call.stream)) == Some(call.stream);
            call.refuse_if(again)
        })
        .caught_by("streams.synchronize_idle"),
    mutant("streams.default_has_number", "the default stream has a handle")
        // The simulator's own number of it.
        .default_stream(|call| Stream { raw: u64::from(call.device.0) + 1, ..call.go() })
        .caught_by("streams.default_is_the_null_handle"),
    mutant("streams.no_default", "the default stream cannot be asked")
        .query_stream(|call| call.refuse_if(call.stream.raw == 0))
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
        .create_stream(|call| call.refuse_if(call.priority < 0))
        .caught_by("streams.each_priority_works"),
    mutant("streams.refuses_out_of_range", "priorities out of range are refused")
        .create_stream(|call| {
            let PriorityRange { least, greatest } = call.inner.priority_range(call.device)?;
            call.refuse_if(!(greatest..=least).contains(&call.priority))
        })
        .caught_by("streams.priorities_are_clamped"),
    mutant("streams.destroy_drops_fill", "a destroyed stream drops the work queued last")
        .memset_async(holds_fill_back)
        .copy_async(flushes)
        .query_stream(flushes)
        .synchronize_stream(flushes)
        .synchronize_device(flushes)
        .destroy_stream(|call| call.drop_held(call.stream.raw))
        .caught_by("streams.destroyed_work_runs"),
    mutant("streams.destroy_drops_functions", "a destroyed stream runs no host functions")
        .launch_host_function(runs_unless_destroyed)
        .destroy_stream(|call| call.with(|it| it.keep(|gone: &mut BTreeSet<_>| gone.insert(it.stream))))
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
    mutant("streams.always_ready", "query_stream says Ready")
        .query_stream(|call| call.changed(|it| *it = Readiness::Ready))
        .caught_by("streams.busy_behind_work"),
    mutant("streams.never_ready", "query_stream says NotReady")
        .query_stream(|call| call.changed(|it| *it = Readiness::NotReady))
        .caught_by("streams.ready_after_work"),
    mutant("streams.sticky_not_ready", "NotReady leaves an error for the next call")
        .query_stream(|call| call.leave_error_if(|it| *it == Ok(Readiness::NotReady)))
        .enter(strikes)
        .caught_by("streams.not_ready_leaves_no_error"),
    mutant("streams.queries_block", "queries wait for the work")
        .query_stream(blocks)
        .query_event(blocks)
        .destroy_event(blocks)
        .caught_by("streams.query_does_not_block"),
    mutant("streams.never_waits", "synchronize_stream returns at once")
        .synchronize_stream(|call| call.inner.query_stream(call.stream).map(drop))
        .caught_by("streams.synchronize_waits"),
    mutant("streams.seldom_waits", "one synchronize_stream in fifty returns at once")
        .synchronize_stream(|call| call.answer_if(call.is_turn(50), ()))
        .caught_by("streams.synchronize_waits_every_time"),
    mutant("streams.waits_for_device", "synchronize_stream waits for the device")
        .synchronize_stream(|call| {
            call.inner.query_stream(call.stream)?;
            call.inner.synchronize_device(call.stream.device)
        })
        .caught_by("streams.synchronize_waits_for_itself_only"),
    mutant("streams.one_queue", "all streams are one queue")
        .copy_async(in_one_queue)
        .memset_async(in_one_queue)
        .launch_host_function(in_one_queue)
        .query_stream(in_one_queue)
        .synchronize_stream(in_one_queue)
        .caught_by("streams.run_beside_each_other"),
    mutant("streams.calls_block", "calls that queue wait for the work before")
        .copy_async(blocks)
        .memset_async(blocks)
        .launch_host_function(blocks)
        .record_event(blocks)
        .wait_event(blocks)
        .destroy_stream(blocks)
        .caught_by("streams.host_function_does_not_block"),
    mutant("streams.no_functions", "host functions do not run")
        .launch_host_function(|call| call.inner.query_stream(call.stream).map(drop))
        .caught_by("streams.host_function_runs"),
    mutant("streams.functions_on_the_caller", "a host function that is due runs on the calling thread")
        .launch_host_function(|call| {
            if call.inner.query_stream(call.stream)?.is_ready() {
                call.run_function();
                return Ok(());
            }
            call.go()
        })
        .caught_by("streams.host_function_runs"),
    mutant("streams.loses_functions", "every fifth host function does not run")
        .launch_host_function(|call| call.answer_if(call.is_turn(5), ()))
        .caught_by("streams.host_function_runs_once"),
    mutant("streams.swaps_functions", "two host functions change places")
        .launch_host_function(swaps_functions)
        .query_stream(flushes)
        .synchronize_stream(flushes)
        .synchronize_device(flushes)
        .caught_by("streams.host_functions_in_order"),
    mutant("streams.functions_at_once", "a host function runs beside the stream")
        .launch_host_function(runs_at_once)
        .synchronize_stream(joins)
        .synchronize_device(joins)
        .caught_by("streams.host_function_when_reached"),
    mutant("streams.no_functions_on_default", "the default stream runs no host functions")
        .launch_host_function(|call| call.answer_if(call.stream.raw == 0, ()))
        .caught_by("streams.host_function_on_default"),
    mutant("streams.forgets_functions", "host functions are kept for ever")
        .launch_host_function(|call| {
            call.inner.query_stream(call.stream)?;
            std::mem::forget(call.function.take());
            Ok(())
        })
        .caught_by("streams.host_function_is_dropped"),
];

/// The created streams that live, where a mutant keeps them.
pub(super) fn live<A>(call: &Call<'_, A>) -> Vec<Stream> {
    call.keep(|live: &mut Vec<Stream>| live.clone())
}

pub(super) fn keeps(call: &mut Call<'_, Result<Stream>>) -> Result<Stream> {
    call.go().inspect(|stream| call.keep(|live: &mut Vec<_>| live.push(*stream)))
}

pub(super) fn forgets(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.keep(|live: &mut Vec<Stream>| live.retain(|stream| *stream != call.stream));
    call.go()
}

fn runs_unless_destroyed(call: &mut Call<'_, Result<()>>) -> Result<()> {
    let (destroyed, stream) = (call.kept::<BTreeSet<Stream>>(), call.stream);
    let function = call.function.take();
    call.function = Some(Box::new(move || {
        let is_gone = lock(&destroyed).contains(&stream);
        if let Some(function) = function.filter(|_| !is_gone) {
            function();
        }
    }));
    call.go()
}

fn holds_fill_back(call: &mut Call<'_, Result<()>>) -> Result<()> {
    flush(call);
    let (dst, value, bytes, stream) = (call.dst, call.value, call.bytes, call.stream);
    if bytes == 0 || stream.backend != call.inner.id() {
        return call.go();
    }
    call.hold_back(stream.raw, move |inner| {
        // SAFETY: rule 2: checks free memory only after they waited for the stream or device.
        let _ = unsafe { inner.memset_async(dst, value, bytes, stream) };
    })
}

/// Takes device 0's default stream for every stream that is there.
fn in_one_queue<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    call.inner.query_stream(call.stream)?;
    call.stream = call.inner.default_stream(DeviceIndex(0));
    call.go()
}

fn swaps_functions(call: &mut Call<'_, Result<()>>) -> Result<()> {
    if call.is_behind_held() {
        return call.go().inspect(|()| flush(call));
    }
    flush(call);
    call.inner.query_stream(call.stream)?;
    let (stream, function) = (call.stream, call.function.take());
    call.hold_back(stream.raw, move |inner| {
        let _ = function.map(|function| inner.launch_host_function(stream, function));
    })
}

/// Host functions that run on threads of their own.
type Running = Vec<JoinHandle<()>>;

fn runs_at_once(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.inner.query_stream(call.stream)?;
    let (done, is_done) = channel();
    let function = call.function.take();
    let run = move || {
        if let Some(function) = function {
            function();
        }
        let _ = done.send(());
    };
    call.keep(|running: &mut Running| running.push(std::thread::spawn(run)));
    // Those that do not wait for anything run before this returns.
    let _ = is_done.recv_timeout(Duration::from_millis(5));
    Ok(())
}

/// What the functions use may be freed after the stream or device was waited for.
fn joins(call: &mut Call<'_, Result<()>>) -> Result<()> {
    for thread in call.keep(std::mem::take::<Running>) {
        let _ = thread.join();
    }
    call.go()
}
