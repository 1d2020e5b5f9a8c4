//! What other settings would have done, as tables.

use serde::Serialize;

/// The tables, or why there are none.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WhatIf {
    /// What holds for all of them, or why there are none; may be empty.
    pub summary: String,
    /// One for each device.
    pub devices: Vec<WhatIfDevice>,
}

impl WhatIf {
    /// What it comes to on a device of `capacity` bytes, as a sentence; `None` where nothing was tried.
    #[must_use]
    pub fn of(&self, capacity: Option<u64>) -> Option<&str> {
        let device = self.devices.iter().find(|device| Some(device.capacity) == capacity);
        let elsewhere =
            (!self.devices.is_empty()).then_some("The panel What if says what other settings do.");
        device.map(|device| device.verdict.as_str()).or(elsewhere)
    }
}

/// What was tried on one device.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIfDevice {
    /// What the allocator can have of its memory, in bytes.
    pub capacity: u64,
    /// What it comes to.
    pub verdict: String,
    /// What to do for that, line by line; empty where nothing has to be done, or nothing helps.
    pub steps: Vec<String>,
    /// One row for each setting, the best first.
    pub rows: Vec<WhatIfRow>,
}

/// What one setting would have done.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIfRow {
    /// What it is.
    pub name: String,
    /// Requests that were refused.
    pub refused: u64,
    /// Most reserved bytes.
    pub reserved_peak: u64,
    /// Times that cached memory had to be given back to serve a request.
    pub retries: u64,
    /// Modelled nanoseconds in the driver.
    pub driver_ns: f64,
    /// Whether it is the least change that fits.
    pub recommended: bool,
}
