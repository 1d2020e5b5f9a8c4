//! How physical memory of a device is made. An attribute is a promise of the hardware, not of this process: one granule is
//! made, mapped and given back before it is believed. What is refused is left out, and the granule tried again.

use super::{DriverBackend, devices, graphs};
use crate::calls::Calls;
use crate::driver::Family;
use crate::driver::Site;
use crate::errors::memory_is_short;
use crate::physical::Memory;
use crate::probe::reason;
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{
    Access, Attribute, Backend, BackendError, Dropped, ErrorKind, Granularity, HandleType, PhysicalSharing,
    Result, VirtualMemory,
};
use std::ffi::c_uint;
use std::sync::{Mutex, OnceLock, PoisonError};

/// More than so many granules are free, so a granule that is refused for lack of memory is refused for another reason.
const MUCH_IS_FREE: u64 = 64;

const NO_HANDLE: c_uint = 0;
pub(super) const POSIX_FD: c_uint = 1;
pub(super) const FABRIC: c_uint = 8;

/// What may be refused, and what comes of that.
struct Property(&'static str, &'static str);

const CARDS: Property =
    Property("remote direct memory access", "network cards cannot reach growable segments");
const DESCRIPTORS: Property =
    Property("export as a file descriptor", "other processes cannot be given growable segments");
const FABRIC_HANDLES: Property =
    Property("export as a fabric handle", "other hosts cannot be given growable segments");
const VIRTUAL_MEMORY: Property = Property("virtual memory", "segments have a fixed size");

impl Property {
    fn left_out(&self, error: &BackendError) -> Dropped {
        Dropped { property: self.0, reason: reason(error), consequence: self.1 }
    }
}

/// How memory is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    handle_type: HandleType,
    /// Network cards can be given it.
    rdma: bool,
}

/// The ways that were tried on one device.
#[derive(Debug, Default)]
pub(super) struct Ways {
    private: OnceLock<Result<Way>>,
    descriptor: OnceLock<Result<Way>>,
    fabric: OnceLock<Result<Way>>,
    dropped: Mutex<Vec<Dropped>>,
}

impl Ways {
    /// The answer for a handle type that is known here, and what promises it.
    fn of(&self, handle_type: HandleType) -> (&OnceLock<Result<Way>>, Attribute) {
        match handle_type {
            HandleType::None => (&self.private, Attribute::VirtualMemoryManagement),
            HandleType::PosixFd => (&self.descriptor, Attribute::PosixFileDescriptorHandles),
            _ => (&self.fabric, Attribute::FabricHandles),
        }
    }

    /// Whether memory that other processes can be given was refused, which an attribute may promise.
    pub(super) fn refused(&self, attribute: Attribute) -> bool {
        let answer = match attribute {
            Attribute::PosixFileDescriptorHandles => &self.descriptor,
            Attribute::FabricHandles => &self.fabric,
            _ => return false,
        };
        answer.get().is_some_and(Result::is_err)
    }

    /// Why no memory of this type can be had.
    pub(super) fn why_not(&self, handle_type: HandleType) -> Option<String> {
        self.of(handle_type).0.get()?.as_ref().err().map(reason)
    }

    pub(super) fn dropped(&self) -> Vec<Dropped> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers what is left out, and tells it.
    fn leave_out(&self, device: DeviceIndex, one: Dropped) {
        tracing::warn!(%device, "{one}");
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }
}

