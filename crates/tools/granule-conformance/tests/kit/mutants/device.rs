//! Backends that break rules of this area: ids, counts, attributes and the current device.

use crate::mutants::{error, hook, mutants, on_side_thread};
use backend_api::types::{BackendId, DeviceIndex, DeviceKind, Stream};
use backend_api::*;
use std::sync::atomic::{AtomicU16, Ordering};

mutants! {
    IdChanges: "device.id_changes", "its id is another at every call" => "device.id_is_stable",
    KindChanges: "device.kind_changes", "its kind is another at every call" => "device.kind_is_stable",
    ShoutsItsName: "device.shouts_its_name", "its name is in upper case" => "device.name_is_lower_case",
    CountChanges: "device.count_changes", "a device comes and goes" => "device.count_is_stable",
    CountsManifold: "device.counts_manifold", "there are 257 devices" => "device.count_within_limit",
    CountPerThread: "device.count_per_thread",
        "other threads see a device less" => "device.count_on_any_thread",
    CountsFromOne: "device.counts_from_one",
        "the current device is counted from 1" => "device.current_is_one_of_them",
    NoneOnNewThreads: "device.none_on_new_threads",
        "a new thread has no device" => "device.current_on_new_thread",
    SetIgnored: "device.set_ignored", "set_device does nothing" => "device.set_takes_effect",
    SetOnceOnly: "device.set_once_only", "the current device cannot be set again" => "device.set_again",
    SetTakesAnything: "device.set_takes_anything",
        "an unknown device is taken" => "device.set_unknown_is_refused",
    SetFallsBack: "device.set_falls_back",
        "a refused set_device leaves device 0 current" => "device.set_unknown_changes_nothing",
    NoWayBack: "device.no_way_back", "device 0 cannot be made current again" => "device.guard_restores",
    NoContext: "device.no_context", "a used device has no context" => "device.context_exists_after_use",
    ContextByAsking: "device.context_by_asking",
        "asking for the context makes it" => "device.context_not_made_by_asking",
    ClampsDevice: "device.clamps_device",
        "an unknown device is taken for the last one" => "device.properties_unknown_is_refused",
    Nameless: "device.nameless", "devices have no name" => "device.properties_have_a_name",
    WithoutMemory: "device.without_memory", "devices have 0 bytes" => "device.properties_have_memory",
    Renamed: "device.renamed", "devices have another name at every call" => "device.properties_are_stable",
    Kibibytes: "device.kibibytes", "total memory is in KiB" => "device.total_memory_agrees",
    OneUuid: "device.one_uuid", "all devices have one uuid" => "device.uuids_differ",
    OddBusId: "device.odd_bus_id", "the PCI id is only a number" => "device.pci_bus_id_form",
    OtherWarp: "device.other_warp", "the warp size is assumed, not asked" => "device.warp_size_agrees",
    NoProcessors: "device.no_processors", "counts are negative" => "device.counts_are_positive",
    FlagIsACount: "device.flag_is_a_count", "a flag is 2" => "device.flags_are_bits",
    DeniesFamilies: "device.denies_families",
        "attributes deny families that are there" => "device.flags_agree_with_families",
    IdleIsAnError: "device.idle_is_an_error",
        "synchronize_device refuses an idle device" => "device.synchronize_idle",
}

hook! { CountsManifold {
    fn device_count(&self, inner: &dyn Backend) -> Result<u16> {
        inner.device_count().map(|_| MAX_DEVICES + 1)
    }
} }

#[derive(Debug, Default)]
struct IdChanges(AtomicU16);

impl granule_conformance::interpose::Hook for IdChanges {
    fn id(&self, inner: &dyn Backend) -> BackendId {
        BackendId(inner.id().0 + self.0.fetch_add(1, Ordering::Relaxed) % 2)
    }
}

#[derive(Debug, Default)]
struct KindChanges(AtomicU16);

impl granule_conformance::interpose::Hook for KindChanges {
    fn kind(&self, inner: &dyn Backend) -> DeviceKind {
        if self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { inner.kind() } else { DeviceKind::Cuda }
    }
}

hook! { ShoutsItsName { fn name(&self, _: &dyn Backend) -> &'static str { "OpenReg" } } }

#[derive(Debug, Default)]
struct CountChanges(AtomicU16);

impl granule_conformance::interpose::Hook for CountChanges {
    fn device_count(&self, inner: &dyn Backend) -> Result<u16> {
        Ok(inner.device_count()? - self.0.fetch_add(1, Ordering::Relaxed) % 2)
    }
}

hook! { CountPerThread {
    fn device_count(&self, inner: &dyn Backend) -> Result<u16> {
        Ok(inner.device_count()? - u16::from(on_side_thread()))
    }
} }

hook! { CountsFromOne {
    fn current_device(&self, inner: &dyn Backend) -> Result<DeviceIndex> {
        Ok(DeviceIndex(inner.current_device()?.0 + inner.device_count()?))
    }
} }

hook! { NoneOnNewThreads {
    fn current_device(&self, inner: &dyn Backend) -> Result<DeviceIndex> {
        if on_side_thread() { Ok(DeviceIndex(u16::MAX)) } else { inner.current_device() }
    }
} }

hook! { SetIgnored {
    fn set_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.has_primary_context(device).map(drop)
    }
} }

hook! { SetOnceOnly {
    fn set_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        if inner.current_device()? == device && device.0 == 0 {
            return Err(error(ErrorKind::InvalidValue));
        }
        inner.set_device(device)
    }
} }

