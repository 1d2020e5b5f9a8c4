//! What bad and unlucky requests get.

use crate::memory::{Memory, Pools};
use crate::support::{CAPACITY, Machine, over_drivers};
use cubecl_runtime::server::IoError;
use cubecl_runtime::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use granule::cuda::Cuda;
use granule::types::MIB;
use granule_cubecl::{Resource, Storage};

fn storage(machine: &Machine<Cuda>) -> Storage<Cuda> {
    Storage::new(&machine.granule, &machine.stream())
}

#[test]
fn a_full_device_is_out_of_memory_and_serves_again_after_a_cleanup() {
    over_drivers(|| {
        let machine = Machine::start();
        let mut storage = storage(&machine);
        let held = storage.alloc(40 * MIB).unwrap();
        let refused = storage.alloc(40 * MIB).unwrap_err();
        assert!(matches!(refused, IoError::OutOfMemory { size, .. } if size == 40 * MIB), "{refused}");
        assert_eq!(storage.bytes_allocated(), 40 * MIB);
        let never = storage.alloc(1 << 60).unwrap_err();
        assert!(matches!(never, IoError::BufferTooBig { .. }), "{never}");
        storage.dealloc(held.id);
        storage.alloc(48 * MIB).unwrap();

        // CubeCL's pools keep a page that nobody uses: they give it back and ask again.
        drop(storage);
        let mut memory = Memory::over(self::storage(&machine), Pools::Exclusive, CAPACITY);
        let sizes = [15 * MIB, 14 * MIB, 13 * MIB, 12 * MIB];
        let first: Vec<_> = sizes.map(|size| memory.reserve(size).unwrap()).into();
        assert!(memory.reserve(16 * MIB).is_err());
        drop(first);
        let second = memory.reserve(16 * MIB).unwrap();
        assert_eq!(memory.manager.bytes_allocated(), 16 * MIB);
        drop(second);
    });
}

#[test]
fn a_handle_without_memory_is_refused() {
    over_drivers(|| {
        let machine = Machine::start();
        let mut storage = storage(&machine);
        let page = storage.alloc(4096).unwrap();
        let at = |offset, size| StorageHandle::new(page.id, StorageUtilization { offset, size });
        let place = storage.get(&at(0, 4096)).unwrap();
        let part = storage.get(&at(512, 3584)).unwrap();
        assert_eq!((part.address, part.bytes), (place.address + 512, 3584));
        for beyond in [at(0, 4097), at(512, 3585), at(4097, 0), at(u64::MAX, 2)] {
            let refused = storage.get(&beyond).unwrap_err();
            assert!(matches!(refused, IoError::StorageHandleNotFound { .. }), "{refused}");
        }

        storage.dealloc(StorageId::new());
        assert_eq!(storage.bytes_allocated(), 4096, "an unknown page is nothing");
        storage.dealloc(page.id);
        storage.dealloc(page.id);
        storage.flush();
        assert_eq!((storage.bytes_allocated(), machine.live_bytes()), (0, 0));
        let refused = storage.get(&page).unwrap_err();
        assert!(matches!(refused, IoError::StorageHandleNotFound { .. }), "{refused}");
    });
}

#[test]
fn an_empty_buffer_has_no_memory() {
    over_drivers(|| {
        let machine = Machine::start();
        let mut storage = storage(&machine);
        let empty = storage.alloc(0).unwrap();
        let place = storage.get(&empty).unwrap();
        assert_eq!((place.address, place.bytes, machine.live_bytes()), (0, 0, 0));
        storage.dealloc(empty.id);
        storage.get(&empty).unwrap_err();
    });
}

#[test]
fn bindings_last_as_long_as_a_launch() {
    over_drivers(|| {
        let machine = Machine::<Cuda>::start();
        // As a runtime with a type of its own for resources has it.
        let own: fn(Resource) -> (u64, u64) =
            |resource| (resource.address, resource.binding.expose_provenance() as u64);
        let mut storage = Storage::with_resource(&machine.granule, &machine.stream(), own);
        let page = storage.alloc(1024 * 512).unwrap();
        let part = |at: u64| StorageHandle::new(page.id, StorageUtilization { offset: at * 512, size: 512 });
        let launch: Vec<(u64, u64)> = (0..1024).map(|at| storage.get(&part(at)).unwrap()).collect();
        for (address, binding) in &launch {
            let place = std::ptr::with_exposed_provenance::<u64>(*binding as usize);
            // SAFETY: an atomic of the storage, whose 1024 next calls have not been made yet.
            assert_eq!(unsafe { place.read() }, *address);
        }
        assert_eq!(storage.get(&part(0)).unwrap().1, launch[0].1, "the ring begins again");
    });
}
