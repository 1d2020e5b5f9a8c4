//! The machines, the allocators on them, and what a program holds of both: the model that everything is compared with.

pub mod faults;
pub mod fit;
pub mod graphs;
pub mod host;
pub mod limits;
pub mod memory;
pub mod pools;
pub mod pressure;
pub mod sharing;
pub mod sleep;
pub mod streams;
pub mod watch;

use crate::contents::Pattern;
use crate::fabric::Fabric;
use crate::features::{Feature, Met};
use crate::op::Op;
use crate::setup::Setup;
use crate::verdict::Verdict;
use crate::wire::Wire;
use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::{PolicyName, Settings};
use alloc_core::host::{HostAllocator, HostOptions};
use alloc_core::types::{DeviceIndex, DevicePtr, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Held, OpenReg};
use pressure::Pressure;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What stands for a process: a machine, which no other one sees, and its page-locked memory.
#[derive(Debug)]
pub struct Process {
    /// The machine.
    pub machine: Arc<OpenReg>,
    /// What its allocators ask of the machine.
    pub wire: Arc<Wire>,
    /// Page-locked memory, where the history has any.
    pub host: Option<HostAllocator>,
    /// What programs had of the machine before there were any allocators.
    pub before: Held,
}

impl Process {
    /// Calls of the drivers of some so far.
    #[must_use]
    pub fn calls(some: &[Self]) -> u64 {
        some.iter().map(|process| process.wire.calls()).sum()
    }

    /// What it has that drivers are called about.
    #[must_use]
    pub fn things(&self) -> usize {
        things(&self.machine)
    }
}

/// What a machine has that its driver is called about.
#[must_use]
pub fn things(machine: &OpenReg) -> usize {
    let Held { allocations, reservations, mappings, physical, host, streams, events, .. } = Held::of(machine);
    allocations + reservations + mappings + physical + host + streams + events
}

/// An allocator.
#[derive(Debug)]
pub struct Site {
    /// Its process.
    pub process: usize,
    /// The allocator.
    pub allocator: Arc<CachingAllocator>,
    /// Whether it has the `granule` policy.
    pub granule: bool,
    /// Its settings now.
    pub settings: RefCell<Settings>,
}

impl Site {
    fn new(process: usize, driver: &Arc<dyn Backend>, settings: &Settings) -> Self {
        let granule = settings.policy_name() == PolicyName::Granule;
        let made = CachingAllocator::new(Arc::clone(driver), settings.clone());
        let allocator = Arc::new(made.expect("the settings are valid"));
        let settings = RefCell::new(allocator.settings());
        Self { process, allocator, granule, settings }
    }

    /// Which features it has in use from the first.
    fn note(&self, setup: &Setup, met: &Met) {
        let (granule, settings) = (self.granule, self.settings.borrow());
        for (on, feature) in [
            (granule, Feature::Granule),
            (!granule, Feature::Pytorch),
            (setup.growable && (granule || settings.expandable_segments), Feature::Growable),
            (settings.history_max_entries > 0, Feature::History),
        ] {
            if on {
                met.note(feature);
            }
        }
    }
}

/// A stream.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// Its process.
    pub process: usize,
    /// Its number.
    pub number: u64,
    /// The stream.
    pub stream: Stream,
    /// It was not destroyed.
    pub alive: bool,
}

/// A block in the program's hands.
#[derive(Clone, Debug)]
pub struct Block {
    /// Whose it is.
    pub site: usize,
    /// On which device.
    pub device: DeviceIndex,
    /// Where.
    pub ptr: DevicePtr,
    /// As asked for.
    pub bytes: u64,
    /// As the engine rounded it.
    pub size: u64,
    /// What is in it, if that is known.
    pub known: Option<Pattern>,
    /// Its number.
    pub tag: u64,
    /// The stream it was asked for.
    pub home: usize,
    /// The stream whose work used it last. Every use comes after the one before.
    pub last: usize,
    /// Streams of which the engine was told.
    pub told: Vec<usize>,
    /// The pool of the program that it is of.
    pub pool: Option<u64>,
    /// With which tag its memory sleeps, also when its pool is gone.
    pub tag_of_pool: Option<u8>,
    /// Its memory may be asleep.
    pub asleep: bool,
    /// Another process may have it open.
    pub shared: bool,
    /// It was allocated while caching was off.
    pub uncached: bool,
    /// The graph that writes it.
    pub graph: Option<u64>,
}

