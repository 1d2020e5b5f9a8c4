//! Calls that could take memory from a value that has it are `unsafe`: each of these compiles with `unsafe`, and not
//! without. Safe calls refuse (`tests/tests`: `allocation/pointers.rs`, `graphs/launches.rs`, `pools/checkpoints.rs`).

/// Sleep takes memory away under queued work, and with it perhaps its contents.
///
/// ```
/// fn calm(allocator: &alloc_core::CachingAllocator) {
///     use alloc_core::sleep::{Backup, Tags};
///     let _ = unsafe { allocator.sleep_mode().sleep(Tags::All, &Backup::Discard) };
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn calm(allocator: &alloc_core::CachingAllocator) {
///     use alloc_core::sleep::{Backup, Tags};
///     let _ = allocator.sleep_mode().sleep(Tags::All, &Backup::Discard);
/// }
/// ```
mod sleep {}

/// A retired stream is not waited for any more: what it is given later would run beside the memory's next owner.
///
/// ```
/// fn ends(allocator: &alloc_core::CachingAllocator, stream: alloc_core::types::Stream) {
///     let _ = unsafe { allocator.retire_stream(stream) };
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn ends(allocator: &alloc_core::CachingAllocator, stream: alloc_core::types::Stream) {
///     let _ = allocator.retire_stream(stream);
/// }
/// ```
mod retire_stream {}

/// The same of pinned memory.
///
/// ```
/// fn ends(host: &alloc_core::HostAllocator, stream: alloc_core::types::Stream) {
///     let _ = unsafe { host.retire_stream(stream) };
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn ends(host: &alloc_core::HostAllocator, stream: alloc_core::types::Stream) {
///     let _ = host.retire_stream(stream);
/// }
/// ```
mod retire_stream_of_the_host {}

/// A source could hand out a buffer's own physical memory once more.
///
/// ```
/// use alloc_core::backend::Result;
/// use alloc_core::types::{DeviceIndex, PhysicalHandle};
/// #[derive(Debug)]
/// struct Source;
/// unsafe impl alloc_core::pool::PhysicalSource for Source {
///     fn create(&self, _: DeviceIndex, _: u64) -> Option<PhysicalHandle> { None }
///     fn release(&self, _: PhysicalHandle) -> Result<()> { Ok(()) }
/// }
/// ```
///
/// ```compile_fail,E0200
/// use alloc_core::backend::Result;
/// use alloc_core::types::{DeviceIndex, PhysicalHandle};
/// #[derive(Debug)]
/// struct Source;
/// impl alloc_core::pool::PhysicalSource for Source {
///     fn create(&self, _: DeviceIndex, _: u64) -> Option<PhysicalHandle> { None }
///     fn release(&self, _: PhysicalHandle) -> Result<()> { Ok(()) }
/// }
/// ```
mod physical_source {}

/// A buffer's own mark is nobody else's to take off.
///
/// ```
/// fn free(allocator: &alloc_core::CachingAllocator, buffer: &alloc_core::DeviceBuffer<u8>) {
///     assert!(allocator.free(buffer.ptr()).is_err());
/// }
/// ```
///
/// ```compile_fail,E0624
/// fn free(allocator: &alloc_core::CachingAllocator, buffer: &alloc_core::DeviceBuffer<u8>) {
///     let _ = allocator.set_owned(buffer.ptr(), None);
/// }
/// ```
mod device_buffer {}
