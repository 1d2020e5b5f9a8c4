//! The history: who took and gave back what, and who sees it happen.

use crate::allocator::granule_allocator;
use crate::boundary::callback::{User, call};
use crate::boundary::contexts::{Recorder, object};
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, address, given, growing};
use crate::boundary::texts::Texts;
use crate::bytes::granule_bytes;
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use granule::history::{self, Context, HistoryOptions, RecordContext, Stage};
use granule::snapshot::{Action, TraceEntry, Value};
use granule::types::{DeviceIndex, PoolId};
use std::ffi::{c_char, c_void};

/// Contexts are never gathered.
pub const GRANULE_CONTEXT_NEVER: i32 = 0;
/// At requests; kept with live blocks and segments only.
pub const GRANULE_CONTEXT_STATE: i32 = 1;
/// At requests and notes; kept in entries, too.
pub const GRANULE_CONTEXT_ALLOC: i32 = 2;
/// At frees and flushes, too.
pub const GRANULE_CONTEXT_ALL: i32 = 3;

/// A block was handed out. (The numbers are those of c10's TraceEntry.)
pub const GRANULE_ACTION_ALLOC: i32 = 0;
/// A block was given back by the program.
pub const GRANULE_ACTION_FREE_REQUESTED: i32 = 1;
/// A block became reusable.
pub const GRANULE_ACTION_FREE_COMPLETED: i32 = 2;
/// A segment was taken from the device.
pub const GRANULE_ACTION_SEGMENT_ALLOC: i32 = 3;
/// A segment was given back.
pub const GRANULE_ACTION_SEGMENT_FREE: i32 = 4;
/// Memory was mapped into a growable segment.
pub const GRANULE_ACTION_SEGMENT_MAP: i32 = 5;
/// Memory was unmapped from a growable segment.
pub const GRANULE_ACTION_SEGMENT_UNMAP: i32 = 6;
/// A snapshot was taken.
pub const GRANULE_ACTION_SNAPSHOT: i32 = 7;
/// A request failed for want of memory.
pub const GRANULE_ACTION_OOM: i32 = 8;
/// The program wrote a note.
pub const GRANULE_ACTION_ANNOTATE: i32 = 9;

/// How history is kept.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_history {
    /// sizeof(granule_history).
    pub size: u32,
    /// Whether it is on; off, it is forgotten.
    pub enabled: bool,
    /// Forget what was recorded before.
    pub clear: bool,
    /// When contexts are gathered: one of GRANULE_CONTEXT_...
    pub contexts: i32,
    /// Entries kept of each device, at least one; the newest stay. Fewer than there are drops none.
    pub max_entries: u64,
    /// Actions that are not recorded: a bit for each, 1 << GRANULE_ACTION_...
    pub skip_actions: u32,
    /// The first argument of the functions: good for as long as any context may be.
    pub user: *mut c_void,
    /// The calling thread's context; null where it has none. Called with no lock held. Without a function there are no contexts.
    pub gather: Option<unsafe extern "C-unwind" fn(user: *mut c_void) -> *mut c_void>,
    /// Takes a context back that nothing keeps any more: once for each that was gathered, with no lock held. May be null.
    pub release: Option<unsafe extern "C-unwind" fn(user: *mut c_void, context: *mut c_void)>,
}

growing!(granule_history);

/// Whether a device's history is complete.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_history_status_t {
    /// sizeof(granule_history_status_t).
    pub size: u32,
    /// Whether anything was recorded at all.
    pub recorded: bool,
    /// No entry is missing since the allocator's first operation.
    pub complete: bool,
    /// Entries overwritten because there was no room.
    pub overwritten: u64,
    /// Operations that had happened before recording began.
    pub before_recording: u64,
}

growing!(granule_history_status_t);

/// One entry of the history. Its pointers live as long as the snapshot, or as the call of the tracker.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_trace_entry {
    /// What happened: one of GRANULE_ACTION_...
    pub action: i32,
    /// The device; -1 for host memory.
    pub device: i32,
    /// The address; for GRANULE_ACTION_OOM what the device had free.
    pub addr: u64,
    /// Bytes.
    pub bytes: u64,
    /// The stream.
    pub stream: u64,
    /// The pool.
    pub pool: granule_pool_id,
    /// When, in microseconds since the epoch.
    pub time_us: i64,
    /// What was gathered; null where nothing was.
    pub context: *mut c_void,
    /// The compiled region; "N/A" outside.
    pub compile_context: *const c_char,
    /// The thread's text, or that of the note; never null.
    pub user_metadata: *const c_char,
    /// Why the library did it by itself; empty where it did not, never null.
    pub internal_metadata: *const c_char,
}

impl granule_trace_entry {
    pub(crate) fn new(entry: &TraceEntry, device: i32, context: *mut c_void, texts: &mut Texts) -> Self {
        let labels = &entry.labels;
        let action = Action::ALL.iter().position(|action| *action == entry.action).unwrap_or_default();
        let internal = labels.extra.iter().find(|(key, _)| &**key == "internal_metadata");
        let internal = internal.and_then(|(_, value)| match value {
            Value::Str(text) => Some(text),
            _ => None,
        });
        Self {
            action: i32::try_from(action).unwrap_or(-1),
            device,
            addr: entry.addr,
            bytes: entry.size,
            stream: entry.stream,
            pool: labels.pool_id.unwrap_or(PoolId::DEFAULT).into(),
            time_us: entry.time_us,
            context,
            compile_context: texts.of(labels.compile_context.as_ref()),
            user_metadata: texts.of(labels.user_metadata.as_ref()),
            internal_metadata: texts.of(internal),
        }
    }
}

