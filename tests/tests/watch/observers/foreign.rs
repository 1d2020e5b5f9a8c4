//! What holds for all code of the program that the engine calls, whatever its kind: where it panics nothing is lost, and
//! where it asks for memory it is served without being called again.

mod filters;

use alloc_core::backend::{Backend, HandleType, Result};
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::history::{CallContext, Context, HistoryOptions, RecordContext};
use alloc_core::host::HostAllocator;
use alloc_core::pool::{Filter, MemoryPool, PhysicalSource, PoolOptions, SegmentSource};
use alloc_core::sleep::{Backup, SleepTag, Tags};
use alloc_core::snapshot::{Snapshot, Stack};
use alloc_core::types::{DeviceIndex, DevicePtr, KIB, MIB, PhysicalHandle, PoolId, Stream};
use backend_openreg::{Clock, OpenRegConfig};
use granule_tests::policy::Policy;
use granule_tests::quiet::Sleeps;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::one;
use granule_tests::{Allocator, pinned};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What foreign code does when it is called.
enum Conduct {
    /// It panics at its n-th call.
    Panics { at: u64 },
    /// It asks for memory, and gives all that is cached back.
    Asks(Box<dyn Fn() -> bool + Send + Sync>),
    /// Nothing.
    Rests,
}

/// Foreign code of one kind.
struct Code {
    conduct: Mutex<Arc<Conduct>>,
    calls: AtomicU64,
    served: AtomicU64,
    inside: AtomicBool,
}

/// As often as it asks for memory: code that asks whenever something was asked for would never end.
const ASKS: u64 = 40;

impl Code {
    fn new(conduct: Conduct) -> Arc<Self> {
        Arc::new(Self {
            conduct: Mutex::new(Arc::new(conduct)),
            calls: AtomicU64::new(0),
            served: AtomicU64::new(0),
            inside: AtomicBool::new(false),
        })
    }

