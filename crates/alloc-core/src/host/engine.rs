//! What the allocator and its background thread share.

use super::HostOptions;
use super::source::{Source, numa};
use super::state::{Locked, State};
use crate::arena::pool::Pools;
use crate::backend::{Backend, CaptureStatus};
use crate::config::Settings;
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Relaxed;
use crate::lifetimes::pending::PendingFrees;
use crate::process::attention::{Attention, Edge};
use crate::process::edges;
use crate::process::foreign::{Calls, Foreign, Gathered};
use crate::process::stream_identity::{named, resolve};
use crate::sync::{Arc, AtomicBool, Mutex, OnceLock, Ordering, Rank, ThreadId, Transit};
use crate::types::Stream;
use crate::watch::history::{Context, RecordContext};
use std::thread::{self, Thread};

/// Most threads that register pages.
const MAX_REGISTER_THREADS: u64 = 128;

/// Wakes the background thread, if there is one: while nothing waits, it sleeps.
#[derive(Debug, Default)]
pub(super) struct Waker(OnceLock<Thread>);

impl Waker {
    /// From here on there is this one.
    pub(super) fn begin(&self, thread: &Thread) {
        let _first = self.0.set(thread.clone());
    }

    /// Whether the thread was ever started: the system may refuse one.
    pub(super) fn has_thread(&self) -> bool {
        self.0.get().is_some()
    }

    /// Not by the thread itself, which looks again anyway, and in its own rhythm.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.0.get().filter(|thread| thread.id() != thread::current().id()) {
            thread.unpark();
        }
    }
}

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) attention: &'static Attention,
    pub(super) foreign: Foreign,
    pub(super) options: HostOptions,
    pub(super) source: Source,
    state: Mutex<State>,
    pub(super) pools: Mutex<Pools>,
    /// Some scope is open.
    pub(super) scoped: AtomicBool,
    /// It was said that a pool serves requests outside of captures.
    pub(super) said_routed: AtomicBool,
    /// Completed uses are to be noticed by a thread.
    pub(super) wants_thread: AtomicBool,
    /// Frees wait for the end of captures.
    pub(super) deferring: AtomicBool,
    /// Contexts are gathered.
    pub(super) contexts: AtomicBool,
    /// By device: one whose events cannot be asked for holds up no other.
    pub(super) pending: Vec<PendingFrees>,
    pub(super) transit: Transit<ThreadId>,
    /// Driver calls under way that name a stream.
    pub(super) naming: Transit<Stream>,
    pub(super) waker: Waker,
}

/// PyTorch's checks of what only matters to pinned memory.
pub(super) fn validate(settings: &Settings) -> Result<()> {
    settings.validate().map_err(AllocError::Settings)?;
    let threads = settings.pinned_num_register_threads;
    if !threads.is_power_of_two() {
        let text = format!("Number of register threads has to be power of 2, got {threads}");
        return Err(AllocError::Settings(text));
    }
    if threads > MAX_REGISTER_THREADS {
        let text = format!("Number of register threads should be less than or equal to 128, got {threads}");
        return Err(AllocError::Settings(text));
    }
    Ok(())
}

impl Engine {
    pub(super) fn new(backend: Arc<dyn Backend>, settings: &Settings, options: HostOptions) -> Result<Self> {
        validate(settings)?;
        edges::admit(backend.id()).map_err(Edge::refusal)?;
        let node = numa::resolve(options.numa, &*backend, &options.sysfs)?;
        let devices = backend.device_count()?;
        let attention = edges::lend(backend.id());
        Ok(Self {
            source: Source::new(Arc::clone(&backend), node, settings.pinned_reserve_segment_size),
            state: Mutex::new(Rank::Device, State::new(settings, options.sizing)),
            options,
            backend,
            attention,
            foreign: Foreign::default(),
            pools: Mutex::new(Rank::Registry, Pools::default()),
            scoped: AtomicBool::new(false),
            said_routed: AtomicBool::new(false),
            wants_thread: AtomicBool::new(settings.pinned_use_background_threads),
            deferring: AtomicBool::new(false),
            contexts: AtomicBool::new(false),
            pending: (0..devices).map(|_| PendingFrees::new(attention)).collect(),
            transit: Transit::default(),
            naming: Transit::default(),
            waker: Waker::default(),
        })
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked::new(self.state.lock(), &self.foreign)
    }

    /// See [`HostAllocator::configure`](super::HostAllocator::configure).
    pub(super) fn configure(&self, settings: &Settings) {
        self.lock().knobs = settings.into();
        self.wants_thread.store(settings.pinned_use_background_threads, Ordering::Release);
    }

    /// Why the driver may not be called any more, if that is so.
    pub(super) fn edge(&self) -> Option<Edge> {
        self.attention.edge()
    }

    /// For calls that ask for something.
    pub(super) fn reachable(&self) -> Result<()> {
        self.edge().map_or(Ok(()), |edge| Err(edge.refusal()))
    }

    /// Looks at what an operation came to: was it that the driver is unloading?
    pub(super) fn noticing<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(AllocError::Backend(error)) = &outcome {
            edges::notice(self.attention, &*self.backend, error);
        }
        outcome
    }

    /// The engine's one name for a stream of this backend.
    pub(super) fn own(&self, stream: Stream) -> Result<Stream> {
        if stream.backend != self.backend.id() {
            return Err(AllocError::ForeignStream);
        }
        if usize::from(stream.device.0) >= self.pending.len() {
            let count = u16::try_from(self.pending.len()).unwrap_or(u16::MAX);
            return Err(AllocError::InvalidDevice { device: stream.device, count });
        }
        Ok(resolve(stream, self.backend.kind()))
    }

    /// Lets the calling thread do what captures of others would forbid, where there are captures.
    pub(super) fn relaxed(&self) -> crate::backend::Result<Option<Relaxed<'_>>> {
        let Ok(capture) = self.backend.capture() else { return Ok(None) };
        Relaxed::enter(capture).map(Some).inspect_err(|_| self.backend.clear_error())
    }

    /// The capture that a stream is part of, also a broken one. Calls the driver.
    pub(super) fn capture_id(&self, stream: Stream) -> crate::backend::Result<Option<u64>> {
        let Ok(capture) = self.backend.capture() else { return Ok(None) };
        // Another thread's default stream cannot be asked about here, and is not captured from here.
        let Ok(stream) = named(stream) else { return Ok(None) };
        Ok(match capture.status(stream).inspect_err(|_| self.backend.clear_error())? {
            CaptureStatus::Active(id) => Some(id),
            CaptureStatus::Invalidated => Some(u64::MAX),
            CaptureStatus::None => None,
        })
    }

    /// The calling thread's context, where contexts are gathered at this level. Hold no lock.
    pub(super) fn gather<'a>(
        &self,
        level: RecordContext,
        calls: &Calls<'a>,
    ) -> Option<Gathered<'a, Context>> {
        if !self.contexts.load(Ordering::Acquire) {
            return None;
        }
        let recorder = self.lock().trace.recorder(level)?;
        calls.gather(|| recorder())
    }
}
