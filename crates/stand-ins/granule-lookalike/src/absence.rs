//! Symbols that a library has, or has not.
//!
//! What a shared library exports is fixed when it is built, but an older driver lacks symbols. Look-ups for them must fail as
//! with the real thing. A library takes names out of its own string table when it is loaded, before any look-up
//! ([`hide_here`]); a test may do so in a copy of the library ([`hide`]).

use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;

/// Takes names out of a library's image; which of them it had not.
///
/// The name's first letter is overwritten where it stands in a string table, so that neither the hash of the
/// name sought nor its spelling leads there.
#[must_use]
pub fn hide<'n>(library: &mut [u8], names: &[&'n str]) -> Vec<&'n str> {
    let mut absent = Vec::new();
    for &name in names {
        let entry = [b"\0", name.as_bytes(), b"\0"].concat();
        let places: Vec<usize> = library
            .windows(entry.len())
            .enumerate()
            .filter(|(_, found)| *found == entry)
            .map(|(at, _)| at)
            .collect();
        if places.is_empty() {
            absent.push(name);
        }
        for at in places {
            library[at + 1] = b'-';
        }
    }
    absent
}

/// [`hide`] in the library that this code is part of; prints where it had not all of the names. For the loader to run, which
/// holds its lock meanwhile.
pub fn hide_here(names: &[&str]) {
    if !names.is_empty()
        && with_string_table(|table| hide(table, names)).is_none_or(|absent| !absent.is_empty())
    {
        eprintln!("lookalike driver: the names that this driver lacks could not be hidden");
    }
}

/// The path under which the library that this code is part of was loaded.
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

/// The address of a symbol that the library exports.
#[must_use]
pub fn find(name: &str) -> Option<*mut c_void> {
    let (path, name) = (own_path()?, CString::new(name).ok()?);
    // SAFETY: the path of this library, which is loaded; nothing is loaded anew. The handle is one more
    // reference, never given back: the library stays.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    // SAFETY: a handle and a text that live through the call.
    let place = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!place.is_null()).then_some(place)
}

/// An entry of the dynamic section.
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

const END: usize = 0;
const STRING_TABLE: usize = 5;
const STRING_TABLE_SIZE: usize = 10;

unsafe extern "C" {
    /// Made by the linker.
    static _DYNAMIC: [Dynamic; 0];
}

/// The value of an entry, as glibc leaves it in memory: an address, or a number.
fn dynamic(tag: usize) -> Option<usize> {
    let mut entry = (&raw const _DYNAMIC).cast::<Dynamic>();
    loop {
        // SAFETY: the section ends with an entry of tag 0, and is not read beyond.
        let known = unsafe { entry.read() };
        match known.tag {
            END => return None,
            found if found == tag => return Some(known.value),
            // SAFETY: not the last entry.
            _ => entry = unsafe { entry.add(1) },
        }
    }
}

/// Changes the table of symbol names.
fn with_string_table<T>(change: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
    let (table, bytes) = (dynamic(STRING_TABLE)?, dynamic(STRING_TABLE_SIZE)?);
    // SAFETY: asks for a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let first = table & !(page - 1);
    let length = table + bytes - first;
    let at = std::ptr::with_exposed_provenance_mut::<c_void>(first);
    let protect = |protection| {
        // SAFETY: pages of this library's own read-only part, which the loader mapped for this process alone.
        let failed = unsafe { libc::mprotect(at, length, protection) };
        failed == 0
    };
    if !protect(libc::PROT_READ | libc::PROT_WRITE) {
        return None;
    }
    let start = std::ptr::with_exposed_provenance_mut::<u8>(table);
    // SAFETY: the table, writable now. The loader holds its lock while this runs, so that no one looks a
    // name up.
    let changed = change(unsafe { std::slice::from_raw_parts_mut(start, bytes) });
    protect(libc::PROT_READ);
    Some(changed)
}
