//! A host that does not freeze: requests leave some of its memory to the rest of the machine.

use super::{Board, DEVICE, Pinned};
use alloc_core::backend::{Backend, HandleType, HostFlags, MemoryInfo, PinnedHost, Result, VirtualMemory};
use alloc_core::config::{MemoryLimit, PolicyName, Settings};
use alloc_core::host::{HostAllocator, HostOptions};
use alloc_core::oom::OomReport;
use alloc_core::sleep::{Backup, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, PhysicalHandle, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::OpenReg;
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::log::Log;
use granule_tests::sleepers::{malloc_in, tagged};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than a reading of the system serves.
const STALE: Duration = Duration::from_millis(12);

/// The system's figures, which follow what is taken of the host's memory, by this process and by others.
#[derive(Clone, Debug)]
struct Figures {
    machine: Arc<OpenReg>,
    pinned: Pinned,
    others: Arc<AtomicU64>,
    /// Milliseconds that the driver takes to give memory, while others ask.
    slow: Arc<AtomicU64>,
    /// What is newer is written later.
    writing: Arc<Mutex<()>>,
    /// The least that was ever left.
    least: Arc<AtomicU64>,
    meminfo: PathBuf,
}

impl Figures {
    fn left(&self) -> u64 {
        let pinned: u64 = self.pinned.lock().unwrap().values().sum();
        let unused = self.machine.memory_info(DEVICE).unwrap().free.saturating_sub(pinned);
        unused.saturating_sub(self.others.load(Ordering::SeqCst))
    }

    fn pause(&self) {
        std::thread::sleep(Duration::from_millis(self.slow.load(Ordering::SeqCst)));
    }

    fn write(&self) {
        let _alone = self.writing.lock().unwrap();
        let (total, left) = (self.machine.memory_info(DEVICE).unwrap().total, self.left());
        self.least.fetch_min(left, Ordering::SeqCst);
        let (total, left) = (total >> 10, left >> 10);
        let new = self.meminfo.with_extension("new");
        let text = format!("MemTotal: {total} kB\nMemFree: {left} kB\nMemAvailable: {left} kB\n");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &self.meminfo).unwrap();
    }
}

impl Hook for Figures {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        self.pause();
        let given = inner.malloc(device, bytes);
        self.write();
        given
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise.
        let taken = unsafe { inner.free(device, ptr) };
        self.write();
        taken
    }

    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        self.pause();
        let given = inner.create_physical(device, bytes, handle_type);
        self.write();
        given
    }

    unsafe fn release_physical(&self, inner: &dyn VirtualMemory, handle: PhysicalHandle) -> Result<()> {
        // SAFETY: the caller's promise.
        let taken = unsafe { inner.release_physical(handle) };
        self.write();
        taken
    }

    fn host_malloc(&self, inner: &dyn PinnedHost, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        let given = inner.host_malloc(bytes, flags);
        self.write();
        given
    }

    unsafe fn host_free(&self, inner: &dyn PinnedHost, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise.
        let taken = unsafe { inner.host_free(ptr) };
        self.write();
        taken
    }
}

/// A host whose memory a device shares.
struct Host {
    board: Board,
    figures: Figures,
    backend: Arc<dyn Backend>,
}

impl Host {
    fn with(total: u64) -> Self {
        let board = Board::with(total);
        let figures = Figures {
            machine: board.machine.clone(),
            pinned: Arc::clone(&board.pinned),
            others: Arc::default(),
            slow: Arc::default(),
            writing: Arc::default(),
            least: Arc::new(AtomicU64::new(u64::MAX)),
            meminfo: board.root.path().join("proc/meminfo"),
        };
        let backend = Arc::new(Interposed::new(board.backend(), figures.clone()));
        figures.write();
        Self { board, figures, backend }
    }

    fn try_allocator(&self, settings: Settings) -> alloc_core::error::Result<CachingAllocator> {
        let system_root = self.root().to_owned();
        CachingAllocator::new(Arc::clone(&self.backend), Settings { system_root, ..settings })
    }

    fn allocator(&self, settings: Settings) -> CachingAllocator {
        self.try_allocator(settings).unwrap()
    }

    fn pinning(&self) -> HostAllocator {
        let settings = Settings { system_root: self.root().to_owned(), ..Settings::default() };
        HostAllocator::new(Arc::clone(&self.backend), &settings, HostOptions::default()).unwrap()
    }

