//! The fault plan: which calls fail, and how.

use crate::Call;
use backend_api::ErrorKind;
use backend_api::types::DeviceIndex;
use std::time::Duration;

/// What happens to a call that a fault hits. In every case but [`Effect::Delay`] the call fails and has
/// changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this kind.
    Fail(ErrorKind),
    /// It takes that much longer, then does its work. The virtual clock is moved instead of sleeping.
    Delay(Duration),
    /// It hangs for that long, then fails with [`ErrorKind::Timeout`]. The virtual clock is moved instead
    /// of sleeping.
    Hang(Duration),
    /// Its device is lost: this and every later call about the device fails with [`ErrorKind::DeviceLost`].
    LoseDevice,
}

/// One entry of a [`FaultPlan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    call: Option<Call>,
    device: Option<DeviceIndex>,
    first: u64,
    repeats: bool,
    effect: Effect,
    seen: u64,
}

impl Fault {
    /// Hits the `k`-th call (from 1) after the plan was set.
    #[must_use]
    pub const fn at(k: u64, effect: Effect) -> Self {
        Self { call: None, device: None, first: k, repeats: false, effect, seen: 0 }
    }

    /// Hits the `k`-th call (from 1) after the plan was set, and every one after it.
    #[must_use]
    pub const fn from(k: u64, effect: Effect) -> Self {
        Self { repeats: true, ..Self::at(k, effect) }
    }

    /// Counts calls of this name only.
    #[must_use]
    pub const fn of(mut self, call: Call) -> Self {
        self.call = Some(call);
        self
    }

    /// Counts calls about this device only.
    #[must_use]
    pub const fn on(mut self, device: DeviceIndex) -> Self {
        self.device = Some(device);
        self
    }

    /// Counts the call; the effect if it is one that this fault hits.
    fn strike(&mut self, call: Call, device: DeviceIndex) -> Option<Effect> {
        if self.call.is_some_and(|wanted| wanted != call)
            || self.device.is_some_and(|wanted| wanted != device)
        {
            return None;
        }
        self.seen += 1;
        let hit = self.seen == self.first || (self.repeats && self.seen > self.first);
        hit.then_some(self.effect)
    }
}

/// Which calls fail, and how. Set it with [`OpenReg::set_faults`](crate::OpenReg::set_faults).
///
/// Every call that can fail is counted, in the order in which calls arrive; with one calling thread a plan
/// is exactly repeatable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    faults: Vec<Fault>,
}

impl FaultPlan {
    /// Nothing fails.
    #[must_use]
    pub const fn none() -> Self {
        Self { faults: Vec::new() }
    }

    /// Adds a fault. Where several hit one call, the first added wins.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// The `k`-th call of any name fails once.
    #[must_use]
    pub fn fail_nth(self, k: u64, kind: ErrorKind) -> Self {
        self.with(Fault::at(k, Effect::Fail(kind)))
    }

    /// The `k`-th `call` fails once.
    #[must_use]
    pub fn fail_nth_of(self, call: Call, k: u64, kind: ErrorKind) -> Self {
        self.with(Fault::at(k, Effect::Fail(kind)).of(call))
    }

    /// Every `call` fails.
    #[must_use]
    pub fn fail_all(self, call: Call, kind: ErrorKind) -> Self {
        self.with(Fault::from(1, Effect::Fail(kind)).of(call))
    }

    /// True where nothing can fail.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    pub(crate) fn strike(&mut self, call: Call, device: DeviceIndex) -> Option<Effect> {
        let mut struck = None;
        for fault in &mut self.faults {
            // Every fault counts every call, also one that an earlier fault already took.
            struck = struck.or(fault.strike(call, device));
        }
        struck
    }
}
