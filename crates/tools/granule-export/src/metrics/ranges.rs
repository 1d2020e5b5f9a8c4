//! Named ranges in the timelines of profilers: NVIDIA's NVTX and AMD's roctx.
//!
//! The libraries are looked for when the first range is opened, and a range is shown by each that was found; without
//! any, ranges do nothing, and [`Markers::missing`] says why. `GRANULE_NVTX_LIBRARY` and `GRANULE_ROCTX_LIBRARY` name
//! other files.
//!
//! ```
//! use granule_export::metrics::ranges::{MemoryRange, Range};
//! # use alloc_core::{AllocError, CachingAllocator, types::Stream};
//! # use std::sync::Arc;
//! fn step(allocator: &Arc<CachingAllocator>, stream: Stream) -> Result<(), AllocError> {
//!     let _step = Range::push("step");
//!     let forward = MemoryRange::begin(allocator, stream.device, "forward")?;
//!     let activations = allocator.malloc(1 << 20, stream)?;
//!     println!("forward took {} bytes at most", forward.finish()?.allocated_bytes.peak);
//!     allocator.free(activations)
//! }
//! ```

mod library;

pub use library::{LoadError, Vendor};

use alloc_core::CachingAllocator;
use alloc_core::allocator::StatScope;
use alloc_core::error::Result;
use alloc_core::stats::ScopeStats;
use alloc_core::types::DeviceIndex;
use library::Library;
use std::ffi::CString;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::LazyLock;

/// The profilers' libraries that ranges are shown by.
#[derive(Debug, Default)]
pub struct Markers {
    libraries: Vec<Library>,
    missing: Vec<LoadError>,
}

impl Markers {
    /// Those of this process, found once.
    #[must_use]
    pub fn of_process() -> &'static Self {
        static MARKERS: LazyLock<Markers> = LazyLock::new(|| {
            let markers = Markers::new(Vendor::ALL.map(Library::find));
            for reason in &markers.missing {
                tracing::debug!(%reason, "ranges are not shown there");
            }
            markers
        });
        &MARKERS
    }

    /// Those in files that the caller names.
    #[must_use]
    pub fn from_files<'a>(files: impl IntoIterator<Item = (Vendor, &'a Path)>) -> Self {
        Self::new(files.into_iter().map(|(vendor, path)| Library::open(vendor, path)))
    }

    fn new(found: impl IntoIterator<Item = std::result::Result<Library, LoadError>>) -> Self {
        let mut markers = Self::default();
        for found in found {
            match found {
                Ok(library) => markers.libraries.push(library),
                Err(reason) => markers.missing.push(reason),
            }
        }
        markers
    }

    /// Whose libraries were found.
    pub fn found(&self) -> impl Iterator<Item = Vendor> {
        self.libraries.iter().map(Library::vendor)
    }

    /// Why the others were not.
    #[must_use]
    pub fn missing(&self) -> &[LoadError] {
        &self.missing
    }

    /// Opens a range on this thread; it ends with the answer. A name ends at its first zero byte.
    pub fn push(&self, name: &str) -> Range<'_> {
        if !self.libraries.is_empty() {
            let name = name.split('\0').next().unwrap_or_default();
            let name = CString::new(name).unwrap_or_default();
            self.libraries.iter().for_each(|library| library.push(&name));
        }
        Range { markers: self, on_this_thread: PhantomData }
    }
}

/// A part of what a thread does. Ranges of one thread nest; drop them in the order opposite to their beginning.
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct Range<'m> {
    markers: &'m Markers,
    /// Profilers keep a stack for each thread.
    on_this_thread: PhantomData<*const ()>,
}

impl Range<'static> {
    /// Opens a range on this thread, in every profiler's library of the process.
    pub fn push(name: &str) -> Self {
        Markers::of_process().push(name)
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        self.markers.libraries.iter().for_each(Library::pop);
    }
}

/// A range, and the memory that a device took meanwhile.
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct MemoryRange {
    scope: StatScope,
    range: Range<'static>,
}

impl MemoryRange {
    /// Opens a range on this thread, and a [`StatScope`].
    ///
    /// # Errors
    /// Those of [`StatScope::begin`].
    pub fn begin(
        allocator: &std::sync::Arc<CachingAllocator>,
        device: DeviceIndex,
        name: &str,
    ) -> Result<Self> {
        let scope = StatScope::begin(allocator, device)?;
        Ok(Self { scope, range: Range::push(name) })
    }

    /// What happened since it began. It goes on.
    ///
    /// # Errors
    /// Those of [`StatScope::peaks`].
    pub fn peaks(&self) -> Result<ScopeStats> {
        self.scope.peaks()
    }

    /// Ends it, and says what happened.
    ///
    /// # Errors
    /// Those of [`StatScope::finish`].
    pub fn finish(self) -> Result<ScopeStats> {
        let Self { scope, range } = self;
        drop(range);
        scope.finish()
    }
}