/// The engine's options for C's.
pub(crate) fn options(given: &granule_history) -> Result<HistoryOptions, Failure> {
    let contexts = match given.contexts {
        GRANULE_CONTEXT_NEVER => RecordContext::Never,
        GRANULE_CONTEXT_STATE => RecordContext::State,
        GRANULE_CONTEXT_ALLOC => RecordContext::Alloc,
        GRANULE_CONTEXT_ALL => RecordContext::All,
        other => {
            return Err(Failure::argument(format!("contexts is {other}: it is one of GRANULE_CONTEXT_...")));
        }
    };
    let skipped = |(bit, _): &(usize, &Action)| given.skip_actions & 1 << bit != 0;
    let skip = Action::ALL.iter().enumerate().filter(skipped).map(|(_, action)| *action).collect();
    let wanted = usize::try_from(given.max_entries.max(1)).unwrap_or(usize::MAX);
    let entries = if given.enabled { wanted } else { 0 };
    let options =
        HistoryOptions { max_entries: entries, skip, clear: given.clear, ..HistoryOptions::default() };
    Ok(match given.gather {
        Some(gather) => {
            let recorder = Recorder { user: given.user, gather, release: given.release };
            options.with_contexts(contexts, move || recorder.gather())
        }
        None => options,
    })
}

/// Turns history on, changes how it is kept, or turns it off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_record_history(
    a: *mut granule_allocator,
    h: *const granule_history,
) -> granule_status {
    guard(|| {
        let (a, h) = (given!(handle a), given!(sized h));
        a.engine.history().record(&options(&h)?);
        Ok(())
    })
}

/// Whether history is on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_is_history_enabled(
    a: *const granule_allocator,
    out: *mut bool,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.history().is_enabled());
        Ok(())
    })
}

/// Whether a device's history is complete, and what is missing in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_history_status(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_history_status_t,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(sized_out out));
        let status = a.engine.history().status(pass::device(device)?)?;
        out.set(granule_history_status_t {
            size: 0,
            recorded: status.recorded,
            complete: status.complete,
            overwritten: status.overwritten,
            before_recording: status.before_recording,
        });
        Ok(())
    })
}

/// Marks the begin (start) or end of a range of the program for snapshots, while the device's history is on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_mark_range(
    a: *mut granule_allocator,
    start: bool,
    name: *const c_char,
    device: i32,
) -> granule_status {
    guard(|| {
        let (a, name) = (given!(handle a), given!(text name));
        let stage = if start { Stage::Start } else { Stage::End };
        a.engine.history().mark_range(stage, name, pass::device(device)?);
        Ok(())
    })
}

/// Writes a note about a live block into the history, if it is on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_annotate(
    a: *mut granule_allocator,
    ptr: *mut c_void,
    text: *const c_char,
) -> granule_status {
    guard(|| {
        let (a, text) = (given!(handle a), given!(text text));
        Ok(a.engine.history().annotate(address(ptr), text)?)
    })
}

/// Puts a text on every entry of the calling thread from here on; an empty one ends that. It is the same for all allocators.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_set_user_metadata(text: *const c_char) -> granule_status {
    guard(|| {
        history::set_user_metadata(given!(text text));
        Ok(())
    })
}

/// The calling thread's text; empty where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_user_metadata(out: *mut granule_bytes) -> granule_status {
    guard(|| {
        let out = given!(out out);
        out.set(granule_bytes::new(history::user_metadata().as_bytes()));
        Ok(())
    })
}

/// The calling thread enters a compiled region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_push_compile_context(name: *const c_char) -> granule_status {
    guard(|| {
        history::push_compile_context(given!(text name));
        Ok(())
    })
}

/// The calling thread leaves the compiled region that it entered last; without one, nothing happens.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pop_compile_context() -> granule_status {
    guard(|| {
        history::pop_compile_context();
        Ok(())
    })
}

/// Shows the context with which a live block was allocated to visit, before the call returns. It is good during the visit.
/// Where there is none, visit is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_context_of(
    a: *mut granule_allocator,
    ptr: *mut c_void,
    visit: Option<unsafe extern "C-unwind" fn(user: *mut c_void, context: *mut c_void)>,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        let visit = visit.ok_or_else(|| Failure::argument("visit is null"))?;
        let context = a.engine.history().context_of(address(ptr));
        let object = object(context.as_ref());
        if !object.is_null() {
            // SAFETY: what callers promise: the function is good for this `user`.
            call(|| unsafe { visit(user, object) });
        }
        Ok(())
    })
}

/// Shows every entry to tracker, whether history is on or not, in order, with no lock held. It is never taken away again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_add_trace_tracker(
    a: *mut granule_allocator,
    tracker: Option<unsafe extern "C-unwind" fn(user: *mut c_void, entry: *const granule_trace_entry)>,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        let tracker = tracker.ok_or_else(|| Failure::argument("tracker is null"))?;
        // The engine does not say whose an entry is: a tracker of its own for each device does.
        for device in 0..a.engine.device_count() {
            let user = User::forever(user);
            let told = move |entry: &TraceEntry, context: Option<&Context>| {
                let mut texts = Texts::default();
                let entry = granule_trace_entry::new(entry, i32::from(device), object(context), &mut texts);
                // SAFETY: what callers promise: the function is good for this `user`; the entry lives during the call.
                call(|| unsafe { tracker(user.get(), &raw const entry) });
            };
            a.engine.hooks().on_trace_of(DeviceIndex(device), told)?;
        }
        Ok(())
    })
}
