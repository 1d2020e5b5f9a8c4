//! cudarc's device buffers from Granule.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use granule::types::DeviceIndex;
//! use granule_cudarc::Allocator;
//!
//! fn main() -> Result<(), granule_cudarc::Error> {
//!     let context = CudaContext::new(0)?;
//!     let stream = context.new_stream()?;
//!     let memory = Allocator::of(&context)?;
//!
//!     let input = memory.clone_htod(&stream, &[1.0_f32, 2.0, 3.0])?;
//!     let mut output = memory.alloc_zeros::<f32>(&stream, 3)?;
//!     stream.memcpy_dtod(&input.slice(..2), &mut output.slice_mut(1..))?;
//!     assert_eq!(stream.clone_dtoh(&output)?, [0.0, 1.0, 2.0]);
//!     drop(input); // back into the cache, after all work that uses it; nothing is waited for here
//!     println!("{} bytes held", memory.granule().stats(DeviceIndex(0))?.reserved_bytes.all.current);
//!     Ok(())
//! }
//! ```
//!
//! A [`Buffer`] goes wherever cudarc takes a [`CudaSlice`](cudarc::driver::CudaSlice) by reference: copies, fills,
//! arguments of kernels, views. Slices that cudarc made itself work beside it. What takes a `CudaSlice` by value, or
//! stores one, cannot take a buffer.
//!
//! # What keeps it sound
//!
//! * cudarc records an event after each use of a buffer, on whatever stream. A dropped buffer's stream waits for the last
//!   read and the last write before Granule has the memory again.
//! * cudarc keeps one event for reads. Where several streams read a buffer at a time, call [`Buffer::record_stream`] for
//!   each but the last. cudarc's own slices have the same gap.
//! * A copy to another device is noted on the buffer's own stream. Let that wait for the copy before the drop:
//!   `buffer.stream().join(&copying_stream)`. [`Allocator::clone_dtod`] does so itself.
//! * That needs cudarc's event tracking, which is on by default. Who switches it off
//!   ([`disable_event_tracking`](cudarc::driver::CudaContext::disable_event_tracking), `unsafe`) calls
//!   [`Buffer::record_stream`] for uses on other streams.
//! * cudarc tracks per [`CudaContext`](cudarc::driver::CudaContext) value: have one for each device.
//! * A graph that was captured uses its buffers' memory at each launch: wait for its last launch and drop the graph first,
//!   as with cudarc's own slices.
//!
//! # Which cudarc
//!
//! This crate depends on one release of cudarc, because it relies on behaviour that no compiler checks. The default feature
//! `cuda-12010` chooses the declarations of CUDA 12.1. cudarc takes one version: leave the default features out
//! where your program chooses another from 12.1 to 12.9, for example `cudarc/cuda-12080`.

mod allocator;
mod buffer;
mod error;
mod requests;
mod streams;

pub use allocator::Allocator;
pub use buffer::Buffer;
pub use error::{Error, Result};

/// The examples of the book, which compile.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/cudarc.md")]
    struct Page;
}
