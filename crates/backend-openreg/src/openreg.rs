//! The machine as a program holds it: what goes beyond the contract.

use crate::config::{Families, MemoryMode, OpenRegConfig};
use crate::gate::Gate;
use crate::gate::call::{Call, CallCounts};
use crate::gate::fault::FaultPlan;
use crate::gate::usage::Usage;
use crate::machine::work::{Kernel, Work};
use crate::machine::{Locked, Machine};
use crate::memory::index;
use crate::names::Names;
use crate::refusal::{Answer, Refusal};
use crate::space::Span;
use crate::thread;
use crate::trap::Trap;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{BackendError, ErrorKind, Result, Unsupported};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// The driver number of every error: PyTorch's openreg library has one for all.
pub(crate) const ERROR_UNKNOWN: i32 = 1;

/// A simulated machine with several devices; see the [crate's page](crate).
#[derive(Debug)]
pub struct OpenReg {
    pub(crate) names: Names,
    pub(crate) config: OpenRegConfig,
    pub(crate) machine: Arc<Machine>,
    pub(crate) gate: Gate,
}

impl OpenReg {
    /// A new machine.
    ///
    /// # Errors
    /// `InvalidValue` for a set-up that makes no sense (`detail` says what to change); what the operating
    /// system says where mapped memory has no room.
    pub fn new(config: OpenRegConfig) -> Result<Arc<Self>> {
        let refuse =
            |kind, detail| BackendError::new(kind, ERROR_UNKNOWN, "OpenReg::new", DeviceIndex(0), detail);
        if let Some(fault) = config.fault() {
            return Err(refuse(ErrorKind::InvalidValue, fault));
        }
        let machine = Machine::new(&config).map_err(|error| {
            let refusal = Refusal::from(error);
            refuse(refusal.kind, refusal.detail.into_owned())
        })?;
        let gate = Gate::new(config.costs.clone());
        Ok(Arc::new(Self { names: Names::new(), config, machine, gate }))
    }

    /// How the machine was set up.
    #[must_use]
    pub const fn config(&self) -> &OpenRegConfig {
        &self.config
    }

    // --- memory ----------------------------------------------------------------------------------

    fn device_memory<T: Default>(
        &self,
        device: DeviceIndex,
        read: impl FnOnce(&mut crate::memory::DeviceMemory) -> T,
    ) -> T {
        self.machine.lock().memory.devices.get_mut(index(device)).map(read).unwrap_or_default()
    }

    /// Bytes of memory on a device; 0 where there is no such device. Costs no call.
    #[must_use]
    pub fn capacity(&self, device: DeviceIndex) -> u64 {
        self.device_memory(device, |memory| memory.capacity)
    }

    /// Changes a device's capacity, also to less than is used: nothing more fits then until enough is freed.
    pub fn set_capacity(&self, device: DeviceIndex, bytes: u64) {
        self.device_memory(device, |memory| memory.capacity = bytes);
    }

    /// Bytes accounted for on a device now. Costs no call.
    #[must_use]
    pub fn used(&self, device: DeviceIndex) -> u64 {
        self.device_memory(device, |memory| memory.used)
    }

    /// Most bytes ever accounted for, since the machine was made or [`reset_peak`](Self::reset_peak).
    #[must_use]
    pub fn peak_used(&self, device: DeviceIndex) -> u64 {
        self.device_memory(device, |memory| memory.peak)
    }

    /// Lets the peak begin again from what is used now.
    pub fn reset_peak(&self, device: DeviceIndex) {
        self.device_memory(device, |memory| memory.peak = memory.used);
    }

    // --- time and work ---------------------------------------------------------------------------

    /// Moves the virtual clock by `ticks` and does the work that falls due. Does nothing under
    /// [`Clock::Workers`](crate::Clock::Workers). Costs no call.
    pub fn advance(&self, ticks: u64) {
        self.machine.advance(ticks);
    }

