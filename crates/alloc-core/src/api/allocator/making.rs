//! Construction of an allocator.

use super::CachingAllocator;
use crate::backend::{Backend, BackendError, ErrorKind, MAX_DEVICES};
use crate::config::{AllocatorBackend, Settings};
use crate::device::Device;
use crate::error::{AllocError, Result};
use crate::memory::address_map::AddressMap;
use crate::process::attention::ProcessState;
use crate::process::callbacks::Callbacks;
use crate::process::stream_identity;
use crate::process::system::System;
use crate::sync::{Arc, Mutex, Rank};
use crate::types::DeviceIndex;
use crate::watch::history::{Annotations, HistoryOptions};

impl CachingAllocator {
    /// An allocator for all devices of `backend`, with the policy that the settings name. History is on from the start
    /// where they say so.
    ///
    /// # Errors
    /// The backend's error to a question about its devices; [`AllocError::Settings`] for settings it cannot honour.
    pub fn new(backend: Arc<dyn Backend>, mut settings: Settings) -> Result<Self> {
        if settings.backend == AllocatorBackend::DriverPools {
            tracing::warn!(
                "backend:cudaMallocAsync is not served: this allocator decides as backend:native does"
            );
            settings.backend = AllocatorBackend::Native;
        }
        settings.validate().map_err(AllocError::Settings)?;
        if let Some(problem) = System::at(&settings.system_root).problem() {
            return Err(AllocError::Settings(problem));
        }
        let policy = settings.policy_name();
        crate::process::state::admit(backend.id()).map_err(ProcessState::refusal)?;
        let map = Arc::new(AddressMap::default());
        let callbacks = Arc::new(Callbacks::default());
        let count = backend.device_count()?;
        if count > MAX_DEVICES {
            let detail = format!(
                "there are {count}, and the device contract allows {MAX_DEVICES}: let the driver show this process fewer"
            );
            let (kind, last) = (ErrorKind::ResourceLimit, DeviceIndex(MAX_DEVICES));
            return Err(BackendError::new(kind, 0, "device_count", last, detail).of(backend.name()).into());
        }
        let devices = (0..count)
            .map(|n| {
                let (backend, map, callbacks) =
                    (Arc::clone(&backend), Arc::clone(&map), Arc::clone(&callbacks));
                Device::new(backend, DeviceIndex(n), map, callbacks, &settings).map(Arc::new)
            })
            .collect::<Result<Vec<_>>>()?;
        let memberships = devices.iter().filter_map(Device::join_unified).collect();
        let history = usize::try_from(settings.history_max_entries).unwrap_or(usize::MAX);
        let settings = Mutex::new(Rank::Registry, settings);
        let configuring = Mutex::new(Rank::Settings, ());
        let annotations = Mutex::new(Rank::Registry, Annotations::default());
        let alias_bits = stream_identity::alias_bits(backend.kind());
        let allocator = CachingAllocator {
            id: backend.id(),
            backend,
            alias_bits,
            map,
            callbacks,
            devices,
            memberships,
            policy,
            settings,
            configuring,
            annotations,
        };
        if history > 0 {
            allocator.history().record(&HistoryOptions::newest(history));
        }
        Ok(allocator)
    }
}
