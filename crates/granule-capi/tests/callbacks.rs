//! Callbacks that unwind, which they must not: the call answers so, nothing crosses, and the allocator stays usable.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking
#![allow(clippy::undocumented_unsafe_blocks)] // all are the same: the allocator, functions and structs are good

mod support;

use granule_capi::allocator::*;
use granule_capi::error::*;
use granule_capi::memory::budgets::*;
use granule_capi::memory::pools::*;
use granule_capi::watch::history::*;
use granule_capi::watch::observers::*;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::{Allocator, last_error};

const TOO_MUCH: u64 = 1 << 40;

fn unwound(status: granule_status) {
    assert_eq!(status, GRANULE_CALLBACK, "{}", last_error());
    assert!(last_error().contains("a callback unwound"), "{}", last_error());
}

/// What was under way is undone: memory comes and goes as before.
fn still_works(a: &Allocator) {
    for bytes in [512, 3 << 20] {
        let ptr = a.malloc(bytes).unwrap();
        assert_eq!(a.free(ptr), GRANULE_OK);
    }
}

extern "C-unwind" fn accepts(_: *mut c_void, _: u64) -> bool {
    panic!("a filter")
}

extern "C-unwind" fn let_go(user: *mut c_void) {
    let count = unsafe { &*user.cast::<AtomicUsize>() };
    count.fetch_add(1, Ordering::Relaxed);
    panic!("an end")
}

#[test]
fn a_filter() {
    for a in Allocator::each() {
        let dropped = AtomicUsize::new(0);
        let pool = granule_pool_fresh();
        let filter = granule_filter {
            size: size_of::<granule_filter>() as u32,
            kind: GRANULE_FILTER_CUSTOM,
            stream: 0,
            user: (&raw const dropped).cast_mut().cast(),
            accepts: Some(accepts),
            drop: Some(let_go),
        };
        assert_eq!(unsafe { granule_pool_begin(a.0, 0, pool, &raw const filter) }, GRANULE_OK);
        unwound(a.malloc(512).unwrap_err());
        unwound(a.malloc(3 << 20).unwrap_err());
        // Its end unwinds, too: that is nobody's failure.
        assert_eq!(unsafe { granule_pool_end(a.0, 0, pool) }, GRANULE_OK, "{}", last_error());
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert_eq!(unsafe { granule_pool_release(a.0, 0, pool) }, GRANULE_OK);
        still_works(&a);
    }
}

extern "C-unwind" fn segment(_: *mut c_void, _: u64, _: i32, _: u64) -> *mut c_void {
    panic!("a source")
}

extern "C-unwind" fn no_segment(_: *mut c_void, _: *mut c_void, _: u64, _: i32, _: u64) {
    unreachable!("nothing was given")
}

#[test]
fn a_source() {
    for a in Allocator::each() {
        let pool = granule_pool_fresh();
        let source = granule_segment_source {
            size: size_of::<granule_segment_source>() as u32,
            user: null_mut(),
            alloc: Some(segment),
            free: Some(no_segment),
            drop: None,
        };
        let filter = granule_filter {
            size: size_of::<granule_filter>() as u32,
            kind: GRANULE_FILTER_ALWAYS,
            stream: 0,
            user: null_mut(),
            accepts: None,
            drop: None,
        };
        assert_eq!(unsafe { granule_pool_create(a.0, 0, pool, &raw const source) }, GRANULE_OK);
        assert_eq!(unsafe { granule_pool_begin(a.0, 0, pool, &raw const filter) }, GRANULE_OK);
        unwound(a.malloc(512).unwrap_err());
        assert_eq!(unsafe { granule_pool_end(a.0, 0, pool) }, GRANULE_OK);
        still_works(&a);
    }
}

extern "C-unwind" fn gather(_: *mut c_void) -> *mut c_void {
    panic!("a context")
}

extern "C-unwind" fn release(_: *mut c_void, _: *mut c_void) {
    unreachable!("nothing was gathered")
}