/// What the program holds.
#[derive(Debug, Default)]
pub struct State {
    /// Every stream there ever was; blocks name them by place.
    pub lanes: Vec<Lane>,
    /// Places of those that are alive.
    pub alive: Vec<usize>,
    /// Live blocks.
    pub blocks: Vec<Block>,
    /// Where they are: by process and address, their ends.
    pub ranges: BTreeMap<(usize, u64), u64>,
    /// Addresses of blocks that are gone.
    pub gone: Vec<(usize, DevicePtr)>,
    /// The operation under way, and how many numbers it has given. Numbers follow from the place in the history alone.
    op: (u64, u64),
    /// Processes whose driver may fail.
    pub faulty: Vec<bool>,
    /// Processes whose driver has memory that is in no figure: it failed, or what came straight from it was freed while others
    /// had it.
    pub unfigured: Vec<bool>,
    /// Processes whose driver may fail again and again where memory is mapped.
    pub stuck: Vec<bool>,
    /// Processes in which something may be mapped that the driver did not take back. It goes when the place is wanted, unless calls
    /// fail then, too.
    pub left_mapped: Vec<bool>,
    /// Processes whose driver may fail more than once.
    pub relapsing: Vec<bool>,
    /// A request was served with what a spill hook gave back.
    pub spilled: bool,
    /// How often the operation under way asked a spill hook.
    pub spills: u64,
    /// What spill hooks gave back during the operation under way.
    pub spilled_blocks: Vec<Block>,
    /// Allocators and devices with limits of whatever kind.
    pub limited: bool,
    /// Which devices of which allocator reach which.
    pub peers: Vec<(usize, DeviceIndex, DeviceIndex)>,
    /// The stream whose work is captured.
    pub captured: Option<usize>,
    /// What became of the operations.
    pub hash: u64,
}

/// Addresses of blocks that are gone, as many as are remembered.
const GONE: usize = 16;

impl State {
    /// A block is not the program's any more, which is this process; the block as it was.
    fn let_go(&mut self, nth: usize, process: usize) -> Block {
        let block = self.blocks.swap_remove(nth);
        self.unclaim(process, block.ptr);
        self.unfigured[process] |= block.uncached && block.shared;
        let at = (block.tag % GONE as u64) as usize;
        if self.gone.len() < GONE {
            self.gone.push((block.site, block.ptr));
        } else {
            self.gone[at] = (block.site, block.ptr);
        }
        block
    }

    /// A block of a process is live from here on. A live one that it overlaps.
    pub fn claim(&mut self, process: usize, ptr: DevicePtr, size: u64) -> Option<(u64, u64)> {
        let end = ptr.0 + size;
        let below = self.ranges.range(..(process, end)).next_back();
        let other = below.filter(|((of, _), end)| *of == process && **end > ptr.0);
        let other = other.map(|((_, at), end)| (*at, *end));
        self.ranges.insert((process, ptr.0), end);
        other
    }

    /// It is not any more.
    pub fn unclaim(&mut self, process: usize, ptr: DevicePtr) {
        self.ranges.remove(&(process, ptr.0));
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.op.1 += 1;
        (self.op.0 + 1) * 1024 + self.op.1
    }

    /// An operation begins.
    pub fn begin(&mut self, op: usize) {
        (self.op, self.spills) = ((op as u64, 0), 0);
    }

