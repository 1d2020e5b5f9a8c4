//! The streams that Granule serves, and their end.
//!
//! Granule names a stream to the driver for as long as it caches memory of it, so a served stream is kept here. Where
//! nothing else owns it any more, Granule is told that it ends, and it is dropped: cudarc destroys it then.

use crate::error::{Error, Result};
use cudarc::driver::CudaStream;
use granule::cuda::{CachingAllocator, Device, Stream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The driver's handle as a number.
fn raw(stream: &CudaStream) -> u64 {
    stream.cu_stream().addr() as u64
}

/// `CU_STREAM_PER_THREAD`: another stream in each thread. Lower numbers are the legacy default stream.
const PER_THREAD: u64 = 2;

/// Whether its handle means the calling thread's own stream.
pub(crate) fn is_per_thread(stream: &CudaStream) -> bool {
    raw(stream) == PER_THREAD
}

/// A stream that allocators know.
#[derive(Debug)]
struct Served {
    theirs: Arc<CudaStream>,
    by: Vec<User>,
}

/// An allocator that has memory of a stream.
#[derive(Debug)]
struct User {
    granule: CachingAllocator,
    /// Its name for the stream.
    ours: Stream,
    /// The binding that asked last: an earlier one that ends takes nothing from it.
    binding: u64,
}

/// All of the process: a stream that two allocators know ends for both at once.
static SERVED: Mutex<Vec<Served>> = Mutex::new(Vec::new());

/// Held while a stream retires, so that nobody asks for memory of it meanwhile. Granule calls no code of the program
/// there.
fn served() -> MutexGuard<'static, Vec<Served>> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn same(one: &CachingAllocator, other: &CachingAllocator) -> bool {
    Arc::ptr_eq(one.engine(), other.engine())
}

/// Granule's name for a stream of `device`, which is kept from here on.
pub(crate) fn serve(
    stream: &Arc<CudaStream>,
    device: &Device,
    granule: &CachingAllocator,
    binding: u64,
) -> Stream {
    // SAFETY: the caller looked at the stream's device. A default stream lives as long as its context, which Granule's
    // backend retains for good, or as its thread, by which Granule knows it. Any other lives while it is in the list,
    // and leaves that only after Granule was told.
    let named = || unsafe { Stream::from_external(device, raw(stream)) };
    if raw(stream) <= PER_THREAD {
        return named();
    }
    let mut served = served();
    let user = || User { granule: granule.clone(), ours: named(), binding };
    if let Some(known) = served.iter_mut().find(|known| Arc::ptr_eq(&known.theirs, stream)) {
        if let Some(user) = known.by.iter_mut().find(|user| same(&user.granule, granule)) {
            user.binding = binding;
            return user.ours.clone();
        }
        known.by.push(user());
    } else {
        take_unused(&mut served);
        served.push(Served { theirs: Arc::clone(stream), by: vec![user()] });
    }
    named()
}

/// Retires every stream that nothing but the list owns. Rarely blocks.
pub(crate) fn retire_unused() {
    take_unused(&mut served());
}

/// Retires a stream whose owner asks for it.
pub(crate) fn retire(stream: Arc<CudaStream>) -> Result<()> {
    let mut served = served();
    let Some(at) = served.iter().position(|known| Arc::ptr_eq(&known.theirs, &stream)) else {
        return Ok(());
    };
    // The list's and the caller's are two.
    let holders = Arc::strong_count(&stream).saturating_sub(2);
    if holders > 0 {
        return Err(Error::StreamInUse { holders });
    }
    let mut one = served.swap_remove(at);
    let told = tell(&served, &mut one);
    if told.is_err() {
        served.push(one);
    }
    told
}

/// Gives up all streams that a binding was the last to ask for, when no buffer of it is left. They may go on for the
/// program.
pub(crate) fn release(binding: u64) {
    let mut served = served();
    let is_ours = |one: &Served| one.by.iter().any(|user| user.binding == binding);
    while let Some(at) = served.iter().position(is_ours) {
        let mut rest = served.swap_remove(at);
        let (ours, others) =
            std::mem::take(&mut rest.by).into_iter().partition(|user| user.binding == binding);
        rest.by = others;
        let mut one = Served { theirs: Arc::clone(&rest.theirs), by: ours };
        if let Err(error) = tell(&served, &mut one) {
            tracing::error!(%error, "a stream could not be retired, and is never destroyed");
            std::mem::forget(one);
        }
        if !rest.by.is_empty() {
            served.push(rest);
        }
    }
}

/// Takes every unused stream out of the list. One that cannot be retired now, because it is being captured, waits for
/// the next time.
fn take_unused(served: &mut Vec<Served>) {
    let mut at = 0;
    while at < served.len() {
        let Served { theirs, by } = served.swap_remove(at);
        // Not `strong_count`: a `Weak` of the program's could still revive it.
        let kept = match Arc::try_unwrap(theirs) {
            Err(used) => Some(Served { theirs: used, by }),
            Ok(unused) => {
                let mut one = Served { theirs: Arc::new(unused), by };
                let told = tell(served, &mut one);
                told.inspect_err(|error| tracing::debug!(%error, "a stream does not retire yet"))
                    .is_err()
                    .then_some(one)
            }
        };
        if let Some(one) = kept {
            served.push(one);
            let last = served.len() - 1;
            served.swap(at, last);
            at += 1;
        }
    }
}

/// Tells each allocator that `one` ends, which is no more in the list. Nothing to tell where a second `CudaStream` in
/// the list wraps the same stream.
fn tell(served: &[Served], one: &mut Served) -> Result<()> {
    while let Some(User { granule, ours, .. }) = one.by.last() {
        let is_same = |other: &User| same(&other.granule, granule) && other.ours.handle() == ours.handle();
        if !served.iter().flat_map(|other| &other.by).any(is_same) {
            // SAFETY: every buffer of the stream owns it, and so does the caller of every request: none is left, so its
            // work with Granule's memory was queued before. The list's lock keeps requests of other wrappers out.
            unsafe { granule.retire_stream(ours)? };
        }
        one.by.pop();
    }
    Ok(())
}
