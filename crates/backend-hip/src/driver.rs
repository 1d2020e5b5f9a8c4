//! What AMD's runtime is: a device becomes a thread's current one by its number, and the error that the runtime keeps for
//! the thread is cleared where a call of this backend made it.

use crate::error;
use crate::library::{self, HipDriver, ordinal};
use backend_api::types::{DeviceIndex, DeviceKind};
use backend_api::{ErrorKind, Result};
use backend_support::errors::{ErrorTable, NO_DEVICE};
use backend_support::{Abilities, Driver, Family, Names, Site, call, names, needs};
use granule_hip_sys::abi6::hipError_t;
use granule_hip_sys::{Library, Version};
use std::ffi::{CStr, c_char, c_int};

/// The name of code 999.
const UNKNOWN_NAME: &str = "hipErrorUnknown";

// SAFETY: the runtime's own promises for memory, events and waits; its rule for `hipMemRelease` is I4.
unsafe impl Driver for HipDriver {
    const KIND: DeviceKind = DeviceKind::Hip;
    const NAME: &'static str = "hip";
    const LOAD: &'static str = "Hip::load";
    const NOUN: &'static str = "runtime";
    const CURRENT: &'static str = "device";
    const NAMES: Names = Names {
        current: "hipGetDevice",
        device_of_current: "hipGetDevice",
        set_current: "hipSetDevice",
        synchronize_device: "hipDeviceSynchronize",
        malloc: "hipMalloc",
        free: "hipFree",
        pointer_attribute: "hipPointerGetAttributes",
        memset_async: "hipMemsetAsync",
        priority_range: "hipDeviceGetStreamPriorityRange",
        create_event: "hipEventCreateWithFlags",
        host_malloc: "hipHostMalloc",
        host_free: "hipHostFree",
        register: "hipHostRegister",
        unregister: "hipHostUnregister",
        enable_peer: "hipDeviceEnablePeerAccess",
        ..names!("hip")
    };
    const ERRORS: ErrorTable = error::TABLE;
    const ABILITIES: Abilities = Abilities {
        // How it takes addresses inside an allocation, and memory of another kind, differs by version.
        checks_frees: false,
        // Not before 7.14.
        checks_captures: false,
        // One whole mapping at a time.
        checks_mappings: false,
        // Fabric handles are known from 7.14 on.
        checks_handle_types: false,
        // What it says about virtual memory differs by version.
        tells_mappings: false,
        // It makes a handle for virtual memory, too.
        tells_shareable: false,
        // 6.4.0, 6.4.1 and 7.2 keep it until its addresses are given back.
        releases_at_once: false,
    };

    type Status = hipError_t;
    type Version = Version;
    type Previous = c_int;

    fn find() -> Result<Self> {
        library::check(Library::open())
    }

    fn start(&mut self) -> Result<()> {
        // SAFETY: for the questions below, which name no handle.
        self.devices = devices(unsafe { Site::of_driver(self) })?;
        let devices = self.devices.len();
        tracing::debug!(library = self.library, version = %self.version, devices, "HIP loaded");
        Ok(())
    }

    fn device_count(&self) -> u16 {
        // No more than fit were accepted.
        u16::try_from(self.devices.len()).unwrap_or(u16::MAX)
    }

    fn library(&self) -> &str {
        &self.library
    }

    fn version(&self) -> Version {
        self.version
    }

    fn code(status: hipError_t) -> c_int {
        status.cast_signed()
    }

    fn ask_error_name(&self, code: c_int) -> Option<String> {
        // For a code that the runtime does not know either, it gives the name of another one.
        text(self.functions.hipGetErrorName, code).filter(|name| name != UNKNOWN_NAME)
    }

    fn ask_error_text(&self, code: c_int) -> Option<String> {
        text(self.functions.hipGetErrorString, code)
    }

    /// Another error than this one is the program's own, and stays for it.
    fn forget_error(&self, code: c_int) {
        // SAFETY: the function takes nothing; it may be called at any time.
        let kept = self.functions.hipPeekAtLastError.map(|peek| unsafe { peek() });
        if kept.is_none_or(|kept| kept == code.cast_unsigned()) {
            self.clear_error();
        }
    }

