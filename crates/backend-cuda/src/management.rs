//! NVIDIA's management library (NVML), loaded at run time where it is there: what each process has of a device.

use libloading::{Library, Symbol};
use std::error::Error;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

/// The environment variable that names the management library; then no other is tried.
pub const MANAGEMENT_VARIABLE: &str = "GRANULE_NVML_LIBRARY";

const USUAL: &str = "libnvidia-ml.so.1";
const INSUFFICIENT_SIZE: c_int = 7;
/// Memory that the library does not know: on WSL, and where the driver does not count.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;
/// Processes that may start between the questions.
const MORE: usize = 8;

/// A process, as the third version of the question answers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    used: c_ulonglong,
    instance: c_uint,
    compute_instance: c_uint,
}

type Start = unsafe extern "C" fn() -> c_int;
type HandleByBusId = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type RunningProcesses = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> c_int;
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;

/// The library, started. It stays loaded for as long as this lives.
#[derive(Debug)]
pub struct Management {
    library: Library,
}

impl Management {
    /// Loads and starts it.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn load() -> Result<Self, String> {
        let named = std::env::var_os(MANAGEMENT_VARIABLE).filter(|name| !name.is_empty());
        let name = named.unwrap_or_else(|| OsString::from(USUAL));
        // SAFETY: loading runs the library's initialisers; the name is that of NVIDIA's library, or what the user named, who answers
        // for it.
        let library = unsafe { Library::new(&name) }.map_err(|error| {
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            format!(
                "NVIDIA's management library was not found ({cause}): what processes use is not known. It comes with the driver; in \
                 a container ask for the capability `utility`, or name the library in {MANAGEMENT_VARIABLE}"
            )
        })?;
        let it = Self { library };
        // SAFETY: the function of this name takes nothing.
        let start: Symbol<'_, Start> = unsafe { it.function(c"nvmlInit_v2") }?;
        // SAFETY: it may be called at any time, also again.
        it.answer("nvmlInit_v2", unsafe { start() })?;
        Ok(it)
    }

    /// # Safety
    /// The library's function of this name has the type `T`.
    unsafe fn function<T>(&self, name: &CStr) -> Result<Symbol<'_, T>, String> {
        // SAFETY: by this function's own contract.
        unsafe { self.library.get(name.to_bytes_with_nul()) }.map_err(|_| {
            let name = name.to_string_lossy();
            format!("NVIDIA's management library has no {name}: what processes use is not known. Drivers from 510 on have it")
        })
    }

    fn answer(&self, call: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function of this name takes a code and answers a text.
        let text = unsafe { self.function::<ErrorText>(c"nvmlErrorString") }.map(|text| {
            // SAFETY: any code may be asked about.
            unsafe { text(code) }
        });
        let words = text.ok().filter(|text| !text.is_null()).map(|text| {
            // SAFETY: a text of the library's own, which ends with a zero and stays.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        });
        Err(format!("{call}: {} ({code})", words.as_deref().unwrap_or("unknown error")))
    }

    /// What processes have of the device at this place on the bus, in bytes, by number. Those that the library cannot tell are
    /// left out.
    ///
    /// # Errors
    /// What the library answers: integrated devices and slices may be refused.
    pub fn processes(&self, bus_id: &str) -> Result<Vec<(u32, u64)>, String> {
        let bus_id =
            CString::new(bus_id).map_err(|_| "the device's place on the bus is no text".to_owned())?;
        // SAFETY: the function of this name takes a text and the place of a handle.
        let find: Symbol<'_, HandleByBusId> = unsafe { self.function(c"nvmlDeviceGetHandleByPciBusId_v2") }?;
        let mut device = ptr::null_mut();
        // SAFETY: the text ends with a zero, and one handle is written.
        let found = unsafe { find(bus_id.as_ptr(), &raw mut device) };
        self.answer("nvmlDeviceGetHandleByPciBusId", found)?;
        // SAFETY: the function of this name takes a handle, a count, and as many structs.
        let ask: Symbol<'_, RunningProcesses> =
            unsafe { self.function(c"nvmlDeviceGetComputeRunningProcesses_v3") }?;
        let mut processes = vec![ProcessInfo::default(); MORE];
        loop {
            let mut count = c_uint::try_from(processes.len()).unwrap_or(c_uint::MAX);
            // SAFETY: the handle is the device's, and there is room for `count` structs.
            let code = unsafe { ask(device, &raw mut count, processes.as_mut_ptr()) };
            if code != INSUFFICIENT_SIZE {
                self.answer("nvmlDeviceGetComputeRunningProcesses", code)?;
                processes.truncate(count as usize);
                break;
            }
            processes.resize(count as usize + MORE, ProcessInfo::default());
        }
        let known = processes.into_iter().filter(|process| process.used != NOT_AVAILABLE);
        Ok(known.map(|process| (process.pid, process.used)).collect())
    }
}
