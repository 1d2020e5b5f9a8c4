//! The driver's devices, and the thread's current one.

use crate::driver::{Driver, Site};
use backend_api::types::{BackendId, DeviceIndex};
use backend_api::{BackendError, ErrorKind, Result};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::OnceLock;

/// The driver with its devices, in the process that started it.
#[derive(Debug)]
pub struct Context<D: Driver> {
    /// A fork of the process that made it cannot use the driver.
    id: BackendId,
    driver: D,
    /// The first fatal error of each device.
    lost: Vec<OnceLock<c_int>>,
}

/// While this lives, a device is the thread's current one; dropping it puts back what was current before. It is also
/// the [`Site`] of calls about that device.
#[derive(Debug)]
#[must_use = "what was current before comes back when this is dropped"]
pub struct Entered<'c, D: Driver> {
    site: Site<'c, D>,
    previous: Option<D::Previous>,
    // What is current is a property of the thread: this must not travel.
    _thread: PhantomData<*const ()>,
}

impl<'c, D: Driver> Deref for Entered<'c, D> {
    type Target = Site<'c, D>;

    fn deref(&self) -> &Site<'c, D> {
        &self.site
    }
}

impl<D: Driver> Drop for Entered<'_, D> {
    fn drop(&mut self) {
        if let Some(previous) = &self.previous
            && let Err(error) = D::leave(self.site, previous)
        {
            tracing::error!(%error, "could not restore the current {}", D::CURRENT);
        }
    }
}

impl<D: Driver> Context<D> {
    /// Of a driver that was started.
    pub(crate) fn new(driver: D) -> Self {
        let lost = (0..driver.device_count()).map(|_| OnceLock::new()).collect();
        Self { id: BackendId::fresh(), driver, lost }
    }

    /// The id of the backend.
    #[must_use]
    pub fn id(&self) -> BackendId {
        self.id
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// All devices.
    pub fn devices(&self) -> impl Iterator<Item = DeviceIndex> + use<D> {
        (0..self.driver.device_count()).map(DeviceIndex)
    }

    /// Whether a device had a fatal error.
    #[must_use]
    pub fn is_lost(&self, device: DeviceIndex) -> bool {
        self.lost.get(usize::from(device.0)).is_some_and(|lost| lost.get().is_some())
    }

    /// Refuses a device that does not exist.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn exists(&self, device: DeviceIndex, call: &'static str) -> Result<()> {
        self.lost(device, call).map(drop)
    }

    fn lost(&self, device: DeviceIndex, call: &'static str) -> Result<&OnceLock<c_int>> {
        self.lost.get(usize::from(device.0)).ok_or_else(|| {
            let detail = format!("there is no device {device}; there are {}", self.lost.len());
            BackendError::new(ErrorKind::InvalidValue, 0, call, device, detail)
        })
    }

    /// The site of calls for which it does not matter what is current.
    ///
    /// # Errors
    /// Refuses a device that does not exist or is lost, and a process that is a fork.
    pub fn site(&self, device: DeviceIndex, call: &'static str) -> Result<Site<'_, D>> {
        let lost = self.lost(device, call)?;
        self.no_fork(device, call)?;
        let site = Site::of_device(&self.driver, device, lost);
        match lost.get() {
            Some(&code) => Err(site.known(code, call)),
            None => Ok(site),
        }
    }

    /// The site of calls about no device.
    ///
    /// # Errors
    /// Refuses a process that is a fork.
    pub fn any_site(&self, call: &'static str) -> Result<Site<'_, D>> {
        self.no_fork(DeviceIndex(0), call)?;
        // SAFETY: this crate passes handles of the driver only, and keeps the books.
        Ok(unsafe { Site::of_driver(&self.driver) })
    }

    fn no_fork(&self, device: DeviceIndex, call: &'static str) -> Result<()> {
        // Before each call: to ask the system for the process would cost more than most of them.
        if !self.id.is_inherited() {
            return Ok(());
        }
        let detail = format!(
            "this process is a fork of the one that initialised the {}; load the backend after forking",
            D::NOUN
        );
        Err(BackendError::new(ErrorKind::Unusable, 0, call, device, detail))
    }

    /// Makes a device current until the answer is dropped.
    ///
    /// # Errors
    /// As for [`site`](Self::site), and what the driver answers.
    pub fn enter(&self, device: DeviceIndex, call: &'static str) -> Result<Entered<'_, D>> {
        let site = self.site(device, call)?;
        Ok(Entered { site, previous: D::enter(site)?, _thread: PhantomData })
    }

    /// [`enter`](Self::enter) for the device of a handle, which must be one of this backend's.
    pub(crate) fn enter_handle(
        &self,
        backend: BackendId,
        device: DeviceIndex,
        call: &'static str,
    ) -> Result<Entered<'_, D>> {
        self.own(backend, device, call)?;
        self.enter(device, call)
    }

    /// [`enter`](Self::enter) for the thread's device.
    pub(crate) fn enter_current(&self, call: &'static str) -> Result<Entered<'_, D>> {
        self.enter(self.device_of_thread()?, call)
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

    /// The thread's current device; the first one where it has none.
    ///
    /// # Errors
    /// Refuses a process that is a fork, and what the driver answers.
    pub fn device_of_thread(&self) -> Result<DeviceIndex> {
        let site = self.any_site(D::NAMES.current)?;
        let Some(number) = D::current_device(site)? else { return Ok(DeviceIndex(0)) };
        self.driver.index_of(number).ok_or_else(|| {
            let detail = format!("the {}'s device {number} is not known here", D::NOUN);
            site.invalid(D::NAMES.device_of_current, detail)
        })
    }

    /// Makes a device the thread's, for good.
    pub(crate) fn make_current(&self, device: DeviceIndex) -> Result<()> {
        D::set_current(self.site(device, D::NAMES.set_current)?)
    }
}

impl<D: Driver> Drop for Context<D> {
    fn drop(&mut self) {
        // A fork owns nothing of its parent's.
        if !self.id.is_inherited() {
            self.driver.shut_down();
        }
    }
}
