//! The backend over a driver: its devices, and what is remembered between calls.

mod contract;
mod devices;
mod graphs;
mod host;
mod ipc;
mod memory;
mod peers;
mod virtual_memory;
mod ways;

use crate::calls::Calls;
use crate::captures::{Captures, Executables};
use crate::context::Context;
use crate::imports::Imports;
use crate::physical::Physical;
use crate::probe::Probe;
use crate::timed_events::TimedEvents;
use backend_api::types::DeviceIndex;
use backend_api::{BackendError, ErrorKind, LabelOwner, Result};
use std::sync::Arc;
use ways::Ways;

/// A driver as a [`Backend`](backend_api::Backend).
#[derive(Debug)]
pub struct DriverBackend<D: Calls> {
    context: Context<D>,
    probes: Probes,
    /// How physical memory of each device is made.
    ways: Vec<Ways>,
    /// Events that keep time.
    timed: TimedEvents,
    /// Physical memory and where it is mapped.
    physical: Physical<D::Keeps>,
    /// Memory of other processes.
    imports: Imports,
    /// Captures that this backend began.
    captures: Captures,
    /// Graphs made ready to launch.
    executables: Executables,
    /// Nobody else presents devices under this label meanwhile.
    _label: LabelOwner,
}

/// What is known about every family: each is probed once, at the first question, by using it.
#[derive(Debug, Default)]
struct Probes {
    virtual_memory: Probe,
    physical_sharing: Probe,
    ipc: Probe,
    peers: Probe,
    capture: Probe,
    host_registration: Probe,
}

impl<D: Calls> DriverBackend<D> {
    /// Finds and starts the driver. May block meanwhile.
    ///
    /// # Errors
    /// `NoDriver` where there is no library, or one that is a stub, too old or incomplete; `NoDevice` where the driver
    /// works and finds no device; `NotSupported` where another backend of this process owns the label of its devices;
    /// otherwise what the driver said. The text says what was looked for and what to do.
    pub fn load() -> Result<Arc<Self>> {
        let mut driver = D::find()?;
        driver.start()?;
        Self::over(driver)
    }

    /// Whether [`load`](Self::load) would find a driver that has what every device needs. The driver is not started, so
    /// no device is looked for, and the process may still fork.
    ///
    /// # Errors
    /// `NoDriver`, as for [`load`](Self::load).
    pub fn check() -> Result<()> {
        D::find().map(drop)
    }

    /// The backend over a driver that was started.
    ///
    /// # Errors
    /// `NotSupported` where another backend of this process owns the label of its devices.
    pub fn over(driver: D) -> Result<Arc<Self>> {
        let label = LabelOwner::claim(D::KIND, D::NAME).map_err(|taken| {
            BackendError::new(ErrorKind::NotSupported, 0, D::LOAD, DeviceIndex(0), taken.to_string())
        })?;
        let ways = (0..driver.device_count()).map(|_| Ways::default()).collect();
        Ok(Arc::new(Self {
            context: Context::new(driver),
            ways,
            probes: Probes::default(),
            timed: TimedEvents::default(),
            physical: Physical::default(),
            imports: Imports::default(),
            captures: Captures::default(),
            executables: Executables::default(),
            _label: label,
        }))
    }

    /// The version that the driver reports. Never blocks.
    #[must_use]
    pub fn driver_version(&self) -> D::Version {
        self.context.driver().version()
    }

    /// The name under which the driver's library was opened. Never blocks.
    #[must_use]
    pub fn library(&self) -> &str {
        self.context.driver().library()
    }

    /// The driver with its devices.
    ///
    /// # Safety
    /// For the tests of the driver's own crate. Through it the driver can be called with any handle and past the backend's
    /// books: what is passed is the driver's, guards end in the order of their stack, and [`Driver::shut_down`](crate::Driver::shut_down) is not called.
    #[must_use]
    pub unsafe fn context(&self) -> &Context<D> {
        &self.context
    }
}
