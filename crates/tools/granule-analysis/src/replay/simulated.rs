//! The simulated device of a replay: the program's own work on it, and what only such a device can tell.

use super::iterations::{AfterSecond, DriverFigures, IterationFigures, iterations};
use super::{DEVICE, ReplayOptions};
use alloc_core::backend::Result;
use alloc_core::types::{DevicePtr, Stream};
use backend_openreg::{Call, Clock, OpenReg, OpenRegConfig, Usage};
use granule_snapshot::trace::Trace;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Figures of a simulated device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SimulatedFigures {
    /// How many events the device's work was behind.
    pub lag: u64,
    /// The most the device had handed out at once.
    pub driver_peak_held: u64,
    /// Calls by driver function.
    pub device_calls: BTreeMap<String, u64>,
    /// Modelled driver time of these calls in nanoseconds.
    pub modelled_ns_by_call: BTreeMap<String, u64>,
    /// How long the host waited for queued work, in nanoseconds of the device's clock (a microsecond an event).
    pub waited_ns: u64,
    /// Modelled driver time in nanoseconds, waits included; see the cost model of the simulated device.
    pub modelled_driver_ns: u64,
    /// Times the simulator caught memory leaving, moving or being handed on while queued work still used it.
    /// Always 0.
    pub traps: u64,
    /// What the whole run asked of the driver.
    pub driver: DriverFigures<u64>,
    /// What each iteration asked of it.
    pub iterations: Vec<IterationFigures>,
    /// The iterations after the second together.
    pub after_second_iteration: AfterSecond,
}

/// The device that the options describe.
pub(super) fn device(options: &ReplayOptions) -> Result<Arc<OpenReg>> {
    let config = OpenRegConfig::default()
        .devices(1)
        .capacity(options.simulated_capacity())
        // Each stream reserves some, and a program may have thousands.
        .addresses(1 << 46)
        // Time passes with the events of the trace, however much work they queue.
        .clock(Clock::Virtual { lag: options.lag })
        .operations_tick(false)
        // Kernels are the program's, not the driver's time.
        .costs(options.costs.clone().per_call(Call::UseMemory, 0));
    OpenReg::new(if options.no_virtual_memory { config.without_virtual_memory() } else { config })
}

/// The program on a simulated device: it uses its blocks, and readings are taken where its iterations begin.
#[derive(Debug)]
pub(super) struct Program<'a> {
    device: &'a OpenReg,
    /// Whether work stays queued, so that it can be disturbed.
    lags: bool,
    /// Whether it looks at its live blocks now and then.
    looks: bool,
    /// Other streams that use a block, by its number.
    others: HashMap<u64, Vec<Stream>>,
    began: Usage,
    /// The last reading, once the first iteration has begun.
    last: Option<Usage>,
    iterations: Vec<DriverFigures<u64>>,
}

impl<'a> Program<'a> {
    pub(super) fn new(device: &'a OpenReg, options: &ReplayOptions) -> Self {
        Self {
            device,
            lags: options.lag > 0,
            looks: options.lag == 0 && !options.unwatched,
            others: HashMap::new(),
            began: device.usage(),
            last: None,
            iterations: Vec::new(),
        }
    }

    /// An event passes.
    pub(super) fn tick(&self) {
        if self.lags {
            self.device.advance(1);
        }
    }

    /// A block was handed out: work with it follows.
    #[inline]
    pub(super) fn takes(&mut self, id: u64, stream: Stream, ptr: DevicePtr, bytes: u64) {
        if self.lags {
            self.uses(id, stream, ptr, bytes);
        }
    }

    /// A block is used on a stream. What is wrong with that is trapped, and the traps are counted.
    fn uses(&self, id: u64, stream: Stream, ptr: DevicePtr, bytes: u64) {
        let _ = self.device.use_memory_as(id, stream, ptr, bytes);
    }

    /// A block is used on another stream, too, until it is freed: after what its own was given, as programs order it.
    pub(super) fn records(&mut self, id: u64, own: Stream, other: Stream, ptr: DevicePtr, bytes: u64) {
        if self.lags {
            // Nothing is captured, and the streams are the replay's.
            let _ = self.device.order(own, other);
            self.others.entry(id).or_default().push(other);
            self.uses(id, other, ptr, bytes);
        }
    }

    /// The last uses of a block before it is freed.
    pub(super) fn frees(&mut self, id: u64, stream: Stream, ptr: DevicePtr, bytes: u64) {
        if self.lags {
            self.uses(id, stream, ptr, bytes);
            for other in self.others.remove(&id).unwrap_or_default() {
                self.uses(id, other, ptr, bytes);
            }
        }
    }

    /// Where work is done at once, it is enough to look now and then whether live blocks can be used.
    pub(super) fn looks(&self) -> bool {
        self.looks
    }

    /// These blocks are used for a moment.
    pub(super) fn looks_at(&self, live: impl Iterator<Item = (Stream, DevicePtr, u64)>) {
        for (stream, ptr, bytes) in live {
            let _ = self.device.use_memory(stream, ptr, bytes);
        }
    }

    /// An iteration begins, or the program ends.
    pub(super) fn mark(&mut self) {
        let now = self.device.usage();
        if let Some(last) = &self.last {
            self.iterations.push(DriverFigures::of(&now.since(last)));
        }
        self.last = Some(now);
    }

    /// The figures of the run, which is over.
    pub(super) fn figures(mut self, trace: &Trace, lag: u64) -> SimulatedFigures {
        if self.last.is_some() {
            self.mark();
        }
        let usage = self.device.usage().since(&self.began);
        let calls: Vec<Call> =
            usage.calls().iter().map(|(call, _)| call).filter(|call| *call != Call::UseMemory).collect();
        let by_call = |figure: &dyn Fn(Call) -> u64| {
            calls.iter().map(|&call| (call.name().to_owned(), figure(call))).collect()
        };
        let iterations: Vec<IterationFigures> = iterations(trace)
            .into_iter()
            .zip(self.iterations)
            .map(|(iteration, driver)| IterationFigures { iteration, driver })
            .collect();
        SimulatedFigures {
            lag,
            driver_peak_held: self.device.peak_used(DEVICE),
            device_calls: by_call(&|call| usage.calls().get(call)),
            modelled_ns_by_call: by_call(&|call| usage.modelled_ns_of(call)),
            waited_ns: usage.waited_ns(),
            modelled_driver_ns: usage.modelled_ns(),
            traps: self.device.traps().len() as u64,
            driver: DriverFigures::of(&usage),
            after_second_iteration: AfterSecond::of(&iterations),
            iterations,
        }
    }
}
