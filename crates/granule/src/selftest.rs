//! A short test of a backend and of the allocator over it, for a machine that nobody knows yet.
//!
#![cfg_attr(feature = "openreg", doc = "```")]
#![cfg_attr(not(feature = "openreg"), doc = "```ignore")]
//! use granule::openreg::{MemoryMode, OpenReg, OpenRegConfig};
//! use std::time::Duration;
//!
//! let backend = OpenReg::new(OpenRegConfig::default().memory(MemoryMode::Mapped))?;
//! let tested = granule::selftest::run(backend, Duration::from_secs(10));
//! assert!(tested.steps.iter().all(|step| step.outcome != granule::selftest::Outcome::Failed));
//! # Ok::<(), granule::backend::BackendError>(())
//! ```

mod steps;

use alloc_core::backend::Backend;
use alloc_core::types::DeviceIndex;
use serde::Serialize;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should.
    Passed,
    /// Not as it should, or not in time.
    Failed,
    /// It needs what the backend does not have.
    Skipped,
}

/// One step of the test.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// What was tried.
    pub name: &'static str,
    /// On which device.
    pub device: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where it did not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What the test came to.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTest {
    /// Whether no step failed.
    pub passed: bool,
    /// How long it took.
    pub seconds: f64,
    /// Every step that began.
    pub steps: Vec<Step>,
}

/// What the thread of the test says.
enum Said {
    Begins(DeviceIndex, &'static str),
    Ended(Step),
}

/// Runs every step on every device. **Blocks** for `limit` at most: a driver that hangs fails the step that it hangs in, and
/// keeps the thread of the test for good.
///
/// Some 80 MiB of each device are used for a moment. Allocators and streams of the test are gone at its end.
pub fn run(backend: Arc<dyn Backend>, limit: Duration) -> SelfTest {
    let begun = Instant::now();
    let (say, said) = mpsc::channel();
    let test = std::thread::Builder::new().name("granule-selftest".into());
    let mut steps = Vec::new();
    if let Err(error) = test.spawn(move || every_step(&backend, &say)) {
        steps.push(failed("a thread for the test", DeviceIndex(0), error.to_string()));
    }
    let mut running = None;
    loop {
        match said.recv_timeout(limit.saturating_sub(begun.elapsed())) {
            Ok(Said::Begins(device, name)) => running = Some((device, name)),
            Ok(Said::Ended(step)) => {
                running = None;
                steps.push(step);
            }
            Err(over) => {
                let why = match over {
                    RecvTimeoutError::Timeout => format!("it did not end within {} s", limit.as_secs_f64()),
                    RecvTimeoutError::Disconnected => {
                        "the test panicked; its message is on standard error".into()
                    }
                };
                steps.extend(running.map(|(device, name)| failed(name, device, why)));
                break;
            }
        }
    }
    let passed = steps.iter().all(|step| step.outcome != Outcome::Failed);
    SelfTest { passed, seconds: begun.elapsed().as_secs_f64(), steps }
}

fn failed(name: &'static str, device: DeviceIndex, why: String) -> Step {
    Step { name, device: device.0, outcome: Outcome::Failed, detail: Some(why) }
}

/// On the thread of the test. Nobody may listen any more.
fn every_step(backend: &Arc<dyn Backend>, say: &Sender<Said>) {
    let devices = match backend.device_count() {
        Ok(devices) => devices,
        Err(error) => {
            let _ = say.send(Said::Ended(failed("count devices", DeviceIndex(0), error.to_string())));
            return;
        }
    };
    for device in (0..devices).map(DeviceIndex) {
        for step in &steps::ALL {
            let _ = say.send(Said::Begins(device, step.name));
            let ended = match (step.run)(backend, device) {
                Ok(()) => Step { name: step.name, device: device.0, outcome: Outcome::Passed, detail: None },
                Err(steps::Stop::Failed(why)) => failed(step.name, device, why),
                Err(steps::Stop::Skipped(why)) => {
                    Step { name: step.name, device: device.0, outcome: Outcome::Skipped, detail: Some(why) }
                }
            };
            if say.send(Said::Ended(ended)).is_err() {
                return;
            }
        }
    }
}
