//! Lifetimes of memory: frees that wait for other streams or for the end of captures, and streams that end.
//!
//! A captured stream's work has not run, so nothing can be waited for and no event of it says anything. Blocks that
//! other streams of the graph use are *deferred*: they stay pending until the first request, capture or wait without a
//! capture under way. The graph orders uses made within it, which need no event then; uses made before get theirs. With
//! `graph_capture_record_stream_reuse` a deferred block is free for its own stream as soon as the graph itself orders
//! that stream's next work after every use. A free notes the *markers*: the nodes on which the next work of each stream
//! concerned would depend. Once all of them precede the next work of the block's stream, the streams have joined.
//!
//! A handle of a stream is named to the driver only between [`InFlight::begin`](crate::sync::InFlight::begin) of
//! `naming`, taken under the lock under which the handle was read, and the end of the call. Retiring a stream replaces
//! its handle by its last work wherever it is kept, then waits for the calls that read it before.

mod captures;

use super::Device;
use crate::arena::FreeStep;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::pool_table::Holder;
use crate::backend::{BackendError, CaptureNode, ErrorKind, Readiness};
use crate::config::CrossStream;
use crate::device::{arenas, pools, recorder};
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::lifetimes::last_work::{LastWork, wait_for_stream};
use crate::lifetimes::pending::{Ask, Waiting};
use crate::lifetimes::uses::{BlockUse, User};
use crate::memory::address_map::Location;
use crate::memory::block::BlockId;
use crate::process::attention::Reason;
use crate::process::callbacks::CallbackScope;
use crate::process::state;
use crate::sync::{Arc, Flight, assert_unlocked, this_thread};
use crate::types::{DevicePtr, Stream};
pub(in crate::device) use captures::Captures;
use captures::{Deferred, frontiers, look_back};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// A stream is named to the driver.
pub(super) type Named<'a> = Flight<'a, Stream>;

/// Frees without an event, since the driver recorded none.
pub(in crate::device) fn failures(device: &Device) -> u64 {
    device.pending.failures()
}

/// Ends these uses, without an event.
pub(in crate::device) fn end_uses<'a>(device: &Device, uses: impl Iterator<Item = &'a BlockUse>) {
    device.pending.end_uses(uses);
}

/// Names a stream until the guard is dropped. The caller holds the lock under which it read it.
pub(in crate::device) fn name_stream(device: &Device, stream: Stream) -> Named<'_> {
    device.naming.begin(stream)
}

/// Waits for all pending frees, or for those of some arenas. Blocks.
pub(in crate::device) fn synchronise(
    device: &Device,
    only: Option<&FxHashSet<u16>>,
    call: &Call<'_>,
) -> Result<()> {
    pass_on_deferred(device);
    // Waiting holds a lock, which a context's destructor may ask for.
    let _ends = device.driver.callbacks().hold_back();
    take_back_shared(device, Ask::Now, call);
    if only.is_some_and(FxHashSet::is_empty) {
        return Ok(());
    }
    device.accounting.lock().counters_mut().sync_all_streams += 1;
    let concerns = |arena| only.is_none_or(|only| only.contains(&arena));
    let done = |waiting| arenas::event_done(device, waiting, call);
    let backend = &**device.driver.backend();
    Ok(device.pending.synchronise(backend, &device.naming, &device.slow_path, concerns, done)?)
}

/// True if the calling thread has begun a capture that has not ended.
pub(in crate::device) fn thread_captures(device: &Device) -> bool {
    let thread = this_thread();
    device.driver.attention().has(Reason::CAPTURE)
        && device.captures.lock().open.iter().any(|(by, _)| *by == thread)
}

/// See [`Pools::mark_capture_begin`](crate::allocator::Pools::mark_capture_begin).
pub(crate) fn mark_capture_begin(device: &Device, holder: Holder) -> Result<()> {
    if let Err(absent) = device.driver.backend().capture() {
        let text = absent.to_string();
        return Err(
            BackendError::new(ErrorKind::NotSupported, 0, "capture", device.driver.device(), text).into()
        );
    }
    // Blocks deferred by an earlier capture are free for this one.
    pass_on_deferred(device);
    let mut captures = device.captures.lock();
    captures.open.push((this_thread(), holder));
    state::mark_capture(device.driver.attention(), true);
    Ok(())
}

