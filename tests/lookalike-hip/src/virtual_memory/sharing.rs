//! Physical memory in other processes.

use super::{HANDLES, family, handle_type, known, number, of_memory};
use crate::entry::current;
use crate::imports;
use crate::personality::personality;
use alloc_core::backend::{Backend, HandleType, ShareableHandle};
use granule_hip_sys::abi6::*;
use granule_hip_sys::abi7::{hipMemGetHandleForAddressRange_t, hipMemRangeHandleType};
use lookalike::argument::In;
use lookalike::virtual_memory::no_flags;
use lookalike::{Answer, Code, control};
use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};

/// Where no memory ever lies, so that a number below is no address.
const LOWEST_ADDRESS: usize = 64 << 10;

/// The descriptor that a program means. A program that passes it in the other release's way is answered with
/// an error, where the real runtime would die of it or take garbage.
fn descriptor(shared: *mut c_void) -> Answer<RawFd> {
    let is_address = shared.addr() >= LOWEST_ADDRESS;
    if personality()?.imports_by_value() {
        if is_address {
            control::trap("a pointer to a descriptor was imported; from 7.1 on it is the descriptor itself");
        }
        return c_int::try_from(shared.addr()).map_err(|_| Code::INVALID_VALUE);
    }
    if !is_address {
        control::trap("a descriptor was imported by its number; before 7.1 it is a pointer to it");
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises a pointer to a descriptor, and it is no small number.
    unsafe { In::new(shared.cast::<c_int>().cast_const()) }.get()
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// A descriptor for another process.
    fn hipMemExportToShareableHandle as hipMemExportToShareableHandle_t(
        out shared: *mut c_void, val handle: hipMemGenericAllocationHandle_t, val kind: hipMemAllocationHandleType,
        val flags: c_ulonglong,
    ) {
        let (machine, _) = family()?;
        no_flags(flags)?;
        shared.wanted()?;
        of_memory("hipMemExportToShareableHandle", HANDLES.of(handle.addr() as u64))?;
        imports::exporting(handle.addr() as u64)?;
        match machine.physical_sharing()?.export_physical(known(machine, handle), handle_type(kind)?)? {
            ShareableHandle::PosixFd(descriptor) => {
                imports::exported(handle.addr() as u64, descriptor.as_raw_fd());
                shared.cast::<c_int>().put(descriptor.into_raw_fd())
            }
            ShareableHandle::Fabric(_) => Err(Code::NOT_SUPPORTED),
        }
    }

    /// Takes a descriptor, which stays the caller's, of another process.
    fn hipMemImportFromShareableHandle as hipMemImportFromShareableHandle_t(
        out handle: *mut hipMemGenericAllocationHandle_t, val shared: *mut c_void,
        val kind: hipMemAllocationHandleType,
    ) {
        let (machine, _) = family()?;
        handle.wanted()?;
        if handle_type(kind)? != HandleType::PosixFd {
            return Err(Code::INVALID_VALUE);
        }
        let descriptor = descriptor(shared)?;
        if descriptor < 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller promises that it is open; where it is not, the copy fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let copy = borrowed.try_clone_to_owned().map_err(|_| Code::INVALID_VALUE)?;
        // Memory from elsewhere belongs to the current device.
        let (_, device) = current()?;
        let imported = machine.physical_sharing()?.import_physical(device, &ShareableHandle::PosixFd(copy))?;
        imports::imported(imported.raw, descriptor);
        handle.put(number(imported))
    }

    /// A descriptor for a network card: not simulated.
    fn hipMemGetHandleForAddressRange as hipMemGetHandleForAddressRange_t(
        val _handle: *mut c_void, val _at: hipDeviceptr_t, val _bytes: usize, val _kind: hipMemRangeHandleType,
        val _flags: c_ulonglong,
    ) {
        Err(Code::NOT_SUPPORTED)
    }
}
