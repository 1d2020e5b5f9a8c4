//! Machines and allocators of pinned memory, and what is left of it in the end.

use alloc_core::config::Settings;
use alloc_core::host::{HostAllocator, HostOptions};
use backend_openreg::{Call, Clock, OpenReg, OpenRegConfig};
use std::sync::Arc;

pub(crate) fn machine(config: OpenRegConfig) -> Arc<OpenReg> {
    OpenReg::new(config).unwrap()
}

pub(crate) fn idle() -> Arc<OpenReg> {
    machine(OpenRegConfig::default().devices(1))
}

/// A machine on which work takes that many further operations.
pub(crate) fn slow(lag: u64) -> Arc<OpenReg> {
    machine(OpenRegConfig::default().devices(2).clock(Clock::Virtual { lag }))
}

pub(crate) fn with(machine: &Arc<OpenReg>, settings: &Settings) -> HostAllocator {
    HostAllocator::new(machine.clone(), settings, HostOptions::default()).unwrap()
}

pub(crate) fn plain(machine: &Arc<OpenReg>) -> HostAllocator {
    with(machine, &Settings::default())
}

pub(crate) fn calls(machine: &OpenReg, call: Call) -> u64 {
    machine.calls().get(call)
}
