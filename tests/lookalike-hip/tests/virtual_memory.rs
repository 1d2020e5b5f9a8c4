//! Virtual memory in every release.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use granule_hip_sys::abi6::*;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{null_mut, without_provenance_mut};
use support::{Runtime, in_process, properties};

const WITH_IMPORT: [&str; 3] = ["rocm6", "rocm70", "rocm7"];

fn each(test: &str, names: &[&str], body: impl Fn(&str, &Runtime)) {
    for name in names {
        in_process(test, &format!("personality={name}"), |runtime| body(name, runtime));
    }
}

const ACCESS: hipMemAccessDesc = hipMemAccessDesc {
    location: hipMemLocation { type_: hipMemLocationTypeDevice, id: 0 },
    flags: hipMemAccessFlagsProtReadWrite,
};

/// Two granules of addresses, and the granule.
fn room(h: &Runtime, properties: *const hipMemAllocationProp) -> (*mut c_void, usize) {
    let (mut base, mut granule) = (null_mut(), 0);
    ok!(h.hipMemGetAllocationGranularity(&mut granule, properties, hipMemAllocationGranularityRecommended));
    ok!(h.hipMemAddressReserve(&mut base, 2 * granule, 0, null_mut(), 0));
    (base, granule)
}

fn create(
    h: &Runtime,
    properties: *const hipMemAllocationProp,
    bytes: usize,
) -> hipMemGenericAllocationHandle_t {
    let mut handle = null_mut();
    ok!(h.hipMemCreate(&mut handle, bytes, properties, 0));
    handle
}

fn cycle(h: &Runtime, properties: *const hipMemAllocationProp) {
    let (base, granule) = room(h, properties);
    let handle = create(h, properties, granule);
    ok!(h.hipMemMap(base, granule, 0, handle, 0));
    ok!(h.hipMemSetAccess(base, granule, &ACCESS, 1));
    let mut flags = 0;
    ok!(h.hipMemGetAccess(&mut flags, &ACCESS.location, base));
    assert_eq!(flags, u64::from(hipMemAccessFlagsProtReadWrite));
    h.write(base, 5);
    let mut again = null_mut();
    ok!(h.hipMemRetainAllocationHandle(&mut again, base));
    assert_eq!(again, handle);
    ok!(h.hipMemRelease(again));
    ok!(h.hipMemRelease(handle));
    assert!(h.holds(base, 5));
    ok!(h.hipMemUnmap(base, granule));
    assert_eq!(h.used(0), 0);
    ok!(h.hipMemAddressFree(base, 2 * granule));
    assert_eq!(h.traps(), 0);
}

#[test]
fn memory_is_mapped_and_lives_while_it_is() {
    let test = "memory_is_mapped_and_lives_while_it_is";
    each(test, &WITH_IMPORT, |_, h| cycle(h, &properties()));
}

#[test]
fn properties_come_back() {
    let test = "properties_come_back";
    each(test, &["rocm7"], |_, h| {
        let handle = create(h, &properties(), 2 << 20);
        // SAFETY: numbers and a pointer, of which all may be zero.
        let mut found = unsafe { std::mem::zeroed::<hipMemAllocationProp>() };
        ok!(h.hipMemGetAllocationPropertiesFromHandle(&mut found, handle));
        assert_eq!((found.type_, found.requestedHandleType, found.location.type_), (1, 1, 1));
    });
}

#[test]
fn access_is_set_for_one_mapping() {
    each("access_is_set_for_one_mapping", &WITH_IMPORT, |_, h| {
        let (base, granule) = room(h, &properties());
        let next = base.wrapping_byte_add(granule);
        for at in [base, next] {
            let handle = create(h, &properties(), granule);
            ok!(h.hipMemMap(at, granule, 0, handle, 0));
        }
        assert_eq!(hip!(h.hipMemSetAccess(base, 2 * granule, &ACCESS, 1)), hipErrorInvalidValue);
        assert_eq!(hip!(h.hipMemSetAccess(base, granule / 2, &ACCESS, 1)), hipErrorInvalidValue);
        ok!(h.hipMemSetAccess(base, granule, &ACCESS, 1));
        ok!(h.hipMemSetAccess(next, granule, &ACCESS, 1));
    });
}

