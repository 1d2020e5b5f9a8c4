//! Round trips and refusals of labels.

use crate::support::{hip, presented, shared};
use backend_api::types::{BackendId, DeviceIndex, DeviceKind, DevicePtr, Event, PhysicalHandle, Stream};
use backend_api::{Backend, Graph};
use granule_masquerade::{Device, Handle, LabelError, Labelled, Masquerade, PackedStream, Policy};
use proptest::prelude::*;
use std::fmt::Debug;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Flip), Just(Policy::Identity)]
}

/// In and out again, and out and in again; `bits` are all of the handle but its backend.
fn round_trips<T, B>(m: &Masquerade, cuda: T, bits: impl Fn(T) -> B)
where
    T: Handle + Debug + PartialEq + Hash,
    B: Debug + PartialEq,
{
    let hip = m.to_hip(cuda).unwrap();
    assert_eq!(hip.backend(), m.inner().id());
    assert_eq!(bits(hip), bits(cuda));
    assert_eq!(m.to_cuda(hip).unwrap(), cuda);
    assert_eq!(m.to_hip(m.to_cuda(hip).unwrap()).unwrap(), hip);
    // What went through is, for a hash map too, what CUDA code would have made itself.
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    assert_eq!(hasher.hash_one(m.to_cuda(hip).unwrap()), hasher.hash_one(cuda));
}

/// Wrong sides and strangers, for one kind of handle; `labels` are its labels as errors show them.
fn refuses<T: Handle + Debug + PartialEq>(m: &Masquerade, cuda: T, labels: [&str; 2]) {
    let hip = m.to_hip(cuda).unwrap();
    let wrong =
        |expected, found: &str| LabelError::WrongKind { what: T::WHAT, expected, found: found.into() };
    assert_eq!(m.to_hip(hip), Err(wrong(DeviceKind::Cuda, labels[0])));
    assert_eq!(m.to_cuda(cuda), Err(wrong(DeviceKind::Hip, labels[1])));
    let stranger = cuda.with_backend(BackendId::fresh());
    let foreign = LabelError::Foreign { what: T::WHAT, backend: stranger.backend() };
    assert_eq!(m.to_hip(stranger), Err(foreign.clone()));
    assert_eq!(m.to_cuda(stranger), Err(foreign));
}

proptest! {
    #[test]
    fn handles_go_through_and_back_bit_for_bit(policy in policies(), raw: u64, index: u16) {
        let m = shared(policy);
        let (device, backend) = (DeviceIndex(index), m.id());
        round_trips(m, Stream { raw, device, backend }, |s| (s.raw, s.device));
        round_trips(m, Event { raw, device, backend }, |e| (e.raw, e.device));
        round_trips(m, PhysicalHandle { raw, backend }, |p| p.raw);
        round_trips(m, Graph { raw, backend }, |g| g.raw);
    }

    #[test]
    fn devices_and_what_belongs_to_them_change_only_their_label(index: u16, ptr: u64, context: u64, deleter: u64) {
        let (cuda, hip) = (DeviceKind::Cuda, DeviceKind::Hip);
        let device = Device { kind: cuda, index: DeviceIndex(index) };
        let below = device.relabel(cuda, hip).unwrap();
        prop_assert_eq!(below, Device { kind: hip, ..device });
        prop_assert_eq!(below.relabel(hip, cuda).unwrap(), device);
        let pointer = Labelled { device, value: (DevicePtr(ptr), context, deleter) };
        let below = pointer.relabel("pointer", cuda, hip).unwrap();
        prop_assert_eq!(below.value, pointer.value);
        prop_assert_eq!(below.relabel("pointer", hip, cuda).unwrap(), pointer);
    }

    #[test]
    fn streams_pack_under_cudas_label_and_unpack_to_themselves(policy in policies(), raw: u64, index: u16) {
        let m = shared(policy);
        let stream = Stream { raw, device: DeviceIndex(index), backend: m.id() };
        let packed = m.pack(stream).unwrap();
        prop_assert_eq!(packed, PackedStream { id: raw, index: u64::from(index), kind: 1 });
        prop_assert_eq!(m.unpack(packed).unwrap(), stream);
    }

    #[test]
    fn other_labels_do_not_unpack(id: u64, index: u16, kind in prop_oneof![0..64u64, any::<u64>()]) {
        prop_assume!(kind != 1);
        let unpacked = shared(Policy::Flip).unpack(PackedStream { id, index: u64::from(index), kind });
        let refused = matches!(unpacked, Err(LabelError::WrongKind { expected: DeviceKind::Cuda, .. }));
        prop_assert!(refused, "{:?}", unpacked);
    }
}

