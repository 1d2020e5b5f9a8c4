//! The device contract: what an accelerator must offer, on one page.
//!
//! A vendor implements [`Backend`] and stops there, or adds any of the optional families ([`VirtualMemory`],
//! [`PhysicalSharing`], [`PinnedHost`], [`Ipc`], [`Peers`], [`Capture`], [`HostRegistration`]). The engine asks which
//! families are there; it never guesses. A backend does not repeat the checks of the engine.
//!
//! # Rules for every call
//!
//! Common preconditions, said once. `SAFETY:` comments cite them by number.
//!
//! 1. **Handles** (streams, events, physical handles) given to a call were made by this backend and not
//!    destroyed. A backend compares [`Backend::id`] with the handle's and answers `InvalidValue`.
//! 2. **Addresses** given to an `unsafe fn` lie in memory that this backend handed out. The memory stays allocated (or
//!    mapped, with access) for the whole length of the operation, queued work included.
//! 3. **Frees** (`free`, `unmap`, `release_address`, ...) name exactly the memory or addresses that were handed out,
//!    once. No queued work still uses them.
//! 4. **Sizes** are bytes, positive; size 0 is `InvalidValue`.
//! 5. **The current device** is per thread. Any call leaves it as it found it, also on error.
//! 6. **Errors are complete**: a failed call has changed nothing, and leaves no sticky error behind. "Not ready" is a value.
//! 7. **Threads**: every method may be called from any thread at any time. One that blocks holds its caller, and no thread
//!    of the driver. Only a host function may hold those ([`Backend::launch_host_function`]).
//! 8. **Fatal errors** ([`ErrorKind::DeviceLost`]) repeat on every later call about that device.
//! 9. **Limits**: there are [`MAX_DEVICES`] (256) devices at most.
//!
//! # Rules for implementors (`unsafe trait`)
//!
//! Safe code above relies on these for memory safety:
//!
//! * I1: memory handed out is disjoint from all other memory that was handed out and is still held. It is at least as
//!   large as asked, is aligned to 512 bytes, and has addresses of [`ADDRESS_BITS`] (57) bits. Reserved addresses have
//!   no more bits.
//! * I2: an event is ready only when all work queued on the stream before its record has finished.
//! * I3: `synchronize_*` return only when that work has finished.
//! * I4: physical memory stays alive while it is mapped, also after its handle was released.

mod capture;
pub mod defaults;
mod error;
mod families;
mod fork;
mod guard;
mod label;
mod memory;
#[doc(hidden)] // for the engine, and what is simulated for its tests
pub mod steps;
pub mod types;
mod virtual_memory;

pub use capture::{Capture, CaptureMode, CaptureNode, CaptureStatus, Graph};
pub use error::{BackendError, Dropped, ErrorKind, Result, Unsupported};
pub use families::{HostRegistration, Ipc, IpcMemoryHandle, Peers, PinnedHost};
pub use guard::DeviceGuard;
pub use label::{LabelOwner, LabelTaken};
pub use memory::{
    AddressRange, Attribute, CopyKind, DeviceProperties, EventFlags, HostFlags, MemoryInfo, PointerInfo,
    PointerKind, PriorityRange, Readiness,
};
pub use virtual_memory::{Access, Granularity, HandleType, PhysicalSharing, ShareableHandle, VirtualMemory};

use crate::types::{BackendId, DeviceIndex, DeviceKind, DevicePtr, Event, Stream};
use std::fmt::Debug;

/// Rule 9: so many devices a backend may have.
pub const MAX_DEVICES: u16 = 256;
/// I1: addresses of device memory, reserved ones too, have no more bits.
pub const ADDRESS_BITS: u32 = 57;

/// Work that runs on the host when a stream reaches it. It must neither call the backend nor wait for other work.
pub type HostFunction = Box<dyn FnOnce() + Send>;

