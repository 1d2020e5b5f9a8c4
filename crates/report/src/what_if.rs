//! What other settings would have done, as a table.

use serde::Serialize;

/// The table, or why there is none.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WhatIf {
    /// What the table comes to, or why it is empty.
    pub summary: String,
    /// One row for each setting and capacity.
    pub rows: Vec<WhatIfRow>,
}

/// What one setting would have done on one device.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIfRow {
    /// What it is.
    pub name: String,
    /// The text for `PYTORCH_CUDA_ALLOC_CONF`; `None` where no such text gives it.
    pub conf: Option<String>,
    /// Bytes of the device; `None` for one without end.
    pub capacity: Option<u64>,
    /// Whether every request was served.
    pub fits: bool,
    /// Requests that were refused.
    pub refused: u64,
    /// Most bytes held from the device.
    pub reserved_peak: u64,
    /// Times that cached memory had to be given back to serve a request.
    pub retries: u64,
    /// Modelled nanoseconds in the driver.
    pub driver_ns: f64,
    /// Whether it is the least change that fits.
    pub recommended: bool,
}
