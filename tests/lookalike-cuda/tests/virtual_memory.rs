//! The state rules of virtual memory, and sharing by descriptor.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use std::ptr::without_provenance_mut;
use support::header::*;
use support::{Driver, in_process, library, properties};

#[test]
fn one_cycle_in_the_right_order_only() {
    in_process("one_cycle_in_the_right_order_only", "", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let made_of = properties(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        let mut unit = 0;
        ok!(d.cuMemGetAllocationGranularity(&mut unit, &made_of, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        let mut at = 0;
        ok!(d.cuMemAddressReserve(&mut at, 4 * unit, 0, 0, 0));
        let mut handle = 0;
        assert_eq!(cu!(d.cuMemCreate(&mut handle, unit / 2, &made_of, 0)), CUDA_ERROR_INVALID_VALUE);
        let fabric = properties(CU_MEM_HANDLE_TYPE_FABRIC);
        assert_eq!(cu!(d.cuMemCreate(&mut handle, unit, &fabric, 0)), CUDA_ERROR_NOT_SUPPORTED);
        ok!(d.cuMemCreate(&mut handle, unit, &made_of, 0));
        let access =
            CUmemAccessDesc { location: made_of.location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        assert_eq!(cu!(d.cuMemSetAccess(at, unit, &access, 1)), CUDA_ERROR_INVALID_VALUE);
        ok!(d.cuMemMap(at, unit, 0, handle, 0));
        assert_eq!(cu!(d.cuMemMap(at, unit, 0, handle, 0)), CUDA_ERROR_INVALID_VALUE);
        let bytes = [5u8; 64];
        assert_eq!(cu!(d.cuMemcpyHtoD_v2(at, bytes.as_ptr().cast(), 64)), CUDA_ERROR_INVALID_VALUE);
        ok!(d.cuMemSetAccess(at, unit, &access, 1));
        let mut flags = 0;
        ok!(d.cuMemGetAccess(&mut flags, &made_of.location, at));
        assert_eq!(flags, u64::from(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        ok!(d.cuMemcpyHtoD_v2(at, bytes.as_ptr().cast(), 64));
        assert_eq!(cu!(d.cuMemAddressFree(at, 4 * unit)), CUDA_ERROR_INVALID_VALUE);
        let mut again = 0;
        ok!(d.cuMemRetainAllocationHandle(&mut again, without_provenance_mut(at as usize + 5)));
        assert_eq!(again, handle);
        let mut ipc = CUipcMemHandle { reserved: [0; 64] };
        assert_eq!(cu!(d.cuIpcGetMemHandle(&mut ipc, at)), CUDA_ERROR_INVALID_VALUE);
        // Shared by descriptor, mapped a second time: the same bytes.
        let mut descriptor = -1i32;
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        ok!(d.cuMemExportToShareableHandle((&raw mut descriptor).cast(), handle, kind, 0));
        let mut imported = 0;
        let passed = without_provenance_mut(usize::try_from(descriptor).unwrap());
        ok!(d.cuMemImportFromShareableHandle(&mut imported, passed, kind));
        ok!(d.cuMemMap(at + unit as u64, unit, 0, imported, 0));
        ok!(d.cuMemSetAccess(at + unit as u64, unit, &access, 1));
        let mut got = [0u8; 64];
        ok!(d.cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), at + unit as u64, 64));
        assert_eq!(got, bytes);
        for released in [handle, again, imported] {
            ok!(d.cuMemRelease(released));
        }
        assert_eq!(cu!(d.cuMemRelease(handle)), CUDA_ERROR_INVALID_VALUE);
        ok!(d.cuMemUnmap(at, 2 * unit));
        assert_eq!(cu!(d.cuMemUnmap(at, unit)), CUDA_ERROR_INVALID_VALUE);
        ok!(d.cuMemAddressFree(at, 4 * unit));
        assert_eq!(cu!(d.granule_lookalike_used(0)), 0);
    });
}
