//! An allocator as C makes it, for tests in Rust.

use granule::config::PolicyName;
use granule_capi::allocator::*;
use granule_capi::error::*;
use granule_capi::last_error::*;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;

/// Ends with the test.
pub(crate) struct Allocator(pub(crate) *mut granule_allocator);

impl Allocator {
    /// One under each policy.
    #[allow(dead_code)] // not every test is a plain one
    pub(crate) fn each() -> impl Iterator<Item = Self> {
        PolicyName::ALL.iter().map(|policy| Self::openreg(*policy))
    }

    pub(crate) fn openreg(policy: PolicyName) -> Self {
        let settings = CString::new(format!("policy:{policy}")).unwrap();
        let options = granule_options {
            size: size_of::<granule_options>() as u32,
            backend: c"openreg".as_ptr(),
            settings: settings.as_ptr(),
            table: std::ptr::null(),
            pytorch_release: std::ptr::null(),
        };
        Self::with(&options)
    }

    pub(crate) fn with(options: &granule_options) -> Self {
        let mut a = null_mut();
        // SAFETY: the options and the place for the answer are good.
        let status = unsafe { granule_allocator_create(options, &raw mut a) };
        assert_eq!(status, GRANULE_OK, "{}", last_error());
        Self(a)
    }

    #[allow(dead_code)] // not every test asks for memory
    pub(crate) fn malloc(&self, bytes: u64) -> Result<*mut c_void, granule_status> {
        let mut ptr = null_mut();
        // SAFETY: the allocator is live, and so is the place for the answer.
        match unsafe { granule_capi::memory::granule_malloc(self.0, bytes, 0, 0, &raw mut ptr) } {
            GRANULE_OK => Ok(ptr),
            status => Err(status),
        }
    }

    #[allow(dead_code)] // as above
    pub(crate) fn free(&self, ptr: *mut c_void) -> granule_status {
        // SAFETY: the allocator is live; any pointer may be given.
        unsafe { granule_capi::memory::granule_free(self.0, ptr) }
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        // SAFETY: it is live, and not used again.
        assert_eq!(unsafe { granule_allocator_destroy(self.0) }, GRANULE_OK);
    }
}

pub(crate) fn last_error() -> String {
    // SAFETY: it is a text, and good until the thread's next failure.
    unsafe { CStr::from_ptr(granule_last_error()) }.to_str().unwrap().to_owned()
}
