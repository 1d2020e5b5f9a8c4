//! Granule as the memory under CubeCL's pools.
//!
//! ```no_run
//! use cubecl_runtime::storage::ComputeStorage;
//! use granule::cuda::{CachingAllocator, Device};
//! use granule_cubecl::Storage;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let granule = CachingAllocator::from_env()?;
//!     let stream = Device::new(0)?.create_stream(0)?;
//!     let mut storage = Storage::new(&granule, &stream);
//!
//!     let page = storage.alloc(2 << 20)?;
//!     println!("{:#x}", storage.get(&page)?.address);
//!     storage.dealloc(page.id); // into the cache, after the stream's work; nothing is waited for
//!     Ok(())
//! }
//! ```
//!
//! A [`Storage`] is what CubeCL's `MemoryManagement` takes: one for each of CubeCL's streams, all over one Granule
//! allocator. CubeCL's own servers make their storage themselves. The book's page on CubeCL says what has to change there.
//!
//! # What keeps it sound
//!
//! * Memory goes back in the order of the storage's stream. CubeCL frees a page when no handle of it is left, and its
//!   kernels are queued before their handles go. It reuses parts of a page by the same rule.
//! * What another stream uses has a handle in CubeCL until that stream's work is done.
//! * An address is good while its page is allocated: CubeCL's bindings see to that.
//!
//! # Which CubeCL
//!
//! This crate depends on one release of CubeCL, because it relies on behaviour that no compiler checks.

mod resource;
mod storage;

pub use resource::Resource;
pub use storage::Storage;

/// The examples of the book, which compile.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/cubecl.md")]
    struct Page;
}