#[test]
fn a_recorder() {
    for a in Allocator::each() {
        let mut history = granule_history {
            size: size_of::<granule_history>() as u32,
            enabled: true,
            clear: false,
            contexts: GRANULE_CONTEXT_ALL,
            max_entries: 10,
            skip_actions: 0,
            user: null_mut(),
            gather: Some(gather),
            release: Some(release),
        };
        let before = a.malloc(512).unwrap();
        assert_eq!(unsafe { granule_record_history(a.0, &raw const history) }, GRANULE_OK);
        unwound(a.malloc(512).unwrap_err());
        unwound(a.free(before));
        history.gather = None;
        assert_eq!(unsafe { granule_record_history(a.0, &raw const history) }, GRANULE_OK);
        assert_eq!(a.free(before), GRANULE_INVALID_POINTER, "it was freed all the same");
        still_works(&a);
    }
}

extern "C-unwind" fn on_entry(_: *mut c_void, _: *const granule_trace_entry) {
    assert!(!UNWINDS.load(Ordering::Relaxed), "a tracker");
}

static UNWINDS: AtomicBool = AtomicBool::new(false);

#[test]
fn a_tracker() {
    for a in Allocator::each() {
        UNWINDS.store(true, Ordering::Relaxed);
        assert_eq!(unsafe { granule_add_trace_tracker(a.0, Some(on_entry), null_mut()) }, GRANULE_OK);
        unwound(a.malloc(512).unwrap_err());
        UNWINDS.store(false, Ordering::Relaxed);
        still_works(&a);
    }
}

extern "C-unwind" fn on_oom(_: *mut c_void, _: i64, _: u64, _: u64, _: u64) {
    panic!("an observer")
}

extern "C-unwind" fn spill(_: *mut c_void, _: *const granule_spill_request) -> u64 {
    panic!("a hook")
}

extern "C-unwind" fn room(_: *mut c_void) -> bool {
    panic!("a callback")
}

#[test]
fn those_that_are_told_and_asked_when_memory_is_short() {
    for a in Allocator::each() {
        assert_eq!(unsafe { granule_add_oom_observer(a.0, Some(on_oom), null_mut()) }, GRANULE_OK);
        unwound(a.malloc(TOO_MUCH).unwrap_err());
        still_works(&a);
        assert_eq!(unsafe { granule_add_spill_hook(a.0, 0, Some(spill), null_mut()) }, GRANULE_OK);
        unwound(a.malloc(TOO_MUCH).unwrap_err());
        still_works(&a);
        // Asked at every miss: only what is cached is served from here on.
        let ptr = a.malloc(512).unwrap();
        assert_eq!(unsafe { granule_add_free_memory_callback(a.0, Some(room), null_mut()) }, GRANULE_OK);
        unwound(a.malloc(1 << 30).unwrap_err());
        assert_eq!(a.free(ptr), GRANULE_OK);
        still_works(&a);
    }
}

/// Who asks for memory within its own callbacks, and how often it was called and served.
struct Asks {
    a: *mut granule_allocator,
    inside: AtomicBool,
    calls: AtomicUsize,
    served: AtomicUsize,
}

/// A callback, whatever it is for, that asks for memory and gives it back.
fn ask(user: *mut c_void) {
    let asks = unsafe { &*user.cast::<Asks>() };
    if asks.calls.fetch_add(1, Ordering::Relaxed) > 50 {
        return;
    }
    assert!(!asks.inside.swap(true, Ordering::Relaxed), "it is called in a call of itself");
    for bytes in [700, 11 << 20] {
        let mut ptr = null_mut();
        if unsafe { granule_capi::memory::granule_malloc(asks.a, bytes, 0, 0, &raw mut ptr) } == GRANULE_OK {
            asks.served.fetch_add(1, Ordering::Relaxed);
            assert_eq!(unsafe { granule_capi::memory::granule_free(asks.a, ptr) }, GRANULE_OK);
        }
    }
    let mut none = null_mut();
    unsafe { granule_capi::memory::granule_malloc(asks.a, TOO_MUCH, 0, 0, &raw mut none) };
    asks.inside.store(false, Ordering::Relaxed);
}

extern "C-unwind" fn asks_at_entry(user: *mut c_void, _: *const granule_trace_entry) {
    ask(user);
}

extern "C-unwind" fn asks_at_segment(user: *mut c_void, _: *const granule_segment_event) {
    ask(user);
}

extern "C-unwind" fn asks_at_oom(user: *mut c_void, _: i64, _: u64, _: u64, _: u64) {
    ask(user);
}

extern "C-unwind" fn asks_for_room(user: *mut c_void) -> bool {
    ask(user);
    true
}

