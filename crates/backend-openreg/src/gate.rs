//! What every call passes first: it is counted, charged, and may be made to fail.

pub(crate) mod call;
pub(crate) mod cost;
pub(crate) mod fault;
pub(crate) mod links;
pub(crate) mod usage;

use crate::gate::call::{Call, CallCounts};
use crate::gate::cost::CostModel;
use crate::gate::fault::{Effect, FaultPlan};
use crate::gate::usage::Usage;
use backend_api::ErrorKind;
use backend_api::types::DeviceIndex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// Of the calls whose size counts, those that were served, and their bytes.
    served: [AtomicU64; Call::COUNT],
    bytes: [AtomicU64; Call::COUNT],
    costs: Arc<CostModel>,
    troubled: AtomicBool,
    trouble: Mutex<Trouble>,
}

impl Gate {
    pub(crate) fn new(costs: CostModel) -> Self {
        Self {
            counts: zeros(),
            served: zeros(),
            bytes: zeros(),
            costs: Arc::new(costs),
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

    /// What the model takes for the bytes of a call.
    pub(crate) fn cost_of(&self, call: Call, bytes: u64) -> u64 {
        self.costs.of_bytes(call, bytes)
    }

    /// Notes the size of a call that was served.
    pub(crate) fn charge(&self, call: Call, bytes: u64) {
        self.served[call as usize].fetch_add(1, Ordering::Relaxed);
        self.bytes[call as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> CallCounts {
        CallCounts(read(&self.counts))
    }

    pub(crate) fn usage(&self, waited_ns: u64) -> Usage {
        Usage {
            calls: self.counts(),
            served: read(&self.served),
            bytes: read(&self.bytes),
            waited_ns,
            costs: Arc::clone(&self.costs),
        }
    }

    pub(crate) fn reset(&self) {
        for count in self.counts.iter().chain(&self.served).chain(&self.bytes) {
            count.store(0, Ordering::Relaxed);
        }
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

fn zeros() -> [AtomicU64; Call::COUNT] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

fn read(counts: &[AtomicU64; Call::COUNT]) -> [u64; Call::COUNT] {
    std::array::from_fn(|index| counts[index].load(Ordering::Relaxed))
}

const fn bit(device: DeviceIndex) -> u64 {
    if device.0 < 64 { 1 << device.0 } else { 0 }
}
