//! What NVIDIA's driver is, and how a device becomes a thread's current one: its primary context is pushed.

use crate::error;
use crate::library::{self, CudaDriver, Device, LIBRARY_VARIABLE, version_text};
use backend_api::types::{DeviceIndex, DeviceKind};
use backend_api::{ErrorKind, Result};
use backend_support::errors::{DEINITIALIZED, ErrorTable, NO_DEVICE, SUCCESS};
use backend_support::{Abilities, Driver, Family, Names, Site, call, names, needs, number, pointer};
use cudarc::driver::sys::CUcontext;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;

// SAFETY: the driver's own promises for memory, events and waits; its rule for `cuMemRelease` is I4.
unsafe impl Driver for CudaDriver {
    const KIND: DeviceKind = DeviceKind::Cuda;
    const NAME: &'static str = "cuda";
    const LOAD: &'static str = "Cuda::load";
    const NOUN: &'static str = "driver";
    const CURRENT: &'static str = "context";
    const NAMES: Names = names!("cu");
    const ERRORS: ErrorTable = error::TABLE;
    const ABILITIES: Abilities = Abilities {
        checks_frees: true,
        checks_captures: true,
        checks_mappings: true,
        checks_handle_types: true,
        tells_mappings: true,
        tells_shareable: true,
        releases_at_once: true,
    };

    type Status = c_int;
    type Version = i32;
    /// The context that was pushed.
    type Previous = CUcontext;

    fn find() -> Result<Self> {
        library::find(&library::candidates(std::env::var_os(LIBRARY_VARIABLE)))
    }

    fn start(&mut self) -> Result<()> {
        // SAFETY: for the questions below, which name no handle.
        self.devices = devices(unsafe { Site::of_driver(self) })?;
        tracing::debug!(library = self.library, version = self.version, "CUDA driver loaded");
        Ok(())
    }

    fn device_count(&self) -> u16 {
        // No more than fit were accepted.
        u16::try_from(self.devices.len()).unwrap_or(u16::MAX)
    }

    fn library(&self) -> &str {
        &self.library
    }

    fn version(&self) -> i32 {
        self.version
    }

    fn code(status: c_int) -> c_int {
        status
    }

    fn public_name(symbol: &'static str) -> &'static str {
        symbol.trim_end_matches("_v2")
    }

    fn ask_error_name(&self, code: c_int) -> Option<String> {
        text(self.functions.cuGetErrorName, code)
    }

    fn ask_error_text(&self, code: c_int) -> Option<String> {
        text(self.functions.cuGetErrorString, code)
    }

    fn lacks(&self, function: &'static str) -> String {
        let version = version_text(self.version);
        format!("{} (CUDA {version}) has no function {function}: a newer driver may have it", self.library)
    }

    fn has(site: Site<'_, Self>, family: Family) -> Result<()> {
        match family {
            Family::VirtualMemory => needs!(site: cuMemGetAllocationGranularity, cuMemAddressReserve,
                cuMemAddressFree, cuMemCreate, cuMemRelease, cuMemMap, cuMemUnmap, cuMemSetAccess,
                cuMemGetAccess),
            Family::PhysicalSharing => {
                needs!(site: cuMemExportToShareableHandle, cuMemImportFromShareableHandle)
            }
            Family::Ipc => needs!(site: cuIpcGetMemHandle, cuIpcOpenMemHandle_v2, cuIpcCloseMemHandle),
            Family::Peers => needs!(site: cuDeviceCanAccessPeer, cuCtxEnablePeerAccess, cuMemcpyPeerAsync),
            Family::Capture => needs!(site: cuStreamGetCaptureInfo_v2, cuStreamBeginCapture_v2,
                cuStreamEndCapture, cuThreadExchangeStreamCaptureMode, cuGraphInstantiateWithFlags,
                cuGraphLaunch, cuGraphExecDestroy, cuGraphDestroy, cuGraphNodeGetDependencies,
                cuUserObjectCreate, cuUserObjectRelease, cuGraphRetainUserObject, cuGraphReleaseUserObject),
            Family::HostRegistration => {
                needs!(site: cuMemHostRegister_v2, cuMemHostUnregister)
            }
        }
    }

    fn current_device(site: Site<'_, Self>) -> Result<Option<c_int>> {
        if current(site)?.is_null() {
            return Ok(None);
        }
        let mut found = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.cuCtxGetDevice(&raw mut found)) }?;
        Ok(Some(found))
    }

    fn index_of(&self, number: c_int) -> Option<DeviceIndex> {
        let at = self.devices.iter().position(|device| device.number == number)?;
        u16::try_from(at).ok().map(DeviceIndex)
    }

    fn enter(site: Site<'_, Self>) -> Result<Option<CUcontext>> {
        let context = primary_context(site)?;
        if current(site)? == context {
            return Ok(None);
        }
        // SAFETY: the context is a primary one that this backend retains.
        unsafe { call!(site.cuCtxPushCurrent_v2(context)) }?;
        Ok(Some(context))
    }

    fn leave(site: Site<'_, Self>, pushed: &CUcontext) -> Result<()> {
        let pop = || {
            let mut popped = ptr::null_mut();
            // SAFETY: this thread pushed a context in `enter`, and all guards pushed since are dropped.
            unsafe { call!(site.cuCtxPopCurrent_v2(&raw mut popped)) }
        };
        // The driver may answer the error of earlier work after it has popped: then a second pop would take the
        // program's context.
        pop().or_else(|refused| match current(site) {
            Ok(now) if now == *pushed => pop(),
            Ok(_) => Ok(()),
            Err(_) => Err(refused),
        })
    }

    fn set_current(site: Site<'_, Self>) -> Result<()> {
        let context = primary_context(site)?;
        // SAFETY: the context is a primary one that this backend retains.
        unsafe { call!(site.cuCtxSetCurrent(context)) }
    }

    fn shut_down(&self) {
        // SAFETY: for the calls below, whose contexts are this driver's.
        let site = unsafe { Site::of_driver(self) };
        for device in self.devices.iter().filter(|device| device.context.get().is_some()) {
            // SAFETY: gives back the one reference that `primary_context` took and kept.
            let released = unsafe { call!(site.cuDevicePrimaryCtxRelease_v2(device.number)) };
            if let Err(error) = released
                && error.code != DEINITIALIZED
            {
                tracing::warn!(%error, "could not give a primary context back");
            }
        }
    }
}