#[test]
fn refusals_say_what_was_expected_and_what_came() {
    let m = presented(Policy::Flip);
    let (device, backend) = (DeviceIndex(3), m.id());
    refuses(&m, Stream { raw: 1, device, backend }, ["hip:3", "cuda:3"]);
    refuses(&m, Event { raw: 1, device, backend }, ["hip:3", "cuda:3"]);
    refuses(&m, PhysicalHandle { raw: 1, backend }, ["hip", "cuda"]);
    refuses(&m, Graph { raw: 1, backend }, ["hip", "cuda"]);

    let hip = m.to_hip(Stream { raw: 1, device, backend }).unwrap();
    assert_eq!(m.to_hip(hip).unwrap_err().to_string(), "expected a CUDA-labelled stream, got hip:3");
    assert_eq!(m.pack(hip).unwrap_err().to_string(), "expected a CUDA-labelled stream, got hip:3");
}

#[test]
fn devices_of_any_other_kind_are_refused() {
    let m = presented(Policy::Flip);
    let index = DeviceIndex(2);
    assert_eq!(m.device_index(m.device(index)), Ok(index));
    assert_eq!(m.device(index).to_string(), "cuda:2");
    for (kind, found) in [(DeviceKind::Hip, "hip:2"), (DeviceKind::PrivateUse1, "privateuseone:2")] {
        let refused = m.device_index(Device { kind, index }).unwrap_err();
        assert_eq!(refused.to_string(), format!("expected a CUDA-labelled device, got {found}"));
        let relabelled = Device { kind, index }.relabel(DeviceKind::Cuda, DeviceKind::Hip);
        assert_eq!(relabelled.unwrap_err(), refused);
        let pointer = Labelled { device: Device { kind, index }, value: DevicePtr::NULL };
        let refused = pointer.relabel("pointer", DeviceKind::Cuda, DeviceKind::Hip).unwrap_err();
        assert_eq!(refused.to_string(), format!("expected a CUDA-labelled pointer, got {found}"));
    }
}

#[test]
fn packed_streams_of_other_kinds_are_named() {
    let m = presented(Policy::Flip);
    for (kind, found) in
        [(0, "cpu:1"), (6, "hip:1"), (12, "xpu:1"), (20, "privateuseone:1"), (21, "device type 21")]
    {
        let refused = m.unpack(PackedStream { id: 5, index: 1, kind }).unwrap_err();
        assert_eq!(refused.to_string(), format!("expected a CUDA-labelled stream, got {found}"));
    }
    let refused = m.unpack(PackedStream { id: 5, index: 1 << 16, kind: 1 }).unwrap_err();
    assert_eq!(refused, LabelError::BadIndex { index: 1 << 16 });
}

#[test]
fn two_masquerades_do_not_take_each_others_handles() {
    let (one, other) = (presented(Policy::Flip), presented(Policy::Flip));
    let stream = one.create_stream(DeviceIndex(0), 0).unwrap();
    let foreign = LabelError::Foreign { what: "stream", backend: one.id() };
    assert_eq!(other.to_hip(stream), Err(foreign));
    assert!(other.query_stream(stream).is_err());
}

#[test]
fn under_identity_a_handle_is_the_same_on_both_sides() {
    let inner = hip();
    let m = Masquerade::new(inner.clone(), Policy::Identity).unwrap();
    assert_eq!(m.id(), inner.id());
    let stream = inner.create_stream(DeviceIndex(0), 0).unwrap();
    assert_eq!((m.to_hip(stream), m.to_cuda(stream)), (Ok(stream), Ok(stream)));
    assert!(m.query_stream(stream).unwrap().is_ready());
    let same: Arc<dyn Backend> = m;
    assert_eq!(same.kind(), DeviceKind::Cuda);
}
