//! About the library itself.

use crate::boundary::guard::guard;
use crate::boundary::pass::given;
use crate::bytes::granule_bytes;
use crate::error::{Failure, GRANULE_NO_BACKEND, granule_status};
use granule::backends::{self, Name, Standing};
use serde_json::json;
use std::ffi::{CStr, c_char};

/// The version of this interface. A later one only adds functions, and fields at the end of structs that begin with
/// their size.
pub const GRANULE_ABI_VERSION: u32 = 1;

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// The interface's version that the library has: GRANULE_ABI_VERSION of its own header.
#[unsafe(no_mangle)]
pub extern "C" fn granule_abi_version() -> u32 {
    GRANULE_ABI_VERSION
}

/// The library's version: "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn granule_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Which backends this build has, what each finds on this machine, and which one is used unless another is named: a JSON
/// object, as `granule devices --json` prints it. Blocks while drivers start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_backends_json(out: *mut granule_bytes) -> granule_status {
    guard(|| {
        let out = given!(out out);
        let backends =
            backends::survey().map_err(|error| Failure::own(GRANULE_NO_BACKEND, error.to_string()))?;
        let chosen =
            backends.iter().find(|report| report.state == Standing::Chosen).map(|report| report.name);
        out.set(granule_bytes::new(json!({ "chosen": chosen, "backends": backends }).to_string()));
        Ok(())
    })
}

/// Whether the library under a backend ("cuda", "hip", ...) is on this machine and has every function that a device needs. Starts no
/// driver and looks for no device, so the process may still fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_check_backend(name: *const c_char) -> granule_status {
    guard(|| {
        let name = Name::parse(given!(text name))
            .map_err(|error| Failure::own(GRANULE_NO_BACKEND, error.to_string()))?;
        name.check().map_err(|error| Failure::own(GRANULE_NO_BACKEND, error.to_string()))
    })
}