    fn clear_error(&self) {
        if let Some(last_error) = self.functions.hipGetLastError {
            // SAFETY: the function takes nothing; it may be called at any time.
            unsafe { last_error() };
        }
    }

    fn lacks(&self, function: &'static str) -> String {
        let Self { library, version, .. } = self;
        format!("{library} (HIP {version}) has no function {function}: a newer ROCm may have it")
    }

    fn has(site: Site<'_, Self>, family: Family) -> Result<()> {
        match family {
            Family::VirtualMemory => {
                needs!(site: hipMemGetAllocationGranularity, hipMemAddressReserve, hipMemAddressFree,
                    hipMemCreate, hipMemRelease, hipMemMap, hipMemUnmap, hipMemSetAccess, hipMemGetAccess)
            }
            Family::PhysicalSharing => {
                needs!(site: hipMemExportToShareableHandle, hipMemImportFromShareableHandle)
            }
            Family::Ipc => needs!(site: hipIpcGetMemHandle, hipIpcOpenMemHandle, hipIpcCloseMemHandle),
            Family::Peers => {
                needs!(site: hipDeviceCanAccessPeer, hipDeviceEnablePeerAccess, hipMemcpyPeerAsync)
            }
            Family::Capture => needs!(site: hipStreamGetCaptureInfo_v2, hipStreamBeginCapture,
                hipStreamEndCapture, hipThreadExchangeStreamCaptureMode, hipGraphInstantiateWithFlags,
                hipGraphLaunch, hipGraphExecDestroy, hipGraphDestroy, hipGraphNodeGetDependencies,
                hipUserObjectCreate, hipUserObjectRelease, hipGraphRetainUserObject,
                hipGraphReleaseUserObject),
            Family::HostRegistration => {
                needs!(site: hipHostRegister, hipHostUnregister)
            }
        }
    }

    fn current_device(site: Site<'_, Self>) -> Result<Option<c_int>> {
        current(site).map(Some)
    }

    fn index_of(&self, number: c_int) -> Option<DeviceIndex> {
        let index = u16::try_from(number).ok().filter(|&index| usize::from(index) < self.devices.len());
        index.map(DeviceIndex)
    }

    fn enter(site: Site<'_, Self>) -> Result<Option<c_int>> {
        let current = current(site)?;
        if current == ordinal(site.device()) {
            return Ok(None);
        }
        Self::set_current(site)?;
        Ok(Some(current))
    }

    fn leave(site: Site<'_, Self>, previous: &c_int) -> Result<()> {
        // SAFETY: the function takes one integer, and this one was its own answer.
        let restore = || unsafe { call!(site.hipSetDevice(*previous)) };
        restore().or_else(|_| restore())
    }

    fn set_current(site: Site<'_, Self>) -> Result<()> {
        // SAFETY: the function takes one integer; the device exists.
        unsafe { call!(site.hipSetDevice(ordinal(site.device()))) }
    }
}

