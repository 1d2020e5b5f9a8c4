//! Granule for one cudarc context.

use crate::error::{Error, Result};
use crate::streams;
use cudarc::driver::{CudaContext, CudaStream, result};
use granule::cuda::{CachingAllocator, Device, Stream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Granule for the streams of one [`CudaContext`]. A clone is the same allocator.
///
/// It keeps a stream of the context for itself. With that cudarc records the events of a buffer's uses on every
/// stream, also on default streams and after the program's last own stream is gone.
#[derive(Clone, Debug)]
pub struct Allocator {
    bound: Arc<Bound>,
}

/// Granule and a context.
#[derive(Debug)]
struct Bound {
    context: Arc<CudaContext>,
    /// Never given work: while it lives, `CudaContext::is_in_multi_stream_mode` is true.
    _tracking: Arc<CudaStream>,
    device: Device,
    granule: CachingAllocator,
    /// No other one ever has it. One that takes this one's place may serve its streams before this one has ended.
    number: u64,
}

impl Drop for Bound {
    fn drop(&mut self) {
        streams::release(self.number);
    }
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Every binding that lives: one for each context and Granule allocator.
static BOUND: Mutex<Vec<Weak<Bound>>> = Mutex::new(Vec::new());
/// The allocator of [`Allocator::of`], once somebody asked.
static DEFAULT: Mutex<Option<CachingAllocator>> = Mutex::new(None);

fn locked<T>(shared: &'static Mutex<T>) -> MutexGuard<'static, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocator {
    /// The default allocator of a context. One Granule allocator, with the settings of the environment
    /// (`PYTORCH_CUDA_ALLOC_CONF` and its like, then `GRANULE_CONF`), serves the process; its cache outlives the
    /// contexts. Starts Granule at the first use and makes a stream (`cuStreamCreate`), which block.
    ///
    /// # Errors
    /// [`Error::NotPrimary`]; what Granule or the driver says at the start. A later call tries again.
    pub fn of(context: &Arc<CudaContext>) -> Result<Self> {
        let mut default = locked(&DEFAULT);
        let granule = match &*default {
            Some(granule) => granule.clone(),
            None => default.insert(CachingAllocator::from_env()?).clone(),
        };
        drop(default);
        Self::new(context, &granule)
    }

    /// A Granule allocator of the program's own for a context: with other settings, or shared with code without
    /// cudarc. The same two give the same allocator. Makes a stream, which blocks.
    ///
    /// # Errors
    /// [`Error::NotPrimary`]; what the driver says.
    pub fn new(context: &Arc<CudaContext>, granule: &CachingAllocator) -> Result<Self> {
        let is_this = |one: &Arc<Bound>| {
            Arc::ptr_eq(&one.context, context) && Arc::ptr_eq(one.granule.engine(), granule.engine())
        };
        let mut all = locked(&BOUND);
        all.retain(|one| one.strong_count() > 0);
        if let Some(bound) = all.iter().filter_map(Weak::upgrade).find(is_this) {
            return Ok(Self { bound });
        }
        let bound = Arc::new(Bound {
            device: device_of(context)?,
            _tracking: context.new_stream()?,
            context: Arc::clone(context),
            granule: granule.clone(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        });
        all.push(Arc::downgrade(&bound));
        Ok(Self { bound })
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.bound.context
    }

    /// Granule itself: statistics, limits, `empty_cache`, snapshots.
    #[must_use]
    pub fn granule(&self) -> &CachingAllocator {
        &self.bound.granule
    }

    /// Ends the use of a stream before its owner destroys it. Needed for a stream of
    /// [`CudaContext::wrap_borrowed_stream`] alone: the allocator owns a clone of the `Arc`, and finds only sometime that
    /// nobody else does. A stream of cudarc's own is destroyed then. Rarely blocks.
    ///
    /// # Errors
    /// [`Error::StreamInUse`] where somebody has a clone of `stream`, such as a buffer; the driver's error where the
    /// stream is being captured.
    pub fn retire_stream(&self, stream: Arc<CudaStream>) -> Result<()> {
        streams::retire(stream)
    }

    /// Retires all streams that nobody else owns any more. Every request for a new stream does that, and every buffer
    /// that was the last owner of its stream. Rarely blocks.
    pub fn retire_unused_streams(&self) {
        streams::retire_unused();
    }

    /// Granule's name of a stream.
    pub(crate) fn stream(&self, stream: &Arc<CudaStream>) -> Result<Stream> {
        if !Arc::ptr_eq(stream.context(), &self.bound.context) {
            let (allocator, stream) = (self.bound.context.ordinal(), stream.context().ordinal());
            return Err(Error::OtherContext { allocator, stream });
        }
        let Bound { device, granule, number, .. } = &*self.bound;
        Ok(streams::serve(stream, device, granule, *number))
    }
}

/// The device whose primary context this is. Granule's backend has all its memory there.
fn device_of(context: &CudaContext) -> Result<Device> {
    let ordinal = context.ordinal();
    let wrong = |_| Error::NotPrimary { ordinal };
    let number = result::device::get(i32::try_from(ordinal).map_err(wrong)?)?;
    // SAFETY: `cuDevicePrimaryCtxRetain` wants a device that the driver named, as above.
    let primary = unsafe { result::primary_ctx::retain(number)? };
    // SAFETY: `cuDevicePrimaryCtxRelease` gives one reference back: the one just taken.
    unsafe { result::primary_ctx::release(number)? };
    if primary != context.cu_ctx() {
        return Err(Error::NotPrimary { ordinal });
    }
    Ok(Device::new(u16::try_from(ordinal).map_err(wrong)?)?)
}
