//! One word per device that says if a call may take the fast path.
//!
//! The hot path tests it once. Its low half counts pending frees; each flag above stands for a feature that only some
//! programs use: open pool scopes, captures, call contexts. Unused features cost nothing.

use crate::sync::{AtomicU64, Ordering};

/// A reason to look closer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reason(u64);

impl Reason {
    /// Requests may be for a private pool.
    pub(crate) const SCOPES: Self = Self(1 << 32);
    /// A capture is under way on the device.
    pub(crate) const CAPTURE: Self = Self(1 << 33);
    /// Frees made during captures wait for their end.
    pub(crate) const DEFERRED: Self = Self(1 << 34);
    /// Call contexts are recorded, or entries go to trackers.
    pub(crate) const CONTEXTS: Self = Self(1 << 35);
    /// The process is a fork of the one that made the allocator.
    pub(crate) const FORKED: Self = Self(1 << 36);
    /// Requests go straight to the driver.
    pub(crate) const UNCACHED: Self = Self(1 << 37);
    /// The driver goes away.
    pub(crate) const DRIVER_GONE: Self = Self(1 << 38);
    /// The program's calls are logged for a reader that may be behind.
    pub(crate) const LOGGED: Self = Self(1 << 39);
    /// Nothing may be locked any more, or no driver called.
    const EDGES: u64 = Self::FORKED.0 | Self::DRIVER_GONE.0;
    /// Reasons that concern frees.
    const OF_FREES: u64 = Self::CAPTURE.0 | Self::CONTEXTS.0 | Self::EDGES | Self::LOGGED.0;
    const COUNT: u64 = (1 << 32) - 1;
}

/// Reason why an allocator's driver may not be called any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// The process is a fork of the one that made the allocator.
    Forked,
    /// The driver is unloading, or the process is at its end.
    DriverGone,
}

/// The word of a device.
#[derive(Debug, Default)]
pub(crate) struct Attention(AtomicU64);

impl Attention {
    /// True if a request has to look closer.
    #[inline(always)]
    pub(crate) fn concerns_requests(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// True if a free has to look closer.
    #[inline(always)]
    pub(crate) fn concerns_frees(&self) -> bool {
        self.0.load(Ordering::Acquire) & Reason::OF_FREES != 0
    }

    /// True if there is no reason but pending frees.
    #[inline]
    pub(crate) fn only_pending(&self) -> bool {
        self.0.load(Ordering::Acquire) & !Reason::COUNT == 0
    }

    /// True if this reason is set.
    #[inline]
    pub(crate) fn has(&self, reason: Reason) -> bool {
        self.0.load(Ordering::Acquire) & reason.0 != 0
    }

    pub(crate) fn set(&self, reason: Reason, on: bool) {
        let _before = self.exchange(reason, on);
    }

    /// [`set`](Self::set) that returns the value before.
    pub(crate) fn exchange(&self, reason: Reason, on: bool) -> bool {
        let before = if on {
            self.0.fetch_or(reason.0, Ordering::AcqRel)
        } else {
            self.0.fetch_and(!reason.0, Ordering::AcqRel)
        };
        before & reason.0 != 0
    }

    /// Reason why the driver may not be called any more, if any.
    #[inline]
    pub(crate) fn process_state(&self) -> Option<ProcessState> {
        match self.0.load(Ordering::Acquire) & Reason::EDGES {
            0 => None,
            process_state if process_state & Reason::FORKED.0 != 0 => Some(ProcessState::Forked),
            _ => Some(ProcessState::DriverGone),
        }
    }

    /// Clears the word for a new owner.
    pub(crate) fn reset(&self) {
        // An exchange, not a store: so an exit that marks the word at the same time is not overlooked.
        self.0.swap(0, Ordering::SeqCst);
    }

    /// True if any free is pending.
    #[inline]
    pub(crate) fn any_pending(&self) -> bool {
        self.0.load(Ordering::Acquire) & Reason::COUNT != 0
    }

    pub(crate) fn add_pending(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_pending(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_the_count_do_not_touch_each_other() {
        let attention = Attention::default();
        assert!(!attention.concerns_requests());
        attention.add_pending();
        attention.set(Reason::SCOPES, true);
        assert!(attention.any_pending() && attention.concerns_requests() && !attention.concerns_frees());
        attention.remove_pending();
        assert!(!attention.any_pending() && attention.has(Reason::SCOPES));
        attention.set(Reason::SCOPES, false);
        attention.set(Reason::CAPTURE, true);
        assert!(attention.concerns_frees() && !attention.has(Reason::SCOPES));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::{Arc, models};

    /// A thread that finds a reason sees what was prepared for it, whatever others count meanwhile; and no count is
    /// lost.
    #[test]
    fn a_reason_publishes_what_it_stands_for() {
        models::check(|| {
            let shared = Arc::new((Attention::default(), AtomicU64::new(0)));
            let reads = Arc::clone(&shared);
            let reader = loom::thread::spawn(move || {
                let (attention, prepared) = &*reads;
                if attention.has(Reason::SCOPES) {
                    assert_eq!(prepared.load(Ordering::Relaxed), 7);
                }
                attention.add_pending();
            });
            let (attention, prepared) = &*shared;
            prepared.store(7, Ordering::Relaxed);
            attention.set(Reason::SCOPES, true);
            attention.add_pending();
            attention.remove_pending();
            reader.join().expect("the reader ends well");
            assert!(attention.any_pending() && attention.has(Reason::SCOPES));
        });
    }
}
