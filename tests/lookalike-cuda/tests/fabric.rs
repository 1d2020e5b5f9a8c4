//! Fabric handles: memory goes to another process by 64 bytes.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use support::header::*;
use support::{Driver, child, in_process, library, properties, text};

const HANDLE: &str = "LOOKALIKE_TEST_HANDLES";
const SETTINGS: &str = "personality=fabric,devices=1";
const FABRIC: CUmemAllocationHandleType = CU_MEM_HANDLE_TYPE_FABRIC;
const UNIT: usize = 2 << 20;

/// A handle, mapped and open.
fn shown(d: &Driver, handle: CUmemGenericAllocationHandle) -> CUdeviceptr {
    let mut at = 0;
    ok!(d.cuMemAddressReserve(&mut at, UNIT, 0, 0, 0));
    ok!(d.cuMemMap(at, UNIT, 0, handle, 0));
    let location = properties(FABRIC).location;
    let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    ok!(d.cuMemSetAccess(at, UNIT, &access, 1));
    at
}

fn imported(d: &Driver, mut bytes: [u8; 64]) -> Result<CUmemGenericAllocationHandle, CUresult> {
    let mut handle = 0;
    match cu!(d.cuMemImportFromShareableHandle(&mut handle, bytes.as_mut_ptr().cast(), FABRIC)) {
        0 => Ok(handle),
        code => Err(code),
    }
}

#[test]
fn memory_goes_to_another_process_by_64_bytes() {
    let test = "memory_goes_to_another_process_by_64_bytes";
    if let Ok(handle) = std::env::var(HANDLE) {
        return import(&handle);
    }
    in_process(test, SETTINGS, || {
        let d = &Driver::load(&library());
        d.enter(0);
        let mut handle = 0;
        ok!(d.cuMemCreate(&mut handle, UNIT, &properties(FABRIC), 0));
        let at = shown(d, handle);
        ok!(d.cuMemcpyHtoD_v2(at, [0x5a_u8; 64].as_ptr().cast(), 64));
        let (mut bytes, mut again) = ([0u8; 64], [0u8; 64]);
        ok!(d.cuMemExportToShareableHandle(bytes.as_mut_ptr().cast(), handle, FABRIC, 0));
        ok!(d.cuMemExportToShareableHandle(again.as_mut_ptr().cast(), handle, FABRIC, 0));
        assert_eq!(bytes, again);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let importer = || child(test, SETTINGS, &[(HANDLE, &hex)]).output().unwrap();
        let done = importer();
        assert!(done.status.success(), "{}", text(&done));
        let mut got = [0u8; 64];
        ok!(d.cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), at, 64));
        assert_eq!(got, [0x77_u8; 64]);
        // A second handle of the same memory keeps it.
        let second = imported(d, bytes).unwrap();
        ok!(d.cuMemRelease(handle));
        assert!(importer().status.success());
        ok!(d.cuMemRelease(second));
        ok!(d.cuMemUnmap(at, UNIT));
        assert_eq!(imported(d, bytes), Err(CUDA_ERROR_INVALID_VALUE), "nobody holds it any more");
        assert!(text(&importer()).contains("cuMemImportFromShareableHandle: 1"));
    });
}

fn import(handle: &str) {
    let bytes =
        std::array::from_fn(|at| u8::from_str_radix(&handle[2 * at..2 * at + 2], 16).expect("hexadecimal"));
    let d = &Driver::load(&library());
    d.enter(0);
    let handle = imported(d, bytes).unwrap_or_else(|code| panic!("cuMemImportFromShareableHandle: {code}"));
    let at = shown(d, handle);
    ok!(d.cuMemcpyHtoD_v2(at, [0x77_u8; 64].as_ptr().cast(), 64));
}

#[test]
fn memory_leaves_the_process_in_the_way_that_it_was_made_for() {
    in_process("memory_leaves_the_process_in_the_way_that_it_was_made_for", SETTINGS, || {
        let d = &Driver::load(&library());
        d.enter(0);
        let descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        for (made_for, other) in [(FABRIC, descriptor), (descriptor, FABRIC)] {
            let mut handle = 0;
            ok!(d.cuMemCreate(&mut handle, UNIT, &properties(made_for), 0));
            let mut room = [0u8; 64];
            let export = |kind, room: &mut [u8; 64]| {
                cu!(d.cuMemExportToShareableHandle(room.as_mut_ptr().cast(), handle, kind, 0))
            };
            assert_eq!(export(other, &mut room), CUDA_ERROR_NOT_SUPPORTED);
            assert_eq!((export(made_for, &mut room), room != [0; 64]), (0, true));
        }
        assert_eq!(imported(d, [7; 64]), Err(CUDA_ERROR_INVALID_VALUE), "no handle of this fabric");
    });
}

