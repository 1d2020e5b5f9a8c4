//! The release of PyTorch that a program names where it makes an allocator.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking
#![allow(clippy::undocumented_unsafe_blocks)] // all are the same: the allocator and the options are good

mod support;

use granule_capi::allocator::*;
use granule_capi::error::*;
use std::ffi::{CStr, c_void};
use support::Allocator;

const HALF: u64 = 128 << 10;

/// Whether the allocator takes the free block of the oldest record, as 2.12 does, or the lowest.
fn goes_by_record(settings: &CStr, release: Option<&CStr>) -> bool {
    let upper_half = |ptr: *mut c_void| ptr.wrapping_byte_add(HALF as usize);
    let options = granule_options {
        size: size_of::<granule_options>() as u32,
        backend: c"openreg".as_ptr(),
        settings: settings.as_ptr(),
        table: std::ptr::null(),
        pytorch_release: release.map_or(std::ptr::null(), CStr::as_ptr),
    };
    let a = Allocator::with(&options);
    let whole: Vec<_> = (0..4).map(|_| a.malloc(2 * HALF).unwrap()).collect();
    assert_eq!(a.free(whole[0]), GRANULE_OK);
    let lower = a.malloc(HALF).unwrap();
    assert_eq!(a.free(whole[2]), GRANULE_OK);
    let taken = [a.malloc(HALF).unwrap(), a.malloc(HALF).unwrap()];
    assert_eq!((lower, taken), (whole[0], [upper_half(whole[0]), whole[2]]));
    assert_eq!(a.free(lower), GRANULE_OK);
    let next = a.malloc(HALF).unwrap();
    assert!(next == lower || next == upper_half(whole[2]));
    next != lower
}

#[test]
fn it_counts_where_settings_name_none() {
    assert!(goes_by_record(c"", Some(c"2.12.1")));
    assert!(goes_by_record(c"pytorch_release:2.12", None));
    assert!(!goes_by_record(c"pytorch_release:2.13", Some(c"2.12.1")), "settings come first");
    assert!(!goes_by_record(c"", None));
    assert!(!goes_by_record(c"", Some(c"3.1.0")), "one that is not known is as the newest");
}
