//! What checks work with: memory, streams and events that clean up after themselves, and ways to hold a
//! stream still.

mod held;

pub(crate) use held::clean_up;
pub use held::{Buffer, Gate, HostBuffer, LocalEvent, LocalStream};

use crate::peer::ChildCommand;
use crate::{Hold, Options, Stop, Verdict};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Backend, BackendError, CopyKind, ErrorKind, EventFlags, HostFlags, HostFunction};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// How long a check watches that something does *not* happen.
pub(crate) const A_WHILE: Duration = Duration::from_millis(20);
/// How often it looks in that time, at least.
const LOOKS: u32 = 16;
/// So many times is done what goes wrong now and then, where that is cheap: one time in fifty is seen almost surely.
pub(crate) const OFTEN: u32 = 200;
/// How long a call may take that does not block.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The backend under check, with helpers. One per check and thread.
#[derive(Debug)]
pub struct Context {
    backend: Arc<dyn Backend>,
    hold: Option<Hold>,
    child: Option<ChildCommand>,
    patience: Duration,
    gate_limit: Duration,
}

impl Context {
    pub(crate) fn new(backend: Arc<dyn Backend>, hold: Option<Hold>, options: &Options) -> Self {
        Self {
            backend,
            hold,
            child: options.child.clone(),
            patience: options.patience,
            gate_limit: options.gate_limit(),
        }
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// The backend, for threads.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }

    /// How to start a second process.
    ///
    /// # Errors
    /// Skips where the run has none.
    pub fn child(&self) -> Result<&ChildCommand, Stop> {
        self.child.as_ref().ok_or_else(|| Stop::Skipped("this run starts no second process".into()))
    }

    /// Runs `work` on a thread of its own, which never chose a device.
    ///
    /// # Errors
    /// What `work` says; that it panicked.
    pub fn on_thread<T: Send>(&self, work: impl FnOnce(&Self) -> Result<T, Stop> + Send) -> Result<T, Stop> {
        std::thread::scope(|scope| {
            let panicked = |_| Err(Stop::Failed("a thread of the check panicked".into()));
            scope.spawn(|| work(self)).join().unwrap_or_else(panicked)
        })
    }

    /// Every device.
    ///
    /// # Errors
    /// What the backend says.
    pub fn devices(&self) -> Result<Vec<DeviceIndex>, Stop> {
        Ok((0..self.backend.device_count()?).map(DeviceIndex).collect())
    }

    /// The first device.
    ///
    /// # Errors
    /// Skips where there is none.
    pub fn device(&self) -> Result<DeviceIndex, Stop> {
        match self.backend.device_count()? {
            0 => Err(Stop::Skipped("there is no device".into())),
            _ => Ok(DeviceIndex(0)),
        }
    }

    /// The second device.
    ///
    /// # Errors
    /// Skips where there is none.
    pub fn second_device(&self) -> Result<DeviceIndex, Stop> {
        match self.backend.device_count()? {
            0 | 1 => Err(Stop::Skipped("there is no second device".into())),
            _ => Ok(DeviceIndex(1)),
        }
    }

    /// An index that no device has.
    ///
    /// # Errors
    /// Skips where there is no device at all: everything is refused then.
    pub fn no_device(&self) -> Result<DeviceIndex, Stop> {
        self.device()?;
        Ok(DeviceIndex(self.backend.device_count()?))
    }

    /// Memory of the first device.
    ///
    /// # Errors
    /// What the backend says.
    pub fn buffer(&self, bytes: u64) -> Result<Buffer, Stop> {
        self.buffer_on(self.device()?, bytes)
    }

    /// Memory of a device.
    ///
    /// # Errors
    /// What the backend says.
    pub fn buffer_on(&self, device: DeviceIndex, bytes: u64) -> Result<Buffer, Stop> {
        let ptr = self.backend.malloc(device, bytes)?;
        Ok(Buffer { backend: self.shared(), device, ptr, bytes, live: true })
    }

    /// Memory of a device, or none where it has no more.
    ///
    /// # Errors
    /// What else the backend says.
    pub fn buffer_if_there_is(&self, device: DeviceIndex, bytes: u64) -> Result<Option<Buffer>, Stop> {
        match self.backend.malloc(device, bytes) {
            Ok(ptr) => Ok(Some(Buffer { backend: self.shared(), device, ptr, bytes, live: true })),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Host memory for copies, zeroed: page-locked where the backend has that, else the process's own.
    ///
    /// # Errors
    /// What the backend says.
    pub fn host_buffer(&self, bytes: usize) -> Result<HostBuffer, Stop> {
        match self.backend.pinned_host() {
            Ok(_) => self.pinned_buffer(bytes),
            Err(_) => Ok(HostBuffer::of_the_process(self.shared(), bytes)),
        }
    }

    /// Page-locked host memory, zeroed.
    ///
    /// # Errors
    /// What the backend says. Skips where it has none.
    pub fn pinned_buffer(&self, bytes: usize) -> Result<HostBuffer, Stop> {
        let ptr = self.backend.pinned_host()?.host_malloc(bytes as u64, HostFlags::empty())?;
        if ptr.is_null() {
            return Err(Stop::Failed(format!("{bytes} bytes of page-locked memory are at null")));
        }
        Ok(HostBuffer::pinned(self.shared(), ptr, bytes))
    }

    /// A stream of the first device.
    ///
    /// # Errors
    /// What the backend says.
    pub fn stream(&self) -> Result<LocalStream, Stop> {
        self.stream_on(self.device()?)
    }

    /// A stream of a device.
    ///
    /// # Errors
    /// What the backend says.
    pub fn stream_on(&self, device: DeviceIndex) -> Result<LocalStream, Stop> {
        Ok(self.adopt_stream(self.backend.create_stream(device, 0)?))
    }

    /// Takes charge of a stream that a check made itself.
    #[must_use]
    pub fn adopt_stream(&self, handle: Stream) -> LocalStream {
        LocalStream { handle, backend: self.shared(), live: true }
    }

    /// An event of the first device, without timing.
    ///
    /// # Errors
    /// What the backend says.
    pub fn event(&self) -> Result<LocalEvent, Stop> {
        self.event_on(self.device()?, EventFlags::empty())
    }

    /// An event of a device.
    ///
    /// # Errors
    /// What the backend says.
    pub fn event_on(&self, device: DeviceIndex, flags: EventFlags) -> Result<LocalEvent, Stop> {
        let handle = self.backend.create_event(device, flags)?;
        Ok(LocalEvent { handle, backend: self.shared(), live: true })
    }

    /// Writes bytes to device memory and waits.
    ///
    /// # Errors
    /// What the backend says.
    pub fn write(&self, to: DevicePtr, bytes: &[u8]) -> Verdict {
        let from = DevicePtr(bytes.as_ptr().addr() as u64);
        // SAFETY: rule 2: checks pass ranges inside their own live memory; the slice is read before this
        // returns.
        unsafe { self.backend.copy(to, from, bytes.len() as u64, CopyKind::HostToDevice)? };
        Ok(())
    }

    /// Reads device memory and waits.
    ///
    /// # Errors
    /// What the backend says.
    pub fn read(&self, from: DevicePtr, bytes: usize) -> Result<Vec<u8>, Stop> {
        let mut read = vec![0u8; bytes];
        let to = DevicePtr(read.as_mut_ptr().addr() as u64);
        // SAFETY: rule 2: checks pass ranges inside their own live memory; the vector is filled before this
        // returns.
        unsafe { self.backend.copy(to, from, bytes as u64, CopyKind::DeviceToHost)? };
        Ok(read)
    }

    /// Holds `stream` still until the gate opens: as the subject says, or by a host function that waits.
    ///
    /// # Errors
    /// What the backend says.
    pub fn close(&self, stream: Stream) -> Result<Gate, Stop> {
        let wait = || -> backend_api::Result<HostFunction> {
            let ((opener, opened), limit) = (mpsc::channel::<()>(), self.gate_limit);
            self.backend.launch_host_function(stream, Box::new(move || _ = opened.recv_timeout(limit)))?;
            Ok(Box::new(move || drop(opener)))
        };
        Ok(Gate(Mutex::new(Some(self.hold.map_or_else(wait, |hold| hold(stream))?))))
    }

    /// Waits until `condition` holds; fails with `what` where it does not hold soon.
    ///
    /// # Errors
    /// What the condition says, or that the deadline passed.
    pub fn eventually(&self, what: &str, condition: impl FnMut() -> Result<bool, Stop>) -> Verdict {
        within(self.patience, what, condition)
    }

    /// Watches for a while that `condition` does not come true.
    ///
    /// # Errors
    /// What the condition says, or that it came true.
    pub fn never(&self, what: &str, mut condition: impl FnMut() -> Result<bool, Stop>) -> Verdict {
        let end = Instant::now() + A_WHILE;
        let mut looks = 0;
        // On a busy machine this time alone says little: the work that may not run gets none of it, either.
        while looks < LOOKS || Instant::now() < end {
            if condition()? {
                return Err(Stop::Failed(format!("{what}, and should not")));
            }
            looks += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Watches for a while that a stream is held: it has work that is not done.
    ///
    /// # Errors
    /// What the backend says, or that the stream is ready.
    pub fn stays_busy(&self, stream: Stream) -> Verdict {
        self.never("the stream became ready", || Ok(self.backend.query_stream(stream)?.is_ready()))
    }

    /// Queues a fill.
    ///
    /// # Errors
    /// What the backend says.
    pub fn fill(&self, at: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Verdict {
        // SAFETY: rule 2: checks pass ranges inside their own live memory, which outlives the queued work.
        unsafe { self.backend.memset_async(at, value, bytes, stream)? };
        Ok(())
    }

    /// Queues a copy.
    ///
    /// # Errors
    /// What the backend says.
    pub fn queue_copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        on: Stream,
    ) -> Verdict {
        // SAFETY: rule 2: checks pass ranges inside their own live memory, which outlives the queued work.
        unsafe { self.backend.copy_async(to, from, bytes, kind, on)? };
        Ok(())
    }

    /// Queues a host function that raises a flag.
    ///
    /// # Errors
    /// What the backend says.
    pub fn flag(&self, stream: Stream) -> Result<Arc<AtomicBool>, Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&flag);
        self.backend.launch_host_function(stream, Box::new(move || raised.store(true, Ordering::SeqCst)))?;
        Ok(flag)
    }

    /// Queues work that takes a while; the flag rises when it is done.
    pub(crate) fn slow_work(&self, stream: Stream) -> Result<Arc<AtomicBool>, Stop> {
        self.backend.launch_host_function(stream, Box::new(|| std::thread::sleep(A_WHILE)))?;
        self.flag(stream)
    }

    /// Fails unless `wait`, called often, returns each time when the work of `stream` is done.
    ///
    /// # Errors
    /// What the backend says, or that it returned early.
    pub(crate) fn waits_every_time(&self, stream: Stream, mut wait: impl FnMut() -> Verdict) -> Verdict {
        let done = Arc::new(AtomicU32::new(0));
        for time in 1..=OFTEN {
            let done_by = Arc::clone(&done);
            let work = move || {
                std::thread::sleep(Duration::from_micros(200));
                done_by.store(time, Ordering::SeqCst);
            };
            self.backend.launch_host_function(stream, Box::new(work))?;
            wait()?;
            if done.load(Ordering::SeqCst) != time {
                return Err(Stop::Failed(format!(
                    "the wait returned before the work was done, time {time} of {OFTEN}"
                )));
            }
        }
        Ok(())
    }

    /// Waits until a stream is done although another one is held: well before the gate gives up.
    ///
    /// # Errors
    /// What the backend says, or that the stream is held too.
    pub fn soon_idle(&self, stream: Stream) -> Verdict {
        within(self.patience / 2, "a stream is held by no other", || {
            Ok(self.backend.query_stream(stream)?.is_ready())
        })
    }

    /// Waits until a stream is done, without the blocking call.
    ///
    /// # Errors
    /// What the backend says, or that the deadline passed.
    pub fn eventually_idle(&self, stream: Stream) -> Verdict {
        self.eventually("the stream becomes ready", || Ok(self.backend.query_stream(stream)?.is_ready()))
    }
}

fn within(limit: Duration, what: &str, mut condition: impl FnMut() -> Result<bool, Stop>) -> Verdict {
    let deadline = Instant::now() + limit;
    while !condition()? {
        if Instant::now() > deadline {
            return Err(Stop::Failed(format!("not within {limit:?}: {what}")));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Fails unless `result` is an error of one of `kinds`.
pub(crate) fn refused<T: std::fmt::Debug>(
    what: &str,
    result: std::result::Result<T, BackendError>,
    kinds: &[ErrorKind],
) -> std::result::Result<BackendError, Stop> {
    match result {
        Err(error) if kinds.contains(&error.kind) => Ok(error),
        Err(error) => {
            Err(Stop::Failed(format!("{what}: refused with the wrong kind (due is {kinds:?}): {error}")))
        }
        // A call without an answer has nothing to show.
        Ok(_) if size_of::<T>() == 0 => {
            Err(Stop::Failed(format!("{what}: it was accepted; due is {kinds:?}")))
        }
        Ok(value) => {
            Err(Stop::Failed(format!("{what}: it was accepted, with the answer {value:?}; due is {kinds:?}")))
        }
    }
}

/// Fails unless `call` returns at once. The best of three tries counts, because a busy machine may stop any
/// one of them for a while.
pub(crate) fn prompt(what: &str, mut call: impl FnMut() -> Verdict) -> Verdict {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        call()?;
        best = best.min(start.elapsed());
        if best < AT_ONCE {
            return Ok(());
        }
        // What held it may have given up by now, so that a next try would say nothing.
        if best > 10 * AT_ONCE {
            break;
        }
    }
    Err(Stop::Failed(format!("{what} took {} ms, behind work that waits", best.as_millis())))
}

/// `bytes` bytes that differ with `seed` and from place to place.
pub(crate) fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n as u8).wrapping_mul(31).wrapping_add((n >> 8) as u8).wrapping_add(seed)).collect()
}