fn text(question: Option<unsafe extern "C" fn(hipError_t) -> *const c_char>, code: c_int) -> Option<String> {
    // SAFETY: the function takes any number.
    let text = unsafe { question?(code.cast_unsigned()) };
    if text.is_null() {
        return None;
    }
    // SAFETY: the runtime points to a text of its own that ends with 0 and is never freed.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

fn current(site: Site<'_, HipDriver>) -> Result<c_int> {
    let mut device = 0;
    // SAFETY: the function writes one integer.
    unsafe { call!(site.hipGetDevice(&raw mut device)) }?;
    Ok(device)
}

fn devices(site: Site<'_, HipDriver>) -> Result<Vec<c_int>> {
    let mut count: c_int = 0;
    // SAFETY: the function writes one integer.
    unsafe { call!(site.hipGetDeviceCount(&raw mut count)) }?;
    if count <= 0 {
        return Err(site.known(NO_DEVICE, "hipGetDeviceCount"));
    }
    if count > c_int::from(u16::MAX) {
        let detail = format!("{count} devices are more than can be numbered");
        return Err(site.refuse(ErrorKind::NotSupported, "hipGetDeviceCount", detail));
    }
    let device = |ordinal| {
        let mut number = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.hipDeviceGet(&raw mut number, ordinal)) }?;
        Ok(number)
    };
    (0..count).map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::Readiness;
    use backend_support::{Context, DriverBackend};
    use granule_hip_sys::abi6::Functions;
    use std::cell::Cell;
    use std::path::Path;
    use std::sync::Arc;

    thread_local! {
        static CURRENT: Cell<c_int> = const { Cell::new(0) };
        /// How many of the next calls that set the device are refused.
        static REFUSED: Cell<usize> = const { Cell::new(0) };
    }

    unsafe extern "C" fn count(out: *mut c_int) -> hipError_t {
        // SAFETY: the caller's place.
        unsafe { out.write(2) };
        0
    }

    unsafe extern "C" fn get(out: *mut c_int, ordinal: c_int) -> hipError_t {
        // SAFETY: the caller's place.
        unsafe { out.write(ordinal) };
        0
    }

    unsafe extern "C" fn current_device(out: *mut c_int) -> hipError_t {
        // SAFETY: the caller's place.
        unsafe { out.write(CURRENT.get()) };
        0
    }

    unsafe extern "C" fn set_device(device: c_int) -> hipError_t {
        if REFUSED.get() > 0 {
            REFUSED.set(REFUSED.get() - 1);
            return 999;
        }
        CURRENT.set(device);
        0
    }

    /// A runtime of two devices that can do no more than switch between them.
    fn scripted() -> Arc<DriverBackend<HipDriver>> {
        let functions = Functions {
            hipGetDeviceCount: Some(count),
            hipDeviceGet: Some(get),
            hipGetDevice: Some(current_device),
            hipSetDevice: Some(set_device),
            ..Functions::default()
        };
        let version = Version { major: 6, minor: 4, patch: 0 };
        let (library, devices) = ("scripted".into(), Vec::new());
        let mut driver = HipDriver { functions, library, version, devices };
        driver.start().unwrap();
        DriverBackend::over(driver).unwrap()
    }

    /// The driver below its backend's checks.
    fn context(hip: &DriverBackend<HipDriver>) -> &Context<HipDriver> {
        // SAFETY: tests of this driver, which end guards in order and pass no handle.
        unsafe { hip.context() }
    }

    #[test]
    fn a_device_that_is_not_restored_at_once_is_restored_at_the_second_try() {
        let hip = scripted();
        let entered = context(&hip).enter(DeviceIndex(1), "hipMalloc").unwrap();
        assert_eq!(CURRENT.get(), 1);
        REFUSED.set(1);
        drop(entered);
        assert_eq!(CURRENT.get(), 0);
    }

    #[test]
    fn not_ready_is_a_value_and_nothing_else_is() {
        let hip = scripted();
        let site = context(&hip).site(DeviceIndex(0), "hipEventQuery").unwrap();
        assert_eq!(site.readiness("hipEventQuery", 0).unwrap(), Readiness::Ready);
        assert_eq!(site.readiness("hipEventQuery", 600).unwrap(), Readiness::NotReady);
        assert_eq!(site.readiness("hipEventQuery", 719).unwrap_err().kind, ErrorKind::DeviceLost);
    }

    /// On a machine that has ROCm's runtime package and no AMD device, as CI's has.
    #[test]
    fn a_real_library_without_a_device_is_a_clean_no_device() {
        match DriverBackend::<HipDriver>::load() {
            Err(error) if error.kind == ErrorKind::NoDriver => println!("skipped: {error}"),
            Err(error) => {
                assert_eq!((error.kind, error.call), (ErrorKind::NoDevice, "hipGetDeviceCount"));
                assert_eq!(error.code, 100);
                assert!(error.detail.contains("hipErrorNoDevice"), "{}", error.detail);
            }
            Ok(hip) => {
                let named = std::env::var_os(granule_hip_sys::LIBRARY_VARIABLE).is_some();
                assert!(named || Path::new("/dev/kfd").exists(), "{} found devices", hip.library());
                println!("skipped: {} has {} devices", hip.library(), context(&hip).devices().count());
            }
        }
    }
}
