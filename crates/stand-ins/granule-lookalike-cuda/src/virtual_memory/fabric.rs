//! Fabric handles. The fabric is this host: a handle says where its exporter keeps a descriptor of the memory, which others can
//! open as long as the exporter has the memory and lives.

use crate::header::CUmemGenericAllocationHandle;
use crate::personality::personality;
use backend_api::types::PhysicalHandle;
use backend_api::{Attribute, Backend, HandleType, ShareableHandle};
use backend_openreg::OpenReg;
use lookalike::{Answer, Code};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

const MAGIC: [u8; 8] = *b"a fabric";

/// Whether the machine has a fabric.
///
/// # Errors
/// `NOT_SUPPORTED` where it has none.
pub(super) fn is_there() -> Answer {
    let there = personality()?.driver.attribute(Attribute::FabricHandles) == Some(1);
    if there { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
}

/// Descriptors of what was exported, by the driver's numbers of the handles.
fn exported() -> MutexGuard<'static, BTreeMap<CUmemGenericAllocationHandle, File>> {
    static EXPORTED: Mutex<BTreeMap<CUmemGenericAllocationHandle, File>> = Mutex::new(BTreeMap::new());
    EXPORTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes for other processes, the same at each call.
pub(super) fn export(
    machine: &OpenReg,
    number: CUmemGenericAllocationHandle,
    handle: PhysicalHandle,
) -> Answer<[u8; 64]> {
    let mut exported = exported();
    let file = match exported.entry(number) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => {
            match machine.physical_sharing()?.export_physical(handle, HandleType::PosixFd)? {
                ShareableHandle::PosixFd(descriptor) => place.insert(File::from(descriptor)),
                ShareableHandle::Fabric(_) => return Err(Code::UNKNOWN),
            }
        }
    };
    let (volume, inode) = identity(file).ok_or(Code::UNKNOWN)?;
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    bytes[12..16].copy_from_slice(&file.as_raw_fd().to_le_bytes());
    bytes[16..24].copy_from_slice(&inode.to_le_bytes());
    bytes[24..32].copy_from_slice(&volume.to_le_bytes());
    Ok(bytes)
}

/// Which file it is: an inode alone may be one of several file systems.
fn identity(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// A descriptor of the memory that another process exported, or this one.
///
/// # Errors
/// `NOT_SUPPORTED` where there is no fabric; `INVALID_VALUE` for what is no such handle, and where its exporter has not got the
/// memory any more.
pub(super) fn import(bytes: &[u8; 64]) -> Answer<OwnedFd> {
    is_there()?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    if bytes[..8] != MAGIC {
        return Err(Code::INVALID_VALUE);
    }
    let path = format!("/proc/{}/fd/{}", word(8), word(12));
    let file = File::options().read(true).write(true).open(path).map_err(|_| Code::INVALID_VALUE)?;
    if identity(&file) == Some((long(24), long(16))) { Ok(file.into()) } else { Err(Code::INVALID_VALUE) }
}

/// The memory has ended here: it cannot be opened from now on.
pub(super) fn forget(number: CUmemGenericAllocationHandle) {
    exported().remove(&number);
}
