//! What the library exports: what its release does, and no more.
//!
//! Names that came later are taken out of the library when it is loaded, before any look-up. So one file is every
//! release, and a program that looks a name up finds out as on a real machine.

use crate::personality::{Release, personality};

/// What 6.4 lacks of 7.0's.
const SINCE_7_0: &[&str] = &["hipMemGetHandleForAddressRange"];
/// What 7.0 lacks of 7.1's.
const SINCE_7_1: &[&str] = &["hipStreamGetId"];

/// What a release does not export.
fn absent(release: Release) -> impl Iterator<Item = &'static str> {
    let later = [(Release::V7_0, SINCE_7_0), (Release::V7_1, SINCE_7_1)];
    later.into_iter().filter(move |(since, _)| release < *since).flat_map(|(_, names)| names.iter().copied())
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
        lookalike::absence::hide_here(&names);
    }
}
