//! CubeCL's memory management of one stream.

use cubecl_ir::MemoryDeviceProperties;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::server::IoError;
use cubecl_runtime::storage::ComputeStorage;
use cubecl_server::memory_management::{
    Cleanup, ErrorGraph, ManagedMemoryHandle, MemoryAllocationMode, MemoryConfiguration, MemoryManagement,
    MemoryManagementOptions, PageUpdate,
};
use std::sync::Arc;

/// How CubeCL divides pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pools {
    /// Pages as large as what is asked for, cut into pieces.
    Adaptive,
    /// A page for each buffer.
    Exclusive,
    /// None: each buffer is asked from the storage, and goes back to it.
    Dedicated,
}

impl Pools {
    #[allow(dead_code)] // the example has no use for it
    pub(crate) const ALL: [Self; 3] = [Self::Adaptive, Self::Exclusive, Self::Dedicated];
}

/// CubeCL's memory of one stream.
pub(crate) struct Memory<S: ComputeStorage> {
    pub(crate) manager: MemoryManagement<S>,
    failures: ErrorGraph,
}

impl<S: ComputeStorage> Memory<S> {
    /// As CubeCL's CUDA runtime makes it for a device of `capacity` bytes.
    pub(crate) fn over(storage: S, pools: Pools, capacity: u64) -> Self {
        let (config, mode) = match pools {
            Pools::Adaptive => (MemoryConfiguration::Adaptive, MemoryAllocationMode::Auto),
            Pools::Exclusive => (MemoryConfiguration::ExclusivePages, MemoryAllocationMode::Auto),
            Pools::Dedicated => (MemoryConfiguration::Adaptive, MemoryAllocationMode::Dedicated),
        };
        let options = MemoryManagementOptions::new("memory").mode(mode);
        let alignment = storage.alignment() as u64;
        let device = MemoryDeviceProperties::new(capacity / 4, alignment).with_max_memory(capacity);
        let logger = Arc::new(ServerLogger::default());
        let manager = MemoryManagement::from_configuration(storage, &device, config, logger, options);
        Self { manager, failures: ErrorGraph::default() }
    }

    /// As CubeCL's servers ask: once more after giving back what can be given back.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<ManagedMemoryHandle, IoError> {
        let first = self.manager.reserve(bytes, PageUpdate::Allow, &mut self.failures);
        if !matches!(first, Err(IoError::OutOfMemory { .. })) {
            return first;
        }
        self.clean();
        self.manager.reserve(bytes, PageUpdate::Allow, &mut self.failures)
    }

    pub(crate) fn clean(&mut self) {
        self.manager.cleanup(Cleanup::Explicit, &mut self.failures);
    }

    #[allow(dead_code)] // the example's device has no bytes
    pub(crate) fn resource(&mut self, handle: &ManagedMemoryHandle) -> S::Resource {
        self.manager.get_resource(handle.clone().binding(), None, None).expect("the buffer is live")
    }
}