/// How memory of this type is made on a device. Ways at the first question, and again as long as the trial fails for a
/// passing reason; legal during a capture.
pub(super) fn way<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    handle_type: HandleType,
) -> Result<Way> {
    let call = D::NAMES.create_physical;
    backend.context.exists(device, call)?;
    let ways = &backend.ways[usize::from(device.0)];
    let (answer, promise) = ways.of(handle_type);
    if let Some(known) = answer.get() {
        return known.clone();
    }
    let site = backend.context.site(device, call)?;
    let offered = match backend.attribute(device, promise) {
        // A driver without the number has no say, and fabric handles are newer than numbers for them.
        Err(error) if error.kind == ErrorKind::NotSupported => handle_type != HandleType::Fabric,
        answer => answer? != 0,
    };
    if !offered {
        let absent = site.refuse(ErrorKind::NotSupported, D::NAMES.attribute, format!("{promise:?} is 0"));
        return answer.get_or_init(|| Err(absent)).clone();
    }
    // What private memory does without, shared memory does without, too.
    let rdma = match handle_type {
        HandleType::None => D::has_attribute(site, Attribute::GpuDirectRdmaWithVirtualMemory),
        _ => way(backend, device, HandleType::None)?.rdma,
    };
    let _relaxed = graphs::relaxed(backend)?;
    let (found, left_out) = descend(backend, device, handle_type, rdma)?;
    if answer.set(found.clone()).is_ok()
        && let Some(one) = left_out
    {
        ways.leave_out(device, one);
    }
    found
}

/// The same for memory that is to be used. Private memory stands in for memory that no descriptor can be had of, which is
/// told where it is exported.
pub(super) fn usable<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    handle_type: HandleType,
) -> Result<Way> {
    way(backend, device, handle_type).or_else(|error| {
        let refused = handle_type == HandleType::PosixFd
            && backend.ways[usize::from(device.0)].refused(Attribute::PosixFileDescriptorHandles);
        if refused { way(backend, device, HandleType::None) } else { Err(error) }
    })
}

/// Leaves out one property after the other until a granule can be used.
fn descend<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    handle_type: HandleType,
    rdma: bool,
) -> Result<(Result<Way>, Option<Dropped>)> {
    let refused = |way| refusal(backend, device, || cycle(backend, device, way));
    let (for_cards, plain) = (Way { handle_type, rdma: true }, Way { handle_type, rdma: false });
    let with_rdma = if rdma { refused(for_cards)? } else { None };
    if rdma && with_rdma.is_none() {
        return Ok((Ok(for_cards), None));
    }
    Ok(match refused(plain)? {
        None => (Ok(plain), with_rdma.map(|error| CARDS.left_out(&error))),
        Some(error) => {
            let one = match handle_type {
                HandleType::PosixFd => DESCRIPTORS.left_out(&error),
                HandleType::Fabric => FABRIC_HANDLES.left_out(&error),
                _ => VIRTUAL_MEMORY.left_out(&error),
            };
            (Err(error), Some(one))
        }
    })
}

/// What refuses a trial, and refuses it again: a driver that fails once is survived. Lack of memory is believed only where
/// little is free (Tegra says so of what it cannot do).
///
/// # Errors
/// What says nothing about the way that was tried.
fn refusal<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    trial: impl Fn() -> Result<()>,
) -> Result<Option<BackendError>> {
    let Err(error) = trial().or_else(|_| trial()) else { return Ok(None) };
    match error.kind {
        ErrorKind::OutOfMemory => {
            let free = D::memory_info(*backend.context.enter(device, D::NAMES.memory_info)?)?.free;
            let granule = backend.granularity(device, Granularity::Minimum)?;
            if free / MUCH_IS_FREE < granule {
                return Err(error);
            }
            let detail = format!("{}, with {free} bytes free", error.detail);
            Ok(Some(BackendError { kind: ErrorKind::NotSupported, detail, ..error }))
        }
        _ if error.is_passing() => Err(error),
        _ => Ok(Some(error)),
    }
}