    fn root(&self) -> &Path {
        self.board.root.path()
    }

    fn stream(&self) -> Stream {
        self.board.machine.default_stream(DEVICE)
    }

    /// Other programs take so much.
    fn others(&self, bytes: u64) {
        self.figures.others.store(bytes, Ordering::SeqCst);
        self.figures.write();
        std::thread::sleep(STALE);
    }
}

fn keeping(policy: PolicyName, bytes: u64) -> Settings {
    Settings { policy: Some(policy), host_reserve: Some(MemoryLimit::Bytes(bytes)), ..Settings::default() }
}

fn granule() -> Settings {
    Settings { policy: Some(PolicyName::Granule), ..Settings::default() }
}

fn report(refused: alloc_core::error::Result<DevicePtr>) -> Box<OomReport> {
    match refused {
        Err(AllocError::OutOfMemory(report)) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_beyond_the_reserve_is_refused_with_what_to_do() {
    let unit = 10 * MIB;
    let expandable = Settings { expandable_segments: true, ..keeping(PolicyName::Pytorch, 6 * unit) };
    for settings in
        [keeping(PolicyName::Granule, 6 * unit), keeping(PolicyName::Pytorch, 6 * unit), expandable]
    {
        let host = Host::with(120 * unit);
        let allocator = host.allocator(settings);
        let held = allocator.malloc(80 * unit, host.stream()).unwrap();
        host.others(20 * unit);
        let report = report(allocator.malloc(15 * unit, host.stream()));
        let room = report.host.unwrap();
        assert_eq!((room.available, room.reserve, room.spare()), (20 * unit, 6 * unit, 14 * unit));
        assert_eq!((&*report.bound.set_by, report.bound.available), ("host_reserve", 14 * unit));
        for text in [report.message(), report.pytorch_message()] {
            assert!(text.contains(&format!(" {room}.")), "{text}");
        }
        let remedy = "remedy: lowering host_reserve would give ";
        assert!(report.to_string().contains(remedy), "{report}");
        let more = allocator.malloc(13 * unit, host.stream()).unwrap();
        host.others(10 * unit);
        let again = allocator.malloc(10 * unit, host.stream()).expect("another program has ended");
        [held, more, again].into_iter().for_each(|block| allocator.free(block).unwrap());
    }
}

#[test]
fn a_refusal_says_how_much_is_left_and_what_to_do() {
    let host = Host::with(120 * GIB);
    let allocator = host.allocator(granule());
    host.others(100 * GIB);
    let text = report(allocator.malloc(15 * GIB, host.stream())).message();
    let why = "This device's memory is the host's, of which 20.00 GiB can be had. host_reserve leaves 6.00 GiB to the rest of \
               the machine, so that it does not freeze: end other programs, free memory here, or set host_reserve lower \
               (6.00 GiB is usual, 0 is off).";
    assert!(text.contains(why), "{text}");
}

#[test]
fn off_it_refuses_nothing_and_is_advised_where_the_host_is_short() {
    for settings in [Settings::default(), keeping(PolicyName::Granule, 0)] {
        let host = Host::with(1200 * MIB);
        let allocator = host.allocator(settings);
        let held = allocator.malloc(1180 * MIB, host.stream()).expect("as PyTorch does");
        let text = report(allocator.malloc(40 * MIB, host.stream())).pytorch_message();
        assert!(
            text.contains("Set host_reserve:300M, so that requests are refused before the host"),
            "{text}"
        );
        allocator.free(held).unwrap();
        allocator.empty_cache().unwrap();
        allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(10 * MIB)), None).unwrap();
        let text = report(allocator.malloc(40 * MIB, host.stream())).to_string();
        assert!(!text.contains("host_reserve"), "the host has enough: {text}");
    }
}

/// As of device memory, where the driver has no more.
#[test]
fn off_it_is_advised_where_the_driver_pins_no_more() {
    for settings in [Settings::default(), keeping(PolicyName::Granule, 0)] {
        let host = Host::with(1200 * MIB);
        let (allocator, pinning) = (host.allocator(settings), host.pinning());
        let held = allocator.malloc(1180 * MIB, host.stream()).unwrap();
        let text = pinning.allocate(40 * MIB).unwrap_err().to_string();
        let advice = "This device's memory is the host's, of which 20.00 MiB can be had. Set host_reserve:300M, so that \
                      requests are refused before the host swaps or freezes";
        assert!(text.contains(advice), "{text}");
        allocator.free(held).unwrap();
    }
}

