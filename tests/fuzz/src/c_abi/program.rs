//! A program in C: what it has, what it could name, and what must be true of the figures.

use crate::cursor::Cursor;
use granule_capi::allocator::*;
use granule_capi::bytes::*;
use granule_capi::device::streams::*;
use granule_capi::error::*;
use granule_capi::last_error::*;
use granule_capi::memory::budgets::*;
use granule_capi::memory::captures::*;
use granule_capi::memory::pools::*;
use granule_capi::memory::scopes::*;
use granule_capi::memory::share::*;
use granule_capi::memory::sleep::*;
use granule_capi::memory::*;
use granule_capi::pool_id::granule_pool_id;
use granule_capi::watch::stats::*;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

/// Calls a function of the C ABI.
macro_rules! c {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: what the header asks of callers: handles are live, and each other pointer is null or good for the call.
        unsafe { $function($($argument),*) }
    }};
}
pub(super) use c;

const SETTINGS: [&CStr; 8] = [
    c"",
    c"policy:granule",
    c"expandable_segments:True",
    c"policy:granule,cross_stream:completed",
    c"policy:granule,expandable_segments:True",
    c"max_split_size_mb:40,garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
    c"policy:granule,memory_limit:64MiB",
    c"roundup_power2_divisions:4,expandable_segments:True",
];

/// A block in the program's hands.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) device: i32,
    /// As the library rounds the request.
    bytes: u64,
    /// It came straight from the driver, and figures do not count it.
    uncached: bool,
}

/// A pool of the program's.
#[derive(Clone, Copy)]
pub(super) struct Pool {
    pub(super) device: i32,
    pub(super) id: granule_pool_id,
    /// Scopes of it that are open.
    pub(super) open: usize,
    /// What the program has of it.
    pub(super) references: i32,
}

/// All that a program has.
pub(super) struct Program {
    pub(super) a: *mut granule_allocator,
    pub(super) devices: i32,
    pub(super) live: BTreeMap<u64, Block>,
    /// Addresses that were live.
    pub(super) dead: Vec<u64>,
    /// Besides the default one, with their devices.
    pub(super) streams: Vec<(i32, u64)>,
    pub(super) pools: Vec<Pool>,
    pub(super) scopes: Vec<*mut granule_scope>,
    pub(super) tenants: Vec<u64>,
    pub(super) imports: Vec<*mut granule_import>,
    /// Devices on which a capture is marked.
    pub(super) captures: Vec<i32>,
    pub(super) uncached: bool,
}

/// A device's address, which nobody follows.
pub(super) fn address(of: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(of as usize)
}

/// What failed says why.
///
/// # Panics
/// Where it does not, and where the library says that it has a bug.
pub(super) fn told(status: granule_status) -> bool {
    // Not an answer of these calls; the others are.
    assert!(status != GRANULE_PANIC && status != GRANULE_CALLBACK, "{}", last_error());
    if status == GRANULE_OK || status == GRANULE_NOT_READY {
        return true;
    }
    assert!((GRANULE_OUT_OF_MEMORY..=GRANULE_RECORDING).contains(&status), "status {status}");
    assert!(last_error().len() > 4, "status {status} without words");
    let report = bytes_of(|out| c!(granule_last_error_json(out))).expect("the last error can be told");
    serde_json::from_slice::<serde_json::Value>(&report).expect("the report is JSON");
    false
}

