//! What Granule does without, driver by driver: each step by which less is asked for, on a personality that needs it.

use alloc_core::CachingAllocator;
use alloc_core::backend::{
    Access, Backend, ErrorKind, Granularity, HandleType, HostFlags, PinnedHost, VirtualMemory,
};
use alloc_core::config::Settings;
use alloc_core::host::{HostAllocator, HostOptions};
use alloc_core::types::{DevicePtr, GIB, MIB};
use backend_cuda::Cuda;
use backend_hip::Hip;
use granule_tests::alone::over_lookalikes;
use granule_tests::lookalike::{Controls, cuda_library};
use granule_tests::rig::DEVICE;
use std::sync::Arc;

fn properties(backend: &dyn Backend) -> Vec<&'static str> {
    backend.dropped(DEVICE).iter().map(|one| one.property).collect()
}

/// Makes, maps and opens a granule, and gives all back.
fn is_usable(memory: &dyn VirtualMemory) {
    let bytes = memory.granularity(DEVICE, Granularity::Minimum).unwrap();
    let at = memory.reserve_address(DEVICE, bytes, 0, DevicePtr::NULL).unwrap();
    let handle = memory.create_physical(DEVICE, bytes, HandleType::None).unwrap();
    // SAFETY: a whole reservation; the size is the handle's.
    unsafe { memory.map(at, bytes, handle) }.unwrap();
    // SAFETY: the range is one mapping.
    unsafe { memory.set_access(at, bytes, &[DEVICE], Access::ReadWrite) }.unwrap();
    // SAFETY: nothing uses it.
    unsafe { memory.unmap(at, bytes) }.unwrap();
    // SAFETY: the handle is not used again.
    unsafe { memory.release_physical(handle) }.unwrap();
    // SAFETY: nothing is mapped there.
    unsafe { memory.release_address(at, bytes) }.unwrap();
}

/// pytorch 192330: the flag for network cards cost all of virtual memory.
#[test]
fn on_wsl2_memory_is_not_made_for_network_cards() {
    over_lookalikes("personality=wsl2", || {
        let cuda = Cuda::load().unwrap();
        is_usable(cuda.virtual_memory().unwrap());
        assert_eq!(properties(&*cuda), ["remote direct memory access"]);
        let reason = &cuda.dropped(DEVICE)[0].reason;
        assert!(reason.contains("cuMemSetAccess") && reason.contains("999"), "{reason}");
    });
}

/// "Not ready" from a call that takes memory was an unknown error, after which nothing is given back and tried again.
#[test]
fn on_wsl2_what_cannot_be_made_resident_is_memory_that_is_short() {
    over_lookalikes("personality=wsl2,capacity=1GiB", || {
        let cuda = Cuda::load().unwrap();
        let refused = cuda.malloc(DEVICE, 1000 * MIB).unwrap_err();
        assert_eq!((refused.kind, refused.code), (ErrorKind::OutOfMemory, 600), "{refused}");
        assert!(refused.detail.contains("resident"), "{refused}");
        let refused = cuda.virtual_memory().unwrap().create_physical(DEVICE, 1000 * MIB, HandleType::None);
        assert_eq!(refused.unwrap_err().kind, ErrorKind::OutOfMemory);
        let pinned = cuda.host_malloc(2 * GIB, HostFlags::PORTABLE).unwrap_err();
        assert!(pinned.detail.contains("page-locked host memory"), "{pinned}");
    });
}

/// WSL 14078: after page-locked memory has ended, the error comes again with a call that could be served.
#[test]
fn on_wsl2_an_error_that_comes_again_is_no_reason_to_refuse_pinned_memory() {
    over_lookalikes("personality=wsl2", || {
        let cuda = Cuda::load().unwrap();
        cuda.host_malloc(2 * GIB, HostFlags::PORTABLE).unwrap_err();
        let block =
            cuda.host_malloc(MIB, HostFlags::PORTABLE).expect("what is left of the error does not come here");
        // SAFETY: rule 3: nothing uses it.
        unsafe { cuda.host_free(block) }.unwrap();
        let host = HostAllocator::new(cuda.clone(), &Settings::default(), HostOptions::default()).unwrap();
        host.allocate(2 * GIB).unwrap_err();
        let block = host.allocate(MIB).expect("nor here");
        host.free(block.id).unwrap();
    });
}

#[test]
fn on_wsl2_a_pool_that_could_be_exported_is_not_made() {
    over_lookalikes("personality=wsl2", || {
        let _driver = Cuda::load().unwrap();
        assert_eq!((makes_pool(1), makes_pool(0)), (1, 801), "the second is what the lookalike never does");
    });
}