#[test]
fn what_is_cached_goes_before_a_request_is_refused() {
    let host = Host::with(256 * MIB);
    let (allocator, pinning) = (host.allocator(keeping(PolicyName::Pytorch, 64 * MIB)), host.pinning());
    let cached = allocator.malloc(100 * MIB, host.stream()).unwrap();
    allocator.free(cached).unwrap();
    host.others(50 * MIB);
    let block = allocator.malloc(140 * MIB, host.stream()).expect("100 of 206 MiB are cached");
    allocator.free(block).unwrap();
    let pinned = pinning.allocate(128 * MIB).expect("140 are cached");
    let refusal = pinning.allocate(32 * MIB).unwrap_err();
    let AllocError::PinnedOutOfMemory(why) = &refusal else { panic!("{refusal}") };
    assert_eq!(why.host.map(|host| (host.available, host.reserve)), Some((78 * MIB, 64 * MIB)));
    let text = refusal.to_string();
    assert!(
        text.contains("Tried to pin 32.00 MiB") && text.contains("host_reserve leaves 64.00 MiB"),
        "{text}"
    );
    assert!(allocator.malloc(32 * MIB, host.stream()).is_err());
    pinning.free(pinned.id).unwrap();
    let block = allocator.malloc(120 * MIB, host.stream()).expect("what is pinned and idle goes, too");
    allocator.free(block).unwrap();
}

/// What one thread was admitted, and the system does not show yet, another may not have.
#[test]
fn threads_that_ask_at_once_leave_the_reserve() {
    for policy in [PolicyName::Granule, PolicyName::Pytorch] {
        let host = Host::with(256 * MIB);
        host.figures.slow.store(3, Ordering::SeqCst);
        let (allocator, pinning) = (host.allocator(keeping(policy, 64 * MIB)), host.pinning());
        let served = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (allocator, pinning, host, served) = (&allocator, &pinning, &host, &served);
                scope.spawn(move || {
                    let stream = host.stream();
                    for round in 0..40 {
                        let bytes = (24 + 16 * ((round * 7 + thread * 3) % 5)) * MIB;
                        if thread == 3 {
                            if let Ok(block) = pinning.allocate(64 * MIB) {
                                pinning.free(block.id).unwrap();
                                pinning.empty_cache().unwrap();
                            }
                        } else if let Ok(block) = allocator.malloc(bytes, stream) {
                            served.fetch_add(1, Ordering::SeqCst);
                            allocator.free(block).unwrap();
                            if round % 3 == 0 {
                                allocator.empty_cache().unwrap();
                            }
                        }
                    }
                });
            }
        });
        let least = host.figures.least.load(Ordering::SeqCst);
        assert!(least >= 64 * MIB, "{policy}: {} MiB were left", least / MIB);
        assert!(served.load(Ordering::SeqCst) > 50, "{policy}: {served:?} of 120 were served");
        let all = allocator.malloc(180 * MIB, host.stream());
        allocator.free(all.expect("nothing is counted that is not there")).unwrap();
    }
}

/// PyTorch takes whole granules of 20 MiB: what is taken counts, not what was asked for.
#[test]
fn whole_granules_leave_the_reserve() {
    for policy in [PolicyName::Granule, PolicyName::Pytorch] {
        let host = Host::with(256 * MIB);
        let settings = Settings { expandable_segments: true, ..keeping(policy, 64 * MIB) };
        let allocator = host.allocator(settings);
        let mut live = vec![allocator.malloc(160 * MIB, host.stream()).unwrap()];
        for mib in [30, 24, 22, 12, 4] {
            std::thread::sleep(STALE);
            live.extend(allocator.malloc(mib * MIB, host.stream()).ok());
        }
        let least = host.figures.least.load(Ordering::SeqCst);
        assert!(least >= 64 * MIB, "{policy}: {} MiB were left", least / MIB);
        live.into_iter().for_each(|block| allocator.free(block).unwrap());
    }
}

