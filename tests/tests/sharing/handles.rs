//! Handles of blocks, and who opens them. Two machines in this process stand for two processes: that is enough here.

use alloc_core::backend::{
    Attribute, Backend, BackendError, ErrorKind, HandleType, PhysicalSharing, Result as DriverResult,
    ShareableHandle, VirtualMemory, defaults,
};
use alloc_core::config::{Flavour, Settings, environment};
use alloc_core::share::SharedBlock;
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, PhysicalHandle};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Call, Clock, Families, MemoryMode, OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::bytes::Bytes;
use granule_tests::pools::{Own, pool_over, take};
use granule_tests::rig::DEVICE;
use granule_tests::setup::{both, growable};
use granule_tests::{Allocator, on};
use std::sync::Arc;

fn machine() -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(256 * MIB).memory(MemoryMode::Mapped)
}

fn refusal(allocator: &Allocator, handle: &[u8]) -> String {
    refused(allocator, handle).to_string()
}

fn refused(allocator: &Allocator, handle: &[u8]) -> AllocError {
    let before = allocator.sharing().imported_bytes(DEVICE).unwrap();
    let refused = allocator.sharing().open(DEVICE, handle).unwrap_err();
    assert!(matches!(refused, AllocError::Open { .. }), "{refused:?}");
    assert_eq!(allocator.sharing().imported_bytes(DEVICE).unwrap(), before, "nothing is mapped");
    refused
}

/// Other bytes on every call made the receiver's cache miss, and the block was mapped again and again.
#[test]
fn e04_pytorch_198305_the_same_block_gives_the_same_bytes_and_is_mapped_once() {
    for settings in both() {
        let (device, allocator, stream) = on(machine(), settings.clone());
        let [one, other] = [(); 2].map(|()| allocator.malloc(3 * MIB, stream).unwrap());
        let first = allocator.sharing().share(one).unwrap();
        let (users, user, _) = on(machine(), settings);
        let opened = user.sharing().open(DEVICE, &first.handle).unwrap();
        let calls = [device.calls(), users.calls()];
        for _ in 0..5 {
            assert_eq!(allocator.sharing().share(one).unwrap(), first);
            assert!(Arc::ptr_eq(&opened, &user.sharing().open(DEVICE, &first.handle).unwrap()));
        }
        assert_eq!([device.calls(), users.calls()], calls, "the drivers are asked once");
        assert_ne!(allocator.sharing().share(other).unwrap().handle, first.handle);
        drop(opened);
        allocator.free(one).unwrap();
        allocator.poll(DEVICE).unwrap();
        let again = allocator.malloc(3 * MIB, stream).unwrap();
        assert_eq!(again, one);
        assert_ne!(allocator.sharing().share(again).unwrap().handle, first.handle, "another block");
        let refused = allocator.sharing().share(DevicePtr(again.0 + 512)).unwrap_err();
        assert!(matches!(refused, AllocError::InvalidPointer(_)), "{refused}");
    }
}

#[test]
fn e05_two_blocks_of_a_fixed_segment_share_one_mapping() {
    let (owner, allocator, stream) = on(machine(), Settings::default());
    let blocks = [1, 2].map(|value| {
        let block = allocator.malloc(3 * MIB, stream).unwrap();
        Bytes(&*owner).write(block, &[value; 512]);
        allocator.sharing().share(block).unwrap()
    });
    let (device, user, _) = on(machine(), Settings::default());
    let [one, other] = [0, 1].map(|n| user.sharing().open(DEVICE, &blocks[n].handle).unwrap());
    assert_eq!((one.base(), one.bytes()), (other.base(), 20 * MIB));
    assert_eq!(device.calls().get(Call::OpenMemory), 1);
    assert_eq!(user.sharing().imported_bytes(DEVICE).unwrap(), 20 * MIB);
    let seen = |n: usize| Bytes(&*device).read(one.base().add(blocks[n].offset), 512);
    assert_eq!((seen(0), seen(1)), (vec![1; 512], vec![2; 512]));
    drop(other);
    assert_eq!(device.calls().get(Call::CloseMemory), 0, "the other block shows it");
    assert_eq!(Bytes(&*device).read(one.base(), 512), [1; 512]);
    drop(one);
    assert_eq!(
        (device.calls().get(Call::CloseMemory), user.sharing().imported_bytes(DEVICE).unwrap()),
        (1, 0)
    );
}

#[test]
fn e06_a_handle_of_a_newer_version_is_refused_in_pytorchs_words() {
    for settings in both() {
        let (_owner, allocator, stream) = on(machine(), settings.clone());
        let mut handle = allocator.sharing().share(allocator.malloc(MIB, stream).unwrap()).unwrap().handle;
        let (_device, user, _) = on(machine(), settings);
        handle[0] = 4;
        let refused = refused(&user, &handle);
        assert!(refused.to_string().starts_with("the handle was made by a newer version"), "{refused}");
        assert_eq!(
            refused.pytorch_message(),
            "received sharable handle from a future version of torch that this version does not know how to handle"
        );
    }
}

