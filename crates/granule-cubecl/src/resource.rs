//! What a kernel is given of a buffer.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer's place in device memory. The fields are those of `GpuResource` in CubeCL's CUDA and HIP runtimes.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// The device address; 0 for a buffer of 0 bytes.
    pub address: u64,
    /// A place in host memory that has the address, as launches want their arguments (`cuLaunchKernel`,
    /// `hipModuleLaunchKernel`). It is good for the next [`Storage::BINDINGS`](crate::Storage::BINDINGS) calls of
    /// [`get`](cubecl_runtime::storage::ComputeStorage::get), while the storage lives.
    pub binding: *mut c_void,
    /// Its length in bytes.
    pub bytes: u64,
}

// SAFETY: the pointer is read by whoever launches a kernel, on any thread: it leads to an atomic of the storage.
unsafe impl Send for Resource {}

/// Addresses in host memory, for launches that are being made.
#[derive(Debug)]
pub(crate) struct Bindings {
    /// A ring. Never moved or resized: launches have pointers to its places.
    places: Box<[AtomicU64]>,
    next: usize,
}

impl Bindings {
    pub(crate) fn new(places: usize) -> Self {
        Self { places: (0..places).map(|_| AtomicU64::new(0)).collect(), next: 0 }
    }

    /// A place that has `address`, until it is its turn again.
    pub(crate) fn place(&mut self, address: u64) -> *mut c_void {
        let place = &self.places[self.next];
        place.store(address, Ordering::Relaxed);
        self.next = (self.next + 1) % self.places.len();
        place.as_ptr().cast()
    }
}
