//! Granule behind the small C ABI of the peer benchmark: the caching engine over the simulated device in
//! `reserved` mode, with full statistics, locks and all streams on. A free uses the pointer only.
//!
//! Configuration: `policy=NAME`, then `conf=PYTORCH_ALLOC_CONF string`, both optional and separated by a comma; the
//! string goes to the end, as it has commas of its own.

mod configuration;

use alloc_core::CachingAllocator;
use alloc_core::backend::Backend;
use alloc_core::types::{DeviceIndex, DevicePtr, Stream};
use backend_openreg::{Call, OpenReg, OpenRegConfig};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

const DEVICE: DeviceIndex = DeviceIndex(0);
/// Streams that the benchmark may name.
const STREAMS: usize = 64;

/// Calls that take or give back memory.
const MEMORY_CALLS: &[Call] = &[
    Call::Malloc,
    Call::Free,
    Call::ReserveAddress,
    Call::ReleaseAddress,
    Call::CreatePhysical,
    Call::ReleasePhysical,
    Call::Map,
    Call::Unmap,
    Call::SetAccess,
];

struct State {
    allocator: CachingAllocator,
    device: Arc<OpenReg>,
    streams: Vec<Stream>,
}

static STATE: OnceLock<State> = OnceLock::new();

fn start(device_bytes: u64, config: &str) -> Result<State, String> {
    let settings = configuration::settings(config)?;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let device =
        OpenReg::new(OpenRegConfig::default().devices(1).capacity(device_bytes)).map_err(|e| text(&e))?;
    let mut streams = vec![device.default_stream(DEVICE)];
    for _ in 1..STREAMS {
        streams.push(device.create_stream(DEVICE, 0).map_err(|e| text(&e))?);
    }
    let allocator = CachingAllocator::new(device.clone(), settings).map_err(|e| text(&e))?;
    Ok(State { allocator, device, streams })
}

/// Stream tokens of the benchmark: null, then 0x10000 + i * 0x100.
fn stream(state: &State, token: *mut c_void) -> Option<Stream> {
    let number = (token as usize).checked_sub(0x10000).map_or(0, |offset| offset / 0x100);
    state.streams.get(number).copied()
}

/// The adaptor's name.
#[unsafe(no_mangle)]
pub extern "C" fn bm_name() -> *const c_char {
    c"Granule (simulated device)".as_ptr()
}

/// Starts; 0 is success.
///
/// # Safety
/// `config` is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bm_init(device_bytes: usize, config: *const c_char) -> c_int {
    let config = if config.is_null() {
        String::new()
    } else {
        // SAFETY: by this function's contract.
        unsafe { CStr::from_ptr(config) }.to_string_lossy().into_owned()
    };
    match start(device_bytes as u64, &config) {
        Ok(state) => c_int::from(STATE.set(state).is_err()),
        Err(error) => {
            eprintln!("granule adaptor: {error}");
            1
        }
    }
}

/// Memory, or null.
#[unsafe(no_mangle)]
pub extern "C" fn bm_malloc(bytes: usize, token: *mut c_void) -> *mut c_void {
    let memory = STATE.get().and_then(|state| {
        let stream = stream(state, token)?;
        state.allocator.malloc(bytes as u64, stream).ok()
    });
    memory.unwrap_or(DevicePtr::NULL).0 as *mut c_void
}

/// Takes memory back, by its address alone.
#[unsafe(no_mangle)]
pub extern "C" fn bm_free(ptr: *mut c_void, _bytes: usize, _stream: *mut c_void) {
    if let Some(state) = STATE.get()
        && let Err(error) = state.allocator.free(DevicePtr(ptr as u64))
    {
        eprintln!("granule adaptor: {error}");
    }
}

fn reserved(figure: impl Fn(&alloc_core::stats::Stat) -> i64) -> usize {
    let stats = STATE.get().and_then(|state| state.allocator.stats(DEVICE).ok());
    stats.map_or(0, |stats| usize::try_from(figure(&stats.reserved_bytes.all)).unwrap_or(0))
}

/// Bytes held now.
#[unsafe(no_mangle)]
pub extern "C" fn bm_reserved() -> usize {
    reserved(|stat| stat.current)
}

/// The most held since the last reset.
#[unsafe(no_mangle)]
pub extern "C" fn bm_peak_reserved() -> usize {
    reserved(|stat| stat.peak)
}

/// Device calls since the last reset.
#[unsafe(no_mangle)]
pub extern "C" fn bm_driver_calls() -> usize {
    let Some(state) = STATE.get() else { return 0 };
    let calls = state.device.calls();
    let made: u64 = MEMORY_CALLS.iter().map(|call| calls.get(*call)).sum();
    usize::try_from(made).unwrap_or(usize::MAX)
}

/// Gives cached memory back.
#[unsafe(no_mangle)]
pub extern "C" fn bm_empty_cache() {
    if let Some(state) = STATE.get()
        && let Err(error) = state.allocator.empty_cache()
    {
        eprintln!("granule adaptor: {error}");
    }
}

/// Gives cached memory back and clears peaks and counters.
#[unsafe(no_mangle)]
pub extern "C" fn bm_reset() {
    bm_empty_cache();
    if let Some(state) = STATE.get() {
        let _ = state.allocator.statistics().reset_peaks(DEVICE);
        let _ = state.allocator.statistics().reset_accumulated(DEVICE);
        state.device.reset_calls();
    }
}
