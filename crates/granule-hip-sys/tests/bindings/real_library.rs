//! The library of this machine, where there is one. None of this needs a device.

use granule_hip_sys::{Library, abi6};
use std::ffi::CStr;

/// Opened, or the reason why this test has nothing to look at.
fn library() -> Option<Library> {
    Library::open().inspect_err(|error| println!("skipped: {error}")).ok()
}

#[test]
fn library_answers_without_being_linked() {
    let Some(library) = library() else { return };
    println!("{} is HIP {}", library.path().display(), library.version());
    assert!(library.version().major >= 6);

    // SAFETY: the library has these signatures: an older one is refused.
    let functions = unsafe { abi6::Functions::load(|name| library.symbol(name)) };

    let mut version = 0;
    // SAFETY: the argument is a place for an integer.
    let status = unsafe { functions.hipRuntimeGetVersion.unwrap()(&raw mut version) };
    assert_eq!(status, abi6::hipSuccess);
    assert_eq!(version as u32 / 10_000_000, library.version().major);

    let mut count = -1;
    // SAFETY: the argument is a place for an integer.
    let status = unsafe { functions.hipGetDeviceCount.unwrap()(&raw mut count) };
    match count {
        0 => assert_eq!(status, abi6::hipErrorNoDevice),
        _ => assert_eq!((status, count > 0), (abi6::hipSuccess, true)),
    }

    // SAFETY: it takes any number and answers with a string that lives as long as the library.
    let name = unsafe { functions.hipGetErrorName.unwrap()(abi6::hipErrorNoDevice) };
    // SAFETY: a C string, see above.
    let name = unsafe { CStr::from_ptr(name) };
    assert_eq!(name, c"hipErrorNoDevice");
}

#[test]
fn functions_are_there() {
    let Some(library) = library() else { return };
    let has = |name| library.symbol(name).is_some();
    assert!(has(c"hipMalloc") && has(c"hipMemCreate") && has(c"hipStreamGetCaptureInfo_v2"));
    assert!(has(c"hipGetDevicePropertiesR0600"));
    assert!(!has(c"hipNoSuchFunction"));
}

/// The rule by which a symbol is absent from a table.
#[test]
fn what_a_library_lacks_is_none_in_the_table() {
    // SAFETY: there is no address, so none that could be wrong.
    let functions = unsafe { abi6::Functions::load(|_| None) };
    assert!(functions.hipMalloc.is_none() && functions.hipGetDeviceCount.is_none());
    assert!(abi6::NAMES.is_sorted() && abi6::NAMES.contains(&"hipMalloc"));
}
