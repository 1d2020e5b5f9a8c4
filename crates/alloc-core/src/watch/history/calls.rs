//! Log of the program's calls on a device, for a recorder that reads it while the program runs.
//!
//! Calls are noted under the lock of the arena that serves them: a block's free comes before the next request that gets
//! its address, and one order holds for all threads. Unread calls are bounded, and none is ever left out: while the
//! reader is too far behind, a call waits before it takes any lock.

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Rank};
use crate::types::PoolId;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A call of the program. Addresses are those that the allocator gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramCall {
    /// A block was handed out, or was there already when the log began.
    Alloc {
        /// Its address.
        addr: u64,
        /// Bytes as requested.
        bytes: u64,
        /// The handle of the stream.
        stream: u64,
        /// The pool that serves it.
        pool: PoolId,
    },
    /// A block was given back.
    Free {
        /// Its address.
        addr: u64,
    },
    /// A block is used on another stream, which may be another device's.
    Use {
        /// Its address.
        addr: u64,
        /// The handle of the stream.
        stream: u64,
        /// The stream's device.
        device: u16,
    },
    /// A request was refused for want of memory.
    Refused {
        /// Bytes as requested.
        bytes: u64,
        /// The handle of the stream.
        stream: u64,
    },
    /// The cache was emptied.
    EmptyCache,
    /// The last reference to a private pool is gone.
    PoolEnds {
        /// The pool.
        pool: PoolId,
    },
    /// A private pool's cached memory was given back, if the pool was not in use any more.
    EmptyPool {
        /// The pool.
        pool: PoolId,
    },
    /// An iteration begins, as the program says.
    Iteration {
        /// Its number.
        n: u64,
    },
}

/// Most unread calls; then the program waits for the reader.
const MOST: usize = 1 << 16;
/// Calls after which the reader is woken.
const MANY: usize = MOST / 4;
/// Interval at which a waiting call looks again.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

#[derive(Debug, Default)]
struct Noted {
    calls: Vec<ProgramCall>,
    /// Sleeps until there are many.
    reader: Option<Thread>,
    ended: bool,
    found: Option<usize>,
}

/// The calls of one device that nobody has read yet. See
/// [`History::log_calls`](crate::allocator::History::log_calls).
#[derive(Debug)]
pub struct CallLog {
    state: Mutex<Noted>,
    is_full: AtomicBool,
    waits: AtomicU64,
    waited_ns: AtomicU64,
}

impl CallLog {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(Rank::Registry, Noted::default()),
            is_full: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
        }
    }

    /// Notes a call. Hold the lock under which it is served.
    #[inline]
    pub(crate) fn push(&self, call: ProgramCall) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        state.calls.push(call);
        let count = state.calls.len();
        if count >= MANY {
            if count >= MOST {
                self.is_full.store(true, Ordering::Release);
            }
            let reader = state.reader.take();
            drop(state);
            if let Some(reader) = reader {
                reader.unpark();
            }
        }
    }

    /// Marks the calls noted so far as blocks from before the log. Hold all locks under which calls are served.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock();
        if state.found.is_none() {
            state.found = Some(state.calls.len());
        }
    }

    /// Number of leading calls that stand for blocks from before the log began.
    #[must_use]
    pub fn found(&self) -> usize {
        self.state.lock().found.unwrap_or(0)
    }

    /// Notes that an iteration of the program begins. Waits while the reader is behind.
    pub fn mark_iteration(&self, n: u64) {
        self.make_room();
        self.push(ProgramCall::Iteration { n });
    }

    /// Waits while the reader is behind. Hold no lock.
    #[inline]
    pub(crate) fn make_room(&self) {
        if self.is_full.load(Ordering::Acquire) {
            self.wait_for_room();
        }
    }

    #[cold]
    fn wait_for_room(&self) {
        let began = Instant::now();
        while self.is_full.load(Ordering::Acquire) {
            thread::sleep(LOOK_AGAIN);
        }
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited_ns.fetch_add(waited, Ordering::Relaxed);
    }

    /// Takes the calls since the last time, in order; `into` is emptied first. Never waits.
    pub fn take(&self, into: &mut Vec<ProgramCall>) {
        into.clear();
        std::mem::swap(&mut self.state.lock().calls, into);
        self.is_full.store(false, Ordering::Release);
    }

    /// Lets the reader sleep until there are many calls, the log ends, its thread is unparked, or `most` has passed.
    pub fn sleep(&self, most: Duration) {
        {
            let mut state = self.state.lock();
            if state.ended || state.calls.len() >= MANY {
                return;
            }
            state.reader = Some(thread::current());
        }
        thread::park_timeout(most);
    }

    /// Ends the log: nothing is noted any more, and no call waits. Calls in it can still be taken.
    pub fn end(&self) {
        let reader = {
            let mut state = self.state.lock();
            state.ended = true;
            state.reader.take()
        };
        self.is_full.store(false, Ordering::Release);
        if let Some(reader) = reader {
            reader.unpark();
        }
    }

    /// True if the log has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Number of calls that had to wait for the reader, and their total wait.
    #[must_use]
    pub fn waits(&self) -> (u64, Duration) {
        (self.waits.load(Ordering::Relaxed), Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed)))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::Arc;

    #[test]
    fn who_fills_it_waits_and_nothing_is_lost() {
        let log = Arc::new(CallLog::new());
        let wanted = 3 * MOST as u64;
        let filler = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                for addr in 0..wanted {
                    log.make_room();
                    log.push(ProgramCall::Free { addr });
                }
            })
        };
        let (mut seen, mut some, mut most) = (0, Vec::new(), 0);
        while seen < wanted {
            log.take(&mut some);
            most = most.max(some.len());
            for call in &some {
                assert_eq!(*call, ProgramCall::Free { addr: seen });
                seen += 1;
            }
            log.sleep(Duration::from_millis(5));
        }
        filler.join().unwrap();
        assert!(most <= MOST);
    }

    #[test]
    fn an_ended_log_holds_nobody_up() {
        let log = CallLog::new();
        (0..2 * MOST as u64).for_each(|addr| log.push(ProgramCall::Free { addr }));
        assert!(log.is_full.load(Ordering::Acquire));
        log.end();
        log.make_room();
        log.push(ProgramCall::EmptyCache);
        let mut some = Vec::new();
        log.take(&mut some);
        assert_eq!(some.len(), 2 * MOST, "what came before is there, and nothing after");
    }
}