/// What the driver answers to a pool of memory of device 0 that is to be exported by these handle types.
fn makes_pool(handle_types: u32) -> u32 {
    /// `CUmemPoolProps`.
    #[repr(C)]
    struct Properties {
        kind: u32,
        handle_types: u32,
        location: [i32; 2],
        rest: [u64; 9],
    }
    // SAFETY: the library that the backend has loaded; its initialisers ran.
    let library = unsafe { libloading::Library::new(cuda_library()) }.unwrap();
    // SAFETY: the lookalike's function of that name has this signature.
    let create: libloading::Symbol<'_, unsafe extern "C" fn(*mut u64, *const Properties) -> u32> =
        unsafe { library.get(c"cuMemPoolCreate") }.unwrap();
    let properties = Properties { kind: 1, handle_types, location: [1, 0], rest: [0; 9] };
    let mut pool = 0;
    // SAFETY: it reads the properties and writes one handle.
    unsafe { create(&raw mut pool, &raw const properties) }
}

/// What the driver answers to memory that is asked for on this thread, which has no current context.
fn makes_memory_without_context() -> u32 {
    // SAFETY: the library that the backend has loaded; its initialisers ran.
    let library = unsafe { libloading::Library::new(cuda_library()) }.unwrap();
    // SAFETY: the lookalike's function of that name has this signature, but for the type of the properties.
    let create: libloading::Symbol<'_, unsafe extern "C" fn(*mut u64, usize, *const [u64; 8], u64) -> u32> =
        unsafe { library.get(c"cuMemCreate") }.unwrap();
    let (mut handle, properties) = (0, [0; 8]);
    // SAFETY: it reads properties, which are no longer than these, and writes one handle.
    unsafe { create(&raw mut handle, MIB as usize, &raw const properties, 0) }
}

/// HAMi-core 172 and 217: memory is made where a context is current, also on other threads, and a number that is no status is an
/// error with that number.
#[test]
fn a_limiter_finds_a_context_where_memory_is_made_and_may_answer_what_is_no_status() {
    over_lookalikes("personality=limiter", || {
        let cuda = Cuda::load().unwrap();
        let memory = cuda.virtual_memory().expect("what is refused once is tried again");
        assert!(properties(&*cuda).is_empty());
        std::thread::scope(|scope| {
            scope.spawn(|| is_usable(memory)).join().expect("a context is current where memory is made");
            let answered = scope.spawn(makes_memory_without_context).join().unwrap();
            assert_eq!(answered, 201, "without one it is refused");
        });
        let controls = Controls::of(&cuda_library());
        let taken = cuda.malloc(DEVICE, MIB).unwrap();
        controls.fail_function(c"cuMemFree_v2", 1, -1);
        // SAFETY: rule 3: nothing uses it; it is refused.
        let refused = unsafe { cuda.free(DEVICE, taken) }.unwrap_err();
        assert_eq!((refused.kind, refused.code), (ErrorKind::Other, -1), "{refused}");
        // SAFETY: rule 3: nothing uses it.
        unsafe { cuda.free(DEVICE, taken) }.expect("it is still there");
    });
}

#[test]
fn on_tegra_lack_of_memory_is_not_believed_while_much_is_free() {
    over_lookalikes("personality=tegra", || {
        let cuda = Cuda::load().unwrap();
        let absent = cuda.virtual_memory().unwrap_err();
        assert!(absent.reason.contains("cuMemCreate") && absent.reason.contains("bytes free"), "{absent}");
        assert_eq!(properties(&*cuda), ["virtual memory"]);
        let settings = Settings { expandable_segments: true, ..Settings::default() };
        let allocator = CachingAllocator::new(cuda.clone(), settings).unwrap();
        let ptr = allocator.malloc(MIB, cuda.default_stream(DEVICE)).expect("in a fixed segment");
        allocator.free(ptr).unwrap();
    });
}

#[test]
fn where_descriptors_are_refused_memory_stays_in_the_process() {
    for personality in ["personality=container", "personality=no-descriptors"] {
        over_lookalikes(personality, || {
            let cuda = Cuda::load().unwrap();
            let memory = cuda.virtual_memory().unwrap();
            is_usable(memory);
            assert!(properties(&*cuda).is_empty(), "nothing is asked for that nobody wants");
            cuda.physical_sharing().unwrap_err();
            assert_eq!(properties(&*cuda), ["export as a file descriptor"]);
            let bytes = memory.granularity(DEVICE, Granularity::Minimum).unwrap();
            let handle = memory.create_physical(DEVICE, bytes, HandleType::PosixFd).unwrap();
            // SAFETY: the handle is not used again.
            unsafe { memory.release_physical(handle) }.unwrap();
        });
    }
}

#[test]
fn a_fabric_that_is_not_permitted_leaves_descriptors() {
    leaves_descriptors("personality=no-imex", 800);
}

#[test]
fn a_fabric_that_is_not_supported_leaves_descriptors() {
    leaves_descriptors("personality=no-imex-801", 801);
}

#[test]
fn a_fabric_that_is_an_invalid_value_leaves_descriptors() {
    leaves_descriptors("personality=no-imex-1", 1);
}

