//! Backends that break rules of this area: the smaller families.

mod host;

use super::{hook, mutants};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::*;
use host::{RegisterTwice, RegisterZero, RegisteredIsUnknown, UnregisterAll, UnregisterNull};

mutants! {
    NoReason: "families.no_reason", "an absent family gives no reason" => "families.absent_with_reason",
    SharingAlone: "families.sharing_alone",
        "physical memory is shared where there is no virtual memory" => "families.sharing_needs_virtual_memory",
    NoAttributes: "families.no_attributes", "every attribute is 0" => "families.attributes_agree",
    RegisteredIsUnknown: "families.registered_is_unknown",
        "pointer_info does not know registered memory" => "families.registered_is_host",
    RegisterTwice: "families.register_twice",
        "memory that is registered can be registered again" => "families.registered_once",
    RegisterZero: "families.register_zero", "registering 0 bytes is fine" => "families.register_nothing",
    UnregisterNull: "families.unregister_of_null", "unregistering null is fine" => "families.unregister_null",
    UnregisterAll: "families.unregister_all",
        "unregistering what is not registered is fine" => "families.unregister_unknown",
    CopiesShort: "families.copies_short", "queued copies lose the last byte" => "families.registered_copies",
}

hook! { NoReason {
    fn peers_family<'a>(&self, _: &'a dyn Backend) -> std::result::Result<&'a dyn Peers, Unsupported> {
        Err(Unsupported { family: "peer access", reason: String::new() })
    }
} }

hook! { SharingAlone {
    fn virtual_memory_family<'a>(
        &self,
        _: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn VirtualMemory, Unsupported> {
        Err(Unsupported { family: "virtual memory", reason: "hidden".into() })
    }

    fn physical_sharing_family<'a>(
        &self,
        inner: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn PhysicalSharing, Unsupported> {
        inner.physical_sharing()
    }
} }

hook! { NoAttributes {
    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        inner.attribute(device, attribute).map(|_| 0)
    }
} }

hook! { CopiesShort {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on for a part of the range.
        unsafe { inner.copy_async(dst, src, bytes - 1, kind, stream) }
    }
} }
