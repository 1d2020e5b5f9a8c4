//! The release of PyTorch that a program names where it makes an allocator.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking
#![allow(clippy::undocumented_unsafe_blocks)] // all are the same: the allocator and the options are good

mod support;

use granule_capi::allocator::*;
use granule_capi::error::*;
use granule_capi::memory::granule_empty_cache;
use std::ffi::CStr;
use support::Allocator;

const LARGE: u64 = 40 << 20;

/// Whether the allocator takes the lowest of the free blocks of a size, as 2.11 does, or that of the oldest segment.
fn goes_by_address(settings: &CStr, release: Option<&CStr>) -> bool {
    let options = granule_options {
        size: size_of::<granule_options>() as u32,
        backend: c"openreg".as_ptr(),
        settings: settings.as_ptr(),
        table: std::ptr::null(),
        pytorch_release: release.map_or(std::ptr::null(), CStr::as_ptr),
    };
    let a = Allocator::with(&options);
    let [first, second] = [(); 2].map(|()| a.malloc(LARGE).unwrap());
    assert_eq!(a.free(first), GRANULE_OK);
    assert_eq!(unsafe { granule_empty_cache(a.0) }, GRANULE_OK);
    let third = a.malloc(LARGE).unwrap();
    assert!(third < second, "the device gives the address out again");
    assert_eq!((a.free(third), a.free(second)), (GRANULE_OK, GRANULE_OK));
    a.malloc(LARGE).unwrap() == third
}

#[test]
fn it_counts_where_settings_name_none() {
    assert!(goes_by_address(c"", Some(c"2.11.0")));
    assert!(goes_by_address(c"", Some(c"2.10.0")), "about as 2.11");
    assert!(goes_by_address(c"pytorch_release:2.11", None));
    assert!(!goes_by_address(c"pytorch_release:2.13", Some(c"2.11.0")), "settings come first");
    assert!(!goes_by_address(c"", Some(c"2.12.1")), "about as 2.13");
    assert!(!goes_by_address(c"", None));
    assert!(!goes_by_address(c"", Some(c"3.1.0")), "one that is not known is as the newest");
}
