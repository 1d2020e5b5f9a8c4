//! Backends that break rules of this area: other devices.

use super::{hook, mutants};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, Stream};
use backend_api::{Access, Backend, Peers, Result, VirtualMemory};
use granule_conformance::interpose::Hook;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

mutants! {
    AnyPeer: "peers.any_peer", "a device that does not exist is no peer of anyone" => "peers.no_such_device",
    OnlyOnce: "peers.only_once", "enabling access again is an error" => "peers.enabled_twice",
    Unasked: "peers.unasked", "no device reaches another, yet access can be enabled" => "peers.unreachable",
    OneByteShort: "peers.one_byte_short", "copies between devices lose the last byte" => "peers.copies",
    RoundedUp: "peers.rounded_up",
        "copies between devices are rounded up to 512 bytes" => "peers.copies_no_more",
    CopyWaits: "peers.copy_waits", "queueing a copy between devices waits" => "peers.copy_is_ordered",
    NothingIsFine: "peers.nothing_is_fine",
        "a copy of 0 bytes between devices is fine" => "peers.copy_of_nothing",
    ForeignStreams: "peers.foreign_streams",
        "streams of other backends are taken for its own" => "peers.foreign_stream",
    DeviceLeftBehind: "peers.device_left_behind",
        "enabling access leaves the device current" => "peers.current_device_stays",
    EveryDevice: "peers.every_device",
        "access to a mapping is granted to every device with the first" => "peers.mapped_memory",
}

/// Both sides of a peer copy: device and address.
type Side = (DeviceIndex, DevicePtr);

hook! { AnyPeer {
    fn can_access(&self, inner: &dyn Peers, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        Ok(inner.can_access(from, to).unwrap_or(false))
    }
} }

#[derive(Debug, Default)]
struct OnlyOnce(Mutex<Vec<(DeviceIndex, DeviceIndex)>>);

impl Hook for OnlyOnce {
    fn enable_access(&self, inner: &dyn Peers, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        let mut enabled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if enabled.contains(&(from, to)) {
            return Err(backend_api::BackendError::new(
                backend_api::ErrorKind::Other,
                704,
                "enable_access",
                from,
                "access is enabled already",
            ));
        }
        enabled.push((from, to));
        inner.enable_access(from, to)
    }
}

hook! { Unasked {
    fn can_access(&self, inner: &dyn Peers, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        inner.can_access(from, to).map(|_| false)
    }
} }

hook! { OneByteShort {
    unsafe fn copy_peer_async(
        &self,
        inner: &dyn Peers,
        dst: Side,
        src: Side,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on for a part of the range.
        unsafe { inner.copy_peer_async(dst, src, bytes.saturating_sub(1), stream) }
    }
} }

hook! { RoundedUp {
    unsafe fn copy_peer_async(
        &self,
        inner: &dyn Peers,
        dst: Side,
        src: Side,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise; allocations are not smaller than 512 bytes, and a simulated device
        // refuses what lies beyond.
        unsafe { inner.copy_peer_async(dst, src, bytes.next_multiple_of(512), stream) }
    }
} }

hook! { CopyWaits {
    unsafe fn copy_peer_async(
        &self,
        inner: &dyn Peers,
        dst: Side,
        src: Side,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // As long as a check needs to see it, instead of until the stream is done.
        std::thread::sleep(Duration::from_millis(150));
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.copy_peer_async(dst, src, bytes, stream) }
    }
} }

hook! { NothingIsFine {
    unsafe fn copy_peer_async(
        &self,
        inner: &dyn Peers,
        dst: Side,
        src: Side,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.copy_peer_async(dst, src, bytes, stream) }
    }
} }

/// Knows its own id only from the streams it makes.
#[derive(Debug, Default)]
struct ForeignStreams(Mutex<Option<BackendId>>);

impl Hook for ForeignStreams {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let stream = inner.create_stream(device, priority)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.backend);
        Ok(stream)
    }

    unsafe fn copy_peer_async(
        &self,
        inner: &dyn Peers,
        dst: Side,
        src: Side,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(stream.backend);
        // SAFETY: the caller's promise; a simulated device checks the handle.
        unsafe { inner.copy_peer_async(dst, src, bytes, Stream { backend: own, ..stream }) }
    }
}

#[derive(Debug, Default)]
struct DeviceLeftBehind(Mutex<Option<DeviceIndex>>);

impl Hook for DeviceLeftBehind {
    fn enable_access(&self, inner: &dyn Peers, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
        inner.enable_access(from, to)
    }

    fn current_device(&self, inner: &dyn Backend) -> Result<DeviceIndex> {
        let left = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.map_or_else(|| inner.current_device(), Ok)
    }
}

hook! { EveryDevice {
    unsafe fn set_access(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        let mut all = devices.to_vec();
        all.push(DeviceIndex(1));
        // SAFETY: the caller's promise; a simulated device checks the devices.
        unsafe { inner.set_access(at, bytes, &all, access) }
    }
} }
