//! Primary contexts, and the thread's current one.

use crate::cuda::Cuda;
use crate::driver::{Site, number, pointer};
use backend_api::types::{BackendId, DeviceIndex};
use backend_api::{BackendError, ErrorKind, Result};
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;
use std::sync::OnceLock;

/// One device, with its primary context once it was needed.
#[derive(Debug)]
pub(crate) struct Device {
    /// The driver's number for it.
    pub(crate) number: CUdevice,
    /// The primary context, retained; as a number, since a raw pointer cannot be shared between threads.
    context: OnceLock<u64>,
    /// The first fatal error.
    lost: OnceLock<c_int>,
}

impl Device {
    pub(crate) fn new(number: CUdevice) -> Self {
        Self { number, context: OnceLock::new(), lost: OnceLock::new() }
    }
}

/// While this lives, a device's primary context is the thread's current one; dropping it puts the one before
/// back. It is also the [`Site`] of calls about that device.
#[derive(Debug)]
#[must_use = "the previous context comes back when this is dropped"]
pub(crate) struct Entered<'c> {
    site: Site<'c>,
    /// The context that was pushed; none where it was current already.
    pushed: Option<CUcontext>,
    // The current context is a property of the thread: this must not travel.
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
        let Some(context) = self.pushed else {
            return;
        };
        let site = self.site;
        let pop = || {
            let mut popped = ptr::null_mut();
            // SAFETY: this thread pushed a context in `Cuda::enter`, and all guards pushed since are dropped.
            unsafe { call!(site.cuCtxPopCurrent_v2(&raw mut popped)) }
        };
        // Nobody above can put the context back, so a refusal is worth a second try. The driver may also answer
        // the error of earlier work after it has popped: then a second pop would take the program's context.
        let restored = pop().or_else(|refused| match current(site) {
            Ok(now) if now == context => pop(),
            Ok(_) => Ok(()),
            Err(_) => Err(refused),
        });
        if let Err(error) = restored {
            tracing::error!(%error, "could not restore the current context");
        }
    }
}

impl Cuda {
    /// The device with this index.
    pub(crate) fn device(&self, device: DeviceIndex, call: &'static str) -> Result<&Device> {
        self.devices.get(usize::from(device.0)).ok_or_else(|| {
            let detail = format!("there is no device {device}; there are {}", self.devices.len());
            BackendError::new(ErrorKind::InvalidValue, 0, call, device, detail)
        })
    }

    /// The site of calls that need no context. Refuses a device that does not exist or is lost, and a process
    /// that is a fork.
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
            "this process is a fork of the one that initialised the driver; load the backend after forking";
        Err(BackendError::new(ErrorKind::Unusable, 0, call, device, detail))
    }

    /// Makes the device's primary context current until the answer is dropped. Creates it where it does not
    /// exist yet.
    pub(crate) fn enter(&self, device: DeviceIndex, call: &'static str) -> Result<Entered<'_>> {
        let site = self.site(device, call)?;
        let context = self.context(site)?;
        let current = current(site)?;
        if current == context {
            return Ok(Entered { site, pushed: None, _thread: PhantomData });
        }
        // SAFETY: the context is a primary one that this backend retains.
        unsafe { call!(site.cuCtxPushCurrent_v2(context)) }?;
        Ok(Entered { site, pushed: Some(context), _thread: PhantomData })
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

    /// The primary context of the site's device, retained at the first need.
    pub(crate) fn context(&self, site: Site<'_>) -> Result<CUcontext> {
        let device = self.device(site.device(), "cuDevicePrimaryCtxRetain")?;
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

    /// The device of the thread's current context; the first one where it has none.
    pub(crate) fn device_of_thread(&self) -> Result<DeviceIndex> {
        let site = self.any_site("cuCtxGetCurrent")?;
        if current(site)?.is_null() {
            return Ok(DeviceIndex(0));
        }
        let mut found = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.cuCtxGetDevice(&raw mut found)) }?;
        self.index_of(found).ok_or_else(|| {
            site.invalid("cuCtxGetDevice", format!("the driver's device {found} is not known here"))
        })
    }

    /// The index of the driver's device.
    pub(crate) fn index_of(&self, number: CUdevice) -> Option<DeviceIndex> {
        let at = self.devices.iter().position(|device| device.number == number)?;
        u16::try_from(at).ok().map(DeviceIndex)
    }

    /// Makes the device's primary context the thread's, for good.
    pub(crate) fn make_current(&self, device: DeviceIndex) -> Result<()> {
        let site = self.site(device, "cuCtxSetCurrent")?;
        let context = self.context(site)?;
        // SAFETY: the context is a primary one that this backend retains.
        unsafe { call!(site.cuCtxSetCurrent(context)) }
    }

    /// A device whose context exists because this backend retains it, one that works if there is such a one; none
    /// where nothing was done yet.
    pub(crate) fn any_retained(&self) -> Option<DeviceIndex> {
        let retained = |device: &Device| device.context.get().is_some();
        let works = |device: &Device| retained(device) && device.lost.get().is_none();
        let at = self.devices.iter().position(works).or_else(|| self.devices.iter().position(retained))?;
        u16::try_from(at).ok().map(DeviceIndex)
    }
}

fn current(site: Site<'_>) -> Result<CUcontext> {
    let mut context = ptr::null_mut();
    // SAFETY: the function writes one pointer.
    unsafe { call!(site.cuCtxGetCurrent(&raw mut context)) }?;
    Ok(context)
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // A fork owns none of its parent's contexts.
        if std::process::id() != self.process {
            return;
        }
        let site = Site::of_driver(&self.driver);
        for device in self.devices.iter().filter(|device| device.context.get().is_some()) {
            // SAFETY: gives back the one reference that `Cuda::context` took and kept.
            let released = unsafe { call!(site.cuDevicePrimaryCtxRelease_v2(device.number)) };
            if let Err(error) = crate::driver::given_back(released) {
                tracing::warn!(%error, "could not give a primary context back");
            }
        }
    }
}