    /// Whether work of a stream is captured now.
    #[must_use]
    pub fn captures(&self, lane: usize) -> bool {
        self.captured == Some(lane)
    }

    /// Mixes what an operation saw into the history's hash.
    pub fn saw(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// A stream of a process that is alive and suits.
    #[must_use]
    pub fn lane(&self, process: usize, nth: u8, suits: impl Fn(usize, &Lane) -> bool) -> Option<usize> {
        let of = |lane: &usize| self.lanes[*lane].process == process && suits(*lane, &self.lanes[*lane]);
        let of = self.alive.iter().copied().filter(of);
        of.min_by_key(|lane| mixed(self.lanes[*lane].number, nth.into()))
    }

    /// Which block is meant.
    #[must_use]
    pub fn block(&self, nth: u16) -> Option<usize> {
        chosen(nth, &self.blocks, |block| block.tag)
    }
}

/// Which of several things a number means. Where others come or go, that stays: a history that is made shorter does the same.
#[must_use]
pub fn chosen<T>(nth: impl Into<u64>, things: &[T], number: impl Fn(&T) -> u64) -> Option<usize> {
    let nth = nth.into();
    (0..things.len()).min_by_key(|n| mixed(number(&things[*n]), nth))
}

fn mixed(number: u64, nth: u64) -> u64 {
    let mixed = (number ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

/// One history's machines, allocators and program.
#[derive(Debug)]
pub struct World {
    /// How it was set up.
    pub setup: Setup,
    /// Its processes.
    pub processes: Vec<Process>,
    /// Its allocators.
    pub sites: Vec<Site>,
    /// What was found wrong.
    pub verdict: Arc<Verdict>,
    /// What was in use.
    pub met: Met,
    /// The most things that there were at a time, of those about which drivers are called.
    pub most: Cell<u64>,
    /// What the program holds; see [`state`](Self::state).
    pub shared: Arc<Mutex<State>>,
    /// Private pools.
    pub pools: RefCell<pools::Pools>,
    /// Captures and graphs.
    pub graphs: RefCell<graphs::Graphs>,
    /// What other processes opened.
    pub imports: RefCell<Vec<sharing::Import>>,
    /// Page-locked blocks.
    pub pinned: RefCell<Vec<host::Pinned>>,
    /// Tenants.
    pub tenants: RefCell<Vec<limits::Tenant>>,
}

/// What outlives the program.
#[derive(Debug)]
pub struct Parts {
    /// Its processes.
    pub processes: Vec<Process>,
    /// Its allocators.
    pub sites: Vec<Site>,
    /// Its streams.
    pub state: State,
    /// What was found wrong.
    pub verdict: Arc<Verdict>,
}

impl World {
    /// The world of a seed.
    ///
    /// # Panics
    /// Where a machine or an allocator cannot be made.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let setup = Setup::of(seed);
        let (met, mut state, verdict) = (Met::default(), State::default(), Arc::default());
        let (mut processes, mut sites) = (Vec::new(), Vec::new());
        let fabric = setup.fabric.then(Fabric::default);
        for (process, settings) in setup.settings.iter().enumerate() {
            let machine = OpenReg::new(setup.machine()).expect("the machine can be set up");
            let (before, wire) = (Held::of(&machine), Wire::new(&verdict, fabric.clone()));
            let driver = wire.to(machine.clone());
            for device in 0..setup.devices {
                let stream = machine.default_stream(DeviceIndex(device));
                state.alive.push(state.lanes.len());
                let number = state.lanes.len() as u64;
                state.lanes.push(Lane { process, number, stream, alive: true });
            }
            for settings in settings {
                let site = Site::new(process, &driver, settings);
                site.note(&setup, &met);
                sites.push(site);
            }
            let options = HostOptions::of(PolicyName::Pytorch);
            let host = setup.host.then(|| HostAllocator::new(driver, &settings[0], options));
            let host = host.transpose().expect("the settings are valid");
            processes.push(Process { machine, wire, host, before });
        }
        let nowhere = vec![false; processes.len()];
        (state.faulty, state.unfigured) = (nowhere.clone(), nowhere.clone());
        (state.stuck, state.relapsing, state.left_mapped) = (nowhere.clone(), nowhere.clone(), nowhere);
        let shared = Arc::new(Mutex::new(state));
        if setup.limits {
            for (n, site) in sites.iter().enumerate() {
                limits::spill(n, site, &shared);
            }
        }
        Self {
            setup,
            processes,
            sites,
            verdict,
            met,
            most: Cell::default(),
            shared,
            pools: RefCell::default(),
            graphs: RefCell::default(),
            imports: RefCell::default(),
            pinned: RefCell::default(),
            tenants: RefCell::default(),
        }
    }

    /// What the program holds. The engine calls the program's code, so nobody has this over a call of the engine.
    ///
    /// # Panics
    /// Where somebody has it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.try_lock().expect("nobody has the state over another operation")
    }

    /// The default stream of a device.
    #[must_use]
    pub fn default_lane(&self, process: usize, device: DeviceIndex) -> usize {
        process * usize::from(self.setup.devices) + usize::from(device.0)
    }

    /// The program ends: what it held goes.
    #[must_use]
    pub fn into_parts(self) -> Parts {
        let Self { processes, sites, shared, verdict, .. } = self;
        let state = std::mem::take(&mut *shared.try_lock().expect("nobody has the state at the end"));
        Parts { processes, sites, state, verdict }
    }

    /// Which allocator is meant.
    #[must_use]
    pub fn site(&self, at: u8) -> (usize, &Site) {
        let at = usize::from(at) % self.sites.len();
        (at, &self.sites[at])
    }

    /// Which device is meant.
    #[must_use]
    pub fn device(&self, device: u8) -> DeviceIndex {
        DeviceIndex(u16::from(device) % self.setup.devices)
    }

    /// The machine of an allocator.
    #[must_use]
    pub fn machine(&self, site: usize) -> &OpenReg {
        &self.processes[self.sites[site].process].machine
    }

    /// An operation of an allocator was refused. That is right where `allowed` says so, or where the driver failed.
    pub fn refused(&self, site: usize, what: &str, error: &AllocError, allowed: bool) {
        self.refused_in(self.sites[site].process, what, error, allowed);
    }

    /// [`refused`](Self::refused) of what belongs to a process.
    pub fn refused_in(&self, process: usize, what: &str, error: &AllocError, allowed: bool) {
        let (faulty, left_mapped) = {
            let state = self.state();
            (state.faulty[process], state.left_mapped[process])
        };
        let of_driver = match error {
            AllocError::Backend(error) => {
                // A stream that did not answer in time during a capture: the whole device could not be waited for instead.
                let late = error.kind == ErrorKind::CaptureViolation && error.detail.contains("(Timeout");
                let in_the_way = left_mapped && error.detail.contains("something is mapped");
                error.detail.contains("fault plan") || error.kind == ErrorKind::Timeout || late || in_the_way
            }
            error => error.is_out_of_memory(),
        };
        self.state().saw(1);
        self.verdict.expect(allowed || faulty && of_driver, "refused", || format!("{what}: {error}"));
    }

    /// Does one operation.
    pub fn apply(&self, op: &Op) {
        match *op {
            Op::Alloc { at, stream, bytes } => memory::alloc(self, at, stream, bytes),
            Op::AllocIn { pool, stream, bytes } => pools::alloc(self, pool, stream, bytes),
            Op::AllocAt { nth } => memory::alloc_at(self, nth),
            Op::Free { nth } => memory::free(self, nth),
            Op::FreeMost { at, keep } => memory::free_most(self, at, keep),
            Op::Use { nth, stream, told } => memory::use_on(self, nth, stream, told),
            Op::WrongFree { value } => memory::wrong_free(self, value),
            Op::Empty { at } => memory::empty(self, at),
            Op::Settle { at, device, wait } => memory::settle(self, at, device, wait),
            Op::Advance { ticks } => {
                self.processes.iter().for_each(|process| process.machine.advance(u64::from(ticks)));
            }
            Op::Stream { process, device, lag } => streams::begin(self, process, device, lag),
            Op::Lag { stream, lag } => streams::set_lag(self, stream, lag),
            Op::EndStream { stream } => streams::end(self, stream),
            Op::Pool { at, device, kind } => pools::begin(self, at, device, kind),
            Op::EndPool { pool } => pools::end(self, pool),
            Op::Scope { pool, stream } => pools::open_scope(self, pool, stream),
            Op::EndScope => pools::close_scope(self),
            Op::Capture { at, stream, mode, pool } => graphs::begin(self, at, stream, mode, pool),
            Op::CaptureAlloc { bytes } => graphs::alloc(self, bytes),
            Op::CaptureFree { nth } => graphs::free(self, nth),
            Op::EndCapture { well } => graphs::end(self, well),
            Op::Launch { graph, stream } => graphs::launch(self, graph, stream),
            Op::EndGraph { graph } => graphs::end_graph(self, graph),
            _ => self.apply_feature(op),
        }
        // A hook may be asked while somebody has the graphs, so they are told now.
        let spilled = std::mem::take(&mut self.state().spilled_blocks);
        spilled.iter().for_each(|block| self.graphs.borrow_mut().go_after(block));
    }

    fn apply_feature(&self, op: &Op) {
        match *op {
            Op::Checkpoint { pool } => pools::save(self, pool),
            Op::Restore => pools::restore(self),
            Op::Sleep { at, tag, backup } => sleep::sleep(self, at, tag, backup),
            Op::Wake { at, tag } => sleep::wake(self, at, tag),
            Op::Peer { at, from, to } => limits::reach(self, at, from, to),
            Op::Share { nth, process } => sharing::share(self, nth, process),
            Op::Look { nth } => sharing::look(self, nth),
            Op::Close { nth } => sharing::close(self, nth),
            Op::Tenant { at, device, what, mib } => limits::tenant(self, at, device, what, mib),
            Op::Limit { at, device, pool, mib } => limits::limit(self, at, device, pool, mib),
            Op::Fraction { at, device, percent } => limits::fraction(self, at, device, percent),
            Op::Configure { at, what } => limits::configure(self, at, what),
            Op::Caching { at, on } => limits::caching(self, at, on),
            Op::HostAlloc { process, bytes, stream } => host::alloc(self, process, bytes, stream),
            Op::HostCopy { host, nth, stream, back } => host::copy(self, host, nth, stream, back),
            Op::HostFree { host } => host::free(self, host),
            Op::HostSettle { process, empty } => host::settle(self, process, empty),
            Op::Fault { process, call, nth, effect } => faults::set(self, process, call, nth, effect),
            Op::NoFaults { process } => faults::clear(self, process),
            Op::History { at, entries, contexts } => watch::record(self, at, entries, contexts),
            Op::Snapshot { at, traces } => watch::snapshot(self, at, traces),
            Op::Reset { at, device, peaks } => watch::reset(self, at, device, peaks),
            Op::Failures { process, what, nth } => Pressure(self).fail(process, what, nth),
            Op::Tag { pool, tag } => self.pools.borrow_mut().tag(self, pool, tag),
            Op::Crowd { at, stream, leaves } => Pressure(self).crowd(at, stream, leaves),
            Op::Squeeze { pool, mib } => Pressure(self).squeeze(pool, mib),
            Op::Clear { pool } => Pressure(self).clear(pool),
            Op::CrowdBeside { leaves } => Pressure(self).crowd_beside(leaves),
            Op::AllocBeside { bytes } => Pressure(self).alloc_beside(bytes),
            _ => unreachable!("the others are done above"),
        }
    }
}
