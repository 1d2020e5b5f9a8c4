//! Streams as queues, each with a thread that works through it. REPLACE all of it by the driver's streams.

use crate::memory::Memory;
use backend_api::HostFunction;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A place in a queue: the queue, and the ticket of the last task before it.
pub(crate) type Mark = (u64, u64);

/// What a stream does.
pub(crate) enum Work {
    Copy {
        dst: u64,
        src: u64,
        bytes: u64,
    },
    Fill {
        dst: u64,
        value: u8,
        bytes: u64,
    },
    Call(HostFunction),
    Wait(Mark),
    /// Stays in the queue while the real one runs, so that the queue is not empty.
    Running,
}

/// A stream.
pub(crate) struct Queue {
    pub(crate) device: u16,
    pub(crate) closed: bool,
    tasks: VecDeque<(u64, Work)>,
}

/// What the machine knows.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) queues: HashMap<u64, Queue>,
    /// Each event's last record.
    pub(crate) events: HashMap<u64, Option<Mark>>,
    pub(crate) memory: Memory,
    /// The last number given to a task, a queue or an event.
    pub(crate) last: u64,
}

impl State {
    /// Whether a queue has done all that was queued at the mark.
    pub(crate) fn passed(&self, (queue, ticket): Mark) -> bool {
        self.queues.get(&queue).and_then(|queue| queue.tasks.front()).is_none_or(|task| task.0 > ticket)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The state, and a sign that it changed.
#[derive(Default)]
pub(crate) struct Machine {
    state: Mutex<State>,
    changed: Condvar,
}

impl Machine {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'m>(&'m self, state: MutexGuard<'m, State>) -> MutexGuard<'m, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait_for(&self, mark: Mark) {
        let mut state = self.lock();
        while !state.passed(mark) {
            state = self.wait(state);
        }
    }

    /// Opens a queue under a key, with its thread.
    pub(crate) fn open(self: &Arc<Self>, key: u64, device: u16) -> std::io::Result<()> {
        let queue = Queue { device, closed: false, tasks: VecDeque::new() };
        self.lock().queues.insert(key, queue);
        let machine = Arc::clone(self);
        let started =
            std::thread::Builder::new().name(format!("acme {key}")).spawn(move || machine.serve(key));
        started.map(drop).inspect_err(|_| drop(self.lock().queues.remove(&key)))
    }

    /// Queues work; false where there is no such queue.
    pub(crate) fn submit(&self, key: u64, work: Work) -> bool {
        let mut state = self.lock();
        let ticket = state.next();
        let Some(queue) = state.queues.get_mut(&key) else { return false };
        queue.tasks.push_back((ticket, work));
        self.changed.notify_all();
        true
    }

    /// Lets a queue's thread end after its last task.
    pub(crate) fn close(&self, key: u64) {
        if let Some(queue) = self.lock().queues.get_mut(&key) {
            queue.closed = true;
        }
        self.changed.notify_all();
    }

    fn serve(&self, key: u64) {
        let mut state = self.lock();
        while let Some(queue) = state.queues.get(&key) {
            let ready = match queue.tasks.front() {
                None if queue.closed => {
                    state.queues.remove(&key);
                    return;
                }
                None => false,
                Some((_, Work::Wait(mark))) => state.passed(*mark),
                Some(_) => true,
            };
            let task = state.queues.get_mut(&key).and_then(|queue| queue.tasks.front_mut());
            let (true, Some(task)) = (ready, task) else {
                state = self.wait(state);
                continue;
            };
            let work = std::mem::replace(&mut task.1, Work::Running);
            drop(state);
            run(work);
            state = self.lock();
            if let Some(queue) = state.queues.get_mut(&key) {
                queue.tasks.pop_front();
            }
            self.changed.notify_all();
        }
    }
}

fn run(work: Work) {
    match work {
        Work::Copy { dst, src, bytes } => {
            let (from, to) =
                (with_exposed_provenance(src as usize), with_exposed_provenance_mut(dst as usize));
            // SAFETY: rule 2: who queued it promised both ranges until the stream has passed this.
            unsafe { std::ptr::copy::<u8>(from, to, bytes as usize) }
        }
        Work::Fill { dst, value, bytes } => {
            let to = with_exposed_provenance_mut::<u8>(dst as usize);
            // SAFETY: rule 2: as above.
            unsafe { to.write_bytes(value, bytes as usize) }
        }
        // A panic must not end the stream.
        Work::Call(function) => drop(catch_unwind(AssertUnwindSafe(function))),
        Work::Wait(_) | Work::Running => {}
    }
}
