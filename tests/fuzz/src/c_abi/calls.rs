//! The calls that a program makes, and what each must answer.

use super::program::{Pool, Program, address, bytes_of, c, last_error, told};
use crate::cursor::Cursor;
use alloc_core::snapshot::BlockState;
use granule_capi::allocator::*;
use granule_capi::device::streams::*;
use granule_capi::error::*;
use granule_capi::memory::budgets::*;
use granule_capi::memory::captures::*;
use granule_capi::memory::pools::*;
use granule_capi::memory::scopes::*;
use granule_capi::memory::share::*;
use granule_capi::memory::sleep::*;
use granule_capi::memory::*;
use granule_capi::pool_id::granule_pool_id;
use granule_capi::watch::history::*;
use granule_capi::watch::snapshot::*;
use granule_capi::watch::stats::*;
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

/// A call, with arguments out of the input.
type Call = fn(&mut Program, &mut Cursor<'_>);

/// Numbers of calls that are common in programs come several times.
const CALLS: [Call; 36] = [
    malloc,
    malloc,
    malloc,
    malloc,
    free,
    free,
    free,
    record_stream,
    malloc_at,
    free_on,
    block,
    annotate,
    stream_create,
    stream_retire,
    poll,
    synchronize,
    empty_cache,
    enable,
    configure,
    settings_round,
    limits,
    pool_create,
    pool_begin,
    pool_end,
    pool_release,
    pool_options,
    pool_prime,
    tenant_create,
    tenant_join,
    scope,
    sleep,
    wake,
    share,
    history,
    snapshot,
    capture,
];
/// How many there are.
pub(super) const KINDS: u8 = CALLS.len() as u8;

/// Makes the call that the next byte chooses.
pub(super) fn one(program: &mut Program, input: &mut Cursor<'_>) {
    CALLS[input.byte() as usize % CALLS.len()](program, input);
}

/// A device: mostly one that there is.
fn device(input: &mut Cursor<'_>, program: &Program) -> i32 {
    match input.byte() {
        250 => -1,
        251 => program.devices,
        252 => i32::MAX,
        byte => i32::from(byte) % program.devices.min(2),
    }
}

/// A stream of the device; 0 is its default one.
fn stream(input: &mut Cursor<'_>, program: &Program, device: i32) -> u64 {
    let of: Vec<u64> = program.streams.iter().filter(|(at, _)| *at == device).map(|(_, raw)| *raw).collect();
    let which = input.byte() as usize % (of.len() + 1);
    of.get(which).copied().unwrap_or(0)
}

/// Bytes of a request, up to 12 MiB; some are more than any device has.
fn size(input: &mut Cursor<'_>) -> u64 {
    let byte = u64::from(input.byte());
    match byte {
        0..64 => byte * 512 + u64::from(input.byte()),
        64..128 => (byte - 63) * (32 << 10),
        128..250 => (byte - 127) * (100 << 10) + 1,
        250 => u64::MAX,
        251 => 1 << 33,
        _ => input.word(),
    }
}

/// An address: mostly of a live block.
fn pointer(input: &mut Cursor<'_>, program: &Program) -> u64 {
    let (how, which) = (input.byte(), input.byte() as usize);
    let nth = |n: usize| program.live.keys().nth(n % program.live.len().max(1)).copied().unwrap_or(0);
    match how {
        0..160 => nth(which),
        160..190 => program.dead.get(which % program.dead.len().max(1)).copied().unwrap_or(4096),
        190..210 => nth(which).wrapping_add(512),
        210..225 => nth(which).wrapping_add(1),
        225..235 => 0,
        235..245 => u64::MAX - which as u64,
        _ => input.word(),
    }
}

fn pool(input: &mut Cursor<'_>, program: &Program) -> Pool {
    let which = input.byte();
    if which < 220 && !program.pools.is_empty() {
        return program.pools[which as usize % program.pools.len()];
    }
    let unknown = granule_pool_id { first: u64::from(which % 3), second: u64::from(which) << 40 };
    Pool { device: device(input, program), id: unknown, open: 0, references: 0 }
}

/// A text that ends where the input has a zero.
fn text(input: &mut Cursor<'_>) -> CString {
    let length = input.byte() as usize % 64;
    let bytes: Vec<u8> = (0..length).map(|_| input.byte()).take_while(|byte| *byte != 0).collect();
    CString::new(bytes).expect("it has no zero")
}

fn malloc(program: &mut Program, input: &mut Cursor<'_>) {
    let (bytes, device, mut ptr) = (size(input), device(input, program), address(7));
    let stream = stream(input, program, device);
    let status = c!(granule_malloc(program.a, bytes, device, stream, &raw mut ptr));
    if told(status) {
        program.handed_out(ptr, bytes, device);
    } else {
        assert_eq!(ptr, address(7), "a call that failed wrote an answer");
        let there = (0..program.devices).contains(&device);
        assert!(there || status == GRANULE_INVALID_DEVICE, "{status}: {}", last_error());
    }
}

fn malloc_at(program: &mut Program, input: &mut Cursor<'_>) {
    let (bytes, at, mut ptr) = (size(input), pointer(input, program), null_mut());
    let device = device(input, program);
    let stream = stream(input, program, device);
    if program.uncached {
        return;
    }
    if told(c!(granule_malloc_at(program.a, bytes, address(at), device, stream, &raw mut ptr))) {
        assert!(bytes == 0 || ptr == address(at), "another address");
        program.handed_out(ptr, bytes, device);
    }
}

/// A free works for live blocks and null, and for nothing else.
fn freed(program: &mut Program, at: u64, status: granule_status) {
    if told(status) {
        assert!(at == 0 || program.live.contains_key(&at), "{at:#x} is no block");
        program.given_back(at);
    } else if program.live.contains_key(&at) {
        panic!("a live block was not freed: {}", last_error());
    } else {
        assert_eq!(status, GRANULE_INVALID_POINTER, "{}", last_error());
    }
}

fn free(program: &mut Program, input: &mut Cursor<'_>) {
    let at = pointer(input, program);
    let status = c!(granule_free(program.a, address(at)));
    freed(program, at, status);
}

fn free_on(program: &mut Program, input: &mut Cursor<'_>) {
    let (at, on) = (pointer(input, program), device(input, program));
    let status = c!(granule_free_on(program.a, address(at), on));
    if program.live.get(&at).is_some_and(|block| block.device != on) || !(0..program.devices).contains(&on) {
        assert!(!told(status), "{at:#x} is not of device {on}");
    } else {
        freed(program, at, status);
    }
}

fn record_stream(program: &mut Program, input: &mut Cursor<'_>) {
    let (at, device) = (pointer(input, program), device(input, program));
    let stream = stream(input, program, device);
    told(c!(granule_record_stream(program.a, address(at), device, stream)));
}

/// What is said of a block.
fn block(program: &mut Program, input: &mut Cursor<'_>) {
    let at = pointer(input, program);
    let (mut bytes, mut base, mut device, mut asleep) = (0, null_mut(), -1, false);
    let is_live = program.live.get(&at).map(|block| block.device);
    let sized = told(c!(granule_block_size(program.a, address(at), &raw mut bytes)));
    let found = told(c!(granule_block_device(program.a, address(at), &raw mut device)));
    if !program.uncached {
        assert_eq!(found, is_live.is_some(), "{at:#x}");
        assert!(found || !sized, "{at:#x} has a size and is no block");
    }
    assert!(!found || Some(device) == is_live, "{at:#x} is of another device");
    told(c!(granule_is_asleep(program.a, address(at), &raw mut asleep)));
    if told(c!(granule_base_allocation(program.a, address(at), &raw mut base, &raw mut bytes))) {
        let base = base.addr() as u64;
        assert!(base <= at && at - base < bytes, "{at:#x} is not in its segment");
    }
}

fn annotate(program: &mut Program, input: &mut Cursor<'_>) {
    let (at, text) = (pointer(input, program), text(input));
    told(c!(granule_annotate(program.a, address(at), text.as_ptr())));
    told(c!(granule_mark_range(program.a, at & 1 == 0, text.as_ptr(), device(input, program))));
    // Null is refused, whatever else is right.
    assert_eq!(c!(granule_annotate(program.a, address(at), null())), GRANULE_INVALID_ARGUMENT);
    assert_eq!(c!(granule_free(null_mut(), address(at))), GRANULE_INVALID_ARGUMENT);
    assert_eq!(c!(granule_stats(program.a, 0, null_mut())), GRANULE_INVALID_ARGUMENT);
}

fn stream_create(program: &mut Program, input: &mut Cursor<'_>) {
    let (device, mut raw) = (device(input, program), 0);
    if program.streams.len() < 4 && told(c!(granule_stream_create(program.a, device, 0, &raw mut raw))) {
        program.streams.push((device, raw));
    }
}

fn stream_retire(program: &mut Program, input: &mut Cursor<'_>) {
    // Captures are marked without the driver's knowledge of them, which keeps their streams.
    if program.streams.is_empty() || !program.captures.is_empty() {
        return;
    }
    let which = input.byte() as usize % program.streams.len();
    let (device, raw) = program.streams.remove(which);
    assert!(told(c!(granule_stream_destroy(program.a, device, raw))), "{}", last_error());
}

fn poll(program: &mut Program, input: &mut Cursor<'_>) {
    told(c!(granule_poll(program.a, device(input, program))));
}

fn synchronize(program: &mut Program, input: &mut Cursor<'_>) {
    told(c!(granule_synchronize(program.a, device(input, program))));
}

fn empty_cache(program: &mut Program, input: &mut Cursor<'_>) {
    if input.byte() < 128 {
        told(c!(granule_empty_cache(program.a)));
    } else {
        told(c!(granule_empty_pool(program.a, pool(input, program).id)));
    }
}

fn enable(program: &mut Program, input: &mut Cursor<'_>) {
    let (on, mut is_on) = (input.byte() < 160, false);
    assert!(
        told(c!(granule_enable(program.a, on))) && told(c!(granule_is_enabled(program.a, &raw mut is_on)))
    );
    assert_eq!(on, is_on);
    program.uncached = !on;
}

fn configure(program: &mut Program, input: &mut Cursor<'_>) {
    let (strictly, text) = (input.byte() < 128, text(input));
    told(if strictly {
        c!(granule_configure_strictly(program.a, text.as_ptr()))
    } else {
        c!(granule_configure(program.a, text.as_ptr()))
    });
}

/// What is in force can be put in force, and is then what it was.
fn settings_round(program: &mut Program, _: &mut Cursor<'_>) {
    let in_force = || bytes_of(|out| c!(granule_settings_in_force(program.a, out)));
    let Some(before) = in_force() else { return };
    let text = CString::new(before.clone()).expect("a text has no zero in it");
    assert!(told(c!(granule_configure_strictly(program.a, text.as_ptr()))), "{}", last_error());
    assert_eq!(in_force(), Some(before), "the same settings are other ones");
}

fn limits(program: &mut Program, input: &mut Cursor<'_>) {
    let (on, hard, soft) = (device(input, program), size(input), size(input));
    match input.byte() % 4 {
        0 => told(c!(granule_set_memory_limits(program.a, on, hard, soft))),
        1 => told(c!(granule_set_memory_limits(program.a, on, u64::MAX, u64::MAX))),
        2 => told(c!(granule_set_memory_fraction(program.a, on, f64::from(input.byte()) / 128.0))),
        _ => {
            let Pool { device, id, .. } = pool(input, program);
            told(c!(granule_pool_set_limits(program.a, device, id, hard, soft)))
        }
    };
}

fn pool_create(program: &mut Program, input: &mut Cursor<'_>) {
    let device = device(input, program);
    let id = if input.byte() < 128 { granule_pool_fresh() } else { granule_pool_fresh_for_capture() };
    if program.pools.len() < 4 && told(c!(granule_pool_create(program.a, device, id, null()))) {
        program.pools.push(Pool { device, id, open: 0, references: 1 });
    }
}

unsafe extern "C-unwind" fn accepts(_: *mut c_void, stream: u64) -> bool {
    stream != 0
}

fn pool_begin(program: &mut Program, input: &mut Cursor<'_>) {
    let Pool { device, id, .. } = pool(input, program);
    let kind = i32::from(input.byte() % 6);
    let filter = granule_filter {
        size: size_of::<granule_filter>() as u32,
        kind,
        stream: stream(input, program, device),
        user: null_mut(),
        accepts: Some(accepts),
        drop: None,
    };
    if told(c!(granule_pool_begin(program.a, device, id, &raw const filter))) {
        let is_it = |pool: &&mut Pool| {
            pool.device == device && (pool.id.first, pool.id.second) == (id.first, id.second)
        };
        match program.pools.iter_mut().find(is_it) {
            Some(pool) => {
                pool.open += 1;
                pool.references += 1;
            }
            // The first scope of a pool makes it.
            None => program.pools.push(Pool { device, id, open: 1, references: 1 }),
        }
    }
}

fn pool_end(program: &mut Program, input: &mut Cursor<'_>) {
    let Some(which) = (input.byte() as usize).checked_rem(program.pools.len()) else { return };
    let Pool { device, id, open, .. } = program.pools[which];
    if told(c!(granule_pool_end(program.a, device, id))) {
        assert!(open > 0, "no scope was open");
        program.pools[which].open -= 1;
        if open == 1 && program.pools[which].references == 0 {
            program.pools.remove(which);
        }
    }
}

/// Takes a reference away, which may be the last.
fn pool_release(program: &mut Program, input: &mut Cursor<'_>) {
    let Some(which) = (input.byte() as usize).checked_rem(program.pools.len()) else { return };
    let Pool { device, id, open, references } = program.pools[which];
    if references == 0 {
        assert!(!told(c!(granule_pool_release(program.a, device, id))), "nobody has the pool");
        return;
    }
    let mut count = 0;
    assert!(told(c!(granule_pool_use_count(program.a, device, id, &raw mut count))), "{}", last_error());
    assert_eq!(count, references);
    assert!(told(c!(granule_pool_release(program.a, device, id))), "{}", last_error());
    program.pools[which].references -= 1;
    if references == 1 && open == 0 {
        program.pools.remove(which);
    }
}

fn pool_options(program: &mut Program, input: &mut Cursor<'_>) {
    let Pool { device, id, .. } = pool(input, program);
    // SAFETY: plain figures, for which zeros are fine.
    let mut stats: granule_pool_stats_t = unsafe { std::mem::zeroed() };
    stats.size = size_of::<granule_pool_stats_t>() as u32;
    if told(c!(granule_pool_stats(program.a, device, id, &raw mut stats))) {
        assert!(stats.allocated_bytes <= stats.active_bytes && stats.requested_bytes <= stats.active_bytes);
    }
    told(match input.byte() % 3 {
        0 => c!(granule_pool_set_use_on_oom(program.a, device, id, input.byte() < 128)),
        1 => c!(granule_pool_set_no_split(program.a, device, id)),
        _ => c!(granule_set_sleep_tag(program.a, device, id, c"tag".as_ptr(), 0)),
    });
}

fn pool_prime(program: &mut Program, input: &mut Cursor<'_>) {
    let Pool { device, id, .. } = pool(input, program);
    let stream = stream(input, program, device);
    let sizes: Vec<u64> = (0..input.byte() % 4).map(|_| size(input)).collect();
    told(c!(granule_pool_prime(program.a, device, id, stream, sizes.as_ptr(), sizes.len() as u64)));
}

fn tenant_create(program: &mut Program, input: &mut Cursor<'_>) {
    let (device, mut tenant, name) = (device(input, program), 0, text(input));
    let size = size_of::<granule_budget>() as u32;
    let budget = granule_budget {
        size,
        guarantee: self::size(input),
        soft: self::size(input),
        hard: self::size(input),
    };
    let status = match input.byte() % 4 {
        0 if !program.tenants.is_empty() => {
            return assert!(
                told(c!(granule_tenant_remove(program.a, program.tenants.remove(0)))),
                "{}",
                last_error()
            );
        }
        1 if !program.tenants.is_empty() => {
            told(c!(granule_tenant_set_budget(program.a, program.tenants[0], &raw const budget)));
            return;
        }
        _ => c!(granule_tenant_create(program.a, device, name.as_ptr(), &raw const budget, &raw mut tenant)),
    };
    if told(status) {
        assert!(tenant != 0 && !program.tenants.contains(&tenant), "tenant {tenant}");
        program.tenants.push(tenant);
    }
}

fn tenant_join(program: &mut Program, input: &mut Cursor<'_>) {
    let Pool { device, id, .. } = pool(input, program);
    let tenant = program.tenants.first().copied().unwrap_or(u64::from(input.byte()));
    if input.byte() < 160 {
        if told(c!(granule_tenant_join(program.a, tenant, id))) {
            assert!(program.tenants.contains(&tenant), "there is no tenant {tenant}");
        }
    } else {
        told(c!(granule_tenant_leave(program.a, device, id)));
    }
}

fn scope(program: &mut Program, input: &mut Cursor<'_>) {
    let mut made = null_mut();
    if input.byte() < 128 {
        if told(c!(granule_scope_begin(program.a, device(input, program), &raw mut made))) {
            program.scopes.push(made);
        }
    } else if let Some(scope) = program.scopes.pop() {
        // SAFETY: plain figures, for which zeros are fine.
        let mut stats: granule_scope_stats = unsafe { std::mem::zeroed() };
        stats.size = size_of::<granule_scope_stats>() as u32;
        assert!(told(c!(granule_scope_end(scope, &raw mut stats))), "{}", last_error());
        let granule_scope_bytes { begin, end, peak } = stats.allocated_bytes;
        assert!(peak >= begin.max(end), "{begin} to {end}, at most {peak}");
    }
}

fn sleep(program: &mut Program, input: &mut Cursor<'_>) {
    told(c!(granule_sleep(program.a, null(), 0, i32::from(input.byte() % 4), null(), null_mut())));
}

fn wake(program: &mut Program, _: &mut Cursor<'_>) {
    told(c!(granule_wake(program.a, null(), 0, null_mut())));
}

/// What is shared can be opened, by the process itself, too.
fn share(program: &mut Program, input: &mut Cursor<'_>) {
    if let Some(import) = program.imports.pop() {
        assert!(told(c!(granule_import_close(import))), "{}", last_error());
    }
    let (at, mut offset, mut import) = (pointer(input, program), 0, null_mut());
    let Some(mut handle) = bytes_of(|out| c!(granule_share(program.a, address(at), out, &raw mut offset)))
    else {
        return;
    };
    assert!(program.live.contains_key(&at), "{at:#x} is no block");
    let flip = input.byte();
    if flip > 128 {
        let at = flip as usize % handle.len();
        handle[at] ^= flip;
    }
    let on = device(input, program);
    if told(c!(granule_open_shared(program.a, on, handle.as_ptr(), handle.len() as u64, &raw mut import))) {
        assert!(flip <= 128, "a damaged handle was opened");
        assert!(offset < c!(granule_import_bytes(import)) && !c!(granule_import_base(import)).is_null());
        program.imports.push(import);
    }
}

fn history(program: &mut Program, input: &mut Cursor<'_>) {
    let bits = input.byte();
    let options = granule_history {
        size: size_of::<granule_history>() as u32,
        enabled: bits & 1 != 0,
        clear: bits & 2 != 0,
        contexts: i32::from(bits >> 4) % 5,
        max_entries: u64::from(input.byte()),
        skip_actions: u32::from(input.byte()),
        user: null_mut(),
        gather: None,
        release: None,
    };
    told(c!(granule_record_history(program.a, &raw const options)));
}

/// A snapshot can be read, and has each of the program's blocks; answers in JSON are JSON.
fn snapshot(program: &mut Program, input: &mut Cursor<'_>) {
    let traces = input.byte() < 128;
    let file =
        bytes_of(|out| c!(granule_snapshot_pickle(program.a, null(), traces, out))).expect("a snapshot");
    let read = ::granule_snapshot::pickle::read(&file[..]).expect("what is written is read");
    let blocks = read.segments.iter().flat_map(|segment| &segment.blocks);
    let live = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
    let missing: Vec<u64> =
        live.map(|block| block.address).filter(|at| !program.live.contains_key(at)).collect();
    assert!(missing.is_empty(), "blocks that the program does not have: {missing:x?}");
    let answers = [
        bytes_of(|out| c!(granule_snapshot_json(program.a, null(), traces, out))),
        bytes_of(|out| c!(granule_stats_json(program.a, 0, out))),
        bytes_of(|out| c!(granule_ledger_json(program.a, 0, out))),
    ];
    for answer in answers.into_iter().flatten() {
        serde_json::from_slice::<serde_json::Value>(&answer).expect("the JSON is JSON");
    }
}

fn capture(program: &mut Program, input: &mut Cursor<'_>) {
    if let Some(device) = program.captures.pop() {
        assert!(told(c!(granule_mark_capture_end(program.a, device))), "{}", last_error());
    } else {
        let device = device(input, program);
        if told(c!(granule_mark_capture_begin(program.a, device))) {
            program.captures.push(device);
        }
    }
}
