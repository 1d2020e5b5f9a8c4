//! Whose the bytes of a device are: co-tenants on the simulated device.

use alloc_core::backend::Backend;
use alloc_core::config::{PolicyName, Settings};
use alloc_core::ledger::registry;
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, Stream};
use alloc_core::{CachingAllocator, ledger::DeviceLedger};
use backend_openreg::{OpenReg, OpenRegConfig};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const DEVICE: DeviceIndex = DeviceIndex(0);

fn machine() -> Arc<OpenReg> {
    OpenReg::new(OpenRegConfig::default().devices(1).capacity(64 * GIB)).unwrap()
}

fn settings(root: &Path, publish: bool) -> Settings {
    Settings { system_root: root.to_owned(), publish, ..Settings::default() }
}

fn allocator(machine: &Arc<OpenReg>, settings: Settings) -> CachingAllocator {
    CachingAllocator::new(machine.clone(), settings).unwrap()
}

fn ledger(allocator: &CachingAllocator) -> DeviceLedger {
    allocator.statistics().ledger(DEVICE).unwrap()
}

fn held(allocator: &CachingAllocator) -> u64 {
    allocator.stats(DEVICE).unwrap().reserved_bytes.all.current.unsigned_abs()
}

/// The name of a file of a process of this PID name space.
fn name(pid: u32) -> String {
    let here = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    format!("held.{here}.{pid}.x")
}

/// A process that takes memory of the device and writes of it what Granule's do, or nothing.
struct Other {
    machine: Arc<OpenReg>,
    live: Vec<(DevicePtr, u64)>,
    file: Option<File>,
}

impl Other {
    fn silent(machine: &Arc<OpenReg>) -> Self {
        Self { machine: Arc::clone(machine), live: Vec::new(), file: None }
    }

    /// One with a number.
    fn publishing(machine: &Arc<OpenReg>, root: &Path, pid: u32) -> Self {
        let file = File::create(registry::folder(root).join(name(pid))).unwrap();
        file.lock().unwrap();
        let mut other = Self::silent(machine);
        other.file = Some(file);
        other.write();
        other
    }

    fn held(&self) -> u64 {
        self.live.iter().map(|(_, bytes)| bytes).sum()
    }

    fn write(&self) {
        let Some(file) = &self.file else { return };
        let uuid = self.machine.properties(DEVICE).unwrap().uuid.unwrap();
        let mut bytes = b"granule1".to_vec();
        for half in uuid.chunks_exact(8) {
            bytes.extend(half.iter().rev());
        }
        bytes.extend(self.held().to_le_bytes());
        file.write_all_at(&bytes, 0).unwrap();
    }

    fn step(&mut self, takes: bool, bytes: u64) {
        // As the device gives memory.
        let bytes = bytes.next_multiple_of(2 * MIB);
        if takes {
            self.live.extend(self.machine.malloc(DEVICE, bytes).ok().map(|ptr| (ptr, bytes)));
        } else if !self.live.is_empty() {
            let (ptr, _) = self.live.swap_remove(0);
            // SAFETY: rule 3: handed out above, and nothing uses it.
            unsafe { self.machine.free(DEVICE, ptr) }.unwrap();
        }
        self.write();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        while !self.live.is_empty() {
            self.step(false, 0);
        }
    }
}

/// An engine and what a program has of it.
struct Engine {
    allocator: CachingAllocator,
    stream: Stream,
    live: Vec<DevicePtr>,
}

impl Engine {
    fn new(machine: &Arc<OpenReg>, settings: Settings) -> Self {
        let stream = machine.default_stream(DEVICE);
        Self { allocator: allocator(machine, settings), stream, live: Vec::new() }
    }

    fn step(&mut self, takes: bool, bytes: u64) {
        match (takes, self.live.is_empty()) {
            (true, _) => self.live.extend(self.allocator.malloc(bytes, self.stream).ok()),
            (false, false) => self.allocator.free(self.live.swap_remove(0)).unwrap(),
            (false, true) => self.allocator.empty_cache().unwrap(),
        }
    }
}

