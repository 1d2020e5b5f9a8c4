//! Driver calls for granules. The caller sets them to [`GranuleState::Pending`](super::GranuleState::Pending) first,
//! holds no lock meanwhile, and commits the outcome.

use super::{Backing, Leftovers, Mapping, Source, bytes_of};
use crate::backend::{Access, Backend, BackendError, ErrorKind, Result, VirtualMemory};
use crate::process::callbacks::{CallbackScope, Kind};
use crate::types::{DeviceIndex, DevicePtr, PhysicalHandle};

/// Attempts at a cleanup call: a driver that fails once is survived, a dead one is not waited for.
const CLEANUP_TRIES: usize = 3;

/// A call that cleans up, tried again where it fails.
pub(crate) fn persist(what: &str, mut call: impl FnMut() -> Result<()>) -> Result<()> {
    let mut outcome = call();
    for _ in 1..CLEANUP_TRIES {
        match &outcome {
            Err(error) if error.kind != ErrorKind::DeviceLost => {
                tracing::warn!(%error, "{what} failed and is tried again");
                outcome = call();
            }
            _ => break,
        }
    }
    outcome
}

/// Puts fresh physical memory behind granules of these sizes, which lie one after the other from `at` on. On an error everything
/// is undone. Calls the driver; hold no lock.
pub(crate) fn back(
    backend: &dyn Backend,
    vm: &dyn VirtualMemory,
    backing: &Backing,
    at: DevicePtr,
    sizes: &[u64],
    calls: &CallbackScope<'_>,
) -> std::result::Result<Vec<Mapping>, Failed> {
    crate::sync::assert_unlocked();
    let (mut memory, mut addr) = (Vec::with_capacity(sizes.len()), at.0);
    for bytes in sizes.iter().copied() {
        match create(vm, backing, bytes, calls) {
            Ok(handle) => memory.push(Mapping { addr, bytes, handle }),
            Err(error) => {
                backend.clear_error();
                let mut leftovers = Leftovers::default();
                release(vm, &memory, &backing.source, &mut leftovers, calls);
                return Err(Failed { error, leftovers: Box::new(leftovers) });
            }
        }
        addr += bytes;
    }
    put(backend, vm, backing, memory, calls)
}

/// Puts physical memory that nothing maps in its place, side by side. On an error it is given back.
/// Calls the driver; hold no lock.
fn put(
    backend: &dyn Backend,
    vm: &dyn VirtualMemory,
    backing: &Backing,
    memory: Vec<Mapping>,
    calls: &CallbackScope<'_>,
) -> std::result::Result<Vec<Mapping>, Failed> {
    // SAFETY: rule 1: the handles have these sizes, and nothing maps them. The range lies in a live reservation whose granules
    // this thread has set to `Pending`, so nothing is mapped there.
    let Err((error, mapped)) = (unsafe { map(backend, vm, &memory, &backing.access) }) else {
        return Ok(memory);
    };
    let mut leftovers = Leftovers::default();
    let (on_the_way, unmapped) = memory.split_at(mapped);
    // SAFETY: mapped above, never handed out, so no work can use it.
    unsafe { undo(vm, &backing.source, on_the_way, &mut leftovers, calls) };
    release(vm, unmapped, &backing.source, &mut leftovers, calls);
    Err(Failed { error, leftovers: Box::new(leftovers) })
}

/// Maps memory side by side, each in its place, for these devices. On an error, how much of it is mapped. Calls the driver; hold no
/// lock.
///
/// # Safety
/// Rule 1: the handles are live and have these sizes, and nothing is mapped in their places.
pub(crate) unsafe fn map(
    backend: &dyn Backend,
    vm: &dyn VirtualMemory,
    memory: &[Mapping],
    access: &[DeviceIndex],
) -> std::result::Result<(), (BackendError, usize)> {
    crate::sync::assert_unlocked();
    let mut mapped = 0;
    let mut attempt = || {
        for mapping in memory {
            // SAFETY: by this function's contract.
            unsafe { vm.map(mapping.at(), mapping.bytes, mapping.handle) }?;
            mapped += 1;
        }
        let Some(first) = memory.first() else { return Ok(()) };
        // SAFETY: the whole range was mapped just above.
        unsafe { vm.set_access(first.at(), bytes_of(memory), access, Access::ReadWrite) }
    };
    let outcome = attempt();
    outcome.map_err(|error| {
        backend.clear_error();
        (error, mapped)
    })
}

