//! Memory on its way: a request of device memory waits for pinned memory that another thread gives back, and the other way round.

use super::{Board, DEVICE};
use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, BackendError, CaptureMode};
use alloc_core::config::{MemoryLimit, PolicyName, Settings};
use alloc_core::history::{CallContext, Context, HistoryOptions, RecordContext};
use alloc_core::host::{HostAllocator, HostBlock, HostOptions};
use alloc_core::snapshot::Stack;
use alloc_core::types::{KIB, MIB, Stream};
use granule_conformance::interpose::{Hook, Interposed};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long memory stays on its way at most.
const LONG: Duration = Duration::from_millis(300);

/// What happens in the driver before it takes memory back or refuses it, by the call's name.
type Act = Arc<dyn Fn(&'static str) + Send + Sync>;

struct Acts(Arc<Mutex<Option<Act>>>);

impl fmt::Debug for Acts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acts")
    }
}

impl Hook for Acts {
    fn enter(&self, method: &'static str) -> Result<(), BackendError> {
        let act = self.0.lock().unwrap().clone();
        act.iter().for_each(|act| act(method));
        Ok(())
    }
}

/// A board whose driver does something of the test's in its calls.
struct Slow {
    board: Board,
    backend: Arc<dyn Backend>,
    act: Arc<Mutex<Option<Act>>>,
}

impl Slow {
    fn new(bytes: u64) -> Self {
        let (board, act) = (Board::with(bytes), Arc::default());
        let backend = Arc::new(Interposed::new(board.backend(), Acts(Arc::clone(&act))));
        Self { board, backend, act }
    }

    fn allocator(&self, policy: PolicyName, limit: Option<u64>) -> CachingAllocator {
        let settings = Settings {
            policy: Some(policy),
            memory_limit: limit.map(MemoryLimit::Bytes),
            host_reserve: Some(MemoryLimit::Bytes(0)),
            system_root: self.board.root.path().to_owned(),
            ..Settings::default()
        };
        CachingAllocator::new(Arc::clone(&self.backend), settings).unwrap()
    }

    fn pinning(&self) -> HostAllocator {
        HostAllocator::new(Arc::clone(&self.backend), &Settings::default(), HostOptions::default()).unwrap()
    }

    /// One that caches no block of more than 1 MiB.
    fn pinning_little(&self) -> HostAllocator {
        let (pinned_max_cached_size, pinned_max_round_threshold) = (MIB, MIB);
        let settings = Settings { pinned_max_cached_size, pinned_max_round_threshold, ..Settings::default() };
        HostAllocator::new(Arc::clone(&self.backend), &settings, HostOptions::default()).unwrap()
    }

    fn stream(&self) -> Stream {
        self.board.machine.default_stream(DEVICE)
    }

    fn act(&self, act: impl Fn(&'static str) + Send + Sync + 'static) {
        *self.act.lock().unwrap() = Some(Arc::new(act));
    }

    /// The `nth` call with one of these names says that it has begun, and ends once a request was answered, or after a long time.
    fn holds_up(&self, names: &'static [&'static str], nth: u32) -> (Receiver<()>, Sender<()>) {
        let ((begins, begun), (answers, answered)) = (channel(), channel());
        let (once, calls) = (Mutex::new(Some((begins, answered))), AtomicU32::new(0));
        self.act(move |method| {
            let is_meant = names.contains(&method) && calls.fetch_add(1, Ordering::Relaxed) + 1 == nth;
            if let Some((begins, answered)) = is_meant.then(|| once.lock().unwrap().take()).flatten() {
                begins.send(()).unwrap();
                let _answered = answered.recv_timeout(LONG);
            }
        });
        (begun, answers)
    }

    /// Has a thread give memory back and the request made while it is on its way. The request's answer ends that way, if it comes first.
    fn during<T>(
        &self,
        names: &'static [&'static str],
        gives_back: impl FnOnce() + Send,
        request: impl FnOnce() -> T,
    ) -> T {
        let (begun, answers) = self.holds_up(names, 1);
        std::thread::scope(|scope| {
            scope.spawn(gives_back);
            begun.recv().unwrap();
            let answer = request();
            // The other thread may have waited for long enough.
            let _gone = answers.send(());
            answer
        })
    }
}

const POLICIES: [PolicyName; 2] = [PolicyName::Granule, PolicyName::Pytorch];
const OF_PINNED: &[&str] = &["PinnedHost::host_free"];
const OF_DEVICE: &[&str] = &["Backend::free", "VirtualMemory::unmap"];