/// More is taken than was asked for, and a reading that serves others leaves less than twice that.
#[test]
fn whole_granules_are_not_refused_by_an_older_reading() {
    for policy in [PolicyName::Granule, PolicyName::Pytorch] {
        let host = Host::with(256 * MIB);
        let allocator = host.allocator(Settings { expandable_segments: true, ..keeping(policy, 64 * MIB) });
        let begun = Instant::now();
        let small = allocator.malloc(12 * MIB, host.stream()).unwrap();
        let block = allocator.malloc(70 * MIB, host.stream()).expect("192 MiB are to spare");
        let retries = allocator.stats(DEVICE).unwrap().num_alloc_retries;
        assert_eq!(retries, 0, "{policy}, after {:?}", begun.elapsed());
        [small, block].into_iter().for_each(|block| allocator.free(block).unwrap());
    }
}

#[test]
fn what_is_free_is_what_requests_may_have() {
    let host = Host::with(256 * MIB);
    for (settings, free) in [(keeping(PolicyName::Pytorch, 64 * MIB), 192), (Settings::default(), 256)] {
        let info = host.allocator(settings).statistics().memory_info(DEVICE).unwrap();
        assert_eq!((info.free, info.total), (free * MIB, 256 * MIB));
    }
}

#[test]
fn the_reserve_is_kept_with_caching_off() {
    let host = Host::with(256 * MIB);
    let allocator = host.allocator(Settings { caching: false, ..keeping(PolicyName::Pytorch, 64 * MIB) });
    let held = allocator.malloc(150 * MIB, host.stream()).unwrap();
    let refusal = allocator.malloc(50 * MIB, host.stream()).unwrap_err();
    assert!(matches!(&refusal, AllocError::Backend(error) if error.is_out_of_memory()), "{refusal}");
    assert!(refusal.to_string().contains("host_reserve leaves 64.00 MiB"), "{refusal}");
    allocator.free(allocator.malloc(40 * MIB, host.stream()).unwrap()).unwrap();
    allocator.free(held).unwrap();
}

#[test]
fn a_reserve_that_is_set_later_is_kept() {
    let host = Host::with(256 * MIB);
    let allocator = host.allocator(Settings::default());
    let cycle = |bytes| allocator.malloc(bytes, host.stream()).and_then(|block| allocator.free(block));
    let set = |settings: Settings| {
        let system_root = host.root().to_owned();
        allocator.empty_cache().unwrap();
        allocator.configure(Settings { system_root, ..settings })
    };
    cycle(220 * MIB).unwrap();
    set(keeping(PolicyName::Pytorch, 64 * MIB)).unwrap();
    cycle(220 * MIB).unwrap_err();
    let all = set(keeping(PolicyName::Pytorch, 256 * MIB)).unwrap_err();
    assert!(all.to_string().contains("nothing could be allocated"), "{all}");
    cycle(220 * MIB).unwrap_err();
    set(Settings::default()).unwrap();
    cycle(220 * MIB).unwrap();
}

#[test]
fn options_that_count_at_the_start_stay_and_the_log_says_so() {
    let host = Host::with(256 * MIB);
    let allocator = host.allocator(granule());
    let log = Log::default();
    let settings = Settings { publish: true, system_root: "/proc".into(), ..granule() };
    tracing::subscriber::with_default(log.clone(), || {
        allocator.configure(settings).unwrap();
        assert_eq!(log.take("it stays as it was").len(), 2);
        allocator.configure(granule()).unwrap();
        assert_eq!(log.take("it stays as it was").len(), 0, "nothing is asked");
    });
    let kept = allocator.settings();
    assert_eq!((kept.publish, &*kept.system_root), (false, host.root()));
}

#[test]
fn a_pool_does_not_wake_into_the_reserve() {
    let host = Host::with(256 * MIB);
    let allocator = Arc::new(host.allocator(keeping(PolicyName::Granule, 64 * MIB)));
    let pool = tagged(&allocator, "weights");
    let block = malloc_in(&pool, &allocator, 100 * MIB, host.stream());
    // SAFETY: nothing uses the memory.
    unsafe { allocator.sleep_mode().sleep(Tags::All, &Backup::Discard) }.unwrap();
    host.others(140 * MIB);
    let refusal = allocator.sleep_mode().wake(Tags::All).unwrap_err();
    assert!(matches!(refusal, AllocError::NoRoomToWake { .. }), "{refusal}");
    assert!(refusal.to_string().contains("host_reserve leaves 64.00 MiB"), "{refusal}");
    host.others(0);
    allocator.sleep_mode().wake(Tags::All).unwrap();
    allocator.free(block).unwrap();
}

