//! A limit below the device's memory, which refuses requests that the device has room for.

use alloc_core::config::Settings;
use alloc_core::round::size_text;
use granule_snapshot::trace::{FRACTION, Trace};
use serde::Serialize;

/// A limit that refused a request, as far as the file tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// What set it; `None` where that is not told.
    pub set_by: Option<&'static str>,
    /// What the process could have, in bytes; `None` where that is not told.
    pub bytes: Option<u64>,
    /// What the device had free then; `None` where that is not told.
    pub device_free: Option<u64>,
    /// Whether it was raised: more was held later than it would let.
    pub lifted: bool,
}

impl Limit {
    /// That of a trace whose notes name one.
    #[must_use]
    pub fn of_trace(trace: &Trace) -> Option<Self> {
        trace.reasons().find(|reason| reason.contains(FRACTION))?;
        let bytes = trace.refusals().1;
        let mut served = trace.served().0.into_owned();
        served.summarise();
        let lifted = bytes < served.header.peak_live_requested;
        Some(Self { set_by: Some(FRACTION), bytes, device_free: None, lifted: bytes.is_some() && lifted })
    }

    /// That of an allocator's settings.
    #[must_use]
    pub fn of_settings(settings: &Settings) -> Option<Self> {
        let set_by = match () {
            () if settings.memory_limit.is_some() => "memory_limit",
            () if settings.per_process_memory_fraction < 1.0 => "per_process_memory_fraction",
            () => return None,
        };
        Some(Self { set_by: Some(set_by), ..Self::default() })
    }

    /// Why a request was refused, as a part of a sentence.
    #[must_use]
    pub fn text(&self) -> String {
        let free =
            self.device_free.map_or_else(String::new, |free| format!(", which had {} free", size_text(free)));
        let what = match (self.set_by, self.bytes) {
            (Some(by), Some(bytes)) => format!("{by} left the process {}", size_text(bytes)),
            (Some(by), None) => format!("{by} is set"),
            (None, _) => {
                format!("which limit, the file does not tell ({FRACTION}, memory_limit, that of a pool)")
            }
        };
        format!("by a limit, not by the device{free}; {what}")
    }

    /// The same in a sentence, without its end.
    #[must_use]
    pub fn said(&self) -> String {
        format!("A request was refused {}", self.text())
    }
}