    /// It is called.
    fn run(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let conduct = Arc::clone(&self.conduct.lock().unwrap());
        match &*conduct {
            // Without a word on the terminal.
            Conduct::Panics { at } if *at == call => resume_unwind(Box::new("foreign code has a bug")),
            Conduct::Asks(ask) if call <= ASKS => {
                assert!(!self.inside.swap(true, Ordering::Relaxed), "it is called in a call of itself");
                self.served.fetch_add(u64::from(ask()), Ordering::Relaxed);
                self.inside.store(false, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn rest(&self) {
        *self.conduct.lock().unwrap() = Arc::new(Conduct::Rests);
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// A context, which is foreign code when it is looked up and when it ends.
#[derive(Default)]
struct Place {
    looked_up: Option<Arc<Code>>,
    ends: Option<Arc<Code>>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Place")
    }
}

impl CallContext for Place {
    fn frames(&self) -> Stack {
        self.looked_up.iter().for_each(|code| code.run());
        Arc::default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.ends.iter().for_each(|code| code.run());
    }
}

/// A pool's own memory, which is the driver's.
struct Own {
    backend: Arc<dyn Backend>,
    code: Arc<Code>,
    growable: bool,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Own")
    }
}

// SAFETY: what it hands out is the driver's memory, which keeps these promises.
unsafe impl SegmentSource for Own {
    fn alloc(&self, bytes: u64, stream: Stream) -> Option<DevicePtr> {
        self.code.run();
        self.backend.malloc(stream.device, bytes).ok()
    }

    unsafe fn free(&self, ptr: DevicePtr, _: u64, stream: Stream) {
        // SAFETY: rule 3: given above, once, and no work uses it any more.
        unsafe { self.backend.free(stream.device, ptr) }.unwrap();
        self.code.run();
    }

    fn physical(&self) -> Option<&dyn PhysicalSource> {
        self.growable.then_some(self as _)
    }
}

// SAFETY: the handles are the backend's, new each time, and nothing else maps them.
unsafe impl PhysicalSource for Own {
    fn create(&self, device: DeviceIndex, bytes: u64) -> Option<PhysicalHandle> {
        self.code.run();
        self.backend.virtual_memory().unwrap().create_physical(device, bytes, HandleType::None).ok()
    }

    fn release(&self, handle: PhysicalHandle) -> Result<()> {
        // Before anything is done: what panics has not taken the handle back.
        self.code.run();
        // SAFETY: rule 1: created above, released once.
        unsafe { self.backend.virtual_memory().unwrap().release_physical(handle) }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.code.run();
    }
}

/// What a kind of foreign code needs to be called.
struct Setting {
    settings: Settings,
    source: Option<Arc<dyn SegmentSource>>,
    filter: Option<Arc<Code>>,
}

type Install = fn(&Allocator, &Rig, &Arc<Code>, &mut Setting);

fn with_contexts(allocator: &Allocator, place: impl Fn() -> Place + Send + Sync + 'static) {
    let recorder = move || Some(Arc::new(place()) as Context);
    allocator.history().record(&HistoryOptions::newest(8).with_contexts(RecordContext::All, recorder));
}

/// All kinds.
fn kinds() -> Vec<(&'static str, Install)> {
    vec![
        ("segment observer", |allocator, _, code, _| {
            let code = Arc::clone(code);
            allocator.hooks().on_segment(move |_| code.run());
        }),
        ("tracker", |allocator, _, code, _| {
            let code = Arc::clone(code);
            allocator.hooks().on_trace(move |_, _| code.run());
        }),
        ("free-memory callback", |allocator, _, code, _| {
            let code = Arc::clone(code);
            allocator.hooks().on_low_memory(move || {
                code.run();
                true
            });
        }),
        ("out-of-memory observer", |allocator, _, code, _| {
            let code = Arc::clone(code);
            allocator.hooks().on_out_of_memory(move |_| code.run());
        }),
        ("rejection observer", |allocator, _, code, setting| {
            setting.settings.throw_on_oom = true;
            let code = Arc::clone(code);
            allocator.hooks().on_rejection(move |_, _, _, _| code.run());
        }),
        ("source of processes", |allocator, _, code, _| {
            let code = Arc::clone(code);
            allocator.hooks().set_process_memory_source(move |_| {
                code.run();
                Vec::new()
            });
        }),
        ("budget observer", |allocator, _, code, _| {
            let soft = Some(MemoryLimit::Bytes(30 * MIB));
            allocator.pools().set_limits(DEVICE, PoolId::DEFAULT, None, soft).unwrap();
            let code = Arc::clone(code);
            allocator.hooks().on_budget(move |_| code.run());
        }),
        ("spill hook", |allocator, _, code, _| {
            let code = Arc::clone(code);
            allocator.hooks().on_spill(0, move |_| {
                code.run();
                0
            });
        }),
        ("filter", |_, _, code, setting| setting.filter = Some(Arc::clone(code))),
        ("source", |_, rig, code, setting| {
            let (backend, code) = (Arc::clone(&rig.backend), Arc::clone(code));
            setting.source = Some(Arc::new(Own { backend, code, growable: false }));
        }),
        ("physical source", |_, rig, code, setting| {
            let (backend, code) = (Arc::clone(&rig.backend), Arc::clone(code));
            setting.source = Some(Arc::new(Own { backend, code, growable: true }));
        }),
        ("context gatherer", |allocator, _, code, _| {
            let code = Arc::clone(code);
            with_contexts(allocator, move || {
                code.run();
                Place::default()
            });
        }),
        ("context looked up", |allocator, _, code, _| {
            let code = Arc::clone(code);
            with_contexts(allocator, move || Place { looked_up: Some(Arc::clone(&code)), ends: None });
        }),
        ("context that ends", |allocator, _, code, _| {
            let code = Arc::clone(code);
            with_contexts(allocator, move || Place { looked_up: None, ends: Some(Arc::clone(&code)) });
        }),
    ]
}

fn machine() -> OpenRegConfig {
    one().capacity(64 * MIB)
}

/// A program that survives what its own code does to its calls.
struct Program<'r> {
    rig: &'r Rig,
    allocator: Allocator,
    live: Vec<DevicePtr>,
    panics: u64,
}

impl Program<'_> {
    fn attempt<T>(&mut self, call: impl FnOnce(&Allocator) -> T) -> Option<T> {
        let outcome = catch_unwind(AssertUnwindSafe(|| call(&self.allocator)));
        self.panics += u64::from(outcome.is_err());
        // Whatever happened, the allocator is in order at once.
        self.allocator.check_invariants();
        outcome.ok()
    }

    fn malloc(&mut self, bytes: u64, stream: Stream) -> Option<DevicePtr> {
        let ptr = self.attempt(|allocator| allocator.malloc(bytes, stream))?.ok()?;
        self.live.push(ptr);
        Some(ptr)
    }

    /// A free is done, also where it panics.
    fn free(&mut self, ptr: Option<DevicePtr>) {
        let Some(ptr) = ptr else { return };
        self.live.retain(|live| *live != ptr);
        self.attempt(|allocator| allocator.free(ptr));
        assert_eq!(self.allocator.block_size(ptr), None, "the block is free");
    }

    fn run(&mut self, source: Option<Arc<dyn SegmentSource>>, filter: Filter, side: Stream) {
        let stream = self.rig.stream();
        let large = self.malloc(40 * MIB, stream);
        let small = self.malloc(1000, stream);
        self.free(large);
        self.attempt(|allocator| allocator.empty_cache());
        let elsewhere = self.malloc(24 * MIB, side);
        assert_eq!(self.malloc(100 * MIB, stream), None);
        self.free(elsewhere);
        // What the other stream has cached goes, or moves.
        let again = self.malloc(40 * MIB, stream);
        self.attempt(|allocator| allocator.snapshot(true));
        self.free(again);
        self.free(small);
        self.in_a_pool(source, filter);
        self.in_pieces(stream);
    }

    /// A pool of its own, which sleeps where it can.
    fn in_a_pool(&mut self, source: Option<Arc<dyn SegmentSource>>, filter: Filter) {
        let stream = self.rig.stream();
        let options = PoolOptions { source, sleep_tag: Some(SleepTag::new("own")), ..PoolOptions::default() };
        let pool = MemoryPool::new(&self.allocator, DEVICE, options).unwrap();
        let id = pool.id();
        let scope = pool.enter(filter).unwrap();
        let (one, other) = (self.malloc(3 * MIB, stream), self.malloc(3 * MIB, stream));
        self.attempt(move |_| drop(scope));
        self.attempt(|allocator| allocator.pools().prime(id, stream, &[4 * MIB, 4 * MIB]));
        self.attempt(|allocator| allocator.put_to_sleep(Tags::All, &Backup::Discard));
        self.attempt(|allocator| allocator.sleep_mode().wake(Tags::All));
        self.free(one);
        self.free(other);
        self.attempt(move |_| drop(pool));
    }

    /// Free memory in pieces, which a policy may show in one.
    fn in_pieces(&mut self, stream: Stream) {
        let pieces: Vec<_> = (0..6).map(|_| self.malloc(8 * MIB, stream)).collect();
        pieces.iter().step_by(2).for_each(|piece| self.free(*piece));
        let whole = self.malloc(20 * MIB, stream);
        self.free(whole);
        pieces.iter().skip(1).step_by(2).for_each(|piece| self.free(*piece));
    }

    /// Without foreign code that does anything everything comes back, and nothing is left.
    fn end(mut self) {
        self.allocator.sleep_mode().wake(Tags::All).unwrap();
        for ptr in std::mem::take(&mut self.live) {
            self.allocator.free(ptr).unwrap();
        }
        self.allocator.empty_cache().unwrap();
        let all = self.allocator.malloc(60 * MIB, self.rig.stream()).unwrap();
        self.allocator.free(all).unwrap();
        self.rig.nothing_is_left(&self.allocator);
    }
}

/// Asks for memory on a stream of its own, and on that of the program, which a pool's own source may have to serve. Says
/// whether it was served on its own.
fn ask(allocator: &Allocator, rig: &Rig) -> Conduct {
    let (weak, program, own) = (Arc::downgrade(allocator), rig.stream(), rig.new_stream());
    Conduct::Asks(Box::new(move || {
        let Some(allocator) = weak.upgrade() else { return false };
        let mut served = false;
        for (stream, bytes) in [(program, 700 * KIB), (program, 11 * MIB), (own, 11 * MIB), (own, 700 * KIB)]
        {
            if let Ok(ptr) = allocator.malloc(bytes, stream) {
                served |= stream == own;
                allocator.free(ptr).unwrap();
            }
        }
        allocator.malloc(200 * MIB, own).unwrap_err();
        let _ = (allocator.snapshot(true), allocator.empty_cache());
        served
    }))
}

/// Runs the program with foreign code of a kind; returns that, and how many calls of the program panicked.
fn run<P: Policy>(
    rig: &Rig,
    install: Install,
    conduct: impl FnOnce(&Allocator, &Rig) -> Conduct,
) -> (Arc<Code>, u64) {
    let mut setting = Setting { settings: Settings::default(), source: None, filter: None };
    let allocator = rig.with_policy::<P>(Settings::default());
    let code = Code::new(conduct(&allocator, rig));
    install(&allocator, rig, &code, &mut setting);
    allocator.configure(setting.settings).unwrap();
    let (stream, side) = (rig.stream(), rig.new_stream());
    let filter = setting.filter.take().map_or(Filter::Stream(stream), |code| {
        Filter::Custom(Arc::new(move |asked| {
            code.run();
            asked == stream
        }))
    });
    let mut program = Program { rig, allocator, live: Vec::new(), panics: 0 };
    program.run(setting.source.take(), filter, side);
    code.rest();
    let panics = program.panics;
    program.end();
    (code, panics)
}

/// The n-th call of foreign code panics, for each n in turn: the call that led there panics, once it has done what it began.
fn nothing_is_lost_where_foreign_code_panics<P: Policy>() {
    on_each(&machine(), |rig| {
        for (kind, install) in kinds() {
            for at in 1.. {
                let (code, panics) = run::<P>(rig, install, |_, _| Conduct::Panics { at });
                if code.calls() < at {
                    assert!(at > 1, "{}: the program calls no {kind}", P::NAME);
                    break;
                }
                // A destructor's panic stops nothing.
                assert!(panics <= 1, "{kind}, call {at}: {panics} calls of the program panicked");
            }
        }
    });
}

/// It asks for memory whenever it is called.
fn foreign_code_that_asks_for_memory_is_served<P: Policy>() {
    on_each(&machine(), |rig| {
        for (kind, install) in kinds() {
            let (code, panics) = run::<P>(rig, install, ask);
            assert_eq!(panics, 0, "{kind}: nothing panics");
            assert!(code.served.load(Ordering::Relaxed) > 0, "{}: no {kind} was served", P::NAME);
        }
    });
}

/// What waits for the device holds a lock meanwhile: a context that ends then may ask for what waits, too.
fn a_context_that_ends_while_the_device_is_waited_for_may_wait_for_it<P: Policy>() {
    on_each(&machine().clock(Clock::Workers), |rig| {
        let (allocator, stream, side) =
            (rig.with_policy::<P>(Settings::default()), rig.stream(), rig.new_stream());
        let weak = Arc::downgrade(&allocator);
        let ask = move || weak.upgrade().is_some_and(|allocator| allocator.empty_cache().is_ok());
        let code = Code::new(Conduct::Asks(Box::new(ask)));
        let (ends, only) = (Arc::clone(&code), HistoryOptions::newest(1));
        let recorder =
            move || Some(Arc::new(Place { looked_up: None, ends: Some(Arc::clone(&ends)) }) as Context);
        allocator.history().record(&only.with_contexts(RecordContext::All, recorder));
        let gate = rig.hold(side);
        let shared = allocator.malloc(3 * MIB, stream).unwrap();
        allocator.record_stream(shared, side).unwrap();
        allocator.free(shared).unwrap();
        let before = code.calls();
        gate.open();
        allocator.empty_cache().unwrap();
        let calls = code.calls();
        assert!(calls > before, "contexts end there");
        assert_eq!(code.served.load(Ordering::Relaxed), calls, "each came to its end");
        code.rest();
        rig.nothing_is_left(&allocator);
    });
}

/// A source asks for more than its pool has cached: what it gave stays, for it cannot take anything back meanwhile.
fn what_a_source_gave_stays_while_it_is_asked<P: Policy>() {
    on_each(&machine(), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.stream());
        let code = Code::new(Conduct::Rests);
        let source = Own { backend: Arc::clone(&rig.backend), code: Arc::clone(&code), growable: false };
        let options = PoolOptions { source: Some(Arc::new(source)), ..PoolOptions::default() };
        let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
        let scope = pool.enter(Filter::Stream(stream)).unwrap();
        let cached = allocator.malloc(11 * MIB, stream).unwrap();
        allocator.free(cached).unwrap();
        let (weak, id) = (Arc::downgrade(&allocator), pool.id());
        *code.conduct.lock().unwrap() = Arc::new(Conduct::Asks(Box::new(move || {
            let Some(allocator) = weak.upgrade() else { return false };
            // What the pool has cached is above that, and goes with the next request that misses.
            allocator.pools().set_limits(DEVICE, id, None, Some(MemoryLimit::Bytes(MIB))).unwrap();
            allocator.malloc(30 * MIB, stream).is_err()
        })));
        let more = allocator.malloc(20 * MIB, stream).unwrap();
        assert!(code.served.load(Ordering::Relaxed) > 0, "it was refused within itself");
        code.rest();
        allocator.free(more).unwrap();
        drop((scope, pool));
        rig.nothing_is_left(&allocator);
    });
}