/// See [`Pools::mark_capture_end`](crate::allocator::Pools::mark_capture_end).
pub(crate) fn mark_capture_end(device: &Device, holder: Holder) -> Result<()> {
    {
        let thread = this_thread();
        let mut captures = device.captures.lock();
        // A capture may end on another thread than it began on.
        let mine = captures.open.iter().rposition(|open| *open == (thread, holder));
        let alike = || captures.open.iter().rposition(|(_, of)| *of == holder);
        let Some(at) = mine.or_else(alike) else {
            return Err(AllocError::NoCapture { device: device.driver.device() });
        };
        captures.open.remove(at);
        if captures.open.is_empty() {
            captures.before.clear();
            state::mark_capture(device.driver.attention(), false);
        }
    }
    recorder::tell_trackers(device);
    Ok(())
}

/// Waits for the users of a freed block: ordinary uses by events, captured ones until the end of captures. Names all
/// these streams; the caller holds tickets.
pub(in crate::device) fn wait_for_all(
    device: &Device,
    uses: SmallVec<[BlockUse; 4]>,
    block: Waiting,
    own: Option<Stream>,
    slot: PoolSlot,
    call: &Call<'_>,
) {
    let (mut captured, mut ordinary) = (SmallVec::<[BlockUse; 4]>::new(), SmallVec::<[BlockUse; 4]>::new());
    let beside_capture = device.driver.is_beside_capture();
    for mut found in uses {
        let asked = found.user.live().filter(|_| beside_capture);
        let now = asked.map_or(Ok(None), |stream| device.driver.capture_id(stream));
        // Work that an earlier capture recorded may run by now, as part of a launch.
        found.captured = found.captured.filter(|capture| now == Ok(Some(*capture)));
        if now == Ok(None) { ordinary.push(found) } else { captured.push(found) }
    }
    if !captured.is_empty() {
        let markers = if ordinary.is_empty() { markers(device, own, &captured) } else { Vec::new() };
        let deferred = Deferred { block, own, slot, uses: captured, markers };
        let mut captures = device.captures.lock();
        captures.deferred.push(deferred);
        device.driver.attention().set(Reason::DEFERRED, true);
    }
    for found in ordinary {
        wait_for(device, found.user, block, call);
    }
}

/// Releases deferred blocks once no capture is under way: graphs no longer hold them, and they wait for uses recorded
/// outside of graphs.
pub(in crate::device) fn pass_on_deferred(device: &Device) {
    if !device.driver.attention().has(Reason::DEFERRED) {
        return;
    }
    let (_named, _blocks, deferred) = {
        let mut captures = device.captures.lock();
        if !captures.open.is_empty() {
            return;
        }
        device.driver.attention().set(Reason::DEFERRED, false);
        let deferred = std::mem::take(&mut captures.deferred);
        (
            name(device, deferred.iter().flat_map(|deferred| &deferred.uses)),
            device.slow_path.begin(),
            deferred,
        )
    };
    for mut deferred in deferred {
        for found in std::mem::take(&mut deferred.uses) {
            match &found.user {
                _ if found.captured.is_some() => {
                    device.pending.end_uses(std::iter::once(&found));
                    arenas::event_done(device, deferred.block, &Call::PLAIN);
                }
                // Its capture goes on although the program said that none does: an event would become part of the
                // graph.
                User::Live(stream) if device.driver.is_capturing(*stream) => deferred.uses.push(found),
                _ => wait_for(device, found.user, deferred.block, &Call::PLAIN),
            }
        }
        if !deferred.uses.is_empty() {
            let mut captures = device.captures.lock();
            captures.deferred.push(deferred);
            device.driver.attention().set(Reason::DEFERRED, true);
        }
    }
}

/// True if a deferred free names `stream`.
fn deferred_names(device: &Device, stream: Stream) -> bool {
    let captures = device.captures.lock();
    let mut users = captures.deferred.iter().flat_map(|deferred| &deferred.uses);
    users.any(|found| found.user.is(stream))
}

/// Replaces `stream` by its last work in all deferred frees.
fn retire_deferred(device: &Device, stream: Stream, last: &Arc<LastWork>) {
    let mut captures = device.captures.lock();
    for deferred in captures.deferred.iter_mut().filter(|deferred| deferred.own == Some(stream)) {
        (deferred.own, deferred.markers) = (None, Vec::new());
    }
    let users = captures.deferred.iter_mut().flat_map(|deferred| &mut deferred.uses);
    for found in users.filter(|found| found.user.is(stream)) {
        found.user = User::Retired(Arc::clone(last));
    }
}

