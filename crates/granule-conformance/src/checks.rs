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
mod pools;
mod room;
mod streams;
mod threads;
mod virtual_memory;

use crate::Check;

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
        pools::CHECKS,
        families::CHECKS,
        #[cfg(feature = "engine")]
        engine::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// The checks that one of `parts` selects ([`Check::matches`]); all where there is none.
pub fn selected(parts: &[String]) -> impl Iterator<Item = &'static Check> {
    all().filter(move |check| parts.is_empty() || parts.iter().any(|part| check.matches(part)))
}