/// A handle for others, of memory that is mapped at the address.
fn exported(d: &Driver) -> (CUmemGenericAllocationHandle, CUdeviceptr, [u8; 64]) {
    let (mut handle, mut bytes) = (0, [0u8; 64]);
    ok!(d.cuMemCreate(&mut handle, UNIT, &properties(FABRIC), 0));
    let at = shown(d, handle);
    ok!(d.cuMemExportToShareableHandle(bytes.as_mut_ptr().cast(), handle, FABRIC, 0));
    (handle, at, bytes)
}

#[test]
fn memory_that_is_mapped_can_be_opened_without_a_handle_of_its_exporter() {
    in_process("memory_that_is_mapped_can_be_opened_without_a_handle_of_its_exporter", SETTINGS, || {
        let d = &Driver::load(&library());
        d.enter(0);
        let (handle, at, bytes) = exported(d);
        ok!(d.cuMemRelease(handle));
        let mut kinds = 0_u64;
        let place = (&raw mut kinds).cast();
        ok!(d.cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
        assert_eq!(kinds, u64::from(FABRIC));
        let again = imported(d, bytes).expect("the mapping keeps it");
        ok!(d.cuMemRelease(again));
        ok!(d.cuMemUnmap(at, UNIT));
        assert_eq!(imported(d, bytes), Err(CUDA_ERROR_INVALID_VALUE), "nothing keeps it any more");
    });
}

#[test]
fn what_a_process_imports_of_its_own_stays_as_it_was_made() {
    in_process("what_a_process_imports_of_its_own_stays_as_it_was_made", SETTINGS, || {
        let d = &Driver::load(&library());
        d.enter(0);
        let (mut handle, mut bytes) = (0, [0u8; 64]);
        let mut wanted = properties(FABRIC);
        wanted.allocFlags.gpuDirectRDMACapable = 1;
        ok!(d.cuMemCreate(&mut handle, UNIT, &wanted, 0));
        ok!(d.cuMemExportToShareableHandle(bytes.as_mut_ptr().cast(), handle, FABRIC, 0));
        let again = imported(d, bytes).unwrap();
        for handle in [handle, again] {
            let mut told = properties(0);
            ok!(d.cuMemGetAllocationPropertiesFromHandle(&mut told, handle));
            assert_eq!((told.requestedHandleTypes, told.allocFlags.gpuDirectRDMACapable), (FABRIC, 1));
        }
    });
}

/// What a process on another machine is answered that opens memory of this one.
fn answered_on(settings: &str, test: &str) {
    if let Ok(handle) = std::env::var(HANDLE) {
        return import(&handle);
    }
    in_process(test, SETTINGS, || {
        let d = &Driver::load(&library());
        d.enter(0);
        let (_, _, bytes) = exported(d);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let code = if settings.contains("no-imex") { 800 } else { CUDA_ERROR_NOT_SUPPORTED };
        let said = text(&child(test, settings, &[(HANDLE, &hex)]).output().expect("it runs"));
        assert!(said.contains(&format!("cuMemImportFromShareableHandle: {code}")), "{said}");
    });
}

#[test]
fn nothing_is_opened_where_there_is_no_fabric() {
    answered_on("devices=1", "nothing_is_opened_where_there_is_no_fabric");
}

#[test]
fn nothing_is_opened_where_the_fabric_is_not_permitted() {
    answered_on("personality=no-imex,devices=1", "nothing_is_opened_where_the_fabric_is_not_permitted");
}

/// Whether the device says that it has a fabric, and whether memory is made for it.
fn has_fabric(d: &Driver) -> (i32, bool) {
    d.enter(0);
    let (mut value, mut handle) = (9, 0);
    ok!(d.cuDeviceGetAttribute(&mut value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
    (value, cu!(d.cuMemCreate(&mut handle, UNIT, &properties(FABRIC), 0)) == 0)
}

#[test]
fn there_is_a_fabric_where_the_attribute_says_so() {
    in_process("there_is_a_fabric_where_the_attribute_says_so", SETTINGS, || {
        assert_eq!(has_fabric(&Driver::load(&library())), (1, true));
    });
}

#[test]
fn nothing_is_made_for_a_fabric_that_is_not_there() {
    in_process("nothing_is_made_for_a_fabric_that_is_not_there", "", || {
        assert_eq!(has_fabric(&Driver::load(&library())), (0, false));
    });
}
