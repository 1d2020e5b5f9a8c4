//! The events that keep time.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The events that keep time, by the number in their handle: drivers have one error for an event without timing and
/// for one that was never recorded. Its lock is never held over a driver call.
#[derive(Debug, Default)]
pub struct TimedEvents(Mutex<HashSet<u64>>);

impl TimedEvents {
    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The event keeps time.
    pub fn insert(&self, raw: u64) {
        self.lock().insert(raw);
    }

    /// Forgets an event, before the driver can give the same handle to a new one; whether it kept time.
    #[must_use]
    pub fn remove(&self, raw: u64) -> bool {
        self.lock().remove(&raw)
    }

    /// Whether both of two events keep time.
    #[must_use]
    pub fn both(&self, start: u64, end: u64) -> bool {
        let timed = self.lock();
        timed.contains(&start) && timed.contains(&end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_kept_only_where_both_events_keep_it() {
        let timed = TimedEvents::default();
        timed.insert(7);
        timed.insert(8);
        assert!(timed.both(7, 8) && timed.both(7, 7));
        assert!(!timed.both(7, 9) && !timed.both(9, 7));
        assert!(timed.remove(8) && !timed.remove(8));
        assert!(!timed.both(7, 8));
    }
}