#[test]
fn what_is_no_handle_of_a_live_block_is_refused_with_a_reason() {
    for settings in both() {
        let (_owner, allocator, stream) = on(machine(), settings.clone());
        let block = allocator.malloc(3 * MIB, stream).unwrap();
        let SharedBlock { handle, .. } = allocator.sharing().share(block).unwrap();
        let (device, user, _) = on(machine(), settings.clone());
        let calls = device.calls();
        for at in 0..handle.len() {
            let mut damaged = handle.clone();
            damaged[at] ^= 0x10;
            assert!(!refusal(&user, &damaged).is_empty(), "byte {at}");
            refusal(&user, &handle[..at]);
        }
        let mut damaged = handle.clone();
        *damaged.last_mut().unwrap() ^= 0x5a;
        assert!(refusal(&user, &damaged).contains("checksum"));
        assert!(refusal(&user, &[7; 64]).contains("driver's own memory handle"));
        let pytorchs = if settings.expandable_segments { 2 + 32 + 4 } else { 66 };
        assert!(refusal(&user, &handle[..pytorchs]).contains("made by another allocator"));
        assert_eq!(device.calls(), calls, "no driver was asked");
        assert!(refusal(&allocator, &handle).contains("this process's own"));
        allocator.free(block).unwrap();
        assert!(refusal(&user, &handle).contains("was freed since"));
        drop(allocator);
        assert!(refusal(&user, &handle).contains("allocator that shared the block is gone"));
    }
}

/// A machine of another make.
#[derive(Debug)]
struct OtherName;

impl Hook for OtherName {
    fn name(&self, _: &dyn Backend) -> &'static str {
        "other"
    }
}

/// A machine whose devices are another model.
#[derive(Debug)]
struct OtherModel;

impl Hook for OtherModel {
    fn properties(
        &self,
        inner: &dyn Backend,
        device: DeviceIndex,
    ) -> DriverResult<alloc_core::backend::DeviceProperties> {
        let properties = inner.properties(device)?;
        Ok(alloc_core::backend::DeviceProperties { name: "other".into(), ..properties })
    }
}

#[test]
fn another_backend_or_model_of_device_opens_nothing() {
    let (_owner, allocator, stream) = on(machine(), Settings::default());
    let handle = allocator.sharing().share(allocator.malloc(MIB, stream).unwrap()).unwrap().handle;
    let backends: [(Arc<dyn Backend>, &str); 2] = [
        (
            Arc::new(Interposed::new(OpenReg::new(machine()).unwrap(), OtherName)),
            "memory of backend \"openreg\"",
        ),
        (Arc::new(Interposed::new(OpenReg::new(machine()).unwrap(), OtherModel)), "another model of device"),
    ];
    for (backend, reason) in backends {
        let user = Arc::new(CachingAllocator::new(backend, Settings::default()).unwrap());
        assert!(refusal(&user, &handle).contains(reason));
    }
}

#[test]
fn sharing_of_growable_memory_can_be_switched_off_as_in_pytorch() {
    let off = |name: &str| (name == environment::SEGMENTS_IPC_VARIABLE).then(|| "False".to_owned());
    let read = environment::read(off, Flavour::Cuda).unwrap().settings;
    assert!(!read.segments_ipc && growable().segments_ipc);
    let (_device, allocator, stream) = on(machine(), Settings { expandable_segments: true, ..read });
    let block = allocator.malloc(MIB, stream).unwrap();
    let refused = allocator.sharing().share(block).unwrap_err();
    assert!(matches!(refused, AllocError::Share { ptr, .. } if ptr == block));
    let own = "growable memory cannot be shared: segments_ipc is off; set segments_ipc:True, or set expandable_segments:False";
    assert_eq!(refused.to_string(), own);
    assert_eq!(
        refused.pytorch_message(),
        "Cannot share an expandable_segments allocation: IPC handles are disabled. Set \
         TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1 or disable expandable_segments for cross-process tensors."
    );
    allocator.free(block).unwrap();
}

#[test]
fn memory_of_a_pools_own_source_stays_where_it_is_growable_and_says_so() {
    let (device, allocator, stream) = on(machine(), growable());
    let backend: Arc<dyn Backend> = device;
    let pool = pool_over(&allocator, Some(Own::new(&backend, true)));
    let block = take(&allocator, &pool, 3 * MIB, stream).unwrap();
    assert!(
        allocator.sharing().share(block).unwrap_err().to_string().contains("own source of physical memory")
    );
    allocator.free(block).unwrap();
}

/// A machine that says it has a fabric, over which nothing goes.
#[derive(Debug)]
struct BrokenFabric;

impl Hook for BrokenFabric {
    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> DriverResult<i64> {
        if attribute == Attribute::FabricHandles { Ok(1) } else { inner.attribute(device, attribute) }
    }

    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        _: HandleType,
    ) -> DriverResult<PhysicalHandle> {
        inner.create_physical(device, bytes, HandleType::PosixFd)
    }

    fn export_physical(
        &self,
        inner: &dyn PhysicalSharing,
        handle: PhysicalHandle,
        handle_type: HandleType,
    ) -> DriverResult<ShareableHandle> {
        if handle_type == HandleType::Fabric {
            let detail = "no fabric manager runs";
            return Err(BackendError::new(ErrorKind::NotSupported, 801, "export", DEVICE, detail));
        }
        inner.export_physical(handle, handle_type)
    }
}