/// Lets a block wait for a user's work. Other processes are asked at once: mostly they have let go of it.
fn wait_for(device: &Device, user: User, block: Waiting, call: &Call<'_>) {
    if let User::Shared(share) = &user
        && !share.is_held_once_closed()
    {
        device.accounting.end_export(&share.granules);
        return arenas::event_done(device, block, call);
    }
    device.pending.wait_for(device.driver.backend(), user, block);
}

/// Newest epoch of an arena's free memory that other streams may have: `cross_stream` allows it, and the device is done
/// with it. Does not block.
pub(in crate::device) fn newest_spare(device: &Device, arena: &Arena) -> Option<u64> {
    if device.accounting.lock().settings().cross_stream == CrossStream::Never {
        return None;
    }
    let (stream, _named, newest) = {
        let mut state = arena.lock();
        if state.binding().retired().is_some() {
            return None;
        }
        let stream = state.binding().stream();
        (stream, name_stream(device, stream), state.ledger_mut().epochs_mut().seal())
    };
    assert_unlocked();
    // The question itself would break a capture, even one that the device was not told of.
    if device.driver.may_be_capturing(stream) {
        return None;
    }
    match device.driver.backend().query_stream(stream) {
        Ok(Readiness::Ready) => {
            arena.lock().ledger_mut().epochs_mut().close(newest);
            Some(newest)
        }
        Ok(_) => None,
        Err(_) => {
            device.driver.backend().clear_error();
            None
        }
    }
}

/// Makes sure that the device is done with memory freed into these busy blocks. Blocks unless it is known to be;
/// `Ok(false)` where it is not known, and a capture forbids to wait.
pub(in crate::device) fn quiesce(
    device: &Device,
    arena: &Arena,
    blocks: &[BlockId],
    call: &Call<'_>,
) -> Result<bool> {
    let newest = {
        let state = arena.lock();
        blocks.iter().map(|id| state.layout().blocks()[*id].epoch).max().unwrap_or(0)
    };
    quiesce_up_to(device, arena, newest, call)
}

/// [`quiesce`], for memory freed up to the epoch `newest`.
pub(in crate::device) fn quiesce_up_to(
    device: &Device,
    arena: &Arena,
    newest: u64,
    call: &Call<'_>,
) -> Result<bool> {
    let (named, sealed) = {
        let mut state = arena.lock();
        if state.ledger().epochs().is_closed(newest) {
            return Ok(true);
        }
        if call.capturing {
            return Ok(false);
        }
        let named = match state.binding().retired() {
            Some(last) => Err(Arc::clone(last)),
            None => Ok((state.binding().stream(), device.naming.begin(state.binding().stream()))),
        };
        (named, state.ledger_mut().epochs_mut().seal())
    };
    assert_unlocked();
    match named {
        Ok((stream, _)) if device.driver.is_beside_capture() && device.driver.may_be_capturing(stream) => {
            return Ok(false);
        }
        Ok((stream, _named)) => wait_for_stream(&**device.driver.backend(), stream)?,
        Err(last) => last.wait()?,
    }
    arena.lock().ledger_mut().epochs_mut().close(sealed);
    Ok(true)
}

/// See [`CachingAllocator::retire_stream`](crate::allocator::CachingAllocator::retire_stream). `last` is
/// the stream's last work, once a device needed it.
pub(crate) fn retire_stream(device: &Device, stream: Stream, last: &mut Option<Arc<LastWork>>) -> Result<()> {
    let own = stream.device == device.driver.device();
    let mine = if own { device.arenas.directory().all_of_stream(stream) } else { Vec::new() };
    // In this order: a free takes a stream from a use list to a queue, and this waits for frees in flight.
    let waits = || deferred_names(device, stream) || device.pending.names(stream);
    if mine.is_empty() && !device.pending.is_user(stream) && !finish_naming_then(device, stream, waits) {
        pools::retire_scopes(device, stream);
        return Ok(());
    }
    let last = match last {
        Some(last) => &*last,
        None => &*last.insert(Arc::new(LastWork::of(device.driver.backend(), stream)?)),
    };
    for (slot, arena) in mine {
        let mut state = arena.lock();
        // Another thread may be retiring it, too, and its pool may be gone.
        if state.binding().serves(slot, stream) {
            state.change_binding(|binding| binding.retire(last));
            device.arenas.directory().retired(slot, stream, state.binding().number());
        }
    }
    if device.pending.is_user(stream) {
        for arena in device.arenas.directory().all() {
            arena.lock().uses_mut().retire(stream, last);
        }
    }
    pools::retire_scopes(device, stream);
    finish_naming_then(device, stream, || {
        retire_deferred(device, stream, last);
        device.pending.retire(stream, last);
    });
    finish_naming_then(device, stream, || ());
    Ok(())
}