#[test]
fn control_groups_count_also_where_they_slow_programs_down() {
    let host = Host::with(120 * GIB);
    for (name, text) in [
        ("proc/self/cgroup", "0::/pod/job\n".to_owned()),
        ("sys/fs/cgroup/pod/memory.max", (64 * GIB).to_string()),
        ("sys/fs/cgroup/pod/memory.current", (20 * GIB).to_string()),
        ("sys/fs/cgroup/pod/job/memory.max", "max\n".to_owned()),
        ("sys/fs/cgroup/pod/job/memory.high", (32 * GIB).to_string()),
        ("sys/fs/cgroup/pod/job/memory.current", (20 * GIB).to_string()),
    ] {
        host.board.file(name, &text);
    }
    let allocator = host.allocator(granule());
    let room = report(allocator.malloc(11 * GIB, host.stream())).host.unwrap();
    assert_eq!((room.available, room.reserve), (12 * GIB, 2 * GIB));
    allocator.free(allocator.malloc(9 * GIB, host.stream()).unwrap()).unwrap();
}

/// The group that leaves least need not be the one of the smallest limit.
#[test]
fn all_limits_of_control_groups_hold() {
    let host = Host::with(120 * GIB);
    for (name, bytes) in [
        ("pod/memory.max", 4 * GIB),
        ("pod/memory.current", 4 * GIB - 100 * MIB),
        ("pod/job/memory.max", GIB),
        ("pod/job/memory.current", 512 * MIB),
    ] {
        host.board.file(&format!("sys/fs/cgroup/{name}"), &bytes.to_string());
    }
    host.board.file("proc/self/cgroup", "0::/pod/job\n");
    let info = host.allocator(Settings::default()).statistics().memory_info(DEVICE).unwrap();
    assert_eq!(info, MemoryInfo { free: 100 * MIB, total: GIB });
    let allocator = host.allocator(granule());
    let room = report(allocator.malloc(200 * MIB, host.stream())).host.unwrap();
    assert_eq!((room.available, room.reserve), (100 * MIB, 256 * MIB));
}