hook! { SetTakesAnything {
    fn set_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        let _ = inner.set_device(device);
        Ok(())
    }
} }

hook! { SetFallsBack {
    fn set_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.set_device(device).or_else(|error| inner.set_device(DeviceIndex(0)).and(Err(error)))
    }
} }

hook! { NoWayBack {
    fn set_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        if device.0 == 0 { Ok(()) } else { inner.set_device(device) }
    }
} }

hook! { NoContext {
    fn has_primary_context(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<bool> {
        inner.has_primary_context(device).map(|_| false)
    }
} }

#[derive(Debug, Default)]
struct ContextByAsking(AtomicU16);

impl granule_conformance::interpose::Hook for ContextByAsking {
    fn has_primary_context(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<bool> {
        inner.has_primary_context(device)?;
        Ok(self.0.fetch_add(1, Ordering::Relaxed) > 1)
    }
}

fn clamped(inner: &dyn Backend, device: DeviceIndex) -> Result<DeviceIndex> {
    Ok(DeviceIndex(device.0.min(inner.device_count()?.saturating_sub(1))))
}

hook! { ClampsDevice {
    fn has_primary_context(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<bool> {
        inner.has_primary_context(clamped(inner, device)?)
    }
    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        inner.attribute(clamped(inner, device)?, attribute)
    }
    fn properties(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<DeviceProperties> {
        inner.properties(clamped(inner, device)?)
    }
    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.synchronize_device(clamped(inner, device)?)
    }
    fn malloc(
        &self,
        inner: &dyn Backend,
        device: DeviceIndex,
        bytes: u64,
    ) -> Result<backend_api::types::DevicePtr> {
        inner.malloc(clamped(inner, device)?, bytes)
    }
    fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
        inner.memory_info(clamped(inner, device)?)
    }
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        inner.create_stream(clamped(inner, device)?, priority)
    }
    fn priority_range(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<PriorityRange> {
        inner.priority_range(clamped(inner, device)?)
    }
    fn create_event(
        &self,
        inner: &dyn Backend,
        device: DeviceIndex,
        flags: EventFlags,
    ) -> Result<backend_api::types::Event> {
        inner.create_event(clamped(inner, device)?, flags)
    }
} }

/// A hook that changes one thing about the properties.
macro_rules! other_properties {
    ($name:ident, $properties:ident => $change:expr) => {
        hook! { $name {
            fn properties(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<DeviceProperties> {
                let mut $properties = inner.properties(device)?;
                $change;
                Ok($properties)
            }
        } }
    };
}

other_properties!(Nameless, p => p.name.clear());
other_properties!(WithoutMemory, p => p.total_memory = 0);
other_properties!(Kibibytes, p => p.total_memory >>= 10);
other_properties!(OneUuid, p => p.uuid = Some([7; 16]));
other_properties!(OddBusId, p => p.pci_bus_id = Some("17".into()));
other_properties!(OtherWarp, p => p.warp_size = 64);

#[derive(Debug, Default)]
struct Renamed(AtomicU16);

impl granule_conformance::interpose::Hook for Renamed {
    fn properties(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<DeviceProperties> {
        let mut properties = inner.properties(device)?;
        properties.name.push_str(&self.0.fetch_add(1, Ordering::Relaxed).to_string());
        Ok(properties)
    }
}

/// A hook that answers some attributes itself.
macro_rules! other_attributes {
    ($name:ident, $($attribute:pat_param)|+ => $value:expr) => {
        hook! { $name {
            fn attribute(
                &self,
                inner: &dyn Backend,
                device: DeviceIndex,
                attribute: Attribute,
            ) -> Result<i64> {
                match attribute {
                    $($attribute)|+ => Ok($value),
                    _ => inner.attribute(device, attribute),
                }
            }
        } }
    };
}

other_attributes!(NoProcessors, Attribute::MultiprocessorCount => -1);
other_attributes!(FlagIsACount, Attribute::Integrated => 2);
other_attributes!(DeniesFamilies, Attribute::VirtualMemoryManagement => 0);

hook! { IdleIsAnError {
    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.synchronize_device(device)?;
        Err(error(ErrorKind::InvalidValue))
    }
} }
