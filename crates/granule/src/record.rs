//! Recording a program's requests while it runs.

mod options;

pub use options::{BadRecordOptions, RecordOptions, Stacks};

/// The environment variable that asks for a recording, as [`RecordOptions`] read it.
pub const VARIABLE: &str = "GRANULE_RECORD";
