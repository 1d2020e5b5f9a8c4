//! What one operation costs beside many of something: time for the benchmark, counted steps for the tests.

mod cases;
mod driver;

pub use cases::{CASES, Case, Known};

use crate::Allocator;
use crate::policy::Policy;
use alloc_core::config::Settings;
use alloc_core::steps;
use alloc_core::types::{DeviceIndex, DevicePtr, Stream};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use driver::{DriverTime, thread_ns};
use granule_conformance::interpose::Interposed;

const DEVICE: DeviceIndex = DeviceIndex(0);
/// Measurements of which the median is shown.
const ROUNDS: usize = 5;

/// What an operation took.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Nanoseconds of processor time besides the driver.
    pub ns: f64,
    /// Steps, in builds that count them.
    pub steps: f64,
    /// Bytes by which the process grew while everything of which there are many was made.
    pub grown: f64,
}

/// An allocator on a simulated device that only hands out addresses.
struct Machine {
    allocator: Allocator,
    driver: DriverTime,
    /// Bytes of the process before anything was made.
    before: f64,
}

impl Machine {
    fn new<P: Policy>() -> Self {
        Self::with_lag::<P>(0)
    }

    /// One on which work is done only when so much was queued behind it.
    fn with_lag<P: Policy>(lag: u64) -> Self {
        let config = OpenRegConfig::default().devices(1).capacity(1 << 42).clock(Clock::Virtual { lag });
        let device = OpenReg::new(config).expect("the machine can be set up");
        let driver = DriverTime::default();
        let backend = std::sync::Arc::new(Interposed::new(device, driver.clone()));
        let allocator = crate::made::<P>(backend, Settings::default()).expect("the settings are valid");
        Self { allocator: std::sync::Arc::new(allocator), driver, before: resident() }
    }

    fn stream(&self) -> Stream {
        self.allocator.backend().create_stream(DEVICE, 0).expect("there is no limit")
    }

    fn streams(&self, count: usize) -> Vec<Stream> {
        (0..count).map(|_| self.stream()).collect()
    }

    fn malloc(&self, bytes: u64, stream: Stream) -> DevicePtr {
        self.allocator.malloc(bytes, stream).expect("there is room")
    }

    /// A block for each stream, which stays.
    fn fill(&self, bytes: u64, streams: impl IntoIterator<Item = Stream>) {
        for stream in streams {
            self.malloc(bytes, stream);
        }
    }

    fn free(&self, ptr: DevicePtr) {
        self.allocator.free(ptr).expect("it is live");
    }

    /// One of `times` operations. `operation` is told its number.
    #[allow(clippy::cast_precision_loss)]
    fn cost(&self, times: usize, mut operation: impl FnMut(usize)) -> Cost {
        let grown = resident() - self.before;
        let before = steps::taken();
        let a_round = (times / ROUNDS).max(1);
        let mut rounds: Vec<f64> = (0..ROUNDS)
            .map(|round| {
                let driver = self.driver.ns();
                let start = thread_ns();
                (round * a_round..(round + 1) * a_round).for_each(&mut operation);
                let ns = (thread_ns() - start) as f64;
                (ns - (self.driver.ns() - driver)) / a_round as f64
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        let steps = (steps::taken() - before) as f64 / (ROUNDS * a_round) as f64;
        Cost { ns: rounds[ROUNDS / 2], steps, grown }
    }
}

/// Bytes of the process that are in memory; 0 where the system does not say.
#[allow(clippy::cast_precision_loss)]
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) as f64 * 4096.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many, and ten times more.
    const FEW: usize = 40;
    /// Steps that are not worth a comparison.
    const NEXT_TO_NOTHING: f64 = 8.0;
    /// Ten times more of anything may make an operation take so many times the steps.
    const GROWTH: f64 = 1.5;

    #[test]
    fn no_operation_takes_more_steps_beside_ten_times_more() {
        if !steps::COUNTED {
            println!("skipped: this build counts no steps");
            return;
        }
        let mut wrong = Vec::new();
        for case in CASES {
            let (few, many) = ((case.cost)(FEW).steps, (case.cost)(10 * FEW).steps);
            let grows = many.max(NEXT_TO_NOTHING) > GROWTH * few.max(NEXT_TO_NOTHING);
            let line = format!("{}, {}: {few:.1} steps, then {many:.1}", case.many, case.operation);
            println!("{line}");
            match &case.known {
                None if grows => wrong.push(format!("{line}: it grows")),
                Some(_) if !grows => {
                    wrong.push(format!("{line}: it grows no more; take it off the exceptions"));
                }
                _ => {}
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
