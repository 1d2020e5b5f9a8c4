//! Devices that share the host's memory: what can be had is what the system says, and what is pinned of it counts.

mod apu;
mod host_reserve;
mod on_its_way;
mod one_budget;

use alloc_core::backend::{
    Attribute, Backend, BackendError, ErrorKind, HandleType, HostFlags, MemoryInfo, PinnedHost, Result,
    VirtualMemory,
};
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::host::{HostAllocator, HostOptions};
use alloc_core::sleep::{Backup, Retention, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, PhysicalHandle};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::alone::over_lookalikes;
use granule_tests::log::Log;
use granule_tests::sleepers::{malloc_in, tagged};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const DEVICE: DeviceIndex = DeviceIndex(0);
const TOTAL: u64 = 120 * GIB;

/// A device whose driver has the host's free memory for its own, as drivers of such boards do. What is pinned comes from the
/// same memory.
#[derive(Debug)]
struct Shares {
    machine: Arc<OpenReg>,
    meminfo: PathBuf,
    pinned: Pinned,
}

/// What is pinned: addresses and bytes.
type Pinned = Arc<Mutex<BTreeMap<DevicePtr, u64>>>;

impl Shares {
    fn serves(&self, bytes: u64) -> Result<()> {
        let pinned: u64 = self.pinned.lock().unwrap().values().sum();
        if self.machine.memory_info(DEVICE)?.free.saturating_sub(pinned) >= bytes {
            return Ok(());
        }
        Err(BackendError::new(ErrorKind::OutOfMemory, 2, "malloc", DEVICE, "the board has no more"))
    }
}

impl Hook for Shares {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        self.serves(bytes)?;
        inner.malloc(device, bytes)
    }

    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        self.serves(bytes)?;
        inner.create_physical(device, bytes, handle_type)
    }

    fn host_malloc(&self, inner: &dyn PinnedHost, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        self.serves(bytes)?;
        let ptr = inner.host_malloc(bytes, flags)?;
        self.pinned.lock().unwrap().insert(ptr, bytes);
        Ok(ptr)
    }

    unsafe fn host_free(&self, inner: &dyn PinnedHost, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rule 3 is the caller's promise.
        unsafe { inner.host_free(ptr) }?;
        self.pinned.lock().unwrap().remove(&ptr);
        Ok(())
    }

    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        if attribute == Attribute::Integrated { Ok(1) } else { inner.attribute(device, attribute) }
    }

    fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
        let text = std::fs::read_to_string(&self.meminfo).unwrap();
        let free = text.lines().find_map(|line| line.strip_prefix("MemFree:")).unwrap();
        let kib: u64 = free.trim().trim_end_matches(" kB").parse().unwrap();
        Ok(MemoryInfo { free: kib << 10, total: inner.memory_info(device)?.total })
    }
}

/// The host: its files, and the machine that shares its memory.
struct Board {
    root: TempDir,
    machine: Arc<OpenReg>,
    pinned: Pinned,
}

impl Board {
    fn new() -> Self {
        Self::with(TOTAL)
    }

    fn with(total: u64) -> Self {
        let machine = OpenReg::new(OpenRegConfig::default().devices(1).capacity(total)).unwrap();
        let board = Self { root: TempDir::new().unwrap(), machine, pinned: Pinned::default() };
        board.file("proc/self/cgroup", "0::/\n");
        board.page_cache(0);
        board
    }