/// Makes one granule, maps it, and gives all back. Private memory also has to be free again before its addresses are: growable
/// segments that keep addresses would give nothing back otherwise.
fn cycle<D: Calls>(backend: &DriverBackend<D>, device: DeviceIndex, way: Way) -> Result<()> {
    let is_watched = way.handle_type == HandleType::None && !D::ABILITIES.releases_at_once;
    let free = || -> Result<u64> {
        if !is_watched {
            return Ok(0);
        }
        Ok(D::memory_info(*backend.context.enter(device, D::NAMES.memory_info)?)?.free)
    };
    let bytes = backend.granularity(device, Granularity::Minimum)?;
    let at = reserve(backend, device, bytes, 0, DevicePtr::NULL)?;
    let before = free();
    let tried = with_memory(backend, device, at, bytes, way);
    let unmapped = free();
    // SAFETY: this trial reserved the range, and what it mapped there is unmapped.
    let released = unsafe { backend.release_address(at, bytes) };
    tried.and(released)?;
    let (before, unmapped, after) = (before?, unmapped?, free()?);
    // Others take and give meanwhile: it lacked, and came with the addresses, to the byte and more.
    if is_watched && unmapped.saturating_add(bytes) <= before.min(after) {
        let detail = "memory that was unmapped and released stays taken until its addresses are given back";
        let site = backend.context.site(device, D::NAMES.release_physical)?;
        return Err(site.refuse(ErrorKind::NotSupported, D::NAMES.release_physical, detail));
    }
    Ok(())
}

fn with_memory<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    at: DevicePtr,
    bytes: u64,
    way: Way,
) -> Result<()> {
    let handle = create(backend, device, bytes, way)?;
    // SAFETY: the range is a whole reservation and the size is the handle's.
    let tried = unsafe { backend.map(at, bytes, handle) }.and_then(|()| {
        // SAFETY: the range is mapped.
        let set = unsafe { backend.set_access(at, bytes, &[device], Access::ReadWrite) };
        let exported = set.and_then(|()| match way.handle_type {
            HandleType::None => Ok(()),
            handle_type => {
                devices::has(backend, Family::PhysicalSharing)?;
                backend.export_physical(handle, handle_type).map(drop)
            }
        });
        // SAFETY: the range is one mapping, and nothing uses it.
        let unmapped = unsafe { backend.unmap(at, bytes) };
        exported.and(unmapped)
    });
    // SAFETY: the handle is this trial's and is not used again.
    let released = unsafe { backend.release_physical(handle) };
    tried.and(released)
}

/// The drivers' number of a handle type.
pub(super) fn handle_bits<D: Calls>(site: Site<'_, D>, handle_type: HandleType) -> Result<c_uint> {
    match handle_type {
        HandleType::None => Ok(NO_HANDLE),
        HandleType::PosixFd => Ok(POSIX_FD),
        HandleType::Fabric => Ok(FABRIC),
        other => {
            let detail = format!("{other:?} handles are not known here");
            Err(site.refuse(ErrorKind::NotSupported, D::NAMES.create_physical, detail))
        }
    }
}

/// Reserves addresses.
pub(super) fn reserve<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    bytes: u64,
    alignment: u64,
    hint: DevicePtr,
) -> Result<DevicePtr> {
    let entered = backend.context.enter(device, D::NAMES.reserve_addresses)?;
    entered.positive(D::NAMES.reserve_addresses, bytes)?;
    let at = D::reserve_addresses(*entered, bytes as usize, alignment as usize, hint.0)?;
    backend.physical.reserved(at, bytes, device);
    Ok(DevicePtr(at))
}

/// Takes physical memory in one of the ways.
pub(super) fn create<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    bytes: u64,
    Way { handle_type, rdma }: Way,
) -> Result<PhysicalHandle> {
    let entered = backend.context.enter(device, D::NAMES.create_physical)?;
    entered.positive(D::NAMES.create_physical, bytes)?;
    let bits = handle_bits(*entered, handle_type)?;
    let raw = D::create_physical(*entered, bytes as usize, bits, rdma).map_err(memory_is_short)?;
    let memory = Memory { device, bytes: Some(bytes), handle_type, keeps: D::Keeps::default() };
    backend.physical.add(raw, memory);
    Ok(PhysicalHandle { raw, backend: backend.context.id() })
}
