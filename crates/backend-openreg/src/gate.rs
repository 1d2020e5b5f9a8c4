//! What every call passes first: it is counted, charged, and may be made to fail.

use crate::call::{Call, CallCounts};
use crate::cost::CostModel;
use crate::fault::{Effect, FaultPlan};
use alloc_core::backend::ErrorKind;
use alloc_core::types::DeviceIndex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Why a call does not get through.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) kind: ErrorKind,
    pub(crate) detail: String,
}

/// Devices that are lost and faults to come.
#[derive(Debug, Default)]
struct Trouble {
    plan: FaultPlan,
    lost: u64,
}

#[derive(Debug)]
pub(crate) struct Gate {
    counts: [AtomicU64; Call::COUNT],
    /// Nanoseconds charged for sizes; calls are charged by their counts.
    sized: AtomicU64,
    costs: CostModel,
    troubled: AtomicBool,
    trouble: Mutex<Trouble>,
}

impl Gate {
    pub(crate) fn new(costs: CostModel) -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            sized: AtomicU64::new(0),
            costs,
            troubled: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// Counts and charges a call. `pause` passes time where the plan asks for it.
    pub(crate) fn pass(
        &self,
        call: Call,
        device: DeviceIndex,
        pause: impl FnOnce(Duration),
    ) -> Result<(), Stopped> {
        self.counts[call as usize].fetch_add(1, Ordering::Relaxed);
        if self.troubled.load(Ordering::Acquire) { self.pass_troubled(call, device, pause) } else { Ok(()) }
    }

    #[cold]
    fn pass_troubled(
        &self,
        call: Call,
        device: DeviceIndex,
        pause: impl FnOnce(Duration),
    ) -> Result<(), Stopped> {
        let mut trouble = self.trouble();
        let struck = trouble.plan.strike(call, device);
        if struck == Some(Effect::LoseDevice) {
            trouble.lost |= bit(device);
        }
        let is_lost = call.is_about_a_device() && trouble.lost & bit(device) != 0;
        if is_lost || struck == Some(Effect::LoseDevice) {
            return Err(Stopped {
                kind: ErrorKind::DeviceLost,
                detail: "the device is lost; only a new machine brings it back".into(),
            });
        }
        drop(trouble);
        match struck {
            Some(Effect::Fail(kind)) => Err(Stopped { kind, detail: "the fault plan made it fail".into() }),
            Some(Effect::Hang(deadline)) => {
                pause(deadline);
                Err(Stopped { kind: ErrorKind::Timeout, detail: format!("no answer within {deadline:?}") })
            }
            Some(Effect::Delay(delay)) => {
                pause(delay);
                Ok(())
            }
            Some(Effect::LoseDevice) | None => Ok(()),
        }
    }

    /// Charges for the size of a call.
    pub(crate) fn charge(&self, call: Call, bytes: u64) {
        if self.costs.depends_on_bytes(call) {
            self.sized.fetch_add(self.costs.of_bytes(call, bytes), Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> CallCounts {
        CallCounts(std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed)))
    }

    pub(crate) fn modelled_ns(&self) -> u64 {
        let counts = self.counts();
        Call::ALL.iter().fold(self.sized.load(Ordering::Relaxed), |sum, &call| {
            sum.saturating_add(self.costs.of_calls(call, counts.get(call)))
        })
    }

    pub(crate) fn reset(&self) {
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
        self.sized.store(0, Ordering::Relaxed);
    }

    pub(crate) fn set_plan(&self, plan: FaultPlan) {
        let mut trouble = self.trouble();
        trouble.plan = plan;
        self.troubled.store(!trouble.plan.is_empty() || trouble.lost != 0, Ordering::Release);
    }

    pub(crate) fn lose(&self, device: DeviceIndex) {
        let mut trouble = self.trouble();
        trouble.lost |= bit(device);
        self.troubled.store(true, Ordering::Release);
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const fn bit(device: DeviceIndex) -> u64 {
    if device.0 < 64 { 1 << device.0 } else { 0 }
}
