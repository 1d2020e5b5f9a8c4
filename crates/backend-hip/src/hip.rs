//! The backend value: the runtime, its devices, and what is remembered between calls.

use crate::capture::{Captures, Executables};
use crate::context::Device;
use crate::driver::{Driver, Site};
use crate::error;
use crate::library;
use crate::physical::Physical;
use crate::pools::Pooled;
use crate::probe::Probes;
use backend_api::types::{BackendId, DeviceIndex, DeviceKind};
use backend_api::{BackendError, ErrorKind, LabelOwner, Result};
use backend_support::{Imports, TimedEvents};
use hip_sys::{Library, Version};
use std::ffi::c_int;
use std::sync::Arc;

/// AMD's HIP runtime as a [`Backend`](backend_api::Backend).
#[derive(Debug)]
pub struct Hip {
    pub(crate) id: BackendId,
    /// The process that initialised the runtime; a fork of it cannot use it.
    pub(crate) process: u32,
    pub(crate) driver: Driver,
    pub(crate) devices: Vec<Device>,
    pub(crate) probes: Probes,
    /// Events that keep time.
    pub(crate) timed: TimedEvents,
    /// Physical memory and where it is mapped.
    pub(crate) physical: Physical,
    /// Memory of other processes.
    pub(crate) imports: Imports,
    /// Memory of the driver's pools.
    pub(crate) pooled: Pooled,
    /// Captures that this backend began.
    pub(crate) captures: Captures,
    /// Graphs made ready to launch.
    pub(crate) executables: Executables,
    /// Nobody else presents devices as HIP's meanwhile.
    _label: LabelOwner,
}

impl Hip {
    /// Finds the runtime and its devices. [`Library::open`] says where it looks; the environment variable
    /// `GRANULE_HIP_LIBRARY` names one file instead. May block while the runtime starts.
    ///
    /// # Errors
    /// `NoDriver` where there is no library, or one that is too old or incomplete; `NoDevice` where the
    /// runtime works and finds no device; `NotSupported` where another backend of this process owns HIP's label;
    /// otherwise what the runtime said. The text says what was looked for
    /// and what to do.
    pub fn load() -> Result<Arc<Self>> {
        Self::with(library::check(Library::open())?)
    }

    /// Whether [`load`](Self::load) would find a runtime that has what every device needs. No device is looked for, so the
    /// process may still fork.
    ///
    /// # Errors
    /// `NoDriver`, as for [`load`](Self::load).
    pub fn check() -> Result<()> {
        library::check(Library::open()).map(drop)
    }

    pub(crate) fn with(driver: Driver) -> Result<Arc<Self>> {
        let devices = devices(&driver)?;
        let label = LabelOwner::claim(DeviceKind::Hip, "hip").map_err(|taken| {
            BackendError::new(ErrorKind::NotSupported, 0, "Hip::load", DeviceIndex(0), taken.to_string())
        })?;
        tracing::debug!(library = driver.library, version = %driver.version, devices = devices.len(), "HIP loaded");
        Ok(Arc::new(Self {
            id: BackendId::fresh(),
            process: std::process::id(),
            driver,
            devices,
            probes: Probes::default(),
            timed: TimedEvents::default(),
            physical: Physical::default(),
            imports: Imports::default(),
            pooled: Pooled::default(),
            captures: Captures::default(),
            executables: Executables::default(),
            _label: label,
        }))
    }

    /// The version that the runtime reports. Never blocks.
    #[must_use]
    pub fn driver_version(&self) -> Version {
        self.driver.version
    }

    /// The name under which the runtime's library was opened. Never blocks.
    #[must_use]
    pub fn library(&self) -> &str {
        &self.driver.library
    }
}

fn devices(driver: &Driver) -> Result<Vec<Device>> {
    let site = Site::of_driver(driver);
    let mut count: c_int = 0;
    // SAFETY: the function writes one integer.
    let asked = unsafe { call!(site.hipGetDeviceCount(&raw mut count)) };
    match asked {
        Ok(()) if count <= 0 => {
            return Err(driver.error(error::NO_DEVICE, "hipGetDeviceCount", DeviceIndex(0)));
        }
        other => other?,
    }
    if count > c_int::from(u16::MAX) {
        let detail = format!("{count} devices are more than can be numbered");
        return Err(BackendError::new(
            ErrorKind::NotSupported,
            0,
            "hipGetDeviceCount",
            DeviceIndex(0),
            detail,
        ));
    }
    let device = |ordinal| {
        let mut number = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.hipDeviceGet(&raw mut number, ordinal)) }?;
        Ok(Device::new(number))
    };
    (0..count).map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn without_a_library_loading_is_an_error_and_no_panic() {
        let opened = Library::open_file(Path::new("/nonexistent/libamdhip64.so.6"));
        let error = library::check(opened).and_then(Hip::with).unwrap_err();
        assert_eq!((error.kind, error.call), (ErrorKind::NoDriver, "dlopen"));
        assert!(error.detail.contains("/nonexistent/libamdhip64.so.6"), "{}", error.detail);
    }

    /// On a machine that has ROCm's runtime package and no AMD device, as CI's has.
    #[test]
    fn a_real_library_without_a_device_is_a_clean_no_device() {
        match Hip::load() {
            Err(error) if error.kind == ErrorKind::NoDriver => println!("skipped: {error}"),
            Err(error) => {
                assert_eq!((error.kind, error.call), (ErrorKind::NoDevice, "hipGetDeviceCount"));
                assert_eq!(error.code, 100);
                assert!(error.detail.contains("hipErrorNoDevice"), "{}", error.detail);
            }
            Ok(hip) => {
                let named = std::env::var_os(hip_sys::LIBRARY_VARIABLE).is_some();
                assert!(named || Path::new("/dev/kfd").exists(), "{} found devices", hip.library());
                println!("skipped: {} has {} devices", hip.library(), hip.devices.len());
            }
        }
    }
}