    fn file(&self, name: &str, text: &str) {
        let file = self.root.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// What nobody uses, for whom the page cache is not in the way.
    fn unused(&self) -> u64 {
        let pinned: u64 = self.pinned.lock().unwrap().values().sum();
        self.machine.memory_info(DEVICE).unwrap().free - pinned
    }

    /// The system with so much of its memory in the page cache.
    fn page_cache(&self, cache: u64) {
        let available = self.unused();
        let free = available.saturating_sub(cache);
        let text = format!(
            "MemTotal: {} kB\nMemFree: {} kB\nMemAvailable: {} kB\nCached: {} kB\n",
            self.machine.memory_info(DEVICE).unwrap().total >> 10,
            free >> 10,
            available >> 10,
            cache >> 10
        );
        self.file("proc/meminfo", &text);
    }

    fn backend(&self) -> Arc<dyn Backend> {
        let (machine, pinned) = (self.machine.clone(), Arc::clone(&self.pinned));
        let shares = Shares { machine, meminfo: self.root.path().join("proc/meminfo"), pinned };
        Arc::new(Interposed::new(self.machine.clone(), shares))
    }

    fn allocator(&self, settings: Settings) -> CachingAllocator {
        let settings = Settings { system_root: self.root.path().to_owned(), ..settings };
        CachingAllocator::new(self.backend(), settings).unwrap()
    }
}

/// `granule devices` told the free memory of this machine, whatever the option said.
#[test]
fn what_is_told_of_devices_comes_from_the_system_that_the_environment_names() {
    over_lookalikes("personality=uma", || {
        let root = TempDir::new().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/meminfo"), "MemTotal: 999999 kB\nMemAvailable: 235520 kB\n")
            .unwrap();
        // SAFETY: no other thread of this process reads or writes the environment now.
        unsafe { std::env::set_var("GRANULE_CONF", format!("system_root:{}", root.path().display())) };
        let chosen = granule::backends::choose(Some(granule::backends::Name::Cuda)).unwrap();
        let (devices, _) = granule::backends::examine(&*chosen.backend).unwrap();
        assert_eq!((devices[0].total_bytes, devices[0].free_bytes), (256 * MIB, 230 * MIB));
        let who = granule::backends::who(&chosen).unwrap();
        assert_eq!((who[0].total, who[0].used), (256 * MIB, 26 * MIB));
    });
}

/// What the driver says is all that was told on GH200, whose page cache lies in the device's memory.
#[test]
fn the_memory_of_a_device_that_is_a_node_is_what_the_node_has() {
    over_lookalikes("personality=page64k", || {
        let root = TempDir::new().unwrap();
        let node = root.path().join("sys/devices/system/node/node1");
        std::fs::create_dir_all(&node).unwrap();
        let has = |free: u64, cache: u64| {
            let text = format!(
                "Node 1 MemTotal: 262144 kB\nNode 1 MemFree: {} kB\nNode 1 Inactive(file): {} kB\n",
                free >> 10,
                cache >> 10
            );
            std::fs::write(node.join("meminfo"), text).unwrap();
        };
        has(100 * MIB, 120 * MIB);
        // SAFETY: no other thread of this process reads or writes the environment now.
        unsafe { std::env::set_var("GRANULE_CONF", format!("system_root:{}", root.path().display())) };
        let chosen = granule::backends::choose(Some(granule::backends::Name::Cuda)).unwrap();
        let driver = chosen.backend.memory_info(DEVICE).unwrap();
        assert!(driver.free < 235 * MIB, "the page cache counts as taken: {driver:?}");
        let (devices, _) = granule::backends::examine(&*chosen.backend).unwrap();
        assert_eq!((devices[0].integrated, devices[0].memory_node), (false, Some(1)));
        let settings = Settings { system_root: root.path().to_owned(), ..Settings::default() };
        let allocator = Arc::new(CachingAllocator::new(chosen.backend.clone(), settings).unwrap());
        let free = || allocator.statistics().memory_info(DEVICE).unwrap().free;
        assert_eq!(free(), driver.free, "the driver knows of more");
        has(140 * MIB, 110 * MIB);
        assert_eq!(free(), 250 * MIB);
        // Its memory is not the host's: contents can sleep there.
        let pool = tagged(&allocator, "weights");
        let block = malloc_in(&pool, &allocator, 20 * MIB, chosen.backend.default_stream(DEVICE));
        // SAFETY: nothing uses the memory.
        unsafe { allocator.sleep_mode().sleep(Tags::All, &Backup::HostPinned(Retention::Release)) }.unwrap();
        allocator.sleep_mode().wake(Tags::All).unwrap();
        allocator.free(block).unwrap();
    });
}

#[test]
fn a_page_cache_that_swings_takes_nothing_away() {
    let board = Board::new();
    let allocator = board.allocator(Settings::default());
    let stream = board.machine.default_stream(DEVICE);
    let (mut worst, mut driver_worst) = (0, 0);
    let mut live = Vec::new();
    for step in 0..200_u64 {
        // 60 GiB come and go, in steps of no pattern.
        let cache = (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % (60 * GIB);
        match step % 5 {
            0 => live.push(allocator.malloc(GIB + step * MIB, stream).unwrap()),
            3 => allocator.free(live.swap_remove(0)).unwrap(),
            4 => allocator.empty_cache().unwrap(),
            _ => {}
        }
        board.page_cache(cache);
        let told = allocator.statistics().memory_info(DEVICE).unwrap();
        assert_eq!(told.total, TOTAL);
        worst = worst.max(told.free.abs_diff(board.unused()));
        driver_worst =
            driver_worst.max(allocator.backend().memory_info(DEVICE).unwrap().free.abs_diff(board.unused()));
        assert_eq!(allocator.statistics().cache_info(DEVICE).unwrap().device_free, told.free);
        if live.len() > 30 {
            live.drain(..).for_each(|ptr| allocator.free(ptr).unwrap());
        }
    }
    assert!(worst <= 64 * MIB, "{} MiB", worst / MIB);
    assert!(driver_worst > 40 * GIB, "the imitated driver is far off: {} MiB", driver_worst / MIB);
}

#[test]
fn the_report_of_a_refusal_says_what_can_be_had() {
    let board = Board::new();
    let allocator = board.allocator(Settings::default());
    board.page_cache(50 * GIB);
    let refused = allocator.malloc(TOTAL + GIB, board.machine.default_stream(DEVICE)).unwrap_err();
    let AllocError::OutOfMemory(report) = refused else { panic!("{refused}") };
    assert_eq!((report.device_free, report.device_total), (TOTAL, TOTAL));
}

#[test]
fn shares_of_the_device_are_of_what_a_control_group_leaves() {
    let board = Board::new();
    board.file("sys/fs/cgroup/memory.max", &(64 * GIB).to_string());
    board.file("sys/fs/cgroup/memory.current", &(40 * GIB).to_string());
    board.file("sys/fs/cgroup/memory.stat", &format!("active_file {}\n", 30 * GIB));
    board.page_cache(30 * GIB);
    let limit = Some(MemoryLimit::Fraction(0.25));
    let allocator = board.allocator(Settings { memory_limit: limit, ..Settings::default() });
    let info = allocator.statistics().memory_info(DEVICE).unwrap();
    assert_eq!(info, MemoryInfo { free: 54 * GIB, total: 64 * GIB });
    let stream = board.machine.default_stream(DEVICE);
    let served = allocator.malloc(15 * GIB, stream).unwrap();
    assert!(allocator.malloc(2 * GIB, stream).is_err(), "a quarter of 64 GiB are 16");
    allocator.free(served).unwrap();
    allocator.empty_cache().unwrap();
    allocator.set_memory_limits(DEVICE, None, None).unwrap();
    allocator.set_memory_fraction(0.5, DEVICE).unwrap();
    let served = allocator.malloc(31 * GIB, stream).unwrap();
    assert!(allocator.malloc(2 * GIB, stream).is_err(), "half of 64 GiB are 32");
    allocator.free(served).unwrap();
}

#[test]
fn contents_are_not_kept_in_the_memory_that_a_sleep_frees() {
    let board = Board::new();
    let allocator = Arc::new(board.allocator(Settings::default()));
    let pool = tagged(&allocator, "weights");
    let block = malloc_in(&pool, &allocator, 40 * MIB, board.machine.default_stream(DEVICE));
    let sleep = |backup: &Backup| {
        // SAFETY: nothing uses the memory.
        unsafe { allocator.sleep_mode().sleep(Tags::All, backup) }
    };
    let refused = sleep(&Backup::HostPinned(Retention::Release)).unwrap_err().to_string();
    assert!(refused.contains("shares the host's memory") && refused.contains("in files"), "{refused}");
    assert_eq!(allocator.sleep_mode().is_asleep(block), Some(false), "nothing was done");
    let slept = sleep(&Backup::Discard).unwrap();
    assert!(slept.slept >= 40 * MIB, "{slept:?}");
    allocator.sleep_mode().wake(Tags::All).unwrap();
    allocator.free(block).unwrap();
}

/// A driver that fails to say what its devices are.
#[derive(Debug)]
struct Failing {
    call: &'static str,
    kind: ErrorKind,
    /// The number of devices was asked for: without that there is no allocator.
    counted: AtomicBool,
}

impl Failing {
    fn answer<T>(&self, call: &'static str, answer: impl FnOnce() -> Result<T>) -> Result<T> {
        if call != self.call {
            return answer();
        }
        Err(BackendError::new(self.kind, 7, call, DEVICE, "no answer"))
    }
}

impl Hook for Failing {
    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        if attribute != Attribute::Integrated {
            return inner.attribute(device, attribute);
        }
        self.answer("attribute", || inner.attribute(device, attribute))
    }

    fn device_count(&self, inner: &dyn Backend) -> Result<u16> {
        if !self.counted.swap(true, Ordering::SeqCst) {
            return inner.device_count();
        }
        self.answer("device_count", || inner.device_count())
    }
}

#[test]
fn a_driver_that_fails_to_say_what_a_device_is_is_told() {
    let board = Board::new();
    for (call, kind) in [
        ("attribute", ErrorKind::Other),
        ("attribute", ErrorKind::NotSupported),
        ("device_count", ErrorKind::Other),
    ] {
        let lines = usize::from(kind == ErrorKind::Other);
        let failing = Failing { call, kind, counted: AtomicBool::new(false) };
        let backend: Arc<dyn Backend> = Arc::new(Interposed::new(board.backend(), failing));
        let settings = Settings { system_root: board.root.path().to_owned(), ..Settings::default() };
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), || {
            if call == "attribute" {
                let allocator = CachingAllocator::new(Arc::clone(&backend), settings.clone()).unwrap();
                let told = log.take("host_reserve is not kept");
                assert_eq!(told.len(), lines, "{kind:?}: {told:?}");
                assert!(told.iter().all(|(_, line)| line.contains("device=0")), "{told:?}");
                let info = allocator.statistics().memory_info(DEVICE).unwrap();
                assert_eq!(info, backend.memory_info(DEVICE).unwrap(), "what the driver says counts");
            }
            HostAllocator::new(Arc::clone(&backend), &settings, HostOptions::default()).unwrap();
        });
        let told = log.take("the driver does not say");
        assert_eq!(told.len(), lines, "{call} {kind:?}: {told:?}");
    }
}

#[test]
fn a_system_that_is_not_there_is_refused() {
    let machine = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
    let settings = Settings { system_root: PathBuf::from("/nosuch"), ..Settings::default() };
    let refused = CachingAllocator::new(machine, settings).map(drop).unwrap_err();
    assert!(matches!(&refused, AllocError::Settings(_)), "{refused}");
    assert!(
        refused.to_string().contains("system_root:/nosuch: there is no such folder; name one"),
        "{refused}"
    );
}
