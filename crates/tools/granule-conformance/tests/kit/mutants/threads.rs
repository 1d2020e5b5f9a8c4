//! Backends that break rules of this area: several threads at once.

use super::*;
use std::thread::{self, ThreadId};

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("threads.one_current_device", "all threads share the current device")
        .set_device(|call| call.go().inspect(|()| call.keep(|current| *current = call.device)))
        .current_device(|call| Ok(call.keep(|current: &mut DeviceIndex| *current)))
        .caught_by("threads.current_device_is_per_thread"),
    mutant("threads.no_context", "a thread that never chose a device gets no memory")
        .malloc(|call| call.refuse_as(ErrorKind::Other, on_side_thread()))
        .caught_by("threads.a_new_thread_works"),
    mutant("threads.bound", "what a thread made works there only")
        .malloc(notes_maker)
        .free(|call| {
            let made_here = made_here(call, call.ptr);
            call.go().and(made_here)
        })
        .create_stream(notes_maker)
        .query_stream(|call| made_here(call, call.stream).and_then(|()| call.go()))
        .create_event(notes_maker)
        .query_event(|call| made_here(call, call.event).and_then(|()| call.go()))
        .caught_by("threads.memory_travels"),
    mutant("threads.host_bound", "page-locked memory is copied on its own thread only")
        .host_malloc(notes_maker)
        .copy_async(|call| made_here(call, call.src).and_then(|()| call.go()))
        .caught_by("threads.host_memory_travels"),
    mutant("threads.copies_mix", "copies of other threads get bytes wrong")
        .copy(|call| {
            call.go()?;
            if !on_side_thread() || call.kind != CopyKind::DeviceToHost || call.bytes < 2 {
                return Ok(());
            }
            call.src = call.src.add(1);
            call.with(|it| it.bytes = 1)
        })
        .caught_by("threads.copy_at_once"),
    mutant("threads.drops_work", "fills of other threads are lost")
        .memset_async(|call| call.answer_if(on_side_thread(), ()))
        .caught_by("threads.one_stream_for_all"),
    mutant("threads.hands_out_twice", "threads that allocate at once get the same memory")
        .malloc(|call| {
            let may_share = on_side_thread() && call.device.0 == 0 && call.bytes <= 4096;
            if may_share { call.share(4096) } else { call.go() }
        })
        .free(|call| call.answer_if(call.is_shared(call.ptr), ()))
        .caught_by("threads.allocate_at_once"),
    mutant("threads.same_handles", "threads get the same event")
        .create_event(|call| {
            if on_side_thread() && call.device.0 == 0 { call.again_if(|_, _| true) } else { call.go() }
        })
        .destroy_event(|call| call.answer_if(call.is_shared(call.event), ()))
        .caught_by("threads.create_at_once"),
    mutant("threads.one_lock", "a call that waits holds all others")
        .synchronize_stream(one_at_a_time)
        .query_stream(one_at_a_time)
        .caught_by("threads.ask_while_another_waits"),
    mutant("threads.one_lock_for_work", "a call that waits holds those that queue")
        .synchronize_stream(one_at_a_time)
        .record_event(one_at_a_time)
        .caught_by("threads.queue_while_another_waits"),
    mutant("threads.one_waiter", "only one thread waits for an event")
        .synchronize_event(|call| {
            let is_second = call.keep(|waiters: &mut u32| {
                *waiters += 1;
                *waiters > 1
            });
            let answer = call.answer_if(is_second, ());
            call.keep(|waiters: &mut u32| *waiters -= 1);
            answer
        })
        .caught_by("threads.wait_for_the_same_event"),
    mutant("threads.shared_error", "a refusal is the answer of the next call on any thread")
        .malloc(leaves_its_error)
        .enter(|call| if call.method == "Backend::query_stream" { strikes(call) } else { Ok(()) })
        .caught_by("threads.errors_stay_with_their_thread"),
];

/// Notes which thread made it.
fn notes_maker<T: Copy + Eq + Hash + Send + 'static>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    call.go().inspect(|made| call.note(*made, thread::current().id()))
}

fn made_here<T: Eq + Hash + Send + 'static, A>(call: &Call<'_, A>, made: T) -> Result<()> {
    let here = thread::current().id();
    let is_foreign = call.noted(made).is_some_and(|maker: ThreadId| maker != here);
    if is_foreign { Err(error(ErrorKind::InvalidValue)) } else { Ok(()) }
}

fn one_at_a_time<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    let lock_of_all = call.kept::<()>();
    let _held = lock(&lock_of_all);
    call.go()
}