/// What a program does with pinned memory, with foreign code of a kind.
fn pin(rig: &Rig, kind: &str, conduct: impl FnOnce(&Arc<HostAllocator>) -> Conduct) -> Arc<Code> {
    let host = Arc::new(pinned::host(rig, &Settings::default()));
    let code = Code::new(conduct(&host));
    let (own, stream) = (Arc::clone(&code), rig.stream());
    let contexts = |place: Box<dyn Fn() -> Place + Send + Sync>| {
        let recorder = move || Some(Arc::new(place()) as Context);
        host.record_history(&HistoryOptions::newest(4).with_contexts(RecordContext::All, recorder)).unwrap();
    };
    match kind {
        "gatherer" => contexts(Box::new(move || {
            own.run();
            Place::default()
        })),
        "context looked up" => {
            contexts(Box::new(move || Place { looked_up: Some(Arc::clone(&own)), ends: None }))
        }
        "context that ends" => {
            contexts(Box::new(move || Place { looked_up: None, ends: Some(Arc::clone(&own)) }))
        }
        _ => {
            let accepts = move |asked: Stream| {
                own.run();
                asked == stream
            };
            host.begin_pool(PoolId::fresh(), &Filter::Custom(Arc::new(accepts))).unwrap();
        }
    }
    for _ in 0..4 {
        let block = catch_unwind(AssertUnwindSafe(|| host.allocate_for(3000, stream).unwrap()));
        let look = || host.add_to_snapshot(&mut Snapshot::default(), true);
        let _ = catch_unwind(AssertUnwindSafe(look));
        let Ok(block) = block else { continue };
        let free = || catch_unwind(AssertUnwindSafe(|| host.free(block.id)));
        let _ = free();
        assert!(!matches!(free(), Ok(Ok(()))), "{kind}: it was freed the first time");
    }
    code.rest();
    assert_eq!(host.stats().active_bytes.current, 0);
    pinned::nothing_is_left(rig, Arc::into_inner(host).unwrap());
    code
}

/// Pinned memory has fewer kinds.
#[test]
fn of_pinned_memory_nothing_is_lost_either() {
    on_each(&machine(), |rig| {
        for kind in ["gatherer", "context looked up", "context that ends", "filter"] {
            for at in 1.. {
                if pin(rig, kind, |_| Conduct::Panics { at }).calls() < at {
                    assert!(at > 1, "the program calls no {kind}");
                    break;
                }
            }
            let stream = rig.stream();
            let code = pin(rig, kind, |host| {
                let weak = Arc::downgrade(host);
                Conduct::Asks(Box::new(move || {
                    let Some(host) = weak.upgrade() else { return false };
                    host.free(host.allocate_for(5000, stream).unwrap().id).unwrap();
                    host.add_to_snapshot(&mut Snapshot::default(), true);
                    host.empty_cache().unwrap();
                    true
                }))
            });
            assert!(code.served.load(Ordering::Relaxed) > 0, "no {kind} was served");
        }
    });
}

granule_tests::for_each_policy!(
    nothing_is_lost_where_foreign_code_panics,
    foreign_code_that_asks_for_memory_is_served,
    a_context_that_ends_while_the_device_is_waited_for_may_wait_for_it,
    what_a_source_gave_stays_while_it_is_asked,
);