/// Waits for all driver calls under way that name `stream`.
fn finish_naming_then<R>(device: &Device, stream: Stream, then: impl FnOnce() -> R) -> R {
    device.naming.wait_for(|_, named| *named == stream, || None::<()>);
    then()
}

/// Nodes that must precede the next use of a block; none where only the end of the capture will do.
fn markers(device: &Device, own: Option<Stream>, uses: &[BlockUse]) -> Vec<CaptureNode> {
    let Some(own) = own else { return Vec::new() };
    if !device.accounting.lock().settings().graph_capture_record_stream_reuse {
        return Vec::new();
    }
    let Ok(capture) = device.driver.backend().capture() else { return Vec::new() };
    let live = |found: &BlockUse| match &found.user {
        User::Live(stream) if found.captured.is_some() => Some(*stream),
        _ => None,
    };
    let Some(streams) = uses.iter().map(live).collect::<Option<Vec<_>>>() else { return Vec::new() };
    let markers = frontiers(capture, std::iter::once(own).chain(streams));
    markers.unwrap_or_else(|error| {
        device.driver.backend().clear_error();
        tracing::debug!(%error, "a graph's nodes could not be read; the block waits for the end of the capture");
        Vec::new()
    })
}

/// Frees the deferred blocks of `stream`, which is being captured, whose uses all precede its next work.
pub(in crate::device) fn reuse_joined(device: &Device, stream: Stream) {
    let own = |deferred: &Deferred| deferred.own == Some(stream) && !deferred.markers.is_empty();
    if !device.captures.lock().deferred.iter().any(own) {
        return;
    }
    let Ok(capture) = device.driver.backend().capture() else { return };
    let Some(id) = device.driver.capture_of(stream) else { return };
    let mut before = device.captures.lock().before.remove(&(stream.raw, id)).unwrap_or_default();
    if let Err(error) = look_back(capture, stream, &mut before) {
        device.driver.backend().clear_error();
        tracing::warn!(%error, "a graph's order could not be read (conditional nodes?); its memory is reused after the capture");
    }
    let (joined, _blocks) = {
        let mut captures = device.captures.lock();
        let ready = |d: &mut Deferred| own(d) && d.markers.iter().all(|marker| before.contains(marker));
        let joined: Vec<Deferred> = captures.deferred.extract_if(.., ready).collect();
        captures.before.insert((stream.raw, id), before);
        let blocks = (!joined.is_empty()).then(|| device.slow_path.begin());
        (joined, blocks)
    };
    finish_deferred(device, joined);
}

/// Ends the scope of a pool. With the option on, its deferred blocks whose capture is over are free for later graphs,
/// also while other captures go on. A scope that ends within its capture orders nothing.
pub(in crate::device) fn end_reuse(device: &Device, slot: PoolSlot) {
    if !device.accounting.lock().settings().graph_capture_record_stream_reuse {
        return;
    }
    let within = |d: &Deferred| d.slot == slot && d.uses.iter().all(|found| found.captured.is_some());
    let (_named, users) = {
        let captures = device.captures.lock();
        let uses: Vec<&BlockUse> =
            captures.deferred.iter().filter(|d| within(d)).flat_map(|d| &d.uses).collect();
        let users: FxHashSet<Stream> = uses.iter().filter_map(|found| found.user.live()).collect();
        (name(device, uses), users)
    };
    let at_rest: FxHashSet<Stream> =
        users.into_iter().filter(|stream| !device.driver.may_be_capturing(*stream)).collect();
    let over = |d: &Deferred| {
        d.uses.iter().filter_map(|found| found.user.live()).all(|stream| at_rest.contains(&stream))
    };
    let (ended, _blocks) = {
        let mut captures = device.captures.lock();
        let ended: Vec<Deferred> = captures.deferred.extract_if(.., |d| within(d) && over(d)).collect();
        let blocks = (!ended.is_empty()).then(|| device.slow_path.begin());
        (ended, blocks)
    };
    finish_deferred(device, ended);
}

