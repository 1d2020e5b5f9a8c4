//! A short test of a backend and of the allocator over it, for a machine that nobody knows yet.
//!
#![cfg_attr(feature = "openreg", doc = "```")]
#![cfg_attr(not(feature = "openreg"), doc = "```ignore")]
//! use granule::openreg::{MemoryMode, OpenReg, OpenRegConfig};
//! use std::time::Duration;
//!
//! let backend = OpenReg::new(OpenRegConfig::default().memory(MemoryMode::Mapped))?;
//! let tested = granule::selftest::run(backend, &granule::config::Settings::default(), Duration::from_secs(10));
//! assert!(tested.steps.iter().all(|step| step.outcome != granule::selftest::Outcome::Failed));
//! # Ok::<(), granule::backend::BackendError>(())
//! ```

mod steps;

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::round::size_text;
use alloc_core::system::{SharedMemory, System};
use alloc_core::types::DeviceIndex;
use serde::Serialize;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use steps::{Stop, Tested};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should.
    Passed,
    /// Not as it should, or not in time.
    Failed,
    /// It needs what the backend does not have, or more memory than is free.
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
/// The first step makes an allocator with `settings`, the others with their own. Some 80 MiB of each device are used for a moment;
/// steps are skipped where that is not free. Allocators and streams of the test are gone at its end.
pub fn run(backend: Arc<dyn Backend>, settings: &Settings, limit: Duration) -> SelfTest {
    let tested = Tested { backend, settings: settings.clone() };
    let begun = Instant::now();
    let (say, said) = mpsc::channel();
    let test = std::thread::Builder::new().name("granule-selftest".into());
    let mut steps = Vec::new();
    if let Err(error) = test.spawn(move || every_step(&tested, &say)) {
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
fn every_step(tested: &Tested, say: &Sender<Said>) {
    let devices = match tested.backend.device_count() {
        Ok(devices) => devices,
        Err(error) => {
            let _ = say.send(Said::Ended(failed("count devices", DeviceIndex(0), error.to_string())));
            return;
        }
    };
    for device in (0..devices).map(DeviceIndex) {
        for step in &steps::ALL {
            let _ = say.send(Said::Begins(device, step.name));
            let (outcome, detail) = match (step.run)(tested, device) {
                Ok(()) => (Outcome::Passed, None),
                Err(Stop::Failed(why)) => (Outcome::Failed, Some(why)),
                Err(Stop::Skipped(why)) => (Outcome::Skipped, Some(why)),
                Err(Stop::NoMemory(why)) => match too_little(tested, device) {
                    Some(free) => (Outcome::Skipped, Some(free)),
                    None => (Outcome::Failed, Some(why)),
                },
            };
            let ended = Step { name: step.name, device: device.0, outcome, detail };
            if say.send(Said::Ended(ended)).is_err() {
                return;
            }
        }
    }
}

/// What is free of a device, where that is too little for the test.
fn too_little(tested: &Tested, device: DeviceIndex) -> Option<String> {
    let backend = &*tested.backend;
    let driver = backend.memory_info(device).inspect_err(|_| backend.clear_error()).ok()?;
    let shared = SharedMemory::of(&System::at(&tested.settings.system_root), backend, device);
    let free = shared.map_or(driver, |shared| shared.obtainable(driver)).free;
    (free < steps::NEEDED).then(|| {
        let (needed, free) = (size_text(steps::NEEDED), size_text(free));
        format!("{needed} of the device should be free, and {free} are: let other programs give memory back, and try again")
    })
}