#[test]
fn a_request_of_device_memory_waits_for_pinned_memory() {
    for policy in POLICIES {
        let slow = Slow::new(1 << 30);
        let (allocator, host) = (slow.allocator(policy, Some(64 * MIB)), slow.pinning());
        let idle = host.allocate(48 * MIB).unwrap();
        host.free(idle.id).unwrap();
        let empties = || host.empty_cache().unwrap();
        let block = slow.during(OF_PINNED, empties, || allocator.malloc(40 * MIB, slow.stream()));
        allocator.free(block.unwrap_or_else(|refused| panic!("{policy}: {refused}"))).unwrap();
    }
}

#[test]
fn a_request_of_pinned_memory_waits_for_device_memory() {
    for policy in POLICIES {
        let slow = Slow::new(1 << 30);
        let (allocator, host) = (slow.allocator(policy, Some(64 * MIB)), slow.pinning());
        let idle = allocator.malloc(48 * MIB, slow.stream()).unwrap();
        allocator.free(idle).unwrap();
        slow.board.machine.synchronize_device(DEVICE).unwrap();
        let empties = || allocator.empty_cache().unwrap();
        let pinned = slow.during(OF_DEVICE, empties, || host.allocate(40 * MIB));
        host.free(pinned.unwrap_or_else(|refused| panic!("{policy}: {refused}")).id).unwrap();
    }
}

/// Also where it is the driver that has no more, and the other thread is in another allocator.
#[test]
fn a_request_of_pinned_memory_waits_for_pinned_memory() {
    let slow = Slow::new(64 * MIB);
    let _device = slow.allocator(PolicyName::Granule, None);
    let (host, other) = (slow.pinning(), slow.pinning());
    let idle = host.allocate(48 * MIB).unwrap();
    host.free(idle.id).unwrap();
    let pinned = slow.during(OF_PINNED, || host.empty_cache().unwrap(), || other.allocate(40 * MIB));
    other.free(pinned.unwrap().id).unwrap();
}

/// Pinned memory that is not cached after its free is on its way before the driver has it.
#[test]
fn a_request_of_device_memory_waits_for_pinned_memory_that_is_just_freed() {
    for policy in POLICIES {
        let slow = Slow::new(1 << 30);
        let (allocator, host) = (slow.allocator(policy, Some(64 * MIB)), slow.pinning_little());
        let large = host.allocate(48 * MIB).unwrap();
        let frees = || host.free(large.id).unwrap();
        let block =
            slow.during(&["Capture::exchange_mode"], frees, || allocator.malloc(40 * MIB, slow.stream()));
        allocator.free(block.unwrap_or_else(|refused| panic!("{policy}: {refused}"))).unwrap();
    }
}

/// A capture waits for no device, nor for a thread that does. It gets what that thread would give back later.
#[test]
fn a_thread_that_waits_for_devices_has_no_pinned_memory_on_its_way() {
    for policy in POLICIES {
        let slow = Slow::new(1 << 30);
        let (allocator, host) = (slow.allocator(policy, Some(64 * MIB)), slow.pinning_little());
        let streams = [(); 3].map(|()| slow.board.machine.create_stream(DEVICE, 0).unwrap());
        let used = [48 * MIB, KIB].map(|bytes| host.allocate(bytes).unwrap());
        for (used, stream) in used.into_iter().zip(streams) {
            host.record_event(used.ptr, used.id, stream).unwrap();
            host.free(used.id).unwrap();
        }
        let capture = slow.board.machine.capture().unwrap();
        allocator.pools().mark_capture_begin(DEVICE).unwrap();
        capture.begin(streams[2], CaptureMode::Relaxed).unwrap();
        let (begun, answers) = slow.holds_up(&["Backend::synchronize_event"], 2);
        std::thread::scope(|scope| {
            scope.spawn(|| host.synchronise().unwrap());
            begun.recv().unwrap();
            let refused = allocator.malloc(1 << 40, streams[2]).unwrap_err();
            let pinned = host.allocate_for(40 * MIB, streams[2]);
            answers.send(()).unwrap_or_else(|_| panic!("{policy}: the capture waited for a device"));
            assert!(refused.is_out_of_memory(), "{policy}: {refused}");
            host.free(pinned.unwrap_or_else(|refused| panic!("{policy}: {refused}")).id).unwrap();
        });
        let graph = capture.end(streams[2]).unwrap();
        allocator.pools().mark_capture_end(DEVICE).unwrap();
        // SAFETY: rule 1: it was never launched.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        assert_eq!(host.stats().allocations.current, 0, "{policy}: all went back");
    }
}