#[test]
fn without_sharing_of_physical_memory_segments_still_grow_and_stay_here() {
    let families = Families::all() - Families::PHYSICAL_SHARING;
    let machine = OpenReg::new(machine().families(families)).unwrap();
    let stream = machine.default_stream(DEVICE);
    let allocator: CachingAllocator = CachingAllocator::new(machine.clone(), growable()).unwrap();
    let ptr = allocator.malloc(3 << 20, stream).unwrap();
    assert_ne!(machine.calls().get(Call::Map), 0, "the segment is growable");
    let refused = allocator.sharing().share(ptr).unwrap_err().to_string();
    assert!(refused.contains("offers neither file descriptors nor fabric handles"), "{refused}");
    allocator.free(ptr).unwrap();
}

/// A machine that says this of the descriptors of its physical memory, or answers no such question.
#[derive(Debug)]
struct Descriptors(Option<i64>);

impl Hook for Descriptors {
    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> DriverResult<i64> {
        match self.0 {
            Some(value) if attribute == Attribute::PosixFileDescriptorHandles => Ok(value),
            _ => defaults::attribute(inner, device, attribute),
        }
    }
}

/// A backend that has the family need not answer attributes: they only take away.
#[test]
fn sharing_of_physical_memory_works_where_its_family_is_there_unless_the_device_says_no() {
    for (says, shares) in [(None, true), (Some(1), true), (Some(0), false)] {
        let machine = OpenReg::new(machine()).unwrap();
        let backend: Arc<dyn Backend> = Arc::new(Interposed::new(machine.clone(), Descriptors(says)));
        let allocator: Allocator = Arc::new(CachingAllocator::new(backend, growable()).unwrap());
        let block = allocator.malloc(3 * MIB, machine.default_stream(DEVICE)).unwrap();
        let shared = allocator.sharing().share(block);
        assert_eq!(shared.is_ok(), shares, "the attribute is {says:?}: {shared:?}");
    }
}

#[test]
fn a_fabric_that_does_not_work_is_not_used() {
    let machine = OpenReg::new(machine()).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(Interposed::new(machine.clone(), BrokenFabric));
    let owner: Allocator = Arc::new(CachingAllocator::new(backend, growable()).unwrap());
    let block = owner.malloc(MIB, machine.default_stream(DEVICE)).unwrap();
    let shared = owner.sharing().share(block).unwrap();
    assert_eq!(shared.handle[26], 1, "descriptors");
    let (_device, user, _) = on(self::machine(), growable());
    assert!(user.sharing().open(DEVICE, &shared.handle).is_ok());
}

/// A receiver reserved 9/8 of the device for each handle, until there were no addresses left.
#[test]
fn pytorch_186213_only_what_is_imported_is_reserved() {
    // 200 times 9/8 of this is more than the simulated machine has addresses for.
    let config = || machine().capacity(4 * GIB);
    let (_owner, allocator, stream) = on(config(), growable());
    let blocks: Vec<_> = (0..200).map(|_| allocator.malloc(2 * MIB, stream).unwrap()).collect();
    let shared: Vec<_> = blocks.iter().map(|block| allocator.sharing().share(*block).unwrap()).collect();
    let (_device, user, _) = on(config(), growable());
    let opened: Vec<_> = shared.iter().map(|one| user.sharing().open(DEVICE, &one.handle).unwrap()).collect();
    for (one, import) in shared.iter().zip(&opened) {
        assert!(import.bytes().is_multiple_of(20 * MIB) && import.bytes() <= 40 * MIB);
        assert!(one.offset + 2 * MIB <= import.bytes());
    }
    let all: u64 = opened.iter().map(|import| import.bytes()).sum();
    assert_eq!(user.sharing().imported_bytes(DEVICE).unwrap(), all);
    drop(opened);
    assert_eq!(user.sharing().imported_bytes(DEVICE).unwrap(), 0);
}

/// Imported memory left while another device's stream still wrote to it.
#[test]
fn pytorch_196257_imported_memory_waits_for_writers_on_other_devices() {
    let other = DeviceIndex(1);
    let config = || machine().devices(2).clock(Clock::Virtual { lag: 50 });
    for settings in both() {
        let (_owner, allocator, stream) = on(config(), settings.clone());
        let block = allocator.malloc(45 * MIB, stream).unwrap();
        let shared = allocator.sharing().share(block).unwrap();
        let (device, user, _) = on(config(), settings);
        user.peers().enable(other, DEVICE).unwrap();
        let opened = user.sharing().open(DEVICE, &shared.handle).unwrap();
        let writer = device.create_stream(other, 0).unwrap();
        device.use_memory(writer, opened.base().add(shared.offset), MIB).unwrap();
        drop(opened);
        assert_eq!((device.traps(), user.sharing().imported_bytes(DEVICE).unwrap()), (Vec::new(), 0));
    }
}
