//! What the functions of the C table are called, and which there are.
//!
//! Vendors compile the order into their code: it is that of the generated table, and new functions come at its end.

/// What Granule derives where it is NULL, and how.
pub(super) const DERIVED: &[(&str, &str)] = &[
    ("error_name", "\"unknown\""),
    ("clear_error", "nothing"),
    ("has_primary_context", "true"),
    ("attribute", "GRANULE_BACKEND_NOT_SUPPORTED"),
    ("properties", "the backend's name, and the total of memory_info"),
    ("copy", "copy_async on the device's default stream, then synchronize_stream"),
    ("priority_range", "0 to 0: priorities make no difference"),
    ("elapsed_ms", "GRANULE_BACKEND_NOT_SUPPORTED"),
];

/// Functions that keep their name in C, whichever trait they are in.
pub(super) const NAMES: &[(&str, &str)] = &[
    ("pinned_host_host_malloc", "host_malloc"),
    ("pinned_host_host_free", "host_free"),
    ("physical_sharing_export_physical", "virtual_memory_export_physical"),
    ("physical_sharing_import_physical", "virtual_memory_import_physical"),
];

/// Methods that are no function of the table: what they answer is given with it or follows from the contract.
pub(super) const NOT_IN_TABLE: &[&str] =
    &["id", "kind", "name", "label", "default_stream", "dropped", "graph_memory"];