impl Drop for Engine {
    /// What a program still has stays the device's when its allocator goes.
    fn drop(&mut self) {
        self.live.drain(..).for_each(|ptr| self.allocator.free(ptr).unwrap());
    }
}

/// A tenant, whether it takes, and how much.
type Step = (usize, bool, u64);

/// Plays a schedule and returns the worst error of a sum.
fn play(machine: &Arc<OpenReg>, root: &Path, own: Settings, schedule: &[Step]) -> u64 {
    let mut us = Engine::new(machine, own);
    let mut beside = Engine::new(machine, settings(root, true));
    let mut library = Other::silent(machine);
    let mut others = [1, 2].map(|pid| Other::publishing(machine, root, pid));
    let mut worst = 0;
    for (who, takes, bytes) in schedule {
        match who {
            0 => us.step(*takes, *bytes),
            1 => beside.step(*takes, *bytes),
            2 => library.step(*takes, *bytes),
            other => others[other - 3].step(*takes, *bytes),
        }
        let told = ledger(&us.allocator);
        let driver = machine.memory_info(DEVICE).unwrap();
        worst = worst.max(told.sum().abs_diff(driver.total - driver.free));
        assert_eq!((told.total, told.used), (driver.total, driver.total - driver.free));
        assert_eq!(told.ours.held(), held(&us.allocator));
        assert_eq!(told.process_other, held(&beside.allocator), "the other engine of this process");
        assert_eq!(told.unaccounted, library.held(), "who says nothing is not accounted for");
        let of = |pid: u32| told.other_processes.iter().find(|one| one.pid == pid).map_or(0, |one| one.bytes);
        assert_eq!([of(1), of(2)], [others[0].held(), others[1].held()]);
    }
    worst
}

#[test]
fn the_parts_are_what_is_used_in_random_schedules_of_co_tenants() {
    let root = TempDir::new().unwrap();
    let machine = machine();
    let long = std::env::var_os("GRANULE_LONG").is_some();
    let config =
        Config { cases: if long { 10_000 } else { 60 }, failure_persistence: None, ..Config::default() };
    let steps = prop::collection::vec((0usize..5, prop::bool::weighted(0.6), 1u64..600 * MIB), 1..24);
    let (worst, played) = (Cell::new(0), Cell::new(0));
    let outcome =
        TestRunner::new(config).run(&(steps, any::<bool>(), any::<bool>()), |(steps, publish, granule)| {
            let policy = granule.then_some(PolicyName::Granule);
            let own = Settings { policy, ..settings(root.path(), publish) };
            worst.set(worst.get().max(play(&machine, root.path(), own, &steps)));
            played.set(played.get() + 1);
            Ok(())
        });
    outcome.unwrap();
    eprintln!("{} schedules, worst error {} bytes", played.get(), worst.get());
    assert!(worst.get() <= MIB, "{} bytes", worst.get());
}

#[test]
fn a_phase_of_one_engine_is_not_charged_with_what_its_neighbours_take() {
    let root = TempDir::new().unwrap();
    let machine = machine();
    let mut us = Engine::new(&machine, settings(root.path(), true));
    let mut neighbour = Engine::new(&machine, settings(root.path(), true));
    let mut other = Other::publishing(&machine, root.path(), 1);
    let before = ledger(&us.allocator);
    us.step(true, 300 * MIB);
    neighbour.step(true, 2 * GIB);
    other.step(true, 5 * GIB);
    let phase = ledger(&us.allocator).since(&before);
    assert_eq!(phase.ours, 300 << 20);
    assert_eq!((phase.process_other, phase.other_processes, phase.unaccounted), (2 << 30, 5 << 30, 0));
    // The driver's figure alone would have charged it with all.
    let seen = ledger(&neighbour.allocator);
    assert_eq!((seen.ours.held(), seen.process_other), (2 * GIB, 300 * MIB));
    us.step(false, 0);
    assert_eq!(ledger(&us.allocator).ours.cached, 300 * MIB, "freed is kept");
}