/// Takes memory away again that [`back`] has put in its place. What the driver refuses is left over.
/// Calls the driver; hold no lock.
///
/// # Safety
/// Rule 3: all of it is mapped at its place, and nobody has used it.
pub(crate) unsafe fn undo(
    vm: &dyn VirtualMemory,
    source: &Source,
    memory: &[Mapping],
    leftovers: &mut Leftovers,
    calls: &CallbackScope<'_>,
) {
    for mapping in memory.iter().rev() {
        // SAFETY: by this function's contract.
        let unmap = || unsafe { vm.unmap(mapping.at(), mapping.bytes) };
        if let Err(error) = persist("undoing a mapping", unmap) {
            let place = mapping.at();
            tracing::error!(%error, %place, "a granule could not be unmapped; it is tried again later");
            leftovers.keep_mapping(place, mapping.bytes);
        }
    }
    release(vm, memory, source, leftovers, calls);
}

/// Takes the mappings that fill the first `mapped` bytes of a reservation away, and its addresses. What the driver refuses is left
/// over. Calls the driver; hold no lock.
///
/// # Safety
/// Rule 3: a whole reservation by base and bytes, with nothing else mapped in it, whose last use is past.
pub(crate) unsafe fn take_down(
    backend: &dyn Backend,
    vm: &dyn VirtualMemory,
    (base, bytes): (DevicePtr, u64),
    mapped: u64,
    leftovers: &mut Leftovers,
) {
    // SAFETY: by this function's contract.
    let unmap = || unsafe { vm.unmap(base, mapped) };
    if mapped > 0 && persist("ending a second mapping", unmap).is_err() {
        backend.clear_error();
        leftovers.keep_view(base, bytes, mapped);
        return;
    }
    // SAFETY: by this function's contract; nothing is mapped there any more.
    let give_back = || unsafe { vm.release_address(base, bytes) };
    if persist("giving addresses back", give_back).is_err() {
        backend.clear_error();
        leftovers.keep_view(base, bytes, 0);
    }
}

/// A driver failure, and what could not be undone.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: BackendError,
    pub(crate) leftovers: Box<Leftovers>,
}

/// Takes memory away from its place and gives it back, in ascending order, until the driver refuses.
/// Returns how many granules were evicted, what is left over, and the refusal.
/// Calls the driver; hold no lock.
///
/// # Safety
/// Rule 3: all of it is mapped at its place, and no queued work uses it.
pub(crate) unsafe fn evict(
    vm: &dyn VirtualMemory,
    memory: &[Mapping],
    source: &Source,
    calls: &CallbackScope<'_>,
) -> (usize, Leftovers, Result<()>) {
    crate::sync::assert_unlocked();
    let mut leftovers = Leftovers::default();
    for (n, mapping) in memory.iter().enumerate() {
        // SAFETY: by this function's contract.
        let unmapped = unsafe { vm.unmap(mapping.at(), mapping.bytes) };
        if let Err(error) = unmapped {
            return (n, leftovers, Err(error));
        }
        release(vm, &[*mapping], source, &mut leftovers, calls);
    }
    (memory.len(), leftovers, Ok(()))
}

/// New physical memory from the source.
fn create(
    vm: &dyn VirtualMemory,
    backing: &Backing,
    bytes: u64,
    calls: &CallbackScope<'_>,
) -> Result<PhysicalHandle> {
    let Backing { device, handle_type, ref source, .. } = *backing;
    let Some(source) = source else { return vm.create_physical(device, bytes, handle_type) };
    let create = || source.physical().and_then(|physical| physical.create(device, bytes));
    calls.call(Kind::Source, create).flatten().ok_or_else(|| {
        let detail = "the pool's own source has no physical memory left";
        BackendError::new(ErrorKind::OutOfMemory, 0, "physical source", device, detail)
    })
}

/// Releases memory that is mapped no more; what is refused, also because a source panics, is left over.
pub(super) fn release(
    vm: &dyn VirtualMemory,
    memory: &[Mapping],
    source: &Source,
    leftovers: &mut Leftovers,
    calls: &CallbackScope<'_>,
) {
    // SAFETY: rule 1: created by this backend and released once; on an error it is kept and tried later.
    let to_driver = |handle| unsafe { vm.release_physical(handle) };
    for mapping in memory {
        let handle = mapping.handle;
        let released = match source {
            None => Some(persist("releasing memory", || to_driver(handle))),
            Some(source) => calls.call(Kind::Source, || {
                persist("releasing memory", || {
                    source.physical().map_or_else(|| to_driver(handle), |physical| physical.release(handle))
                })
            }),
        };
        if let Some(Err(error)) = &released {
            tracing::error!(%error, "physical memory could not be released; it is tried again later");
        }
        if !matches!(released, Some(Ok(()))) {
            leftovers.keep_handle(*mapping, source.clone());
        }
    }
}
