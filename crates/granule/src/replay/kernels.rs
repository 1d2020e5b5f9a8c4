//! How long the program's kernels run, and what waiting for other streams costs them.
//!
//! A trace says nothing of kernels, so they are made up: one after each request, on its stream, and one after each use on another
//! stream. It reads and writes the block once.

use backend_openreg::{Driver, OpenReg};
use serde::Serialize;
use std::str::FromStr;

/// The shortest kernel, in nanoseconds.
const SHORTEST_NS: u64 = 4_000;
/// Bytes of a block that a kernel gets done in a nanosecond: 3 TB/s, read and written.
const BYTES_A_NS: u64 = 1_500;

/// How long kernels run: so many times as long as on a device with memory of 3 TB/s, where the shortest takes 4 µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelTime(f64);

impl Default for KernelTime {
    /// As long as there.
    fn default() -> Self {
        Self(1.0)
    }
}

/// That is no factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernels run a number of times as long, from 0.001 to 1000, for example 0.1")]
pub struct BadKernelTime;

impl KernelTime {
    /// So many times as long.
    ///
    /// # Errors
    /// [`BadKernelTime`] where that is no number from 0.001 to 1000.
    pub fn times(factor: f64) -> Result<Self, BadKernelTime> {
        if (0.001..=1000.0).contains(&factor) { Ok(Self(factor)) } else { Err(BadKernelTime) }
    }
}

impl FromStr for KernelTime {
    type Err = BadKernelTime;

    fn from_str(text: &str) -> Result<Self, BadKernelTime> {
        text.parse().map_err(|_| BadKernelTime).and_then(Self::times)
    }
}

/// What device-side waits cost the program's streams. Times are those of a model: see [`KernelTime`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamFigures {
    /// How often the allocator made a stream wait for another, on the device.
    pub stream_waits: u64,
    /// How old that was which streams were to wait for.
    pub stream_wait_age_events: WaitAges,
    /// By how much these waits let kernels begin later, in nanoseconds. 0 without lag: everything is done at once then.
    pub stream_stalled_ns: u64,
    /// How long the kernels ran, in nanoseconds: those of all streams, added up.
    pub kernel_ns: u64,
}

/// How many events before a wait the newest kernel was given that it waits for. `None` without waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitAges {
    /// One wait in a hundred waits for a kernel this young, or younger.
    pub p1: Option<u64>,
    /// One in two.
    pub p50: Option<u64>,
}

impl WaitAges {
    fn of(mut ages: Vec<u64>) -> Self {
        ages.sort_unstable();
        let percentile = |part: usize| ages.get(ages.len().saturating_sub(1) * part / 100).copied();
        Self { p1: percentile(1), p50: percentile(50) }
    }
}

/// The kernels of a replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernels {
    factor: f64,
    ns: u64,
}

impl Kernels {
    pub(super) fn new(time: KernelTime) -> Self {
        Self { factor: time.0, ns: 0 }
    }

    /// Runs one with a block of so many bytes. How many nanoseconds it takes.
    #[inline]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn run(&mut self, bytes: u64) -> u64 {
        let ns = (SHORTEST_NS.max(bytes / BYTES_A_NS) as f64 * self.factor) as u64;
        self.ns += ns;
        ns
    }

    pub(super) fn figures(self, device: &OpenReg) -> StreamFigures {
        let times = Driver(device).stream_times();
        StreamFigures {
            stream_waits: times.wait_ages.len() as u64,
            stream_wait_age_events: WaitAges::of(times.wait_ages),
            stream_stalled_ns: times.stalled_ns,
            kernel_ns: self.ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BadKernelTime, KernelTime, Kernels, WaitAges};

    #[test]
    fn a_kernel_reads_and_writes_its_block_once() {
        let mut kernels = Kernels::new(KernelTime::default());
        assert_eq!(
            [512, 6_000_000, 3_000_000_000].map(|bytes| kernels.run(bytes)),
            [4_000, 4_000, 2_000_000]
        );
        assert_eq!(kernels.ns, 2_008_000);
        assert_eq!(Kernels::new("0.1".parse().unwrap()).run(3_000_000_000), 200_000);
    }

    #[test]
    fn what_is_no_factor_is_refused() {
        for text in ["", "-1", "0", "nan", "inf", "1001", "fast"] {
            assert_eq!(text.parse::<KernelTime>(), Err(BadKernelTime), "{text:?}");
        }
    }

    #[test]
    fn percentiles_of_ages() {
        let ages = WaitAges::of((0..=200).rev().collect());
        assert_eq!((ages.p1, ages.p50), (Some(2), Some(100)));
        assert_eq!(WaitAges::of(vec![7]), WaitAges { p1: Some(7), p50: Some(7) });
        assert_eq!(WaitAges::of(Vec::new()), WaitAges::default());
    }
}