#[test]
fn a_reserve_of_all_there_is_is_refused_and_the_usual_one_leaves_something() {
    let host = Host::with(120 * GIB);
    let refused = |reserve| {
        let settings = Settings { host_reserve: Some(reserve), ..Settings::default() };
        match host.try_allocator(settings) {
            Err(AllocError::Settings(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    for reserve in [MemoryLimit::Bytes(120 * GIB), MemoryLimit::Bytes(u64::MAX), MemoryLimit::Fraction(1.0)] {
        let text = refused(reserve);
        assert!(
            text.contains("has 120.00 GiB in all") && text.contains("host_reserve:6144M, or 0"),
            "{text}"
        );
    }
    host.board.file("sys/fs/cgroup/memory.max", &(4 * GIB).to_string());
    host.board.file("sys/fs/cgroup/memory.current", "0");
    let text = refused(MemoryLimit::Bytes(5 * GIB));
    assert!(text.contains("has 4.00 GiB in all") && text.contains("host_reserve:1024M"), "{text}");
    let allocator = host.allocator(granule());
    let block = allocator.malloc(2 * GIB, host.stream()).expect("of 4 GiB a quarter is left");
    allocator.free(block).unwrap();
}

#[test]
fn what_cannot_be_read_makes_no_difference_but_a_line_in_the_log() {
    let whole = [
        ("proc/meminfo", "MemTotal: 125829120 kB\nMemFree: 125829120 kB\nMemAvailable: 125829120 kB\n"),
        ("proc/self/cgroup", "0::/\n"),
        ("sys/fs/cgroup/memory.max", "68719476736\n"),
        ("sys/fs/cgroup/memory.high", "max\n"),
        ("sys/fs/cgroup/memory.current", "0\n"),
        ("sys/fs/cgroup/memory.stat", "active_file 0\n"),
    ];
    for (name, _) in whole {
        for damage in [None, Some(""), Some("MemTotal:\nMemAvailable: many kB\n\0"), Some("a folder")] {
            let board = Board::with(120 * GIB);
            whole.iter().for_each(|(name, text)| board.file(name, text));
            let log = Log::default();
            let running = board.allocator(granule());
            let file = board.root.path().join(name);
            std::fs::remove_file(&file).unwrap();
            match damage {
                Some("a folder") => std::fs::create_dir(&file).unwrap(),
                Some(text) => std::fs::write(&file, text).unwrap(),
                None => {}
            }
            std::thread::sleep(STALE);
            tracing::subscriber::with_default(log.clone(), || {
                let made = board.allocator(granule());
                let told = log.take(name);
                // Groups may have no limit, and a process no groups.
                let is_usual = match name {
                    "proc/self/cgroup" => [None, Some("")].contains(&damage),
                    "sys/fs/cgroup/memory.max" | "sys/fs/cgroup/memory.high" => damage.is_none(),
                    _ => false,
                };
                assert_eq!(told.len(), usize::from(!is_usual), "{name} {damage:?}: {told:?}");
                if name.ends_with("current") || name.ends_with("stat") {
                    let info = made.statistics().memory_info(DEVICE).unwrap();
                    assert_eq!(info.total, 64 * GIB, "{name} {damage:?}: the limit is known");
                }
                for allocator in [&made, &running] {
                    let block = allocator.malloc(50 * GIB, board.machine.default_stream(DEVICE));
                    allocator.free(block.unwrap_or_else(|why| panic!("{name} {damage:?}: {why}"))).unwrap();
                    allocator.empty_cache().unwrap();
                }
                assert_eq!(log.take(name), [], "{name} {damage:?}: once is enough");
            });
        }
    }
}

#[test]
fn a_system_that_falls_silent_is_told_once() {
    let board = Board::with(120 * GIB);
    let (allocator, stream) = (board.allocator(granule()), board.machine.default_stream(DEVICE));
    let full = "MemTotal: 125829120 kB\nMemFree: 9 kB\nMemAvailable: 9 kB\n";
    board.file("proc/meminfo", full);
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        for _ in 0..3 {
            assert!(allocator.malloc(GIB, stream).is_err());
            std::fs::remove_file(board.root.path().join("proc/meminfo")).unwrap();
            allocator.free(allocator.malloc(GIB, stream).expect("as before the option")).unwrap();
            board.file("proc/meminfo", full);
            allocator.empty_cache().unwrap();
        }
    });
    assert_eq!(log.take("host_reserve is not kept").len(), 1);
}

/// Whoever reads the file waits for somebody who writes.
fn slow_file(file: &Path) {
    std::fs::remove_file(file).unwrap();
    let made = std::process::Command::new("mkfifo").arg(file).status().unwrap();
    assert!(made.success());
}

#[test]
fn a_hit_reads_nothing_of_the_system() {
    let board = Board::with(120 * GIB);
    let (allocator, stream) = (board.allocator(granule()), board.machine.default_stream(DEVICE));
    let cycle = || allocator.free(allocator.malloc(64 * MIB, stream).unwrap()).unwrap();
    cycle();
    let meminfo = board.root.path().join("proc/meminfo");
    slow_file(&meminfo);
    std::thread::sleep(STALE);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (0..1000).for_each(|_| cycle());
            done.send(()).unwrap();
        });
        if is_done.recv_timeout(Duration::from_secs(20)).is_err() {
            // Whoever reads gets an end, so that the test has one.
            let writer = std::fs::OpenOptions::new().write(true).open(&meminfo);
            std::fs::remove_file(&meminfo).unwrap();
            drop(writer);
            panic!("a hit reads the system's figures");
        }
    });
}

#[test]
fn misses_read_the_system_once_in_a_while() {
    let board = Board::with(120 * GIB);
    let meminfo = board.root.path().join("proc/meminfo");
    let text = std::fs::read(&meminfo).unwrap();
    let allocator = board.allocator(keeping(PolicyName::Pytorch, 6 * GIB));
    slow_file(&meminfo);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok(mut reader) = std::fs::OpenOptions::new().write(true).open(&meminfo) {
                reads.fetch_add(1, Ordering::SeqCst);
                let _is_read = reader.write_all(&text);
                drop(reader);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let (begun, misses) = (Instant::now(), 300);
        for _ in 0..misses {
            allocator.malloc(30 * MIB, board.machine.default_stream(DEVICE)).unwrap();
        }
        let (reads, took) = (reads.load(Ordering::SeqCst), begun.elapsed());
        // On a busy machine the writer may meet one reader twice.
        let at_most = 2 * (2 + u64::try_from(took.as_millis()).unwrap() / 10);
        // The writer waits for a reader, who gets no file after that.
        let reader = std::fs::File::open(&meminfo);
        std::fs::remove_file(&meminfo).unwrap();
        drop(reader);
        assert!((1..=at_most).contains(&reads), "{misses} misses made {reads} readings in {took:?}");
    });
}
