//! A backend with something between it and its caller.
//!
//! [`Interposed`] passes every call of the contract to its [`Hook`], which passes it on to the real backend
//! unless it does something else. A hook that overrides one method is a broken backend on which the kit must
//! fail ("a free that leaks"); one that overrides [`Hook::enter`] counts calls, or lets one fail.
//!
//! ```
//! use backend_api::{Backend, Result};
//! use backend_api::types::{DeviceIndex, DevicePtr};
//! use granule_conformance::interpose::{Hook, Interposed};
//!
//! /// A free that leaks.
//! #[derive(Debug)]
//! struct Leaks;
//!
//! impl Hook for Leaks {
//!     unsafe fn free(&self, _: &dyn Backend, _: DeviceIndex, _: DevicePtr) -> Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! let real = backend_openreg::OpenReg::new(Default::default())?;
//! let broken = Interposed::new(real, Leaks);
//! let before = broken.memory_info(DeviceIndex(0))?;
//! let memory = broken.malloc(DeviceIndex(0), 4096)?;
//! // SAFETY: rule 3: the memory was just handed out, and nothing uses it.
//! unsafe { broken.free(DeviceIndex(0), memory) }?;
//! assert_ne!(broken.memory_info(DeviceIndex(0))?, before);
//! # Ok::<(), backend_api::BackendError>(())
//! ```
//!
//! A method that the real backend implements with other methods (`copy`, where it has none) is forwarded whole: a
//! hook for those others does not see it.

mod generated;

pub use generated::Hook;

use backend_api::Backend;
use std::sync::Arc;

/// A backend behind a hook. It has the inner one's id and kind, so that their handles are the same.
#[derive(Debug)]
pub struct Interposed<H: ?Sized> {
    inner: Arc<dyn Backend>,
    hook: Box<H>,
}

impl<H: Hook> Interposed<H> {
    /// Puts `hook` before `inner`.
    pub fn new(inner: Arc<dyn Backend>, hook: H) -> Self {
        Self::boxed(inner, Box::new(hook))
    }
}

impl<H: Hook + ?Sized> Interposed<H> {
    /// Puts a hook before `inner` whose type need not be known: many of them share the code of one
    /// `Interposed<dyn Hook>`.
    pub fn boxed(inner: Arc<dyn Backend>, hook: Box<H>) -> Self {
        Self { inner, hook }
    }

    /// The hook, for instance to read what it counted.
    pub fn hook(&self) -> &H {
        &self.hook
    }

    /// The backend behind it.
    pub fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::{Hook, Interposed};
    use backend_api::types::DeviceIndex;
    use backend_api::{Backend, BackendError, ErrorKind, Result, Unsupported, VirtualMemory};
    use backend_openreg::{OpenReg, OpenRegConfig};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    const DEVICE: DeviceIndex = DeviceIndex(0);

    fn machine() -> Arc<OpenReg> {
        OpenReg::new(OpenRegConfig::default()).unwrap()
    }

    #[derive(Debug, Default)]
    struct Counts {
        calls: Mutex<Vec<&'static str>>,
        fail_after: AtomicU32,
    }

    impl Hook for Counts {
        fn enter(&self, method: &'static str) -> Result<()> {
            self.calls.lock().unwrap().push(method);
            if self.fail_after.fetch_sub(1, Ordering::Relaxed) == 1 {
                return Err(BackendError::new(ErrorKind::OutOfMemory, 2, method, DEVICE, "planned"));
            }
            Ok(())
        }
    }

    #[test]
    fn a_hook_sees_calls_of_families_too_and_can_let_one_fail() {
        let hook = Counts { fail_after: AtomicU32::new(3), ..Counts::default() };
        let backend = Interposed::new(machine(), hook);
        let memory = backend.malloc(DEVICE, 512).unwrap();
        let vmm = backend.virtual_memory().unwrap();
        assert!(vmm.granularity(DEVICE, backend_api::Granularity::Minimum).is_ok());
        // SAFETY: rule 3: just handed out, and unused.
        let refused = unsafe { backend.free(DEVICE, memory) }.unwrap_err();
        assert!(refused.is_out_of_memory());
        assert!(backend.address_range(memory).is_ok(), "a call that a hook refused reached the backend");
        let calls = backend.hook().calls.lock().unwrap().clone();
        let seen =
            ["Backend::malloc", "VirtualMemory::granularity", "Backend::free", "Backend::address_range"];
        assert_eq!(calls, seen);
    }

    #[derive(Debug)]
    struct NoVirtualMemory;

    impl Hook for NoVirtualMemory {
        fn virtual_memory_family<'a>(
            &self,
            _: &'a dyn Backend,
        ) -> std::result::Result<&'a dyn VirtualMemory, Unsupported> {
            Err(Unsupported { family: "virtual memory", reason: "hidden".into() })
        }
    }

    #[test]
    fn a_hook_can_hide_a_family_and_handles_stay_the_inner_ones() {
        let real = machine();
        let backend = Interposed::new(real.clone(), NoVirtualMemory);
        assert_eq!(backend.virtual_memory().unwrap_err().reason, "hidden");
        assert_eq!(backend.physical_sharing().unwrap_err().reason, "hidden", "it builds on virtual memory");
        let stream = backend.create_stream(DEVICE, 0).unwrap();
        assert!(real.query_stream(stream).unwrap().is_ready());
        assert_eq!((backend.id(), backend.kind(), backend.name()), (real.id(), real.kind(), real.name()));
    }
}
