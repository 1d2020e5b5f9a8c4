//! The order of the functions in the C table.
//!
//! Vendors compile the order into their code, so it must not follow the order of source lines. **Only append**:
//! a table that ends earlier stays valid, its missing tail reads as NULL. Anything else needs a new version.
//!
//! Behind the functions stand two texts, `name` and `label`; what is appended from here on stands behind those.

/// What a backend must give.
pub(super) const REQUIRED: &[&str] = &[
    "device_count",
    "current_device",
    "set_device",
    "synchronize_device",
    "malloc",
    "free",
    "memory_info",
    "pointer_info",
    "address_range",
    "copy_async",
    "memset_async",
    "create_stream",
    "destroy_stream",
    "query_stream",
    "synchronize_stream",
    "wait_event",
    "launch_host_function",
    "create_event",
    "destroy_event",
    "record_event",
    "query_event",
    "synchronize_event",
];

/// A family whose functions were required once, and keep their place.
pub(super) const ONCE_REQUIRED: &[&str] = &["host_malloc", "host_free"];

/// What Granule derives where it is NULL, and how.
pub(super) const DERIVED: &[(&str, &str)] = &[
    ("error_name", "\"unknown\""),
    ("clear_error", "nothing"),
    ("exchange_device", "current_device, then set_device where they differ"),
    ("has_primary_context", "true"),
    ("attribute", "GRANULE_BACKEND_NOT_SUPPORTED"),
    ("properties", "the backend's name, and the total of memory_info"),
    ("copy", "copy_async on the device's default stream, then synchronize_stream"),
    ("priority_range", "0 to 0: priorities make no difference"),
    ("elapsed_ms", "GRANULE_BACKEND_NOT_SUPPORTED"),
];

/// The optional families.
pub(super) const FAMILIES: &[&str] = &[
    "virtual_memory_granularity",
    "virtual_memory_reserve_address",
    "virtual_memory_release_address",
    "virtual_memory_create_physical",
    "virtual_memory_release_physical",
    "virtual_memory_map",
    "virtual_memory_unmap",
    "virtual_memory_set_access",
    "virtual_memory_access",
    "virtual_memory_export_physical",
    "virtual_memory_import_physical",
    "virtual_memory_retain_physical",
    "virtual_memory_physical_properties",
    "ipc_export_memory",
    "ipc_open_memory",
    "ipc_close_memory",
    "ipc_export_event",
    "ipc_open_event",
    "peers_can_access",
    "peers_enable_access",
    "peers_copy_peer_async",
    "capture_status",
    "capture_begin",
    "capture_end",
    "capture_launch",
    "capture_destroy_graph",
    "capture_exchange_mode",
    "capture_frontier",
    "capture_dependencies",
    "capture_retain_until_graph_ends",
    "driver_pools_malloc_async",
    "driver_pools_free_async",
    "driver_pools_trim",
    "driver_pools_pool_attribute",
    "driver_pools_set_pool_attribute",
    "host_registration_register",
    "host_registration_unregister",
    "host_registration_device_pointer",
    "managed_memory_malloc_managed",
    "managed_memory_prefetch_async",
    "stream_memory_write_value32",
    "multicast_granularity",
    "multicast_create",
    "multicast_add_device",
    "multicast_bind",
    "multicast_unbind",
    "host_access_unprotect",
    "host_access_protect",
    "host_access_of",
    "host_access_accounted",
];

/// Functions that keep their name in C, whichever trait they are in.
pub(super) const NAMES: &[(&str, &str)] = &[
    ("pinned_host_host_malloc", "host_malloc"),
    ("pinned_host_host_free", "host_free"),
    ("physical_sharing_export_physical", "virtual_memory_export_physical"),
    ("physical_sharing_import_physical", "virtual_memory_import_physical"),
];

/// Methods that are no function of the table: what they answer is given with it or follows from the contract.
pub(super) const NOT_IN_TABLE: &[&str] = &["id", "kind", "name", "label", "default_stream"];
