//! The backend value: the driver, its devices, and what is remembered between calls.

use crate::capture::Executables;
use crate::context::Device;
use crate::driver::{Driver, Site};
use crate::error;
use crate::library::{self, LIBRARY_VARIABLE};
use crate::physical::Physical;
use crate::probe::Probes;
use backend_api::types::{BackendId, DeviceIndex, DeviceKind};
use backend_api::{BackendError, ErrorKind, LabelOwner, Result};
use backend_support::{Imports, TimedEvents};
use std::ffi::{OsString, c_int};
use std::sync::Arc;

/// The NVIDIA driver as a [`Backend`](backend_api::Backend).
#[derive(Debug)]
pub struct Cuda {
    pub(crate) id: BackendId,
    /// The process that initialised the driver; a fork of it cannot use it.
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
    /// Graphs made ready to launch.
    pub(crate) executables: Executables,
    /// Nobody else presents devices as CUDA's meanwhile.
    _label: LabelOwner,
}

impl Cuda {
    /// Finds and initialises the driver. The environment variable `GRANULE_CUDA_LIBRARY` names its library
    /// where it is none of the usual ones. Creates no context. May block while the driver starts.
    ///
    /// # Errors
    /// `NoDriver` where there is no library, or one that is a stub, too old or incomplete; `NoDevice` where
    /// the driver works and finds no device; `NotSupported` where another backend of this process owns CUDA's
    /// label; otherwise what the driver said. The text says what was looked for and what to do.
    pub fn load() -> Result<Arc<Self>> {
        Self::load_from(&library::candidates(std::env::var_os(LIBRARY_VARIABLE)))
    }

    /// Whether [`load`](Self::load) would find a driver that has what every device needs. The driver is not started, so no
    /// device is looked for, and the process may still fork.
    ///
    /// # Errors
    /// `NoDriver`, as for [`load`](Self::load).
    pub fn check() -> Result<()> {
        library::find(&library::candidates(std::env::var_os(LIBRARY_VARIABLE))).map(drop)
    }

    pub(crate) fn load_from(candidates: &[OsString]) -> Result<Arc<Self>> {
        let driver = library::load(candidates)?;
        let devices = devices(&driver)?;
        let label = LabelOwner::claim(DeviceKind::Cuda, "cuda").map_err(|taken| {
            BackendError::new(ErrorKind::NotSupported, 0, "Cuda::load", DeviceIndex(0), taken.to_string())
        })?;
        Ok(Arc::new(Self::of(driver, devices, label)))
    }

    pub(crate) fn of(driver: Driver, devices: Vec<Device>, label: LabelOwner) -> Self {
        Self {
            id: BackendId::fresh(),
            process: std::process::id(),
            driver,
            devices,
            probes: Probes::default(),
            timed: TimedEvents::default(),
            physical: Physical::default(),
            imports: Imports::default(),
            executables: Executables::default(),
            _label: label,
        }
    }

    /// The CUDA version that the driver serves: 12010 is 12.1. Never blocks.
    #[must_use]
    pub fn driver_version(&self) -> i32 {
        self.driver.version
    }

    /// The name under which the driver's library was opened. Never blocks.
    #[must_use]
    pub fn library(&self) -> &str {
        &self.driver.library
    }
}

fn devices(driver: &Driver) -> Result<Vec<Device>> {
    let site = Site::of_driver(driver);
    let mut count: c_int = 0;
    // SAFETY: the function writes one integer.
    unsafe { call!(site.cuDeviceGetCount(&raw mut count)) }?;
    if count <= 0 {
        return Err(driver.error(error::NO_DEVICE, "cuDeviceGetCount", DeviceIndex(0)));
    }
    if count > c_int::from(u16::MAX) {
        let detail = format!("{count} devices are more than can be numbered");
        return Err(BackendError::new(
            ErrorKind::NotSupported,
            0,
            "cuDeviceGetCount",
            DeviceIndex(0),
            detail,
        ));
    }
    let device = |ordinal| {
        let mut number = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.cuDeviceGet(&raw mut number, ordinal)) }?;
        Ok(Device::new(number))
    };
    (0..count).map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_library_loading_is_an_error_and_no_panic() {
        let error = Cuda::load_from(&["/nonexistent/libcuda.so.1".into()]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoDriver);
    }
}
