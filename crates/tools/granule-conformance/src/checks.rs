//! The checks, one module per area.

mod capture;
mod copies;
mod device;
#[cfg(feature = "engine")]
mod engine;
mod errors;
mod events;
mod families;
mod host;
mod ipc;
mod memory;
mod ordering;
mod peers;
mod room;
mod streams;
mod threads;
mod virtual_memory;

use crate::{Check, Options};

/// Every check of the kit, area by area. Those of [`Area::Engine`](crate::Area::Engine) come with the feature `engine`.
pub fn all() -> impl Iterator<Item = &'static Check> {
    [
        device::CHECKS,
        memory::CHECKS,
        memory::INFO_CHECKS,
        copies::CHECKS,
        copies::QUEUED_CHECKS,
        streams::CHECKS,
        streams::RUNNING_CHECKS,
        events::CHECKS,
        ordering::CHECKS,
        host::CHECKS,
        errors::CHECKS,
        errors::CURRENT_CHECKS,
        threads::CHECKS,
        virtual_memory::CHECKS,
        ipc::CHECKS,
        peers::CHECKS,
        capture::CHECKS,
        families::CHECKS,
        #[cfg(feature = "engine")]
        engine::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// The checks that a run takes, area by area.
pub fn selected(options: &Options) -> impl Iterator<Item = &'static Check> {
    let Options { areas, only, .. } = options;
    let within = |check: &Check| areas.is_empty() || areas.iter().any(|area| area == check.area_name());
    let named = |check: &Check| only.is_empty() || only.iter().any(|part| check.matches(part));
    all().filter(move |check| within(check) && named(check))
}

/// The names of all areas, in the order of the kit.
#[must_use]
pub fn areas() -> Vec<&'static str> {
    let mut areas: Vec<_> = all().map(Check::area_name).collect();
    areas.dedup();
    areas
}
