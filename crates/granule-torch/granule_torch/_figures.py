"""The statistics of the C ABI: the fields of its structs after their size, in their order.

Generated from the tables of figures in `alloc-core` by `cargo xtask codegen`. Do not edit.
"""

DEVICE_STATS = (
    ("num_alloc_retries", "number"),
    ("num_ooms", "number"),
    ("max_split_size", "number"),
    ("num_sync_all_streams", "number"),
    ("num_device_alloc", "number"),
    ("num_device_free", "number"),
    ("num_oom_rejections", "number"),
    ("allocation", "array"),
    ("segment", "array"),
    ("active", "array"),
    ("inactive_split", "array"),
    ("allocated_bytes", "array"),
    ("reserved_bytes", "array"),
    ("active_bytes", "array"),
    ("inactive_split_bytes", "array"),
    ("requested_bytes", "array"),
    ("oversize_allocations", "stat"),
    ("oversize_segments", "stat"),
    ("pending_bytes", "number"),
    ("unrecorded_frees", "number"),
    ("granules_moved", "number"),
    ("asleep_bytes", "number"),
)

HOST_STATS = (
    ("allocations", "stat"),
    ("active_requests", "stat"),
    ("allocated_bytes", "stat"),
    ("active_bytes", "stat"),
    ("host_alloc_time", "time"),
    ("host_free_time", "time"),
    ("num_host_alloc", "number"),
    ("num_host_free", "number"),
    ("exact_active_requests", "stat"),
    ("exact_active_bytes", "stat"),
    ("requested_bytes", "number"),
    ("pending_bytes", "number"),
    ("kept_bytes", "number"),
    ("unrecorded_frees", "number"),
    ("reserve_bytes", "number"),
    ("reserve_free_bytes", "number"),
)
