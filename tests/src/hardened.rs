//! The hardened mode, and what it reports.

use crate::Allocator;
use alloc_core::config::Settings;
use alloc_core::hardened::CorruptionReport;
use std::sync::{Arc, Mutex, PoisonError};

/// Settings with the mode switched on.
#[must_use]
pub fn hardened() -> Settings {
    Settings { hardened: true, ..Settings::default() }
}

/// What is reported from here on.
#[must_use]
pub fn reports(allocator: &Allocator) -> Arc<Mutex<Vec<CorruptionReport>>> {
    let reports: Arc<Mutex<Vec<CorruptionReport>>> = Arc::default();
    let seen = Arc::clone(&reports);
    allocator.hooks().on_corruption(move |report| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(report.clone());
    });
    reports
}
