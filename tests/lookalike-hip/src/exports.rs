//! What the library exports: what its release does, and no more.
//!
//! Names that came later are taken out of the library when it is loaded, before any look-up. So one file is every
//! release, and a program that looks a name up finds out as on a real machine.

use crate::personality::{Release, personality};
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;

/// What 6.4 lacks of 7.0's.
const SINCE_7_0: &[&str] = &["hipMemGetHandleForAddressRange"];
/// What 7.0 lacks of 7.1's.
const SINCE_7_1: &[&str] = &["hipStreamGetId"];

/// What a release does not export.
fn absent(release: Release) -> impl Iterator<Item = &'static str> {
    let later = [(Release::V7_0, SINCE_7_0), (Release::V7_1, SINCE_7_1)];
    later.into_iter().filter(move |(since, _)| release < *since).flat_map(|(_, names)| names.iter().copied())
}

/// The path under which this library was loaded.
fn own_path() -> Option<&'static CStr> {
    let mut own = MaybeUninit::<libc::Dl_info>::uninit();
    let inside = own_path as fn() -> Option<&'static CStr>;
    // SAFETY: the address of a function of this library, and a place for the answer.
    let is_found = unsafe { libc::dladdr(inside as *const c_void, own.as_mut_ptr()) } != 0;
    if !is_found {
        return None;
    }
    // SAFETY: `dladdr` filled it.
    let path = unsafe { own.assume_init() }.dli_fname;
    // SAFETY: the loader's own text, which stays while the library is loaded.
    Some(unsafe { CStr::from_ptr(path) })
}

/// The address of an exported symbol.
#[must_use]
pub fn find(name: &CStr) -> Option<*mut c_void> {
    let path = own_path()?.as_ptr();
    // SAFETY: the path of this library, which is loaded; nothing is loaded anew. The handle is one more
    // reference, never given back: the library stays.
    let library = unsafe { libc::dlopen(path, libc::RTLD_NOLOAD | libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    // SAFETY: a handle and a text that live through the call.
    let place = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!place.is_null()).then_some(place)
}

#[cfg(target_os = "linux")]
mod at_load {
    use super::{absent, personality};

    /// What the loader runs before `dlopen` returns.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static AT_LOAD: extern "C" fn() = hide_absent;

    extern "C" fn hide_absent() {
        let Ok(personality) = personality() else { return };
        let names: Vec<&str> = absent(personality.release).chain(personality.driver.lacks()).collect();
        if !lookalike::absence::hide_here(&names) {
            eprintln!("lookalike driver: the names that this release lacks could not be hidden");
        }
    }
}