fn finish_deferred(device: &Device, deferred: Vec<Deferred>) {
    for Deferred { block, uses, .. } in deferred {
        device.pending.end_uses(uses.iter());
        uses.iter().for_each(|_| arenas::event_done(device, block, &Call::PLAIN));
    }
}

/// Notices completed frees before a request of `bytes`, if it is time to. Does not block.
pub(in crate::device) fn drain_if_due(
    device: &Device,
    slot: PoolSlot,
    stream: Stream,
    bytes: u64,
    call: &Call<'_>,
) -> Result<()> {
    let due = if device.arenas.directory().policy().drains_at_each_request() {
        device.pending.any()
    } else {
        // Peaks count blocks in use: finished ones do not raise them.
        device.pending.any_now_and_then()
            || device.pending.any() && device.arenas.may_raise_peaks(slot, stream, bytes)
    };
    if due || device.driver.attention().has(Reason::DEFERRED) { drain(device, call) } else { Ok(()) }
}

/// Names the streams among these users until the guard is dropped. The caller holds the lock under which it read them.
pub(in crate::device) fn name<'a>(
    device: &Device,
    uses: impl IntoIterator<Item = &'a BlockUse>,
) -> SmallVec<[Named<'_>; 4]> {
    let live = uses.into_iter().filter_map(|found| found.user.live());
    live.map(|stream| device.naming.begin(stream)).collect()
}

pub(in crate::device) fn free_in(
    device: &Device,
    ptr: DevicePtr,
    location: Location,
    call: &Call<'_>,
) -> bool {
    let Some(arena) = device.arenas.directory().get(location.arena) else { return false };
    let mut state = arenas::attend(device, arena, call);
    let block = location.block;
    if state.layout().handed_out(ptr, block).is_none() {
        return false;
    }
    if let FreeStep::Wait(uses) = state.free(block) {
        let _named = name(device, &uses);
        let own = state.binding().live_stream();
        let _own = own.map(|own| device.naming.begin(own));
        let slot = state.binding().slot();
        drop(state);
        wait_for_all(device, uses, Waiting { arena: location.arena, block }, own, slot, call);
    }
    true
}

/// Passes on the outcome of a request. Where foreign code panicked, frees the block: nobody waits for it any more.
pub(in crate::device) fn arrived(
    device: &Device,
    outcome: Result<DevicePtr>,
    calls: &CallbackScope<'_>,
) -> Result<DevicePtr> {
    if calls.panicked()
        && let Ok(ptr) = outcome
        && let Some(at) = device.driver.map().get(ptr)
    {
        free_in(device, ptr, at, &Call::PLAIN);
    }
    outcome
}

/// Notes that `stream` uses the block at `ptr`. `Ok(false)` where that is no block.
pub(crate) fn record_stream(
    device: &Device,
    ptr: DevicePtr,
    location: Location,
    stream: Stream,
) -> Result<bool> {
    recorder::make_room(device);
    let captured =
        if device.driver.attention().has(Reason::CAPTURE) { device.driver.capture_of(stream) } else { None };
    let Some(arena) = device.arenas.directory().get(location.arena) else { return Ok(false) };
    let mut state = arena.lock();
    let block = location.block;
    if state.layout().awake(ptr, block).is_none() {
        return Ok(false);
    }
    if state.binding().belongs_to(stream) && stream.device == device.driver.device() {
        return Ok(true);
    }
    let Some(is_new) = state.uses_of(block).record(stream, captured) else {
        return Err(AllocError::Limit("a block can be used by at most 65533 streams besides its own"));
    };
    state.ledger().history().used(ptr.0, stream);
    if is_new {
        device.pending.begin_use(stream);
    }
    drop(state);
    if is_new {
        device.pending.prepare(device.driver.backend(), stream.device);
    }
    Ok(true)
}

/// Returns blocks whose events are complete. Does not block.
#[cold]
pub(in crate::device) fn drain(device: &Device, call: &Call<'_>) -> Result<()> {
    pass_on_deferred(device);
    take_back_shared(device, Ask::Seldom, call);
    Ok(device.pending.drain(&device.slow_path, |waiting| arenas::event_done(device, waiting, call))?)
}

/// Takes blocks back that no other process holds any more.
pub(in crate::device) fn take_back_shared(device: &Device, ask: Ask, call: &Call<'_>) {
    device.pending.drain_shared(ask, &device.slow_path, |waiting, share| {
        device.accounting.end_export(&share.granules);
        arenas::event_done(device, waiting, call);
    });
    if ask == Ask::Now {
        device.uncached.free_unshared();
    }
}