/// One kind of accelerator.
///
/// # Safety
/// An implementation keeps I1 to I4 of the [module's rules](self).
#[rustfmt::skip]
pub unsafe trait Backend: Debug + Send + Sync + 'static {
    // --- identity ------------------------------------------------------------------------------

    /// The id that this backend's handles carry. Never blocks; legal during capture.
    fn id(&self) -> BackendId;

    /// The label its devices carry towards frameworks. Never blocks; legal during capture. An accelerator outside of
    /// the frameworks' own trees keeps the default.
    fn kind(&self) -> DeviceKind {
        DeviceKind::PrivateUse1
    }

    /// A short lower-case name (`openreg`, `cuda`, `hip`). Never blocks; legal during capture.
    fn name(&self) -> &'static str;

    /// What errors call its devices (`CUDA out of memory`). Never blocks; legal during capture.
    fn label(&self) -> &'static str {
        self.kind().label()
    }

    /// What the driver calls an error code (`CUDA_ERROR_OUT_OF_MEMORY`); "unknown" for one it does not
    /// know. Never blocks. CUDA `cuGetErrorName`, HIP `hipGetErrorName`, OpenReg: three names.
    fn error_name(&self, code: i32) -> String {
        let _ = code;
        "unknown".into()
    }

    /// Clears the error that some drivers keep for the next caller, after an expected failure. Never
    /// blocks. CUDA driver: nothing to do; HIP `hipGetLastError`; OpenReg: nothing to do.
    fn clear_error(&self) {}

    // --- devices -------------------------------------------------------------------------------

    /// How many devices there are; 0 where the driver works and finds none. Does not block; legal during
    /// capture. CUDA `cuDeviceGetCount`, HIP `hipGetDeviceCount`, OpenReg `orGetDeviceCount`.
    fn device_count(&self) -> Result<u16>;

    /// The calling thread's device. Does not block; legal during capture. CUDA `cuCtxGetDevice`,
    /// HIP `hipGetDevice`, OpenReg `orGetDevice`.
    fn current_device(&self) -> Result<DeviceIndex>;

    /// Makes `device` the calling thread's device (the one exception to rule 5). May create its context,
    /// which blocks. CUDA `cuCtxSetCurrent` with the primary context, HIP `hipSetDevice`, OpenReg `orSetDevice`.
    fn set_device(&self, device: DeviceIndex) -> Result<()>;

    /// Whether the device's primary context exists; must not create it. Does not block.
    /// CUDA `cuDevicePrimaryCtxGetState`, HIP `hipDevicePrimaryCtxGetState`, OpenReg: always.
    /// Without it: yes, always.
    fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        defaults::has_primary_context(self, device)
    }

    /// One number about a device. Does not block; legal during capture. CUDA `cuDeviceGetAttribute`,
    /// HIP `hipDeviceGetAttribute` (other numbers), OpenReg: a table. `NotSupported` where it has no answer.
    fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        defaults::attribute(self, device, attribute)
    }

    /// Name, ids and total memory. Does not block. CUDA `cuDeviceGetName`, `cuDeviceGetUuid`,
    /// `cuDeviceGetPCIBusId`, `cuDeviceTotalMem`; HIP `hipDeviceGetName` and so on; OpenReg: a table.
    /// Without it: the backend's name, and the total of [`memory_info`](Self::memory_info).
    fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        defaults::properties(self, device)
    }

    /// Waits for all work of the device. **Blocks.** Illegal during capture. CUDA `cuCtxSynchronize`,
    /// HIP `hipDeviceSynchronize`, OpenReg `orDeviceSynchronize`.
    fn synchronize_device(&self, device: DeviceIndex) -> Result<()>;

    // --- device memory -------------------------------------------------------------------------

    /// Takes `bytes` of device memory, aligned to 512 bytes at least: from a driver that aligns to less, take so much more.
    /// May block for all work of the device. During capture only under the relaxed mode. Not stream-ordered.
    /// CUDA `cuMemAlloc`, HIP `hipMalloc`, OpenReg `orMalloc`.
    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr>;

    /// Gives memory back. Null is fine. May block for all work of the device. During capture only under
    /// the relaxed mode. Not stream-ordered. CUDA `cuMemFree`, HIP `hipFree`, OpenReg `orFree`.
    ///
    /// # Safety
    /// Rule 3. A pointer that is no live base is answered with `InvalidValue`, never undefined.
    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()>;

    /// Free and total bytes as the driver sees them, other processes included. Of a driver that does not tell what is free,
    /// all is free but what was handed out here. Does not block.
    /// CUDA `cuMemGetInfo`, HIP `hipMemGetInfo`, OpenReg: capacity and what is used of it.
    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo>;

    /// What kind of memory an address is, whose, and where its allocation begins. Any 64-bit value may be
    /// asked; unknown ones are [`PointerKind::Unmanaged`]. Does not block; legal during capture.
    /// CUDA `cuPointerGetAttribute`, HIP `hipPointerGetAttributes`, OpenReg `orPointerGetAttributes`.
    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo>;

    /// Base and size of the allocation that holds `ptr`. Does not block. CUDA `cuMemGetAddressRange`,
    /// HIP `hipMemGetAddressRange`, OpenReg: its registry.
    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange>;

    /// Copies and waits. **Blocks.** Illegal during capture. Host addresses are passed as their numeric value.
    /// CUDA `cuMemcpyHtoD` and so on, HIP `hipMemcpy`, OpenReg `orMemcpy`.
    /// Without it: queued on the default stream of the device whose memory it is, and waited for.
    ///
    /// # Safety
    /// Rule 2 for both ranges; they do not overlap; `kind` says truly which side is host memory.
    unsafe fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { defaults::copy(self, dst, src, bytes, kind) }
    }

    /// Queues a copy. Does not block (from pageable host memory it may). Legal during capture. Stream-ordered.
    /// CUDA `cuMemcpyHtoDAsync` and so on, HIP `hipMemcpyAsync`, OpenReg `orMemcpyAsync`.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), until the stream has passed it.
    unsafe fn copy_async(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind, stream: Stream) -> Result<()>;

    /// Queues a fill with one byte value. Does not block. Legal during capture. Stream-ordered.
    /// CUDA `cuMemsetD8Async`, HIP `hipMemsetAsync`, OpenReg: a task.
    ///
    /// # Safety
    /// Rule 2 for the range, until the stream has passed it.
    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()>;

    // --- streams -------------------------------------------------------------------------------

    /// The stream that exists without being created (the null handle). Never blocks.
    fn default_stream(&self, device: DeviceIndex) -> Stream {
        Stream { raw: 0, device, backend: self.id() }
    }

    /// A new non-blocking stream. `priority`: 0 is normal, negative is more urgent; values out of range are
    /// clamped. May block. CUDA `cuStreamCreateWithPriority`, HIP `hipStreamCreateWithPriority`,
    /// OpenReg `orStreamCreateWithPriority` (inverted range).
    fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream>;

    /// Destroys a stream; work queued on it still runs. Does not wait (OpenReg's C library does).
    /// CUDA `cuStreamDestroy`, HIP `hipStreamDestroy`, OpenReg `orStreamDestroy`.
    ///
    /// # Safety
    /// Rule 1, and the handle is not used again.
    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()>;

    /// The priorities that make a difference, as [`create_stream`](Self::create_stream) takes them. Does not block.
    /// CUDA `cuCtxGetStreamPriorityRange`, HIP `hipDeviceGetStreamPriorityRange`, OpenReg `orDeviceGetStreamPriorityRange`.
    /// Without it: 0 to 0.
    fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        defaults::priority_range(self, device)
    }

    /// Whether all work queued so far is done. Does not block. Illegal while the stream is captured.
    /// CUDA `cuStreamQuery`, HIP `hipStreamQuery`, OpenReg `orStreamQuery`.
    fn query_stream(&self, stream: Stream) -> Result<Readiness>;

    /// Waits for all work queued so far. **Blocks.** Illegal while the stream is captured.
    /// CUDA `cuStreamSynchronize`, HIP `hipStreamSynchronize`, OpenReg `orStreamSynchronize`.
    fn synchronize_stream(&self, stream: Stream) -> Result<()>;

    /// Makes later work of `stream` wait for what `event` stands for *at this call*; a later re-record of
    /// the event changes nothing. Does not block. Legal during capture.
    /// CUDA `cuStreamWaitEvent`, HIP `hipStreamWaitEvent`, OpenReg `orStreamWaitEvent`.
    fn wait_event(&self, stream: Stream, event: Event) -> Result<()>;

    /// Runs `function` on the host when the stream reaches it, never on the calling thread. Does not block. Legal during
    /// capture. `function` may hold the driver's threads: other streams may stand still until it returns.
    /// CUDA `cuLaunchHostFunc`, HIP `hipLaunchHostFunc`, OpenReg `addTaskToStream`.
    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()>;

    // --- events --------------------------------------------------------------------------------

    /// A new event, complete until first recorded. May block. CUDA `cuEventCreate`,
    /// HIP `hipEventCreateWithFlags`, OpenReg `orEventCreateWithFlags`.
    fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event>;

    /// Destroys an event; waits already queued on it still hold. Does not block.
    /// CUDA `cuEventDestroy`, HIP `hipEventDestroy`, OpenReg `orEventDestroy`.
    ///
    /// # Safety
    /// Rule 1, and the handle is not used again.
    unsafe fn destroy_event(&self, event: Event) -> Result<()>;

    /// Sets the event to the end of what is queued on `stream` now. Both are of one device, else
    /// `InvalidValue`. Does not block. Legal during capture (it then belongs to the graph).
    /// CUDA `cuEventRecord`, HIP `hipEventRecord`, OpenReg `orEventRecord`.
    fn record_event(&self, event: Event, stream: Stream) -> Result<()>;

    /// Whether the event's last record has been passed. Does not block. Illegal during capture.
    /// CUDA `cuEventQuery`, HIP `hipEventQuery`, OpenReg `orEventQuery`.
    fn query_event(&self, event: Event) -> Result<Readiness>;

    /// Waits until the event's last record has been passed. **Blocks.** Illegal during capture.
    /// CUDA `cuEventSynchronize`, HIP `hipEventSynchronize`, OpenReg `orEventSynchronize`.
    fn synchronize_event(&self, event: Event) -> Result<()>;

    /// Milliseconds between two completed events made with [`EventFlags::TIMING`]; `NotSupported` without
    /// timing. Does not block. CUDA `cuEventElapsedTime`, HIP `hipEventElapsedTime`, OpenReg `orEventElapsedTime`.
    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        defaults::elapsed_ms(self, start, end)
    }

    /// Bytes of `device` that the driver holds for memory which graphs of this process allocate in their nodes, whoever made the
    /// graphs. It keeps them for other graphs when these end. `NotSupported` where it does not tell, as without this method.
    /// Does not block. CUDA `cuDeviceGetGraphMemAttribute`, HIP `hipDeviceGetGraphMemAttribute`.
    fn graph_memory(&self, device: DeviceIndex) -> Result<u64> {
        defaults::graph_memory(self, device)
    }

    /// What `device` refused when it was tried, and does without since. What nobody asked for yet was not tried, so ask
    /// after the [families]. Never blocks; legal during capture. Without it: nothing was refused.
    fn dropped(&self, device: DeviceIndex) -> Vec<Dropped> {
        let _ = device;
        Vec::new()
    }

    // --- optional families: probed by doing one cycle, absent with a reason ---------------------

    /// Page-locked host memory.
    fn pinned_host(&self) -> std::result::Result<&dyn PinnedHost, Unsupported> { Err(absent("pinned host memory")) }
    /// Reserve addresses, create physical memory, map it.
    fn virtual_memory(&self) -> std::result::Result<&dyn VirtualMemory, Unsupported> { Err(absent("virtual memory")) }
    /// Give physical memory to other processes, and take theirs.
    fn physical_sharing(&self) -> std::result::Result<&dyn PhysicalSharing, Unsupported> { Err(absent("sharing of physical memory")) }
    /// Share memory with other processes.
    fn ipc(&self) -> std::result::Result<&dyn Ipc, Unsupported> { Err(absent("IPC")) }
    /// Reach another device's memory.
    fn peers(&self) -> std::result::Result<&dyn Peers, Unsupported> { Err(absent("peer access")) }
    /// Record a stream's work into a graph.
    fn capture(&self) -> std::result::Result<&dyn Capture, Unsupported> { Err(absent("graph capture")) }
    /// Page-lock memory that exists.
    fn host_registration(&self) -> std::result::Result<&dyn HostRegistration, Unsupported> { Err(absent("host registration")) }
}

/// What a backend answers about each optional family, by what people call it.
pub fn families(backend: &dyn Backend) -> [(&'static str, std::result::Result<(), Unsupported>); 7] {
    [
        ("virtual memory", backend.virtual_memory().map(drop)),
        ("sharing of physical memory", backend.physical_sharing().map(drop)),
        ("IPC", backend.ipc().map(drop)),
        ("peer access", backend.peers().map(drop)),
        ("graph capture", backend.capture().map(drop)),
        ("pinned host memory", backend.pinned_host().map(drop)),
        ("host registration", backend.host_registration().map(drop)),
    ]
}

fn absent(family: &'static str) -> Unsupported {
    Unsupported { family, reason: "this backend does not implement it".into() }
}