fn leaves_descriptors(personality: &str, code: i32) {
    over_lookalikes(personality, || {
        let cuda = Cuda::load().unwrap();
        let memory = cuda.physical_sharing().unwrap();
        let bytes = memory.granularity(DEVICE, Granularity::Minimum).unwrap();
        let refused = memory.create_physical(DEVICE, bytes, HandleType::Fabric).unwrap_err();
        assert_eq!(refused.code, code, "{refused}");
        assert_eq!(properties(&*cuda), ["export as a fabric handle"]);
        let handle = memory.create_physical(DEVICE, bytes, HandleType::PosixFd).unwrap();
        memory.export_physical(handle, HandleType::PosixFd).unwrap();
        // SAFETY: the handle is not used again.
        unsafe { memory.release_physical(handle) }.unwrap();
    });
}

/// The trial was given up at its first failure, and left its granule behind.
#[test]
fn a_fabric_that_fails_once_is_used_and_nothing_is_lost() {
    for call in [c"cuMemCreate", c"cuMemExportToShareableHandle", c"cuMemRelease"] {
        over_lookalikes("personality=fabric", || {
            let cuda = Cuda::load().unwrap();
            let memory = cuda.physical_sharing().unwrap();
            let bytes = memory.granularity(DEVICE, Granularity::Minimum).unwrap();
            // The backend's own trial is done from here on.
            let handle = memory.create_physical(DEVICE, bytes, HandleType::Fabric).unwrap();
            // SAFETY: the handle is not used again.
            unsafe { memory.release_physical(handle) }.unwrap();
            let controls = Controls::of(&cuda_library());
            let before = controls.used(0);
            let settings = Settings { expandable_segments: true, ..Settings::default() };
            let allocator = CachingAllocator::new(cuda.clone(), settings).unwrap();
            controls.fail_function(call, 1, 999);
            let block = allocator.malloc(MIB, cuda.default_stream(DEVICE)).unwrap();
            let shared = allocator.sharing().share(block).unwrap();
            assert_eq!(shared.handle[26], 2, "by a fabric handle, though {call:?} failed");
            allocator.free(block).unwrap();
            allocator.empty_cache().unwrap();
            assert_eq!(controls.used(0), before, "{call:?}");
        });
    }
}

/// torch_memory_saver 83: pools that slept gave nothing back.
#[test]
fn segments_do_not_grow_where_released_memory_stays_taken() {
    over_lookalikes("personality=rocm-sticky", || {
        let hip = Hip::load().unwrap();
        let absent = hip.virtual_memory().unwrap_err();
        assert!(absent.reason.contains("stays taken until its addresses are given back"), "{absent}");
        assert_eq!(properties(&*hip), ["virtual memory"]);
        let settings = Settings { expandable_segments: true, ..Settings::default() };
        let allocator = CachingAllocator::new(hip.clone(), settings).unwrap();
        let free = || hip.memory_info(DEVICE).unwrap().free;
        let before = free();
        allocator.free(allocator.malloc(32 * MIB, hip.default_stream(DEVICE)).unwrap()).unwrap();
        assert!(free() < before);
        allocator.empty_cache().unwrap();
        assert_eq!(free(), before, "what is given back is free");
    });
}

#[test]
fn memory_is_exported_again_though_the_runtime_exports_it_once() {
    over_lookalikes("personality=rocm-fd", || {
        let hip = Hip::load().unwrap();
        let memory = hip.physical_sharing().unwrap();
        let bytes = memory.granularity(DEVICE, Granularity::Minimum).unwrap();
        let handle = memory.create_physical(DEVICE, bytes, HandleType::PosixFd).unwrap();
        for _ in 0..3 {
            drop(memory.export_physical(handle, HandleType::PosixFd).unwrap());
        }
        // SAFETY: the handle is not used again.
        unsafe { memory.release_physical(handle) }.unwrap();
    });
}

#[test]
fn pinned_memory_is_allocated_where_none_is_registered() {
    over_lookalikes("personality=cc", || {
        let cuda: Arc<dyn Backend> = Cuda::load().unwrap();
        let absent = cuda.host_registration().unwrap_err();
        assert!(absent.reason.contains("cuMemHostRegister"), "{absent}");
        let settings = Settings { pinned_use_host_register: true, ..Settings::default() };
        let host = HostAllocator::new(cuda, &settings, HostOptions::default()).unwrap();
        host.free(host.allocate(MIB).unwrap().id).unwrap();
    });
}

#[test]
fn fewer_addresses_are_reserved_where_more_are_refused() {
    over_lookalikes("personality=tegra-addresses", || {
        let cuda = Cuda::load().unwrap();
        let settings = Settings { expandable_segments: true, ..Settings::default() };
        let allocator = CachingAllocator::new(cuda.clone(), settings).unwrap();
        let stream = cuda.default_stream(DEVICE);
        let blocks =
            [MIB, 40 * MIB].map(|bytes| allocator.malloc(bytes, stream).expect("in a smaller segment"));
        blocks.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
    });
}

#[test]
fn rocm_5_is_refused_by_its_version_and_says_what_to_install() {
    over_lookalikes("personality=rocm5", || {
        let refused = Hip::load().unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NoDriver);
        for part in
            ["liblookalike_hip.so: HIP 5.2.21153 is ROCm 5's, which is not served", "install ROCm 6 or 7"]
        {
            assert!(refused.detail.contains(part), "{refused}");
        }
    });
}