fn export(h: &Runtime, handle: hipMemGenericAllocationHandle_t) -> OwnedFd {
    let mut descriptor: RawFd = -1;
    let place = (&raw mut descriptor).cast();
    ok!(h.hipMemExportToShareableHandle(place, handle, hipMemHandleTypePosixFileDescriptor, 0));
    // SAFETY: the runtime gave a new descriptor to the caller.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// What is passed for a descriptor: itself, or a pointer to it.
fn argument(by_value: bool, descriptor: &mut RawFd) -> *mut c_void {
    if by_value { without_provenance_mut(*descriptor as usize) } else { (&raw mut *descriptor).cast() }
}

#[test]
fn a_descriptor_is_imported_in_the_releases_way_only() {
    let test = "a_descriptor_is_imported_in_the_releases_way_only";
    each(test, &WITH_IMPORT, |name, h| {
        let by_value = name == "rocm7";
        let (base, granule) = room(h, &properties());
        let handle = create(h, &properties(), granule);
        let shared = export(h, handle);
        let (mut number, mut imported) = (shared.as_raw_fd(), null_mut());
        let kind = hipMemHandleTypePosixFileDescriptor;
        let right = argument(by_value, &mut number);
        ok!(h.hipMemImportFromShareableHandle(&mut imported, right, kind));
        ok!(h.hipMemMap(base, granule, 0, imported, 0));
        ok!(h.hipMemSetAccess(base, granule, &ACCESS, 1));
        assert_eq!(h.traps(), 0);
        let wrong = argument(!by_value, &mut number);
        assert_eq!(hip!(h.hipMemImportFromShareableHandle(&mut imported, wrong, kind)), hipErrorInvalidValue);
        assert_eq!(h.traps(), 1);
        // A descriptor that is closed too early is missed when access is set.
        ok!(h.hipMemUnmap(base, granule));
        ok!(h.hipMemImportFromShareableHandle(&mut imported, right, kind));
        ok!(h.hipMemMap(base, granule, 0, imported, 0));
        drop(shared);
        assert_eq!(hip!(h.hipMemSetAccess(base, granule, &ACCESS, 1)), hipErrorInvalidValue);
        assert_eq!(h.traps(), 2);
    });
}

#[test]
fn descriptors_run_out_before_memory_does() {
    let settings = "personality=few-descriptors,capacity=64GiB,memory=reserved,clock=virtual:0";
    in_process("descriptors_run_out_before_memory_does", settings, |h| {
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: a place with two numbers.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let mut handles = Vec::new();
        let status = loop {
            let mut handle = null_mut();
            let status = hip!(h.hipMemCreate(&mut handle, 2 << 20, &properties(), 0));
            if status != hipSuccess {
                break status;
            }
            handles.push(handle);
        };
        assert_eq!(status, hipErrorOutOfMemory);
        assert!((16..64).contains(&handles.len()), "{} handles", handles.len());
        assert_eq!(h.used(0), (handles.len() as u64) << 21);
        ok!(h.hipMemRelease(handles[0]));
        create(h, &properties(), 2 << 20);
    });
}

#[test]
fn a_machine_without_it_says_so() {
    each("a_machine_without_it_says_so", &["no-vmm"], |_, h| {
        let (mut value, mut base) = (9, null_mut());
        let number = hipDeviceAttributeVirtualMemoryManagementSupported;
        ok!(h.hipDeviceGetAttribute(&mut value, number, 0));
        assert_eq!(value, 0);
        assert_eq!(hip!(h.hipMemAddressReserve(&mut base, 2 << 20, 0, null_mut(), 0)), hipErrorNotSupported);
    });
}
