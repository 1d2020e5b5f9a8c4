//! Symbols that a library has not.
//!
//! What a shared library exports is fixed when it is built, but an older driver lacks symbols. A test that
//! loads a copy of the library under the vendor's name takes names out of that copy first: look-ups for them
//! fail then as with the real thing.

/// What CUDA drivers of version 11.4 did not export.
pub const NEWER_THAN_CUDA_11_4: &[&str] = &[
    "cuEventElapsedTime_v2",
    "cuGetProcAddress_v2",
    "cuMemGetHandleForAddressRange",
    "cuMemPrefetchAsync_v2",
    "cuMulticastAddDevice",
    "cuMulticastBindAddr",
    "cuMulticastBindMem",
    "cuMulticastCreate",
    "cuMulticastGetGranularity",
    "cuMulticastUnbind",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamGetDevice",
    "cuStreamGetId",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
];

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