extern "C-unwind" fn asks_to_spill(user: *mut c_void, _: *const granule_spill_request) -> u64 {
    ask(user);
    0
}

extern "C-unwind" fn asks_whose(user: *mut c_void, _: u64) -> bool {
    ask(user);
    true
}

extern "C-unwind" fn asks_where(user: *mut c_void) -> *mut c_void {
    ask(user);
    user
}

extern "C-unwind" fn asks_at_the_end(user: *mut c_void, _: *mut c_void) {
    ask(user);
}

/// One callback of a kind, by the kind's number; `false` where there are no more.
unsafe fn install(kind: usize, a: *mut granule_allocator, user: *mut c_void) -> bool {
    type Gather = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    type Release = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
    let history = |gather: Gather, release: Option<Release>| granule_history {
        size: size_of::<granule_history>() as u32,
        enabled: true,
        clear: false,
        contexts: GRANULE_CONTEXT_ALL,
        max_entries: 4,
        skip_actions: 0,
        user,
        gather: Some(gather),
        release,
    };
    let filter = granule_filter {
        size: size_of::<granule_filter>() as u32,
        kind: GRANULE_FILTER_CUSTOM,
        stream: 0,
        user,
        accepts: Some(asks_whose),
        drop: None,
    };
    let recorded = match kind {
        6 => history(asks_where, None),
        _ => history(itself, Some(asks_at_the_end)),
    };
    let status = match kind {
        0 => unsafe { granule_add_trace_tracker(a, Some(asks_at_entry), user) },
        1 => unsafe { granule_add_segment_observer(a, Some(asks_at_segment), user) },
        2 => unsafe { granule_add_oom_observer(a, Some(asks_at_oom), user) },
        3 => unsafe { granule_add_free_memory_callback(a, Some(asks_for_room), user) },
        4 => unsafe { granule_add_spill_hook(a, 0, Some(asks_to_spill), user) },
        5 => unsafe { granule_pool_begin(a, 0, granule_pool_fresh(), &raw const filter) },
        6 | 7 => unsafe { granule_record_history(a, &raw const recorded) },
        _ => return false,
    };
    assert_eq!(status, GRANULE_OK, "{}", last_error());
    true
}

extern "C-unwind" fn itself(user: *mut c_void) -> *mut c_void {
    user
}

#[test]
fn callbacks_that_call_the_library() {
    for kind in 0.. {
        for a in Allocator::each() {
            let (inside, calls, served) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
            let asks = Asks { a: a.0, inside, calls, served };
            if !unsafe { install(kind, a.0, (&raw const asks).cast_mut().cast()) } {
                return;
            }
            let kept = a.malloc(30 << 20).unwrap();
            for _ in 0..8 {
                still_works(&a);
            }
            assert_eq!(a.malloc(TOO_MUCH), Err(GRANULE_OUT_OF_MEMORY), "{}", last_error());
            assert_eq!(a.free(kept), GRANULE_OK);
            assert!(asks.served.load(Ordering::Relaxed) > 0, "kind {kind} was served");
            // What it called in its own call may not be looked at any more.
            asks.calls.store(100, Ordering::Relaxed);
            drop(a);
        }
    }
}

/// A vendor's table, as the vendor's own source gives it.
#[test]
fn a_backend_in_c() {
    let mut options = granule_options {
        size: size_of::<granule_options>() as u32,
        backend: std::ptr::null(),
        settings: c"".as_ptr(),
        table: c_backend::table().cast(),
        pytorch_release: std::ptr::null(),
    };
    let a = Allocator::with(&options);
    let name = unsafe { granule_backend_name(a.0) };
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"example");
    still_works(&a);
    options.backend = c"openreg".as_ptr();
    let mut none = null_mut();
    let status = unsafe { granule_allocator_create(&raw const options, &raw mut none) };
    assert_eq!((status, none), (GRANULE_INVALID_ARGUMENT, null_mut()));
    // A table that is none: its size and version are asked first.
    let zeros = [0u64; 16];
    options.backend = std::ptr::null();
    options.table = zeros.as_ptr().cast();
    let status = unsafe { granule_allocator_create(&raw const options, &raw mut none) };
    assert_eq!((status, none), (GRANULE_INVALID_ARGUMENT, null_mut()), "{}", last_error());
}