#[test]
fn files_that_nobody_has_locked_go_whatever_number_they_have() {
    let root = TempDir::new().unwrap();
    let machine = machine();
    let us = allocator(&machine, settings(root.path(), true));
    let folder = registry::folder(root.path());
    let mut others = [1, std::process::id()].map(|pid| Other::publishing(&machine, root.path(), pid));
    others.iter_mut().for_each(|other| other.step(true, GIB));
    let told = ledger(&us);
    assert_eq!((told.others(), told.process_other, told.unaccounted), (GIB, GIB, 0));
    std::fs::write(folder.join("not ours"), "").unwrap();
    // As the system does when a process ends.
    others.iter_mut().for_each(|other| other.file = None);
    let told = ledger(&us);
    assert_eq!((told.others(), told.process_other, told.unaccounted), (0, 0, 2 * GIB));
    let left = || std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(left(), 2, "a reader removes them");
    drop(us);
    assert_eq!(left(), 1, "it goes with its allocator");
}

#[test]
fn a_folder_that_others_can_write_is_not_believed() {
    let root = TempDir::new().unwrap();
    let machine = machine();
    let us = allocator(&machine, settings(root.path(), false));
    assert!(!registry::folder(root.path()).exists(), "who does not publish writes nothing");
    std::fs::create_dir_all(registry::folder(root.path())).unwrap();
    let mut other = Other::publishing(&machine, root.path(), 1);
    other.step(true, GIB);
    assert_eq!(ledger(&us).other_processes.len(), 1);
    let mode =
        |mode| std::fs::set_permissions(registry::folder(root.path()), PermissionsExt::from_mode(mode));
    for writable_by in [0o720, 0o702] {
        mode(writable_by).unwrap();
        let told = ledger(&us);
        assert_eq!((told.other_processes.len(), told.unaccounted), (0, GIB));
        let refused = allocator(&machine, settings(root.path(), true));
        assert_eq!(std::fs::read_dir(registry::folder(root.path())).unwrap().count(), 1, "nor written to");
        drop(refused);
    }
}

#[test]
fn files_that_are_cut_or_no_files_harm_nobody() {
    let root = TempDir::new().unwrap();
    let machine = machine();
    let mut us = Engine::new(&machine, settings(root.path(), true));
    let folder = registry::folder(root.path());
    let own = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    std::fs::File::options().write(true).open(own).unwrap().set_len(0).unwrap();
    us.step(true, GIB);
    assert_eq!(held(&us.allocator), GIB);
    // Nobody writes to this one: whoever opened it as a file would wait for ever.
    let pipe = folder.join(name(1));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(ledger(&us.allocator).other_processes.len()));
    assert_eq!(told.recv_timeout(std::time::Duration::from_secs(20)), Ok(0));
}

#[test]
fn what_the_management_library_says_of_processes_is_in_it() {
    use alloc_core::oom::ProcessMemory;
    let root = TempDir::new().unwrap();
    let machine = machine();
    let mut us = Engine::new(&machine, settings(root.path(), false));
    us.step(true, 200 * MIB);
    let (context, foreign) = (400 * MIB, 3 * GIB);
    let mut rest = Other::silent(&machine);
    rest.step(true, context);
    rest.step(true, foreign);
    let own = std::process::id();
    us.allocator.hooks().set_process_memory_source(move |_| {
        vec![
            ProcessMemory { pid: own, bytes: 200 * MIB + context },
            ProcessMemory { pid: 4_000_001, bytes: foreign },
        ]
    });
    let told = ledger(&us.allocator);
    assert_eq!((told.process_other, told.unaccounted, told.sum()), (context, 0, told.used));
    assert_eq!((told.other_processes[0].bytes, told.other_processes[0].granule), (foreign, None));
}
