//! Backends that break rules of how streams run.

use crate::mutants::{Call, Mutant, block, blocks, lock, mutant, strikes};
use backend_api::types::{DeviceIndex, Stream};
use backend_api::{HostFunction, Readiness, Result};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("streams.always_ready", "query_stream says Ready")
        .query_stream(|call| call.changed(|it| *it = Readiness::Ready))
        .caught_by("streams.busy_behind_work"),
    mutant("streams.never_ready", "query_stream says NotReady")
        .query_stream(|call| call.changed(|it| *it = Readiness::NotReady))
        .caught_by("streams.ready_after_work"),
    mutant("streams.sticky_not_ready", "NotReady leaves an error for the next call")
        .query_stream(not_ready_leaves_an_error)
        .enter(strikes)
        .caught_by("streams.not_ready_leaves_no_error"),
    mutant("streams.queries_block", "queries wait for the work")
        .query_stream(blocks)
        .query_event(blocks_on_event)
        .destroy_event(blocks_on_event)
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
        .wait_event(blocks_on_event)
        .destroy_stream(blocks)
        .caught_by("streams.host_function_does_not_block"),
    mutant("streams.no_functions", "host functions do not run")
        .launch_host_function(|call| call.inner.query_stream(call.stream).map(drop))
        .caught_by("streams.host_function_runs"),
    mutant("streams.loses_functions", "every fifth host function does not run")
        .launch_host_function(|call| call.answer_if(call.is_turn(5), ()))
        .caught_by("streams.host_function_runs_once"),
    mutant("streams.swaps_functions", "two host functions change places")
        .launch_host_function(swaps_functions)
        .query_stream(launches_held)
        .synchronize_stream(launches_held)
        .synchronize_device(launches_held)
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

pub(in crate::mutants) fn not_ready_leaves_an_error(
    call: &mut Call<'_, Result<Readiness>>,
) -> Result<Readiness> {
    let readiness = call.go()?;
    if !readiness.is_ready() {
        call.leave_error();
    }
    Ok(readiness)
}

fn blocks_on_event<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    block(|| call.inner.query_event(call.event));
    call.go()
}

/// Takes device 0's default stream for every stream that is there.
fn in_one_queue<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    call.inner.query_stream(call.stream)?;
    call.stream = call.inner.default_stream(DeviceIndex(0));
    call.go()
}

/// A host function that is held back until the next one, or until the stream or device is waited for.
type Held = Option<(Stream, HostFunction)>;

fn swaps_functions(call: &mut Call<'_, Result<()>>) -> Result<()> {
    let held = call.kept::<Held>();
    let is_second = lock(&held).as_ref().is_some_and(|held| held.0 == call.stream);
    if is_second {
        return call.go().and_then(|()| launch_held(call));
    }
    launch_held(call)?;
    call.inner.query_stream(call.stream)?;
    *lock(&held) = call.function.take().map(|function| (call.stream, function));
    Ok(())
}

fn launches_held<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    launch_held(call)?;
    call.go()
}

fn launch_held<A>(call: &Call<'_, A>) -> Result<()> {
    let held = lock(&call.kept::<Held>()).take();
    held.map_or(Ok(()), |(stream, function)| call.inner.launch_host_function(stream, function))
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
    lock(&call.kept::<Running>()).push(std::thread::spawn(run));
    // Those that do not wait for anything run before this returns.
    let _ = is_done.recv_timeout(Duration::from_millis(5));
    Ok(())
}

/// What the functions use may be freed after the stream or device was waited for.
fn joins(call: &mut Call<'_, Result<()>>) -> Result<()> {
    let running = std::mem::take(&mut *lock(&call.kept::<Running>()));
    for thread in running {
        let _ = thread.join();
    }
    call.go()
}