pub(super) fn last_error() -> String {
    let text = granule_last_error();
    // SAFETY: the header promises a text, good until the thread's next failure.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What a function gives that makes bytes.
pub(super) fn bytes_of(call: impl FnOnce(*mut granule_bytes) -> granule_status) -> Option<Vec<u8>> {
    let mut bytes = granule_bytes { data: null(), len: 0, owner: null_mut() };
    if !told(call(&raw mut bytes)) {
        assert!(bytes.data.is_null(), "a call that failed wrote an answer");
        return None;
    }
    // SAFETY: the header promises so many bytes, good until they are freed.
    let copy = unsafe { std::slice::from_raw_parts(bytes.data, bytes.len as usize) }.to_vec();
    c!(granule_bytes_free(&raw mut bytes));
    Some(copy)
}

impl Program {
    pub(super) fn begin(input: &mut Cursor<'_>) -> Self {
        let options = granule_options {
            size: size_of::<granule_options>() as u32,
            backend: c"openreg".as_ptr(),
            settings: SETTINGS[input.byte() as usize % SETTINGS.len()].as_ptr(),
            table: null(),
            pytorch_release: null(),
        };
        let (mut a, mut devices) = (null_mut(), 0);
        assert!(told(c!(granule_allocator_create(&raw const options, &raw mut a))), "{}", last_error());
        assert!(told(c!(granule_device_count(a, &raw mut devices))));
        Self {
            a,
            devices,
            live: BTreeMap::new(),
            dead: Vec::new(),
            streams: Vec::new(),
            pools: Vec::new(),
            scopes: Vec::new(),
            tenants: Vec::new(),
            imports: Vec::new(),
            captures: Vec::new(),
            uncached: false,
        }
    }

    /// Notes a block that was handed out.
    pub(super) fn handed_out(&mut self, ptr: *mut c_void, asked: u64, device: i32) {
        let at = ptr.addr() as u64;
        if asked == 0 {
            assert_eq!(at, 0, "nothing was asked for");
            return;
        }
        let mut bytes = asked;
        if !self.uncached {
            assert!(told(c!(granule_block_size(self.a, ptr, &raw mut bytes))), "{}", last_error());
        }
        assert!(bytes >= asked && at != 0 && at.is_multiple_of(512), "{bytes} at {at:#x} for {asked}");
        let before = self.live.range(..=at).next_back();
        assert!(before.is_none_or(|(other, block)| other + block.bytes <= at), "{at:#x} is in another block");
        let behind = self.live.range(at..).next();
        assert!(behind.is_none_or(|(other, _)| at + bytes <= *other), "{at:#x} reaches into another block");
        self.live.insert(at, Block { device, bytes, uncached: self.uncached });
    }

    /// Takes note of a free that worked.
    pub(super) fn given_back(&mut self, at: u64) {
        if self.live.remove(&at).is_some() {
            self.dead.push(at);
        }
    }

    /// The figures are those of what the program has.
    pub(super) fn count(&self) {
        for device in 0..self.devices {
            let stats = self.stats(device);
            let counted = self.live.values().filter(|block| block.device == device && !block.uncached);
            let (count, bytes) = counted.fold((0, 0), |(n, sum), block| (n + 1, sum + block.bytes as i64));
            assert_eq!((stats.allocation.all.current, stats.allocated_bytes.all.current), (count, bytes));
            let [active, reserved] =
                [stats.active_bytes, stats.reserved_bytes].map(|bytes| bytes.all.current);
            assert!(bytes <= active && active <= reserved + stats.asleep_bytes, "{active} of {reserved}");
            for array in
                [stats.allocation, stats.allocated_bytes, stats.reserved_bytes, stats.requested_bytes]
            {
                let parts = array.small_pool.current + array.large_pool.current;
                assert_eq!(parts, array.all.current, "both tiers are all");
                assert!(array.all.peak >= array.all.current);
                assert_eq!(array.all.allocated - array.all.freed, array.all.current);
            }
        }
    }

    fn stats(&self, device: i32) -> granule_device_stats {
        // SAFETY: plain figures, for which zeros are fine.
        let mut stats: granule_device_stats = unsafe { std::mem::zeroed() };
        stats.size = size_of::<granule_device_stats>() as u32;
        assert!(told(c!(granule_stats(self.a, device, &raw mut stats))), "{}", last_error());
        stats
    }

    /// Gives everything back; then nothing is left.
    pub(super) fn end(mut self) {
        let a = self.a;
        for device in std::mem::take(&mut self.captures) {
            assert!(told(c!(granule_mark_capture_end(a, device))), "{}", last_error());
        }
        for import in std::mem::take(&mut self.imports) {
            assert!(told(c!(granule_import_close(import))), "{}", last_error());
        }
        for scope in std::mem::take(&mut self.scopes) {
            told(c!(granule_scope_end(scope, null_mut())));
        }
        for tenant in std::mem::take(&mut self.tenants) {
            assert!(told(c!(granule_tenant_remove(a, tenant))), "{}", last_error());
        }
        for device in 0..self.devices {
            assert!(told(c!(granule_set_memory_limits(a, device, u64::MAX, u64::MAX))), "{}", last_error());
            assert!(told(c!(granule_set_memory_fraction(a, device, 1.0))), "{}", last_error());
        }
        for Pool { device, id, open, references } in std::mem::take(&mut self.pools) {
            c!(granule_pool_set_limits(a, device, id, u64::MAX, u64::MAX));
            for _ in 0..open {
                assert!(told(c!(granule_pool_end(a, device, id))), "{}", last_error());
            }
            for _ in 0..references {
                assert!(told(c!(granule_pool_release(a, device, id))), "{}", last_error());
            }
        }
        assert!(told(c!(granule_wake(a, null(), 0, null_mut()))), "{}", last_error());
        for at in std::mem::take(&mut self.live).into_keys() {
            assert!(told(c!(granule_free(a, address(at)))), "{}", last_error());
        }
        for device in 0..self.devices {
            assert!(told(c!(granule_synchronize(a, device))), "{}", last_error());
        }
        assert!(told(c!(granule_empty_cache(a))), "{}", last_error());
        for device in 0..self.devices {
            let stats = self.stats(device);
            let left = [stats.allocation, stats.active, stats.requested_bytes, stats.reserved_bytes];
            assert_eq!(left.map(|figure| figure.all.current), [0; 4], "nothing is left of device {device}");
        }
        for (device, stream) in std::mem::take(&mut self.streams) {
            assert!(told(c!(granule_stream_destroy(a, device, stream))), "{}", last_error());
        }
        assert!(told(c!(granule_allocator_destroy(a))), "{}", last_error());
    }
}