/// Both have memory on its way, and requests of both wait for both.
#[test]
fn requests_of_both_kinds_wait_at_once() {
    let slow = Slow::new(1 << 30);
    let (allocator, host) = (slow.allocator(PolicyName::Granule, Some(64 * MIB)), slow.pinning());
    let device = allocator.malloc(32 * MIB, slow.stream()).unwrap();
    let pinned = host.allocate(32 * MIB).unwrap();
    allocator.free(device).unwrap();
    host.free(pinned.id).unwrap();
    slow.board.machine.synchronize_device(DEVICE).unwrap();
    let (begins, begun) = channel();
    slow.act(move |method| {
        if OF_PINNED.contains(&method) || OF_DEVICE.contains(&method) {
            // Nobody counts any more.
            let _gone = begins.send(());
            std::thread::sleep(LONG / 10);
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| allocator.empty_cache().unwrap());
        scope.spawn(|| host.empty_cache().unwrap());
        begun.recv().unwrap();
        begun.recv().unwrap();
        let asks = scope.spawn(|| allocator.malloc(20 * MIB, slow.stream()).unwrap());
        let pins = scope.spawn(|| host.allocate(20 * MIB).unwrap());
        allocator.free(asks.join().unwrap()).unwrap();
        host.free(pins.join().unwrap().id).unwrap();
    });
}

/// The program's own context, whose end waits for a thread that asks for more than there is.
struct Waits(Arc<CachingAllocator>, Stream);

impl CallContext for Waits {
    fn frames(&self) -> Stack {
        Stack::default()
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waits")
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let refused = || self.0.malloc(1 << 40, self.1).is_err_and(|error| error.is_out_of_memory());
        assert!(std::thread::scope(|scope| scope.spawn(refused).join().unwrap()));
    }
}

/// A pinned block with such a context.
fn with_context(host: &HostAllocator, allocator: &Arc<CachingAllocator>, stream: Stream) -> HostBlock {
    let owner = Arc::clone(allocator);
    let recorder = move || Some(Arc::new(Waits(Arc::clone(&owner), stream)) as Context);
    host.record_history(&HistoryOptions::newest(1).with_contexts(RecordContext::All, recorder)).unwrap();
    let block = host.allocate(64 * MIB).unwrap();
    host.record_history(&HistoryOptions { clear: true, ..HistoryOptions::default() }).unwrap();
    block
}

/// Pinned memory becomes idle in a call of the driver's that asks for memory, of which the first has another thread move memory.
/// Returns whether a request of device memory was served, and how many such calls it made.
fn served_where_pinned_memory_becomes_idle(at: u32) -> (bool, u32) {
    let slow = Slow::new(128 * MIB);
    let allocator = Arc::new(slow.allocator(PolicyName::Granule, None));
    let host = Arc::new(slow.pinning());
    // Requests of one stream take turns.
    let stream = slow.board.machine.create_stream(DEVICE, 0).unwrap();
    let pinned = with_context(&host, &allocator, stream);
    let cached = allocator.malloc(20 * MIB, stream).unwrap();
    allocator.free(cached).unwrap();
    let (frees, moves) = (Arc::downgrade(&host), Arc::downgrade(&allocator));
    let (asks, calls) = (std::thread::current().id(), Arc::new(AtomicU32::new(0)));
    let made = Arc::clone(&calls);
    slow.act(move |method| {
        if method != "VirtualMemory::create_physical" || std::thread::current().id() != asks {
            return;
        }
        let now = made.fetch_add(1, Ordering::Relaxed) + 1;
        if now == 1 {
            let empties = || moves.upgrade().unwrap().empty_cache().unwrap();
            std::thread::scope(|scope| scope.spawn(empties).join().unwrap());
        }
        if now == at {
            frees.upgrade().unwrap().free(pinned.id).unwrap();
        }
    });
    let served = allocator.malloc(80 * MIB, slow.stream());
    *slow.act.lock().unwrap() = None;
    let is_served = served.is_ok();
    served.into_iter().for_each(|block| allocator.free(block).unwrap());
    (is_served, calls.load(Ordering::Relaxed))
}

/// The request climbs again in the last resort, where pinned memory is not asked for, and once more after it. No destructor runs
/// under the lock for which the thread asks, too, that the destructor waits for.
#[test]
fn pinned_memory_that_becomes_idle_meanwhile_serves_and_its_history_ends_without_a_lock() {
    let (is_served, calls) = served_where_pinned_memory_becomes_idle(0);
    assert!(!is_served, "pinned memory is in use");
    // In the last attempt it comes too late.
    for at in (1..=calls / 4 * 3).step_by(16) {
        assert!(served_where_pinned_memory_becomes_idle(at).0, "idle from call {at} of {calls} on");
    }
}
