//! AMD's APUs: the runtime tells a part of the memory, and the kernel all of it.

use super::DEVICE;
use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, MemoryInfo};
use alloc_core::config::{MemoryLimit, PolicyName, Settings};
use alloc_core::types::MIB;
use granule::backends::{Chosen, Name, choose, examine};
use granule_tests::alone::over_lookalikes;
use granule_tests::log::Log;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Where the device is on the bus of the imitated machine.
const CARD: &str = "sys/bus/pci/devices/0000:01:00.0";

/// What the kernel says, in MiB.
struct Kernel {
    root: TempDir,
}

impl Kernel {
    fn new(vram: u64, gtt: u64) -> Self {
        let kernel = Self { root: TempDir::new().unwrap() };
        kernel.says("mem_info_vram_total", vram);
        kernel.says("mem_info_gtt_total", gtt);
        kernel.says("mem_info_vram_used", 0);
        kernel.says("mem_info_gtt_used", 0);
        kernel.host(512, 512);
        // SAFETY: no other thread of this process reads or writes the environment now.
        unsafe { std::env::set_var("GRANULE_CONF", format!("system_root:{}", kernel.root().display())) };
        kernel
    }

    fn root(&self) -> &Path {
        self.root.path()
    }

    fn file(&self, name: &str, text: &str) {
        let file = self.root().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn says(&self, name: &str, mib: u64) {
        self.file(&format!("{CARD}/{name}"), &format!("{}\n", mib * MIB));
    }

    fn host(&self, total: u64, available: u64) {
        let text = format!("MemTotal: {} kB\nMemAvailable: {} kB\n", total << 10, available << 10);
        self.file("proc/meminfo", &text);
    }

    fn allocator(&self, backend: &Arc<dyn Backend>, policy: PolicyName) -> CachingAllocator {
        let system_root = self.root().to_owned();
        let host_reserve = Some(MemoryLimit::Bytes(0));
        let settings = Settings { policy: Some(policy), host_reserve, system_root, ..Settings::default() };
        CachingAllocator::new(Arc::clone(backend), settings).unwrap()
    }
}

fn hip() -> Chosen {
    choose(Some(Name::Hip)).unwrap()
}

/// 256 MiB, of which the driver tells 70.
const MACHINE: &str = "personality=gfx1151";

#[test]
fn the_kernel_says_what_there_is_and_it_can_be_had() {
    over_lookalikes(MACHINE, || {
        let kernel = Kernel::new(8, 248);
        let backend = hip().backend;
        let driver = backend.memory_info(DEVICE).unwrap();
        assert_eq!(driver.total, 70 * MIB);
        let (devices, _) = examine(&*backend).unwrap();
        assert_eq!((devices[0].total_bytes, devices[0].integrated), (248 * MIB, true));
        let told = devices[0].kernel_memory.unwrap();
        assert_eq!((told.vram_bytes, told.gtt_bytes, told.driver_bytes), (8 * MIB, 248 * MIB, 70 * MIB));
        for policy in [PolicyName::Granule, PolicyName::Pytorch] {
            let allocator = kernel.allocator(&backend, policy);
            let info = || allocator.statistics().memory_info(DEVICE).unwrap();
            assert_eq!(
                info(),
                MemoryInfo { free: 248 * MIB, total: 248 * MIB },
                "nothing comes from the VRAM"
            );
            allocator.set_memory_fraction(0.75, DEVICE).unwrap();
            let block = allocator.malloc(180 * MIB, backend.default_stream(DEVICE)).unwrap();
            assert!(allocator.malloc(20 * MIB, backend.default_stream(DEVICE)).is_err(), "186 are allowed");
            kernel.says("mem_info_gtt_used", 188);
            assert_eq!(info().free, 60 * MIB);
            kernel.host(512, 30);
            assert_eq!(info().free, 30 * MIB, "the host has no more");
            kernel.host(512, 512);
            kernel.says("mem_info_gtt_used", 0);
            allocator.free(block).unwrap();
        }
        // The kernel lets the device map more than the host has.
        kernel.says("mem_info_gtt_total", 4096);
        kernel.host(200, 100);
        let (devices, _) = examine(&*backend).unwrap();
        assert_eq!((devices[0].total_bytes, devices[0].free_bytes), (200 * MIB, 100 * MIB));
        kernel.file("proc/self/cgroup", "0::/\n");
        kernel.file("sys/fs/cgroup/memory.max", &(150 * MIB).to_string());
        kernel.file("sys/fs/cgroup/memory.current", &(70 * MIB).to_string());
        let (devices, _) = examine(&*backend).unwrap();
        assert_eq!((devices[0].total_bytes, devices[0].free_bytes), (150 * MIB, 80 * MIB));
    });
}

/// MI300A: the kernel has no VRAM, and GTT is what all devices of the machine share. The driver tells each one's part.
#[test]
fn without_vram_the_drivers_figures_count() {
    over_lookalikes(MACHINE, || {
        let kernel = Kernel::new(0, 248);
        let backend = hip().backend;
        let log = Log::default();
        let allocator = tracing::subscriber::with_default(log.clone(), || {
            kernel.allocator(&backend, PolicyName::Granule)
        });
        assert_eq!(log.take("what memory the device has"), [], "nothing is amiss");
        let info = || allocator.statistics().memory_info(DEVICE).unwrap();
        assert_eq!(info().total, 70 * MIB);
        let block = allocator.malloc(60 * MIB, backend.default_stream(DEVICE)).unwrap();
        assert_eq!(info(), backend.memory_info(DEVICE).unwrap(), "what the host has is not this device's");
        allocator.free(block).unwrap();
        let told = examine(&*backend).unwrap().0.remove(0);
        assert_eq!((told.total_bytes, told.integrated, told.kernel_memory.is_none()), (70 * MIB, true, true));
    });
}

/// Memory that the firmware set aside is no memory of the host's: neither its page cache nor what is pinned lies there.
#[test]
fn what_the_firmware_set_aside_is_the_devices_own() {
    over_lookalikes(MACHINE, || {
        let kernel = Kernel::new(248, 40);
        let backend = hip().backend;
        let driver = backend.memory_info(DEVICE).unwrap();
        let told = || examine(&*backend).unwrap().0.remove(0);
        assert_eq!((driver.total, told().total_bytes, told().integrated), (70 * MIB, 248 * MIB, false));
        assert_eq!(told().kernel_memory.unwrap().driver_bytes, 70 * MIB);
        kernel.host(512, 1);
        let allocator = kernel.allocator(&backend, PolicyName::Granule);
        allocator.set_memory_fraction(0.5, DEVICE).unwrap();
        let block = allocator.malloc(100 * MIB, backend.default_stream(DEVICE));
        assert!(allocator.malloc(30 * MIB, backend.default_stream(DEVICE)).is_err(), "124 are allowed");
        allocator.free(block.expect("the host's memory is not asked for")).unwrap();
        kernel.says("mem_info_vram_used", 100);
        assert_eq!(told().free_bytes, 148 * MIB);
        // The driver tells all of it.
        kernel.says("mem_info_vram_total", 50);
        assert_eq!((told().total_bytes, told().kernel_memory.is_none()), (70 * MIB, true));
    });
}

#[test]
fn figures_that_cannot_be_read_leave_the_drivers_and_a_line_in_the_log() {
    over_lookalikes(MACHINE, || {
        let backend = hip().backend;
        for name in ["mem_info_vram_total", "mem_info_gtt_total"] {
            for damage in [None, Some(""), Some("-1"), Some("99999999999999999999999"), Some("1e9")] {
                let kernel = Kernel::new(8, 248);
                let file = kernel.root().join(CARD).join(name);
                std::fs::remove_file(&file).unwrap();
                damage.iter().for_each(|text| std::fs::write(&file, text).unwrap());
                let log = Log::default();
                let allocator = tracing::subscriber::with_default(log.clone(), || {
                    kernel.allocator(&backend, PolicyName::Granule)
                });
                assert_eq!(log.take("does not say what memory the device has").len(), 1, "{name} {damage:?}");
                let info = allocator.statistics().memory_info(DEVICE).unwrap();
                assert_eq!(info.total, 70 * MIB, "{name} {damage:?}");
            }
        }
        let kernel = Kernel::new(8, 248);
        let allocator = kernel.allocator(&backend, PolicyName::Granule);
        std::fs::remove_file(kernel.root().join(CARD).join("mem_info_gtt_used")).unwrap();
        let info = allocator.statistics().memory_info(DEVICE).unwrap();
        assert_eq!(info, MemoryInfo { free: 248 * MIB, total: 248 * MIB }, "what the host has counts");
    });
}
