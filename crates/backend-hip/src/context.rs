//! Devices, and the thread's current one.

use crate::driver::Site;
use crate::hip::Hip;
use backend_api::types::{BackendId, DeviceIndex};
use backend_api::{BackendError, ErrorKind, Result};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::OnceLock;

/// One device.
#[derive(Debug)]
pub(crate) struct Device {
    /// The driver-like calls' number for it; the others take the index.
    pub(crate) number: c_int,
    /// The first fatal error.
    lost: OnceLock<c_int>,
}

impl Device {
    pub(crate) fn new(number: c_int) -> Self {
        Self { number, lost: OnceLock::new() }
    }
}

/// While this lives, a device is the thread's current one; dropping it puts the one before back. It is also
/// the [`Site`] of calls about that device.
#[derive(Debug)]
#[must_use = "the previous device comes back when this is dropped"]
pub(crate) struct Entered<'c> {
    site: Site<'c>,
    previous: Option<c_int>,
    // The current device is a property of the thread: this must not travel.
    _thread: PhantomData<*const ()>,
}

impl<'c> Deref for Entered<'c> {
    type Target = Site<'c>;

    fn deref(&self) -> &Site<'c> {
        &self.site
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let Some(previous) = self.previous else {
            return;
        };
        let site = self.site;
        // SAFETY: the function takes one integer, and this one was its own answer.
        let restore = || unsafe { call!(site.hipSetDevice(previous)) };
        // Nobody above can put the device back, so a refusal is worth a second try.
        if let Err(error) = restore().or_else(|_| restore()) {
            tracing::error!(%error, "could not restore the current device");
        }
    }
}

impl Hip {
    /// The device with this index.
    pub(crate) fn device(&self, device: DeviceIndex, call: &'static str) -> Result<&Device> {
        self.devices.get(usize::from(device.0)).ok_or_else(|| {
            let detail = format!("there is no device {device}; there are {}", self.devices.len());
            BackendError::new(ErrorKind::InvalidValue, 0, call, device, detail)
        })
    }

    /// The site of calls for which the thread's device does not matter. Refuses a device that does not exist
    /// or is lost, and a process that is a fork.
    pub(crate) fn site(&self, device: DeviceIndex, call: &'static str) -> Result<Site<'_>> {
        let known = self.device(device, call)?;
        self.no_fork(device, call)?;
        match known.lost.get() {
            Some(&code) => Err(self.driver.error(code, call, device)),
            None => Ok(Site::of_device(&self.driver, device, &known.lost)),
        }
    }

    /// The site of calls about no device.
    pub(crate) fn any_site(&self, call: &'static str) -> Result<Site<'_>> {
        self.no_fork(DeviceIndex(0), call)?;
        Ok(Site::of_driver(&self.driver))
    }

    fn no_fork(&self, device: DeviceIndex, call: &'static str) -> Result<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        let detail =
            "this process is a fork of the one that initialised the runtime; load the backend after forking";
        Err(BackendError::new(ErrorKind::Unusable, 0, call, device, detail))
    }

    /// Makes the device current until the answer is dropped.
    pub(crate) fn enter(&self, device: DeviceIndex, call: &'static str) -> Result<Entered<'_>> {
        let site = self.site(device, call)?;
        let current = current(site)?;
        if current == ordinal(device) {
            return Ok(Entered { site, previous: None, _thread: PhantomData });
        }
        // SAFETY: the function takes one integer; the device exists.
        unsafe { call!(site.hipSetDevice(ordinal(device))) }?;
        Ok(Entered { site, previous: Some(current), _thread: PhantomData })
    }

    /// [`enter`](Self::enter) for the device of a handle, which must be one of this backend's.
    pub(crate) fn enter_handle(
        &self,
        backend: BackendId,
        device: DeviceIndex,
        call: &'static str,
    ) -> Result<Entered<'_>> {
        self.own(backend, device, call)?;
        self.enter(device, call)
    }

    /// Refuses a handle that another backend made.
    pub(crate) fn own(&self, backend: BackendId, device: DeviceIndex, call: &'static str) -> Result<()> {
        if backend == self.id {
            return Ok(());
        }
        let detail =
            format!("the handle belongs to backend {}, and this is backend {}", backend.0, self.id.0);
        Err(BackendError::new(ErrorKind::InvalidValue, 0, call, device, detail))
    }

    /// The thread's current device.
    pub(crate) fn device_of_thread(&self) -> Result<DeviceIndex> {
        let site = self.any_site("hipGetDevice")?;
        let current = current(site)?;
        self.index_of(current).ok_or_else(|| {
            site.invalid("hipGetDevice", format!("the runtime's device {current} is not known here"))
        })
    }

    /// The device with the runtime's number.
    pub(crate) fn index_of(&self, ordinal: c_int) -> Option<DeviceIndex> {
        let index = u16::try_from(ordinal).ok().filter(|&index| usize::from(index) < self.devices.len());
        index.map(DeviceIndex)
    }

    /// Makes the device the thread's, for good.
    pub(crate) fn make_current(&self, device: DeviceIndex) -> Result<()> {
        let site = self.site(device, "hipSetDevice")?;
        // SAFETY: the function takes one integer; the device exists.
        unsafe { call!(site.hipSetDevice(ordinal(device))) }
    }
}

/// The runtime's number of a device.
pub(crate) fn ordinal(device: DeviceIndex) -> c_int {
    c_int::from(device.0)
}

fn current(site: Site<'_>) -> Result<c_int> {
    let mut device = 0;
    // SAFETY: the function writes one integer.
    unsafe { call!(site.hipGetDevice(&raw mut device)) }?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use backend_api::Readiness;
    use hip_sys::abi6::{Functions, hipError_t};
    use hip_sys::{Generation, Version};
    use std::cell::Cell;

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
    fn scripted() -> std::sync::Arc<Hip> {
        let functions = Functions {
            hipGetDeviceCount: Some(count),
            hipDeviceGet: Some(get),
            hipGetDevice: Some(current_device),
            hipSetDevice: Some(set_device),
            ..Functions::default()
        };
        let version = Version { major: 6, minor: 4, patch: 0 };
        let driver = Driver { functions, library: "scripted".into(), version, generation: Generation::Six };
        Hip::with(driver).unwrap()
    }

    #[test]
    fn a_device_that_is_not_restored_at_once_is_restored_at_the_second_try() {
        let hip = scripted();
        let entered = hip.enter(DeviceIndex(1), "hipMalloc").unwrap();
        assert_eq!(CURRENT.get(), 1);
        REFUSED.set(1);
        drop(entered);
        assert_eq!(CURRENT.get(), 0);
    }

    #[test]
    fn not_ready_is_a_value_and_nothing_else_is() {
        let hip = scripted();
        let site = hip.site(DeviceIndex(0), "hipEventQuery").unwrap();
        assert_eq!(site.readiness("hipEventQuery", 0).unwrap(), Readiness::Ready);
        assert_eq!(site.readiness("hipEventQuery", 600).unwrap(), Readiness::NotReady);
        assert_eq!(site.readiness("hipEventQuery", 719).unwrap_err().kind, ErrorKind::DeviceLost);
    }
}