fn text(
    question: Option<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>,
    code: c_int,
) -> Option<String> {
    let mut text = ptr::null();
    // SAFETY: the function writes one pointer, and answers an error for a code that it does not know.
    let status = unsafe { question?(code, &raw mut text) };
    if status != SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: on success the driver points to a text of its own that ends with 0 and is never freed.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Initialises the driver, and asks it for its devices.
fn devices(site: Site<'_, CudaDriver>) -> Result<Vec<Device>> {
    // SAFETY: the function takes one integer, which must be 0.
    unsafe { call!(site.cuInit(0)) }?;
    let mut count: c_int = 0;
    // SAFETY: the function writes one integer.
    unsafe { call!(site.cuDeviceGetCount(&raw mut count)) }?;
    if count <= 0 {
        return Err(site.known(NO_DEVICE, "cuDeviceGetCount"));
    }
    if count > c_int::from(u16::MAX) {
        let detail = format!("{count} devices are more than can be numbered");
        return Err(site.refuse(ErrorKind::NotSupported, "cuDeviceGetCount", detail));
    }
    let device = |ordinal| {
        let mut number = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.cuDeviceGet(&raw mut number, ordinal)) }?;
        Ok(Device::new(number))
    };
    (0..count).map(device).collect()
}

/// The primary context of the site's device, retained at the first need.
pub(crate) fn primary_context(site: Site<'_, CudaDriver>) -> Result<CUcontext> {
    let device = site.driver().device(site.device())?;
    if let Some(&context) = device.context.get() {
        return Ok(pointer(context));
    }
    let mut context = ptr::null_mut();
    // SAFETY: the function writes one pointer; the device number is the driver's.
    unsafe { call!(site.cuDevicePrimaryCtxRetain(&raw mut context, device.number)) }?;
    if device.context.set(number(context)).is_err() {
        // Another thread was faster; a device has one primary context, so it is the same one.
        // SAFETY: this gives back the reference that was just taken.
        unsafe { call!(site.cuDevicePrimaryCtxRelease_v2(device.number)) }?;
    }
    Ok(context)
}

fn current(site: Site<'_, CudaDriver>) -> Result<CUcontext> {
    let mut context = ptr::null_mut();
    // SAFETY: the function writes one pointer.
    unsafe { call!(site.cuCtxGetCurrent(&raw mut context)) }?;
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_as_in_the_header() {
        assert_eq!(CudaDriver::public_name("cuMemAlloc_v2"), "cuMemAlloc");
        assert_eq!(CudaDriver::public_name("cuInit"), "cuInit");
    }
}
