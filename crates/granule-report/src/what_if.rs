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

/// What was tried on one device.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIfDevice {
    /// What it comes to.
    pub verdict: String,
    /// What to do for that, line by line; empty where nothing has to be done, or nothing helps.
    pub steps: Vec<String>,
    /// One row for each setting.
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
