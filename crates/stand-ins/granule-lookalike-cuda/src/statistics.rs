//! What a run has done: counts for tests and scripts, and the file that says them when the process ends.
//!
//! Scripts find the functions here in `libcuda.so.1` by `dlsym`. A counter is made of the counts that the table of
//! entry points ([`crate::entries`]) keeps anyway.

use backend_openreg::Driver;
use lookalike::entry::{Entry, Outcome};
use lookalike::events::lag;
use lookalike::{control, machine};
use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write;
use std::sync::Once;

/// What of calls is counted.
#[derive(Clone, Copy)]
enum Of {
    /// All of them.
    Calls,
    /// Those that were done.
    Done,
    /// Those that were done, and those for which there was no memory.
    Served,
    /// Those that ended like that.
    Ended(Outcome),
    /// Kernels and graphs that ran.
    Launches,
    /// What no correct program does.
    Misuses,
}

const ALLOCATING: &[&str] =
    &["cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"];
const FREEING: &[&str] = &["cuMemFree_v2", "cuMemFreeAsync"];
/// Entry points that refuse nothing a correct program asks of them.
const CORRECT: &[&str] = &[
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuIpcCloseMemHandle",
    "cuStreamDestroy_v2",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
];

/// Counters by name, and the calls that they count.
const COUNTERS: &[(&str, Of, &[&str])] = &[
    ("cudaMalloc", Of::Served, ALLOCATING),
    ("cudaMalloc_failed", Of::Ended(Outcome::OutOfMemory), ALLOCATING),
    ("cudaFree", Of::Done, FREEING),
    ("cuMemAddressReserve", Of::Calls, &["cuMemAddressReserve"]),
    ("cuMemAddressFree", Of::Calls, &["cuMemAddressFree"]),
    ("cuMemCreate", Of::Calls, &["cuMemCreate"]),
    ("cuMemCreate_failed", Of::Ended(Outcome::OutOfMemory), &["cuMemCreate"]),
    ("cuMemRelease", Of::Calls, &["cuMemRelease"]),
    ("cuMemMap", Of::Calls, &["cuMemMap"]),
    ("cuMemUnmap", Of::Calls, &["cuMemUnmap"]),
    ("cuMemSetAccess", Of::Calls, &["cuMemSetAccess"]),
    ("kernel_launch", Of::Launches, &[]),
    ("event_query", Of::Calls, &["cuEventQuery"]),
    ("event_not_ready", Of::Ended(Outcome::NotReady), &["cuEventQuery"]),
    ("graph_launch", Of::Done, &["cuGraphLaunch"]),
    ("host_alloc", Of::Served, &["cuMemHostAlloc", "cuMemAllocHost_v2"]),
    ("bad_call", Of::Misuses, CORRECT),
];

fn calls(entry: &Entry, of: Of) -> u64 {
    let sum = |outcomes: &[Outcome]| outcomes.iter().map(|&outcome| entry.count(outcome)).sum();
    match of {
        Of::Calls => {
            sum(&[Outcome::Done, Outcome::OutOfMemory, Outcome::NotReady, Outcome::Refused, Outcome::Failed])
        }
        Of::Done => sum(&[Outcome::Done]),
        Of::Served => sum(&[Outcome::Done, Outcome::OutOfMemory]),
        Of::Ended(outcome) => sum(&[outcome]),
        Of::Misuses => sum(&[Outcome::Refused]),
        Of::Launches => 0,
    }
}

fn count(of: Of, names: &[&str]) -> u64 {
    let rows = crate::entries().filter(|entry| names.contains(&entry.name));
    let counted: u64 = rows.map(|entry| calls(entry, of)).sum();
    counted
        + match of {
            Of::Launches => lag::launches(),
            // A refused call may be a trap of the machine, too; what counts is that there is any.
            Of::Misuses => control::granule_lookalike_traps(),
            _ => 0,
        }
}

/// The value of a counter by its name; 0 for an unknown name.
///
/// # Safety
/// `name` is null or a text of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakegpu_counter_named(name: *const c_char) -> u64 {
    if name.is_null() {
        return 0;
    }
    // SAFETY: the caller promises a text.
    let name = unsafe { CStr::from_ptr(name) };
    let known = COUNTERS.iter().find(|(known, ..)| known.as_bytes() == name.to_bytes());
    known.map_or(0, |(_, of, names)| count(*of, names))
}

/// How many devices the settings ask for, before any initialisation.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_device_count() -> c_int {
    lookalike::settings().map_or(0, |settings| settings.config.device_count().into())
}

/// Bytes in use on a device.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_used(device: c_int) -> usize {
    u16::try_from(device).map_or(0, |device| control::granule_lookalike_used(device)) as usize
}

/// Most bytes that were in use on a device at once.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_peak(device: c_int) -> usize {
    u16::try_from(device).map_or(0, |device| control::granule_lookalike_peak(device)) as usize
}

/// Lets the peak begin again from what is in use now.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_reset_peak(device: c_int) {
    let _ = u16::try_from(device).map(|device| control::granule_lookalike_reset_peak(device));
}

/// Sets a device's capacity in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_set_capacity(device: c_int, bytes: usize) {
    let _ = u16::try_from(device).map(|device| control::granule_lookalike_set_capacity(device, bytes as u64));
}

/// The byte that copies of memory without contents to the host find.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_set_d2h_fill(byte: c_int) {
    let _ = machine().map(|machine| Driver(machine).set_read_back(byte as u8));
}

/// Whether small copies to memory without contents are remembered from now on.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_remember(on: c_int) {
    let _ = machine().map(|machine| Driver(machine).remember(on != 0));
}

/// The file of `FAKE_GPU_STATS`; `%p` in it is the process.
const VARIABLE: &str = "FAKE_GPU_STATS";

/// Lets the process write its statistics when it ends, where a file is named.
pub(crate) fn write_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os(VARIABLE).is_some_and(|file| !file.is_empty()) {
            PROCESS.store(std::process::id(), std::sync::atomic::Ordering::Relaxed);
            // SAFETY: the function is this library's, which is never unloaded while a program runs on it.
            unsafe { libc::atexit(write) };
        }
    });
}

static PROCESS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

extern "C" fn write() {
    let process = std::process::id();
    // A fork's counts are its parent's.
    if PROCESS.load(std::sync::atomic::Ordering::Relaxed) != process {
        return;
    }
    let Ok(file) = std::env::var(VARIABLE) else { return };
    let _ = std::fs::write(file.replacen("%p", &process.to_string(), 1), statistics());
}

fn statistics() -> String {
    let devices: Vec<String> = (0..fakegpu_device_count())
        .map(|device| {
            let total = machine()
                .map_or(0, |machine| machine.capacity(backend_api::types::DeviceIndex(device as u16)));
            let (peak, used) = (fakegpu_peak(device), fakegpu_used(device));
            format!("{{\"capacity\": {total}, \"peak_held\": {peak}, \"held_at_exit\": {used}}}")
        })
        .collect();
    let mut calls = String::new();
    for (name, of, names) in COUNTERS {
        let comma = if calls.is_empty() { "" } else { ", " };
        let _ = write!(calls, "{comma}\"{name}\": {}", count(*of, names));
    }
    format!("{{\n \"devices\": [{}],\n \"calls\": {{{calls}}}\n}}\n", devices.join(", "))
}
