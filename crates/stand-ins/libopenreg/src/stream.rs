//! Streams: a queue of tasks, and a thread that does them one after the other.

use crate::device;
use crate::handles::Handles;
use crate::status::{Answer, Refused};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::fmt;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The live streams of all devices.
pub(crate) static STREAMS: Handles<Stream> = Handles::new();

/// Least and greatest priority. They are kept and told, and change nothing.
pub(crate) const PRIORITIES: RangeInclusive<c_int> = 0..=1;

pub(crate) type Task = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub(crate) struct Stream {
    device: c_int,
    priority: c_int,
    queue: Mutex<Queue>,
    changed: Condvar,
    worker: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    queued: u64,
    finished: u64,
    /// How many of those that were queued are records of events.
    records: u64,
    closing: bool,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} tasks finished", self.finished, self.queued)
    }
}

impl Stream {
    /// A stream of the calling thread's device, and its worker.
    pub(crate) fn start(priority: c_int) -> Answer<Arc<Self>> {
        let stream = Arc::new(Self {
            device: device::current(),
            priority,
            queue: Mutex::default(),
            changed: Condvar::new(),
            worker: Mutex::default(),
        });
        let working = Arc::clone(&stream);
        let worker = thread::Builder::new().name("openreg-stream".into()).spawn(move || working.work())?;
        *stream.worker() = Some(worker);
        Ok(stream)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn device(&self) -> c_int {
        self.device
    }

    pub(crate) const fn priority(&self) -> c_int {
        self.priority
    }

    pub(crate) fn queue(&self, task: Task) -> Answer {
        self.push(task, 0)
    }

    /// Queues a task that is a record of an event.
    pub(crate) fn queue_record(&self, task: Task) -> Answer {
        self.push(task, 1)
    }

    fn push(&self, task: Task, records: u64) -> Answer {
        let mut queue = self.lock();
        if queue.closing {
            return Err(Refused);
        }
        queue.tasks.push_back(task);
        queue.queued += 1;
        queue.records += records;
        drop(queue);
        self.changed.notify_all();
        Ok(())
    }

    /// How many records of events were queued so far.
    pub(crate) fn records(&self) -> u64 {
        self.lock().records
    }

    pub(crate) fn is_idle(&self) -> bool {
        let queue = self.lock();
        queue.finished == queue.queued
    }

    /// Blocks until all that is queued now is done. Refused to the stream's own tasks, which would wait for
    /// themselves.
    pub(crate) fn synchronize(&self) -> Answer {
        self.not_from_a_task()?;
        let queue = self.lock();
        let number = queue.queued;
        drop(self.changed.wait_while(queue, |queue| queue.finished < number));
        Ok(())
    }

    /// Does what is queued, blocks until then, and ends the worker.
    pub(crate) fn end(&self) -> Answer {
        self.not_from_a_task()?;
        self.lock().closing = true;
        self.changed.notify_all();
        let worker = self.worker().take();
        worker.map_or(Ok(()), |worker| worker.join().map_err(|_| Refused))
    }

    pub(crate) fn not_from_a_task(&self) -> Answer {
        let own = self.worker().as_ref().is_some_and(|worker| worker.thread().id() == thread::current().id());
        if own { Err(Refused) } else { Ok(()) }
    }

    /// The worker's life.
    fn work(&self) {
        let mut queue = self.lock();
        loop {
            queue = self
                .changed
                .wait_while(queue, |queue| queue.tasks.is_empty() && !queue.closing)
                .unwrap_or_else(PoisonError::into_inner);
            let Some(task) = queue.tasks.pop_front() else { return };
            drop(queue);
            // A task of this library that panics has nobody to tell; the stream goes on.
            let _ = catch_unwind(AssertUnwindSafe(task));
            queue = self.lock();
            queue.finished += 1;
            self.changed.notify_all();
        }
    }
}

/// Waits for all streams of the calling thread's device.
pub(crate) fn synchronize_device() -> Answer {
    let current = device::current();
    STREAMS.all().iter().filter(|stream| stream.device == current).try_for_each(|stream| stream.synchronize())
}