    /// Nanoseconds since the machine was made, on its own clock.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.machine.now(&self.machine.lock())
    }

    /// Queues a kernel that reads and writes `bytes` at `ptr` on `stream`. Does not block; stream-ordered;
    /// legal during capture.
    ///
    /// # Errors
    /// `InvalidValue`, and a trap, where the stream's device may not use that memory.
    pub fn use_memory(&self, stream: Stream, ptr: DevicePtr, bytes: u64) -> Result<()> {
        self.use_memory_for(stream, ptr, bytes, Duration::ZERO)
    }

    /// [`use_memory`](Self::use_memory) by a kernel that runs that long: real time under
    /// [`Clock::Workers`](crate::Clock::Workers), virtual time otherwise.
    ///
    /// # Errors
    /// As for [`use_memory`](Self::use_memory).
    pub fn use_memory_for(&self, stream: Stream, ptr: DevicePtr, bytes: u64, time: Duration) -> Result<()> {
        self.queue_use(stream, Span::new(ptr.0, bytes), time)
    }

    /// [`use_memory`](Self::use_memory) on behalf of a user, for example of one tensor. Memory may pass from one user
    /// to another on one stream, or where the other stream waits; work that does not wait is trapped.
    ///
    /// # Errors
    /// As for [`use_memory`](Self::use_memory); `InvalidValue`, and a trap, where another stream's queued work uses
    /// the memory for another user and nothing orders the two.
    pub fn use_memory_as(&self, user: u64, stream: Stream, ptr: DevicePtr, bytes: u64) -> Result<()> {
        let user = NonZeroU64::new(user.saturating_add(1));
        self.queue_use(stream, Span { user, ..Span::new(ptr.0, bytes) }, Duration::ZERO)
    }

    fn queue_use(&self, stream: Stream, span: Span, time: Duration) -> Result<()> {
        self.enqueue(Call::UseMemory, stream, |state, device| {
            state.memory.check(device, span.start, span.end - span.start, true, true)?;
            let work = if time.is_zero() { Work::Touch } else { Work::Kernel(time) };
            Ok((work, [span, Span::default()]))
        })
    }

    /// Queues a kernel with results on `stream`: `kernel` is given the bytes of `to`, an address and a length, as they
    /// are when the stream gets there, to change them, and those of `from` to read. Does not block; stream-ordered;
    /// legal during capture. Without real bytes ([`MemoryMode::Reserved`]) it only takes its place.
    ///
    /// # Errors
    /// `InvalidValue`, and a trap, where the stream's device may not use that memory.
    pub fn launch_kernel(
        &self,
        stream: Stream,
        to: (DevicePtr, u64),
        from: (DevicePtr, u64),
        kernel: impl Fn(&mut [u8], &[u8]) + Send + Sync + 'static,
    ) -> Result<()> {
        self.enqueue(Call::UseMemory, stream, |state, device| {
            state.memory.check(device, to.0.0, to.1, true, true)?;
            state.memory.check(device, from.0.0, from.1, false, true)?;
            let [written, read] = [to, from].map(|(at, bytes)| state.memory.extents(at.0, bytes));
            let work = match self.config.memory {
                MemoryMode::Reserved => Work::Touch,
                MemoryMode::Mapped => Work::Compute { to: written, from: read, kernel: Kernel::new(kernel) },
            };
            Ok((work, [to, from].map(|(at, bytes)| Span::new(at.0, bytes))))
        })
    }

    /// Lets what `later` is given from now on wait for all that `earlier` was given, as an event between them would. Costs
    /// no call.
    ///
    /// # Errors
    /// `InvalidValue` where a stream is not this machine's; `CaptureViolation` where one is being captured.
    pub fn order(&self, earlier: Stream, later: Stream) -> Result<()> {
        let queued = || {
            let state = self.machine.lock();
            let [earlier, later] = [self.names.stream(&state, earlier)?, self.names.stream(&state, later)?];
            for key in [earlier, later] {
                if state.queues.stream(key)?.member.is_some() {
                    return Err(Refusal::capture("streams are ordered by events while one is captured"));
                }
            }
            match state.queues.end_of(earlier).filter(|end| !state.queues.passed(*end)) {
                Some(end) => self.machine.submit(state, later, Work::Wait(end), [Span::default(); 2], None),
                None => Ok(()),
            }
        };
        queued().map_err(|refusal| self.error(Call::WaitEvent, later.device, refusal))
    }

    // --- observation -----------------------------------------------------------------------------

    /// How often each call was made since the machine was made or [`reset_calls`](Self::reset_calls).
    #[must_use]
    pub fn calls(&self) -> CallCounts {
        self.gate.counts()
    }

    /// Nanoseconds that the calls would have taken on a device, by the cost model; the time for which the host
    /// waited for queued work counts (virtual clock).
    #[must_use]
    pub fn modelled_driver_time(&self) -> u64 {
        self.usage().modelled_ns()
    }

    /// Calls with their sizes and costs, and how long the host waited, since the machine was made or
    /// [`reset_calls`](Self::reset_calls).
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.gate.usage(self.machine.lock().waited_ns)
    }

    /// Sets the counts and the modelled time back to zero.
    pub fn reset_calls(&self) {
        self.gate.reset();
        let mut state = self.machine.lock();
        state.waited_ns = 0;
        if let Some(timeline) = &mut state.timeline {
            timeline.reset();
        }
    }

    /// What was trapped so far, oldest first (at most 65 536).
    #[must_use]
    pub fn traps(&self) -> Vec<Trap> {
        self.machine.lock().traps.clone()
    }

    /// Forgets what was trapped, and returns it.
    pub fn take_traps(&self) -> Vec<Trap> {
        std::mem::take(&mut self.machine.lock().traps)
    }

    // --- faults ----------------------------------------------------------------------------------

    /// Replaces the fault plan. Its counts begin with the next call. Lost devices stay lost.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.gate.set_plan(plan);
    }

    /// Loses a device: every later call about it fails with `DeviceLost`. Frees too, as on hardware.
    pub fn lose_device(&self, device: DeviceIndex) {
        self.gate.lose(device);
    }

    // --- inside ----------------------------------------------------------------------------------

    pub(crate) fn has(&self, family: Families) -> bool {
        self.config.families.contains(family)
    }

    /// Why a family is absent, if it is.
    pub(crate) fn offers(
        &self,
        family: Families,
        name: &'static str,
        needs_bytes: bool,
    ) -> std::result::Result<(), Unsupported> {
        if !self.has(family) {
            return Err(Unsupported {
                family: name,
                reason: "it was switched off in the OpenRegConfig".into(),
            });
        }
        if needs_bytes && self.config.memory == MemoryMode::Reserved {
            let reason = "reserved memory has addresses and no bytes; choose MemoryMode::Mapped".into();
            return Err(Unsupported { family: name, reason });
        }
        Ok(())
    }

    pub(crate) fn error(&self, call: Call, device: DeviceIndex, refusal: Refusal) -> BackendError {
        BackendError::new(refusal.kind, ERROR_UNKNOWN, call.name(), device, refusal.detail)
    }

    /// Counts a call and lets the fault plan have its way.
    pub(crate) fn enter(&self, call: Call, device: DeviceIndex) -> Result<()> {
        if device.0 >= self.config.devices {
            let detail = format!("there is no device {device}; this machine has {}", self.config.devices);
            return Err(self.error(call, device, Refusal::invalid(detail)));
        }
        self.gate
            .pass(call, device, |time| self.machine.pause(time))
            .map_err(|stopped| self.error(call, device, Refusal::new(stopped.kind, stopped.detail)))
    }

    /// One call: counted, under the machine's lock, its refusals trapped and turned into errors.
    pub(crate) fn call<'m, T>(
        &'m self,
        call: Call,
        device: DeviceIndex,
        body: impl FnOnce(Locked<'m>) -> Answer<T>,
    ) -> Result<T> {
        self.enter(call, device)?;
        body(self.machine.lock()).map_err(|refusal| self.refused(call, device, refusal))
    }

    /// A call that a capture forbids, and that breaks it, unless the thread is in relaxed mode.
    pub(crate) fn unsafe_call<'m, T>(
        &'m self,
        call: Call,
        device: DeviceIndex,
        body: impl FnOnce(Locked<'m>) -> Answer<T>,
    ) -> Result<T> {
        self.call(call, device, |mut state| {
            if !(self.config.maps_during_capture && call.is_about_mappings()) {
                self.not_during_capture(&mut state)?;
            }
            body(state)
        })
    }

    pub(crate) fn not_during_capture(&self, state: &mut Locked<'_>) -> Answer<()> {
        if state.captures.active.is_empty()
            || !state.captures.invalidate_for_unsafe_call(thread::mode(self.names.id()))
        {
            return Ok(());
        }
        Err(Refusal::capture(
            "not allowed while a stream is captured (use the relaxed mode); the capture is broken now",
        ))
    }

    #[cold]
    pub(crate) fn refused(&self, call: Call, device: DeviceIndex, refusal: Refusal) -> BackendError {
        if let Some((kind, at, bytes)) = refusal.trap {
            self.machine.lock().trap(kind, call, device, at, bytes);
        }
        self.error(call, device, refusal)
    }

    /// A call that queues what `prepare` makes.
    pub(crate) fn enqueue(
        &self,
        call: Call,
        stream: Stream,
        prepare: impl FnOnce(&mut Locked<'_>, usize) -> Answer<(Work, crate::machine::work::Spans)>,
    ) -> Result<()> {
        self.call(call, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            let (work, uses) = prepare(&mut state, index(stream.device))?;
            self.machine.queue(state, key, work, uses)
        })
    }
}

impl Drop for OpenReg {
    fn drop(&mut self) {
        self.machine.close();
    }
}
