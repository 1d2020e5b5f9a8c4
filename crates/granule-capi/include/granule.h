/* Granule's C ABI.
 *
 * Generated from crates/granule-capi by `cargo xtask header`. Do not edit.
 *
 *  - A function that can fail returns a granule_status. Answers are written through pointers, where it is GRANULE_OK and only then.
 *    granule_last_error() is the text of the calling thread's last failure.
 *  - Sizes are bytes, times are microseconds since the Unix epoch, devices are numbered from 0. A stream is the driver's handle as a
 *    number (cudaStream_t, hipStream_t); 0 is the device's default stream.
 *  - A pointer is null, or points to what its type says for the length of the call (a handle: until it is destroyed), and nobody
 *    else writes there meanwhile. Null where something is needed is GRANULE_INVALID_ARGUMENT. Addresses of device memory are
 *    numbers: any value is safe to give.
 *  - A struct that begins with `uint32_t size` may grow: the caller sets the size to sizeof(it), and no more than that is read or
 *    written. An older, shorter struct keeps working; what it lacks counts as zero.
 *  - Callbacks get their `user` back, may run on any thread, and must not unwind (C++: catch what is thrown, else the process ends). Where there is a
 *    `drop`, it is called once, when the library lets go of `user`; what has none is kept for ever.
 *  - Callbacks may call the library, unless it says otherwise: while a thread is in a callback of one kind, what it asks of the same
 *    allocator is done without callbacks of that kind.
 *  - Texts are NUL-terminated UTF-8. Texts and bytes that the library makes are granule_bytes, freed with granule_bytes_free.
 *  - Any thread may call any function at any time, but for those that end a handle: to end it while another thread still uses it is
 *    undefined. After such a call the handle is gone. To give it again is GRANULE_INVALID_ARGUMENT (functions without a status give
 *    null or 0), until 64 others of its type were ended: then it may be another one's.
 *  - No function is async-signal-safe: one that is called from a signal handler may wait for ever for a lock that its own thread
 *    holds.
 *  - What the library has to say goes to the standard error stream; the variable GRANULE_LOG (off, error, warn, info, debug) says
 *    how much. It is warn by itself.
 *  - The header is C99 and C++17. granule_backend.h may be included beside it, in any order.
 */

#ifndef GRANULE_H
#define GRANULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A vendor's backend: see granule_backend.h. */
struct granule_backend_table;

/**
 * The version of this interface. A later one only adds functions, and fields at the end of structs that begin with
 * their size.
 */
#define GRANULE_ABI_VERSION 1

/** The limit of all that is held on the device. */
#define GRANULE_OWNER_DEVICE 0

/** A pool's own limit. */
#define GRANULE_OWNER_POOL 1

/** A tenant's. */
#define GRANULE_OWNER_TENANT 2

/** The pool is at its own limit. */
#define GRANULE_SHORTAGE_POOL 0

/** The tenant is at its hard limit. */
#define GRANULE_SHORTAGE_TENANT 1

/** What is left is guaranteed to other tenants. */
#define GRANULE_SHORTAGE_GUARANTEES 2

/** The device is full, or a limit on all that is held is reached. */
#define GRANULE_SHORTAGE_DEVICE 3

/** All requests. */
#define GRANULE_FILTER_ALWAYS 0

/** Those of the thread that opens the scope. */
#define GRANULE_FILTER_THIS_THREAD 1

/** Those for one stream. */
#define GRANULE_FILTER_STREAM 2

/** Those for streams that are part of the same capture as this one; none while it is not being captured. */
#define GRANULE_FILTER_CAPTURE_OF 3

/** Those that a function accepts. It is called with no lock held, at every request; it may use the allocator. */
#define GRANULE_FILTER_CUSTOM 4

/** Contents are lost. */
#define GRANULE_BACKUP_DISCARD 0

/** In page-locked host memory, given back after the wake. */
#define GRANULE_BACKUP_PINNED 1

/** In page-locked host memory that is kept for the next sleep. */
#define GRANULE_BACKUP_PINNED_KEEP 2

/** In a file without a name in a directory. */
#define GRANULE_BACKUP_FILE 3

/** Contexts are never gathered. */
#define GRANULE_CONTEXT_NEVER 0

/** At requests; kept with live blocks and segments only. */
#define GRANULE_CONTEXT_STATE 1

/** At requests and notes; kept in entries, too. */
#define GRANULE_CONTEXT_ALLOC 2

/** At frees and flushes, too. */
#define GRANULE_CONTEXT_ALL 3

/** A block was handed out. (The numbers are those of c10's TraceEntry.) */
#define GRANULE_ACTION_ALLOC 0

/** A block was given back by the program. */
#define GRANULE_ACTION_FREE_REQUESTED 1

/** A block became reusable. */
#define GRANULE_ACTION_FREE_COMPLETED 2

/** A segment was taken from the device. */
#define GRANULE_ACTION_SEGMENT_ALLOC 3

/** A segment was given back. */
#define GRANULE_ACTION_SEGMENT_FREE 4

/** Memory was mapped into a growable segment. */
#define GRANULE_ACTION_SEGMENT_MAP 5

/** Memory was unmapped from a growable segment. */
#define GRANULE_ACTION_SEGMENT_UNMAP 6

/** A snapshot was taken. */
#define GRANULE_ACTION_SNAPSHOT 7

/** A request failed for want of memory. */
#define GRANULE_ACTION_OOM 8

/** The program wrote a note. */
#define GRANULE_ACTION_ANNOTATE 9

/** Free. */
#define GRANULE_BLOCK_INACTIVE 0

/** In the program's hands. */
#define GRANULE_BLOCK_ALLOCATED 1

/** Given back, waiting for other streams. */
#define GRANULE_BLOCK_PENDING 2

/** What goes with the allocator's policy. */
#define GRANULE_SIZING_POLICY 0

/** As PyTorch rounds: powers of two. */
#define GRANULE_SIZING_PYTORCH 1

/** Whole pages, and little is held beyond what is in use at once: see the setting pinned_spare. */
#define GRANULE_SIZING_GRANULE 2

/** Memory lies wherever the system puts it. */
#define GRANULE_NUMA_SYSTEM 0

/** Near a device. */
#define GRANULE_NUMA_NEAR_DEVICE 1

/** On a node. */
#define GRANULE_NUMA_NODE 2

/** From host memory to device memory. */
#define GRANULE_COPY_HOST_TO_DEVICE 0

/** From device memory to host memory. */
#define GRANULE_COPY_DEVICE_TO_HOST 1

/** Within device memory. */
#define GRANULE_COPY_DEVICE_TO_DEVICE 2

/** Within host memory. */
#define GRANULE_COPY_HOST_TO_HOST 3

/** Nothing that the driver knows. */
#define GRANULE_POINTER_UNKNOWN 0

/** Device memory. */
#define GRANULE_POINTER_DEVICE 1

/** Pinned or registered host memory. */
#define GRANULE_POINTER_PINNED_HOST 2

/** Memory that migrates. */
#define GRANULE_POINTER_MANAGED 3

/** Unsafe calls are refused in every thread. */
#define GRANULE_CAPTURE_GLOBAL 0

/** Unsafe calls are refused in the capturing thread. */
#define GRANULE_CAPTURE_THREAD_LOCAL 1

/** Unsafe calls are allowed. */
#define GRANULE_CAPTURE_RELAXED 2

/** An allocator for every device of one backend. Any thread may use it at any time. */
typedef struct granule_allocator granule_allocator;

/** Device memory that is given back once the buffer and all tensors made of it are gone. */
typedef struct granule_buffer granule_buffer;

/** A stream that is being captured. It stays on the thread that began it. */
typedef struct granule_capture granule_capture;

/** Which blocks of a pool were live at some moment. */
typedef struct granule_checkpoint granule_checkpoint;

/** A graph, and the memory that its work knows by address. */
typedef struct granule_graph granule_graph;

/** A caching allocator for pinned host memory. Any thread may use it at any time. */
typedef struct granule_host_allocator granule_host_allocator;

/** Memory of another process, open here. */
typedef struct granule_import granule_import;

/** Memory of a device for pools whose segments libraries register, such as NCCL. */
typedef struct granule_registered granule_registered;

/** A part of the program whose statistics are kept. */
typedef struct granule_scope granule_scope;

/** A snapshot. Everything in it lives as long as it does. */
typedef struct granule_snapshot granule_snapshot;

/** A range of registered memory that stays while it is open, whatever is freed in it. */
typedef struct granule_window granule_window;

/** How a call ended: one of the GRANULE_... numbers below. What is not GRANULE_OK is a failure, but for GRANULE_NOT_READY. */
typedef int32_t granule_status;

/** Bytes that the library made. They are freed with granule_bytes_free. Where they are a text, a NUL follows them. */
typedef struct granule_bytes {
    /** The first one; never null in what a function gave. */
    const uint8_t *data;
    /** How many there are, without the NUL. */
    uint64_t len;
    /** The library's. */
    void *owner;
} granule_bytes;

/** What the calling thread's last failure was. */
typedef struct granule_error {
    /** sizeof(granule_error), set by the caller. */
    uint32_t size;
    /** Its status; GRANULE_OK where there was none. */
    granule_status status;
    /** The device it was about; -1 where it was about none. */
    int32_t device;
    /** The driver's number; 0 where there is none. */
    int32_t driver_code;
    /** Out of memory: bytes as asked for. 0 for other failures, like all that follows. */
    uint64_t requested;
    /** Bytes that were asked from the device. */
    uint64_t tried;
    /** The device's memory in bytes. */
    uint64_t device_total;
    /** What of it was free. */
    uint64_t device_free;
    /** What the process may hold; UINT64_MAX where that is not limited, also for other failures. */
    uint64_t allowed;
    /** Bytes that the program has. */
    uint64_t allocated;
    /** Bytes that the allocator holds. */
    uint64_t reserved;
    /** What can be had of the host's memory, where the device's is of it; 0 for other devices. */
    uint64_t host_available;
    /** What host_reserve leaves of that to the rest of the machine. */
    uint64_t host_reserve;
} granule_error;

/** How an allocator is made. All null is the usual way. */
typedef struct granule_options {
    /** sizeof(granule_options). */
    uint32_t size;
    /**
     * "cuda", "hip", "hip-as-cuda" or "openreg". Null: what the variable GRANULE_BACKEND names, else the first of cuda, hip
     * and (where hip is not compiled in) hip-as-cuda that has a device. The simulated openreg is used only where it is named.
     */
    const char *backend;
    /**
     * Settings as in PYTORCH_CUDA_ALLOC_CONF or, where an option of Granule's own is among them, GRANULE_CONF. Null: those of
     * the environment. policy:granule and policy:pytorch (the default) name the rules by which memory is placed.
     */
    const char *settings;
    /** A backend in C. backend is null then. */
    const struct granule_backend_table *table;
    /**
     * The release of PyTorch that policy:pytorch decides as where settings do not name one with pytorch_release: "2.13.1".
     * 2.12 is decided as 2.13, one before 2.11 as 2.11. Null, and a release that is not known, is the newest that is.
     */
    const char *pytorch_release;
} granule_options;

/** A pool's id, PyTorch's MempoolId_t. {0, 0} is the default pool. */
typedef struct granule_pool_id {
    /** Not 0 for the pool of a capture. */
    uint64_t first;
    /** Not 0 for a pool of the program. */
    uint64_t second;
} granule_pool_id;

/** How much could be had in one piece, in bytes. */
typedef struct granule_cache_info_t {
    /** sizeof(granule_cache_info_t). */
    uint32_t size;
    /** The largest free block in the cache. */
    uint64_t largest_cached;
    /** What the driver has free. */
    uint64_t device_free;
    /** The larger of the two. */
    uint64_t largest;
} granule_cache_info_t;

/** What a tenant may hold of its device, in bytes; UINT64_MAX is no mark. No mark is above the next one. */
typedef struct granule_budget {
    /** sizeof(granule_budget). */
    uint32_t size;
    /** What it can always have, whatever others do. */
    uint64_t guarantee;
    /** Beyond it, its cached memory goes back before more is taken. */
    uint64_t soft;
    /** Beyond it nothing is taken. */
    uint64_t hard;
} granule_budget;

/** What a tenant holds, and what became of its requests. Bytes, but for counts. */
typedef struct granule_tenant_stats_t {
    /** sizeof(granule_tenant_stats_t). */
    uint32_t size;
    /** Guaranteed to it. */
    uint64_t guarantee;
    /** Its soft limit; UINT64_MAX where it has none. */
    uint64_t soft;
    /** Its hard limit; UINT64_MAX where it has none. */
    uint64_t hard;
    /** Held from the device. */
    uint64_t held;
    /** The most it held. */
    uint64_t peak;
    /** Requests that ended for want of memory. */
    uint64_t refusals;
    /** How often it crossed its soft limit upwards. */
    uint64_t soft_crossings;
    /** How often a spill hook made room for one of its requests. */
    uint64_t spills;
    /** Bytes that hooks said they had freed for it. */
    uint64_t spilled_bytes;
} granule_tenant_stats_t;

/** A soft limit was crossed, upwards. */
typedef struct granule_budget_event {
    /** What the library has written: a later one may write more. */
    uint32_t size;
    /** The device. */
    int32_t device;
    /** Whose limit it is: one of GRANULE_OWNER_... */
    int32_t owner;
    /** The pool for which memory was taken, or whose limit it is; {0, 0} also where there is none. */
    struct granule_pool_id pool;
    /** The tenant whose limit it is; 0 where it is nobody's. */
    uint64_t tenant;
    /** Bytes that the owner held before. */
    uint64_t held;
    /** Bytes that were taken. */
    uint64_t wanted;
    /** The soft limit in bytes. */
    uint64_t soft;
    /** The hard limit in bytes; UINT64_MAX where there is none. */
    uint64_t hard;
} granule_budget_event;

/** A request that would be refused unless the program makes room. */
typedef struct granule_spill_request {
    /** What the library has written: a later one may write more. */
    uint32_t size;
    /** The device. */
    int32_t device;
    /** The stream of the request. */
    uint64_t stream;
    /** The pool that the memory is for. */
    struct granule_pool_id pool;
    /** The pool's tenant; 0 where it has none. */
    uint64_t tenant;
    /** Bytes that the request takes from the device. */
    uint64_t wanted;
    /** Bytes that are missing for that. */
    uint64_t missing;
    /** Why: one of GRANULE_SHORTAGE_... */
    int32_t shortage;
} granule_spill_request;

/** What bringing a checkpoint back did. The arrays are good until granule_delta_free. */
typedef struct granule_delta {
    /** sizeof(granule_delta). */
    uint32_t size;
    /** Blocks that were freed: all that were live before. */
    void *const *freed;
    /** How many. */
    uint64_t freed_count;
    /** Blocks that are live now. */
    void *const *allocated;
    /** How many. */
    uint64_t allocated_count;
    /** The library's. */
    void *owner;
} granule_delta;

/** How a buffer is to be seen: a contiguous tensor from its first byte on, in row-major order. */
typedef struct granule_tensor {
    /** sizeof(granule_tensor). */
    uint32_t size;
    /** How many dimensions it has. */
    uint32_t dimensions;
    /** How long each is; null where there is none. */
    const int64_t *shape;
    /** What an element is, as a DLDataTypeCode: 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool. */
    uint8_t code;
    /** Bits of an element: a multiple of 8. */
    uint8_t bits;
    /** Makes a DLManagedTensorVersioned (1.1); else a DLManagedTensor, for consumers that know no versions. */
    bool versioned;
    /** Whether a stream is named that is about to use the tensor. */
    bool has_consumer;
    /**
     * That stream, of the buffer's device: it is made to wait for the work of the buffer's stream, and its own work is waited for
     * before the memory is reused.
     */
    uint64_t consumer;
} granule_tensor;

/**
 * Where a pool's memory comes from, if not from the driver. The functions are called with no lock held, and may use the
 * allocator; in one of them no source is asked. They must not wait for a thread that may be inside the allocator.
 */
typedef struct granule_segment_source {
    /** sizeof(granule_segment_source). */
    uint32_t size;
    /** The first argument of the functions. */
    void *user;
    /**
     * A segment of so many bytes, aligned to 512 bytes; null where there is no room. It is asked again after memory was
     * given back. Memory that this same allocator has handed out is not a segment: it goes back to free, and counts as no room.
     */
    void *(*alloc)(void *user, uint64_t bytes, int32_t device, uint64_t stream);
    /** Takes back what alloc gave. */
    void (*free)(void *user, void *ptr, uint64_t bytes, int32_t device, uint64_t stream);
    /** The last use is over. May be null. */
    void (*drop)(void *user);
} granule_segment_source;

/** Which requests a scope sends to its pool. */
typedef struct granule_filter {
    /** sizeof(granule_filter). */
    uint32_t size;
    /** One of GRANULE_FILTER_... */
    int32_t kind;
    /** The stream, where the kind has one. */
    uint64_t stream;
    /** The function's, where the kind has one. */
    void *user;
    /** Whether a request for a stream goes to the pool. */
    bool (*accepts)(void *user, uint64_t stream);
    /** The library lets go of user: the scope is over, or could not be opened, or its kind has no use for it. May be null. */
    void (*drop)(void *user);
} granule_filter;

/** One quantity over time. */
typedef struct granule_stat {
    /** Now. */
    int64_t current;
    /** The most since the peaks were reset. */
    int64_t peak;
    /** All increases since the accumulated figures were reset. */
    int64_t allocated;
    /** All decreases since then. */
    int64_t freed;
} granule_stat;

/** A quantity in total and by tier. */
typedef struct granule_stat_array {
    /** Both tiers. */
    struct granule_stat all;
    /** Requests of up to 1 MiB. */
    struct granule_stat small_pool;
    /** Larger ones. */
    struct granule_stat large_pool;
} granule_stat_array;

/** What a pool holds and who uses it. Bytes, but for counts. */
typedef struct granule_pool_stats_t {
    /** sizeof(granule_pool_stats_t). */
    uint32_t size;
    /** References to it. */
    uint32_t use_count;
    /** Held from the device. */
    struct granule_stat_array reserved_bytes;
    /** Blocks in the program's hands. */
    uint64_t allocation;
    /** Their bytes, rounded. */
    uint64_t allocated_bytes;
    /** Handed out or pending, rounded. */
    uint64_t active_bytes;
    /** Handed out or pending, as requested. */
    uint64_t requested_bytes;
    /** Cached: free and backed by memory. */
    uint64_t free_bytes;
    /** Segments: fixed ones, and growable ones that have memory. */
    uint64_t segments;
} granule_pool_stats_t;

/** A quantity of bytes while a scope lasted. */
typedef struct granule_scope_bytes {
    /** When it began. */
    int64_t begin;
    /** At its end, or when it was read. */
    int64_t end;
    /** The most in between. */
    int64_t peak;
} granule_scope_bytes;

/** What a device did while a scope lasted, by whichever thread. */
typedef struct granule_scope_stats {
    /** sizeof(granule_scope_stats). */
    uint32_t size;
    /** Bytes in the program's hands, rounded. */
    struct granule_scope_bytes allocated_bytes;
    /** Bytes handed out or pending, rounded. */
    struct granule_scope_bytes active_bytes;
    /** Bytes handed out or pending, as requested. */
    struct granule_scope_bytes requested_bytes;
    /** Bytes held from the device. */
    struct granule_scope_bytes reserved_bytes;
    /** Blocks handed out. */
    int64_t num_allocations;
    /** Blocks that the program gave back. */
    int64_t num_frees;
    /** Failed attempts after which the cache was flushed and the driver asked again. */
    int64_t num_alloc_retries;
    /** Out-of-memory errors. */
    int64_t num_ooms;
    /** Passes that waited for everything. */
    int64_t num_sync_all_streams;
    /** Segments taken from the device, and map steps. */
    int64_t num_device_alloc;
    /** Segments given back, and unmap steps. */
    int64_t num_device_free;
    /** Requests refused before the driver was asked. */
    int64_t num_oom_rejections;
} granule_scope_stats;

/** What a sleep did. Bytes. */
typedef struct granule_sleep_report {
    /** sizeof(granule_sleep_report). */
    uint32_t size;
    /** Put to sleep. */
    uint64_t slept;
    /** Cached memory of these pools that was given back. */
    uint64_t uncached;
    /** Given back to the device in all. */
    uint64_t freed;
    /** By how much the driver's figure of free memory grew. */
    int64_t device_free_gained;
    /** Contents copied away by this call. */
    uint64_t backed_up;
    /** Held by backups on the host now. */
    uint64_t backup_held;
    /** What stayed awake; granule_sleep_report_json says why. */
    uint64_t kept;
    /** How long the call took, in nanoseconds: backed_up / took_ns is the speed in GB/s. */
    uint64_t took_ns;
} granule_sleep_report;

/** What a wake did. Bytes. */
typedef struct granule_wake_report {
    /** sizeof(granule_wake_report). */
    uint32_t size;
    /** Awake again. */
    uint64_t woken;
    /** Restored from backups. */
    uint64_t restored;
    /** Not woken, because all that was in it had been freed. */
    uint64_t dropped;
    /** Held by backups on the host now. */
    uint64_t backup_held;
    /** How long the call took, in nanoseconds: restored / took_ns is the speed in GB/s. */
    uint64_t took_ns;
} granule_wake_report;

/** How history is kept. */
typedef struct granule_history {
    /** sizeof(granule_history). */
    uint32_t size;
    /** Whether it is on; off, it is forgotten. */
    bool enabled;
    /** Forget what was recorded before. */
    bool clear;
    /** When contexts are gathered: one of GRANULE_CONTEXT_... */
    int32_t contexts;
    /** Entries kept of each device, at least one; the newest stay. Fewer than there are drops none. */
    uint64_t max_entries;
    /** Actions that are not recorded: a bit for each, 1 << GRANULE_ACTION_... */
    uint32_t skip_actions;
    /** The first argument of the functions: good for as long as any context may be. */
    void *user;
    /** The calling thread's context; null where it has none. Called with no lock held. Without a function there are no contexts. */
    void *(*gather)(void *user);
    /** Takes a context back that nothing keeps any more: once for each that was gathered, with no lock held. May be null. */
    void (*release)(void *user, void *context);
} granule_history;

/** Whether a device's history is complete. */
typedef struct granule_history_status_t {
    /** sizeof(granule_history_status_t). */
    uint32_t size;
    /** Whether anything was recorded at all. */
    bool recorded;
    /** No entry is missing since the allocator's first operation. */
    bool complete;
    /** Entries overwritten because there was no room. */
    uint64_t overwritten;
    /** Operations that had happened before recording began. */
    uint64_t before_recording;
} granule_history_status_t;

/** One entry of the history. Its pointers live as long as the snapshot, or as the call of the tracker. */
typedef struct granule_trace_entry {
    /** What happened: one of GRANULE_ACTION_... */
    int32_t action;
    /** The device; -1 for host memory. */
    int32_t device;
    /** The address; for GRANULE_ACTION_OOM what the device had free. */
    uint64_t addr;
    /** Bytes. */
    uint64_t bytes;
    /** The stream. */
    uint64_t stream;
    /** The pool. */
    struct granule_pool_id pool;
    /** When, in microseconds since the epoch. */
    int64_t time_us;
    /** What was gathered; null where nothing was. */
    void *context;
    /** The compiled region; "N/A" outside. */
    const char *compile_context;
    /** The thread's text, or that of the note; never null. */
    const char *user_metadata;
    /** Why the library did it by itself; empty where it did not, never null. */
    const char *internal_metadata;
} granule_trace_entry;

/** Memory that comes or goes. */
typedef struct granule_segment_event {
    /** What the library has written: a later one may write more. */
    uint32_t size;
    /** It was taken from the device, and has not been handed out yet; else it is about to be given back. */
    bool added;
    /** The device. */
    int32_t device;
    /** First address. */
    uint64_t addr;
    /** Length in bytes. */
    uint64_t bytes;
    /** The pool. */
    struct granule_pool_id pool;
    /** The stream that it serves. */
    uint64_t stream;
    /** Part of a growable segment. */
    bool growable;
} granule_segment_event;

/** Memory of a device that a process uses. */
typedef struct granule_process_memory {
    /** The process. */
    uint32_t pid;
    /** Bytes. */
    uint64_t bytes;
} granule_process_memory;

/** One block of a segment. */
typedef struct granule_block_info {
    /** First address. */
    uint64_t addr;
    /** Bytes, rounded. */
    uint64_t bytes;
    /** Bytes as last requested; 0 where it never was handed out. */
    uint64_t requested;
    /** One of GRANULE_BLOCK_... */
    int32_t state;
    /** Where it was allocated; null where nothing was gathered. */
    void *context;
} granule_block_info;

/** One segment: a driver allocation, or a contiguous range of a growable segment. Bytes. */
typedef struct granule_segment_info {
    /** The device; -1 for host memory. */
    int32_t device;
    /** Its place in the order in which segments were taken; -1 where it has none. */
    int32_t registration;
    /** First address. */
    uint64_t addr;
    /** Of all its blocks. */
    uint64_t total;
    /** Of allocated blocks. */
    uint64_t allocated;
    /** Of allocated and pending blocks. */
    uint64_t active;
    /** Of allocated and pending blocks, as requested. */
    uint64_t requested;
    /** The stream that it serves. */
    uint64_t stream;
    /** Of the large tier. */
    bool is_large;
    /** Growable (PyTorch: expandable). */
    bool is_growable;
    /** The pool. */
    struct granule_pool_id pool;
    /** Where it was taken from the device; null where nothing was gathered. */
    void *context;
    /** Its blocks, by address. */
    const struct granule_block_info *blocks;
    /** How many. */
    uint64_t block_count;
} granule_segment_info;

/** The begin or end of a range of the program. */
typedef struct granule_range_mark {
    /** It begins. */
    bool start;
    /** The device. */
    int32_t device;
    /** When, in microseconds since the epoch. */
    int64_t time_us;
    /** Its name. */
    const char *name;
} granule_range_mark;

/** All statistics of a device, private pools included; names and meaning are PyTorch's. */
typedef struct granule_device_stats {
    /** sizeof(granule_device_stats). */
    uint32_t size;
    /** Failed attempts after which the cache was flushed and the driver asked again. */
    int64_t num_alloc_retries;
    /** Out-of-memory errors raised. */
    int64_t num_ooms;
    /** The option max_split_size; -1 when unlimited. */
    int64_t max_split_size;
    /** Passes that waited for everything. */
    int64_t num_sync_all_streams;
    /** Driver calls that took memory: segments and map steps. */
    int64_t num_device_alloc;
    /** Driver calls that gave memory back: segments and unmap steps. */
    int64_t num_device_free;
    /** Requests refused before the driver was asked. */
    int64_t num_oom_rejections;
    /** Blocks in the program's hands. */
    struct granule_stat_array allocation;
    /** Fixed segments held. */
    struct granule_stat_array segment;
    /** Blocks handed out or pending. */
    struct granule_stat_array active;
    /** Free blocks of segments that are split. */
    struct granule_stat_array inactive_split;
    /** Bytes in the program's hands, rounded. */
    struct granule_stat_array allocated_bytes;
    /** Bytes held from the device. */
    struct granule_stat_array reserved_bytes;
    /** Bytes handed out or pending, rounded. */
    struct granule_stat_array active_bytes;
    /** Bytes of free blocks of segments that are split. */
    struct granule_stat_array inactive_split_bytes;
    /** Bytes handed out or pending, as requested. */
    struct granule_stat_array requested_bytes;
    /** Blocks of max_split_size and more handed out. */
    struct granule_stat oversize_allocations;
    /** Segments of max_split_size and more held. */
    struct granule_stat oversize_segments;
    /** Bytes given back that wait for other streams. */
    int64_t pending_bytes;
    /** Frees whose event could not be recorded. */
    int64_t unrecorded_frees;
    /** Physical granules moved between places. */
    int64_t granules_moved;
    /** Bytes of blocks that have given their memory back and keep their addresses. */
    int64_t asleep_bytes;
} granule_device_stats;

/** What a private pool holds. */
typedef struct granule_pool_reserved {
    /** The pool. */
    struct granule_pool_id pool;
    /** Bytes held from the device. */
    struct granule_stat_array reserved_bytes;
} granule_pool_reserved;

/** What the growable segments of a stream and a tier hold. */
typedef struct granule_stream_segments {
    /** The stream. */
    uint64_t stream;
    /** Whether they serve small requests. */
    bool is_small_pool;
    /** Bytes with memory behind them. */
    uint64_t total_size;
} granule_stream_segments;

/** How a host allocator is made. All zero is the usual way. */
typedef struct granule_host_options {
    /** sizeof(granule_host_options). */
    uint32_t size;
    /** How requests are rounded, where the setting pinned_sizes does not say it: one of GRANULE_SIZING_... */
    int32_t sizing;
    /** Where memory is placed: one of GRANULE_NUMA_... */
    int32_t numa;
    /** The device, or the node. */
    int32_t near;
    /** granule_mark_capture_begin tells of every capture: while there is none, a request does not ask the driver about its stream. */
    bool captures_are_told;
} granule_host_options;

/** How long calls took, in microseconds. */
typedef struct granule_duration_stat {
    /** All of them together. */
    int64_t total;
    /** The longest since the peaks were reset. */
    int64_t max;
    /** The shortest since then; 0 where there was none. */
    int64_t min;
    /** Calls. */
    int64_t count;
} granule_duration_stat;

/** All figures of pinned memory. Bytes are those of blocks, rounded. */
typedef struct granule_host_stats_t {
    /** sizeof(granule_host_stats_t). */
    uint32_t size;
    /** Pinned blocks held from the driver. */
    struct granule_stat allocations;
    /** Pinned blocks handed out or pending, peaks summed over sizes as in PyTorch. */
    struct granule_stat active_requests;
    /** Bytes of pinned blocks held from the driver. */
    struct granule_stat allocated_bytes;
    /** Bytes of pinned blocks handed out or pending, peaks summed over sizes as in PyTorch. */
    struct granule_stat active_bytes;
    /** Driver calls that pinned memory. */
    struct granule_duration_stat host_alloc_time;
    /** Driver calls that gave pinned memory back. */
    struct granule_duration_stat host_free_time;
    /** Pinned blocks taken from the driver. */
    int64_t num_host_alloc;
    /** Pinned blocks given back to the driver. */
    int64_t num_host_free;
    /** Pinned blocks handed out or pending, with an exact peak. */
    struct granule_stat exact_active_requests;
    /** Bytes of pinned blocks handed out or pending, with an exact peak. */
    struct granule_stat exact_active_bytes;
    /** Bytes of pinned blocks handed out or pending, as requested. */
    int64_t requested_bytes;
    /** Bytes of pinned blocks given back that wait for devices. */
    int64_t pending_bytes;
    /** Bytes of pinned blocks given back that graphs may use. */
    int64_t kept_bytes;
    /** Uses of pinned blocks whose event could not be recorded. */
    int64_t unrecorded_frees;
    /** Bytes of the reserve for pinned blocks. */
    int64_t reserve_bytes;
    /** Bytes of the reserve that no block has. */
    int64_t reserve_free_bytes;
} granule_host_stats_t;

/** Blocks of one doubling of sizes. */
typedef struct granule_host_bucket {
    /** How many the program has, or wait. */
    struct granule_stat active_requests;
    /** Their bytes, rounded. */
    struct granule_stat active_bytes;
} granule_host_bucket;

/** What a device is. */
typedef struct granule_device_properties_t {
    /** sizeof(granule_device_properties_t). */
    uint32_t size;
    /** Threads of a warp or wavefront. */
    uint32_t warp_size;
    /** All its memory in bytes. */
    uint64_t total_memory;
    /** Whether uuid is known. */
    bool has_uuid;
    /** What identifies it. */
    uint8_t uuid[16];
} granule_device_properties_t;

/** What an address points into. */
typedef struct granule_pointer_info_t {
    /** sizeof(granule_pointer_info_t). */
    uint32_t size;
    /** One of GRANULE_POINTER_... */
    int32_t kind;
    /** The device that owns it; -1 for host memory and unknown addresses. */
    int32_t device;
    /** Where its allocation begins; null where that is unknown. */
    void *base;
} granule_pointer_info_t;

/** It worked. */
#define GRANULE_OK 0

/** There is no memory, after every remedy was tried. granule_last_error_json has the whole report. */
#define GRANULE_OUT_OF_MEMORY 1

/**
 * Refused before the driver was asked, because a limit would be exceeded (throw_on_cudamalloc_oom). PyTorch raises
 * OutOfMemoryError for this, too.
 */
#define GRANULE_REJECTED 2

/** An argument is wrong: null, not UTF-8, not aligned, out of range. */
#define GRANULE_INVALID_ARGUMENT 3

/** The address is no live block of the allocator. */
#define GRANULE_INVALID_POINTER 4

/** There is no such device. */
#define GRANULE_INVALID_DEVICE 5

/** The stream cannot be used here. */
#define GRANULE_INVALID_STREAM 6

/** There is no pool of that id on the device. */
#define GRANULE_UNKNOWN_POOL 7

/** What was asked of the pool is not possible: it was released, or its scope is (not) open. */
#define GRANULE_POOL 8

/** A checkpoint could not be taken or restored. */
#define GRANULE_CHECKPOINT 9

/** Not possible during a capture, or without one. */
#define GRANULE_CAPTURE 10

/** No free block holds the range. */
#define GRANULE_EXACT_ADDRESS 11

/** A block cannot be shared, or what was shared cannot be opened. */
#define GRANULE_SHARE 12

/** The settings cannot be read or honoured. */
#define GRANULE_SETTINGS 13

/** A budget or a limit that cannot be, or an unknown tenant. */
#define GRANULE_BUDGET 14

/** The memory sleeps. */
#define GRANULE_ASLEEP 15

/** Memory could not be put to sleep or woken. */
#define GRANULE_SLEEP 16

/** This backend, or this build, cannot do that. */
#define GRANULE_UNSUPPORTED 17

/** No backend can be used: no driver, no device, or not compiled in. */
#define GRANULE_NO_BACKEND 18

/** The driver failed in another way; granule_error has its number. */
#define GRANULE_DRIVER 19

/** The process is a fork of the one that made the allocator. */
#define GRANULE_FORKED 20

/** The driver is going away: the process ends, or the allocator was abandoned. */
#define GRANULE_DRIVER_GONE 21

/** The answer of queries about work that is still under way. It is no failure: the last error stays what it was. */
#define GRANULE_NOT_READY 22

/** A struct says that it is smaller than its first version. */
#define GRANULE_ABI 23

/** The library has a bug, and stopped there. The allocator stays usable. */
#define GRANULE_PANIC 24

/**
 * A callback of Rust panicked, which it must not, in a program that has this library linked in: a request has handed nothing out
 * then, and a free is done. What other languages throw ends the process, since Rust can catch it nowhere.
 */
#define GRANULE_CALLBACK 25

/** A recording cannot begin, or is not complete. */
#define GRANULE_RECORDING 26

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/** The interface's version that the library has: GRANULE_ABI_VERSION of its own header. */
uint32_t granule_abi_version(void);

/** The library's version: "0.1.0". */
const char *granule_version(void);

/**
 * Which backends this build has, what each finds on this machine, and which one is used unless another is named: a JSON
 * object, as `granule devices --json` prints it. Blocks while drivers start.
 */
granule_status granule_backends_json(struct granule_bytes *out);

/**
 * Whether the library under a backend ("cuda", "hip", ...) is on this machine and has every function that a device needs. Starts no
 * driver and looks for no device, so the process may still fork.
 */
granule_status granule_check_backend(const char *name);

/**
 * The text of the calling thread's last failure; empty where there was none. It is good until the thread's next failure.
 * A success does not change it.
 */
const char *granule_last_error(void);

/** The same in PyTorch's words where it has some (want of memory, sharing): for what stands between PyTorch and this library. */
const char *granule_last_error_for_pytorch(void);

/** What the calling thread's last failure was, in figures. */
granule_status granule_last_error_details(struct granule_error *out);

/**
 * The calling thread's last failure as a JSON object: the status and the text, and for want of memory the whole report
 * (what keeps memory apart, what would help, which pools have how much). {} where there was none.
 */
granule_status granule_last_error_json(struct granule_bytes *out);

/** Frees bytes and empties the struct, so that freeing it again is fine. Null is fine. */
void granule_bytes_free(struct granule_bytes *bytes);

/** Makes an allocator. May block while a driver starts. Options may be null. */
granule_status granule_allocator_create(const struct granule_options *options,
                                        struct granule_allocator **out);

/**
 * Ends an allocator; null is fine. What is cached goes back to the device; what the program still has is lost to it. Scopes,
 * imports, host allocators and snapshots made from it stay good, and keep the engine alive until they end. Blocks.
 */
granule_status granule_allocator_destroy(struct granule_allocator *a);

/** Says that the driver is about to be unloaded, or its device reset: it is never called again. */
granule_status granule_abandon(struct granule_allocator *a);

/**
 * The backend's name: "cuda", "hip", "hip-as-cuda", "openreg", or what a table calls itself ("vendor" where it does not
 * say). It lives as long as the allocator. Null where the allocator is null.
 */
const char *granule_backend_name(const struct granule_allocator *a);

/** How many devices there are. */
granule_status granule_device_count(const struct granule_allocator *a, int32_t *out);

/**
 * Replaces settings of all devices, as PyTorch does when a program passes it a text: max_split_size_mb,
 * max_non_split_rounding_mb, garbage_collection_threshold and roundup_power2_divisions fall back to their defaults where the text
 * does not name them. Where it names an option of Granule's own, all that is not named stays. The policy is chosen when an
 * allocator is made: a text that names another one is refused (GRANULE_SETTINGS), and changes nothing.
 */
granule_status granule_configure(struct granule_allocator *a,
                                 const char *settings);

/** Changes what the text names and nothing else, in Granule's own grammar, where nothing is tolerated. */
granule_status granule_configure_strictly(struct granule_allocator *a, const char *settings);

/**
 * The text that was read last; empty for the defaults. Where granule_configure was called, settings of earlier texts may be in
 * force beside it: granule_settings_in_force has all.
 */
granule_status granule_settings(const struct granule_allocator *a,
                                struct granule_bytes *out);

/**
 * The settings in force that are not the defaults, as a text that granule_configure_strictly takes; empty for the defaults.
 * GRANULE_SETTINGS where a value cannot be written as text.
 */
granule_status granule_settings_in_force(const struct granule_allocator *a,
                                         struct granule_bytes *out);

/**
 * Reads settings, or with null those that the environment asks for, as granule_allocator_create would, and says what is
 * wrong with them without making an allocator. A host_reserve of all the host's memory is refused, whether or not the devices share
 * that.
 */
granule_status granule_check_settings(const char *settings);

/**
 * Memory of so many bytes for work of a stream, aligned to 512 bytes. 0 bytes give null. Blocks only where the cache
 * has no fit.
 */
granule_status granule_malloc(struct granule_allocator *a,
                              uint64_t bytes,
                              int32_t device,
                              uint64_t stream,
                              void **out);

/**
 * granule_malloc at an address, out of free memory that the stream and its pool already have. Nothing is taken from
 * the device.
 */
granule_status granule_malloc_at(struct granule_allocator *a,
                                 uint64_t bytes,
                                 void *at,
                                 int32_t device,
                                 uint64_t stream,
                                 void **out);

/** Takes memory back, in the order of its stream's work. Null is fine, and any other value is safe to give. */
granule_status granule_free(struct granule_allocator *a, void *ptr);

/** granule_free of a block of this device; on any other device nothing is freed. */
granule_status granule_free_on(struct granule_allocator *a, void *ptr, int32_t device);

/**
 * Says that work of a stream uses the block at ptr, or the block that ptr lies in: after its free it is not reused before
 * that work is done. Null is fine.
 */
granule_status granule_record_stream(struct granule_allocator *a,
                                     void *ptr,
                                     int32_t device,
                                     uint64_t stream);

/** Says that a stream is about to be destroyed: its handle is never named again, its memory is kept. */
granule_status granule_retire_stream(struct granule_allocator *a, int32_t device, uint64_t stream);

/** Gives all cached memory of all devices back: that of the default pool, and of pools that nobody uses any more. Blocks. */
granule_status granule_empty_cache(struct granule_allocator *a);

/**
 * Gives the cached memory of one pool back, on all devices, if nobody uses the pool any more. {0, 0}, the default pool, stands
 * for everything, as in PyTorch. Blocks.
 */
granule_status granule_empty_pool(struct granule_allocator *a,
                                  struct granule_pool_id pool);

/** Notices frees whose streams are done, without waiting. */
granule_status granule_poll(struct granule_allocator *a, int32_t device);

/** Waits for all pending frees of a device. Blocks. */
granule_status granule_synchronize(struct granule_allocator *a, int32_t device);

/** Turns caching on or off for requests to come. */
granule_status granule_enable(struct granule_allocator *a, bool on);

/** Whether requests are served from the cache. */
granule_status granule_is_enabled(const struct granule_allocator *a, bool *out);

/** The largest pieces to be had on a device. Asks the driver. */
granule_status granule_cache_info(struct granule_allocator *a,
                                  int32_t device,
                                  struct granule_cache_info_t *out);

/** The largest free block that a device has cached, in bytes. */
granule_status granule_largest_free_block(struct granule_allocator *a, int32_t device, uint64_t *out);

/** The segment that holds a live block. GRANULE_UNSUPPORTED for growable segments, whose parts come and go. */
granule_status granule_base_allocation(struct granule_allocator *a, void *ptr, void **base, uint64_t *bytes);

/** Bytes of the live block at ptr: the request, rounded. */
granule_status granule_block_size(const struct granule_allocator *a, void *ptr, uint64_t *bytes);

/** The device of the live block at ptr, awake or asleep. */
granule_status granule_block_device(const struct granule_allocator *a, void *ptr, int32_t *out);

/** Limits what is held on a device to a share of its memory; 1 lifts the limit. */
granule_status granule_set_memory_fraction(struct granule_allocator *a, int32_t device, double fraction);

/** The share in force. */
granule_status granule_memory_fraction(struct granule_allocator *a, int32_t device, double *out);

/**
 * Limits what is held on a device, in bytes; UINT64_MAX lifts a limit. Beyond hard nothing is taken; beyond soft, cached
 * memory goes back first. A limit stays until it is set again, or until granule_configure changes memory_limit, or
 * memory_soft_limit.
 */
granule_status granule_set_memory_limits(struct granule_allocator *a,
                                         int32_t device,
                                         uint64_t hard,
                                         uint64_t soft);

/** Gives a stream a reserve class (expandable_segments_reserve_by_class); an empty name takes it away. */
granule_status granule_set_reserve_class(struct granule_allocator *a,
                                         int32_t device,
                                         uint64_t stream,
                                         const char *name);

/** Makes a tenant of a device, without pools; tenant is its number, never 0. May block while memory is given back for its guarantee. */
granule_status granule_tenant_create(struct granule_allocator *a,
                                     int32_t device,
                                     const char *name,
                                     const struct granule_budget *budget,
                                     uint64_t *tenant);

/** Changes a tenant's budget. What it holds already it keeps. */
granule_status granule_tenant_set_budget(struct granule_allocator *a,
                                         uint64_t tenant,
                                         const struct granule_budget *budget);

/** Makes a pool, the default one included, part of a tenant, with what it holds. */
granule_status granule_tenant_join(struct granule_allocator *a, uint64_t tenant, struct granule_pool_id pool);

/** Takes a pool out of its tenant, if it has one. */
granule_status granule_tenant_leave(struct granule_allocator *a, int32_t device, struct granule_pool_id pool);

/** The tenant that a pool is part of; 0 where it is part of none. */
granule_status granule_tenant_of(struct granule_allocator *a,
                                 int32_t device,
                                 struct granule_pool_id pool,
                                 uint64_t *tenant);

/** Removes a tenant. Its pools stay, with what they hold, and are part of none. */
granule_status granule_tenant_remove(struct granule_allocator *a, uint64_t tenant);

/**
 * The tenants of a device, in the order in which they were made: at most capacity entries are written, and count says how many
 * there are.
 */
granule_status granule_tenant_list(struct granule_allocator *a,
                                   int32_t device,
                                   uint64_t *out,
                                   uint64_t capacity,
                                   uint64_t *count);

/** What a tenant holds, and what became of its requests. */
granule_status granule_tenant_stats(struct granule_allocator *a,
                                    uint64_t tenant,
                                    struct granule_tenant_stats_t *out);

/** A tenant's name. */
granule_status granule_tenant_name(struct granule_allocator *a, uint64_t tenant, struct granule_bytes *out);

/** A tenant's pools: at most capacity entries are written, and count says how many there are. */
granule_status granule_tenant_pools(struct granule_allocator *a,
                                    uint64_t tenant,
                                    struct granule_pool_id *out,
                                    uint64_t capacity,
                                    uint64_t *count);

/** Tells observer of soft limits of pools and tenants that are crossed, once for each crossing, with no lock held. */
granule_status granule_add_budget_observer(struct granule_allocator *a,
                                           void (*observer)(void *user,
                                                            const struct granule_budget_event *event),
                                           void *user);

/**
 * Asks hook to make room, by freeing things or putting them to sleep, when a request would be refused otherwise. Hooks of a
 * lower priority are asked first. It returns how many bytes it made free.
 */
granule_status granule_add_spill_hook(struct granule_allocator *a,
                                      int32_t priority,
                                      uint64_t (*hook)(void *user, const struct granule_spill_request *request),
                                      void *user);

/** granule_malloc as a buffer: nobody else can free its memory. Blocks only where the cache has no fit. */
granule_status granule_buffer_create(struct granule_allocator *a,
                                     uint64_t bytes,
                                     int32_t device,
                                     uint64_t stream,
                                     struct granule_buffer **out);

/** Where its memory is; null for 0 bytes, and for a null buffer. */
void *granule_buffer_ptr(const struct granule_buffer *b);

/** Says that work of a stream uses the buffer: its memory is not reused before that work is done. */
granule_status granule_buffer_record_stream(const struct granule_buffer *b, int32_t device, uint64_t stream);

/** Ends a buffer; null is fine. Its memory stays for as long as tensors made of it are there. */
granule_status granule_buffer_destroy(struct granule_buffer *b);

/** Says that a stream of the device is being captured from here on, until granule_mark_capture_end. */
granule_status granule_mark_capture_begin(struct granule_allocator *a, int32_t device);

/** Says that a capture has ended, well or not. */
granule_status granule_mark_capture_end(struct granule_allocator *a, int32_t device);

/** Saves which blocks of a pool are live. */
granule_status granule_pool_checkpoint(struct granule_allocator *a,
                                       int32_t device,
                                       struct granule_pool_id pool,
                                       struct granule_checkpoint **out);

/** Frees a checkpoint; null is fine. The pool stays as it is. */
void granule_checkpoint_free(struct granule_checkpoint *c);

/**
 * Makes exactly those blocks of the pool live that were when the checkpoint was taken. Every block that is live now is freed
 * first. Where the call fails, nothing has changed.
 */
granule_status granule_pool_restore(struct granule_allocator *a,
                                    const struct granule_checkpoint *c,
                                    struct granule_delta *out);

/** granule_pool_restore that is refused unless every block that is live now is among these. */
granule_status granule_pool_restore_stale(struct granule_allocator *a,
                                          const struct granule_checkpoint *c,
                                          void *const *stale,
                                          uint64_t count,
                                          struct granule_delta *out);

/** Frees what is in a delta and empties it, so that freeing it again is fine. Null is fine. */
void granule_delta_free(struct granule_delta *d);

/**
 * Makes a tensor of a buffer: a DLManagedTensor or a DLManagedTensorVersioned, whose deleter ends it, on any thread. The memory is
 * given back once the buffer and all its tensors are gone. A buffer may be handed out any number of times.
 */
granule_status granule_buffer_to_dlpack(const struct granule_buffer *b,
                                        const struct granule_tensor *tensor,
                                        void **out);

/** Whether one device could reach the memory of another. */
granule_status granule_can_access_peer(struct granule_allocator *a, int32_t from, int32_t to, bool *out);

/** Lets work of one device use what this allocator holds, and will hold, on another, growable segments included. */
granule_status granule_enable_peer_access(struct granule_allocator *a,
                                          int32_t from,
                                          int32_t to);

/** Whether it may. */
granule_status granule_is_peer_access_enabled(struct granule_allocator *a,
                                              int32_t from,
                                              int32_t to,
                                              bool *out);

/**
 * Queues a copy between two devices, or within one, by the way that works. Both ranges stay allocated until the stream has
 * passed the copy.
 */
granule_status granule_copy_async(struct granule_allocator *a,
                                  void *dst,
                                  int32_t dst_device,
                                  const void *src,
                                  int32_t src_device,
                                  uint64_t bytes,
                                  int32_t stream_device,
                                  uint64_t stream);

/** A new id for a pool of the program: {0, n}. */
struct granule_pool_id granule_pool_fresh(void);

/** A new id for the pool of a capture: {n, 0}. */
struct granule_pool_id granule_pool_fresh_for_capture(void);

/**
 * Makes a pool with one reference, or adds a reference to it. Its memory comes from source, if that is not null, which must be
 * said when the pool is made. Where the call fails, the source's drop has been called, unless the struct itself could not be read
 * (GRANULE_ABI, or not aligned).
 */
granule_status granule_pool_create(struct granule_allocator *a,
                                   int32_t device,
                                   struct granule_pool_id pool,
                                   const struct granule_segment_source *source);

/**
 * Sends requests that the filter accepts to the pool, which gets a reference more, and is made if there is none. Of several
 * scopes the newest that accepts counts. Where the call fails, the filter's drop has been called, unless the struct itself could not
 * be read (GRANULE_ABI, null, or not aligned).
 */
granule_status granule_pool_begin(struct granule_allocator *a,
                                  int32_t device,
                                  struct granule_pool_id pool,
                                  const struct granule_filter *filter);

/** Ends the pool's scope; its references stay. */
granule_status granule_pool_end(struct granule_allocator *a, int32_t device, struct granule_pool_id pool);

/** Takes a reference away. After the last one the pool serves nobody, and its cached memory goes with the next flush. */
granule_status granule_pool_release(struct granule_allocator *a,
                                    int32_t device,
                                    struct granule_pool_id pool);

/** References to a pool. */
granule_status granule_pool_use_count(struct granule_allocator *a,
                                      int32_t device,
                                      struct granule_pool_id pool,
                                      int32_t *out);

/** Whether requests to the default pool that cannot be served otherwise may take what this pool has cached. */
granule_status granule_pool_set_use_on_oom(struct granule_allocator *a,
                                           int32_t device,
                                           struct granule_pool_id pool,
                                           bool on);

/** The pool hands blocks out whole from here on, until it is released. */
granule_status granule_pool_set_no_split(struct granule_allocator *a,
                                         int32_t device,
                                         struct granule_pool_id pool);

/** Takes memory into a pool for requests of these sizes, all live at a time, for a stream. */
granule_status granule_pool_prime(struct granule_allocator *a,
                                  int32_t device,
                                  struct granule_pool_id pool,
                                  uint64_t stream,
                                  const uint64_t *sizes,
                                  uint64_t count);

/** Whether the live blocks of a pool are exactly these; pending ones do not count. */
granule_status granule_pool_has_live(struct granule_allocator *a,
                                     int32_t device,
                                     struct granule_pool_id pool,
                                     void *const *pointers,
                                     uint64_t count,
                                     bool *out);

/** What a pool holds and who uses it. */
granule_status granule_pool_stats(struct granule_allocator *a,
                                  int32_t device,
                                  struct granule_pool_id pool,
                                  struct granule_pool_stats_t *out);

/**
 * Limits what a pool, the default one included, may hold, in bytes; UINT64_MAX lifts a limit. Beyond soft its cached memory
 * goes back before more is taken; beyond hard nothing is taken.
 */
granule_status granule_pool_set_limits(struct granule_allocator *a,
                                       int32_t device,
                                       struct granule_pool_id pool,
                                       uint64_t hard,
                                       uint64_t soft);

/**
 * Makes a pool with one reference over memory that libraries register. Physical handles have at least chunk bytes (0: no more
 * than the driver demands). The others devices at reached_by reach it, too. Several segments share a handle. GRANULE_UNSUPPORTED where the driver offers no such
 * memory. Asks the driver.
 */
granule_status granule_registered_pool_create(struct granule_allocator *a,
                                              int32_t device,
                                              struct granule_pool_id pool,
                                              uint64_t chunk,
                                              const int32_t *reached_by,
                                              uint64_t others,
                                              struct granule_registered **out);

/** Bytes that registered memory takes from the device, also what of handles no segment has; 0 for null. */
uint64_t granule_registered_held(const struct granule_registered *r);

/** Lets go of registered memory; null is fine. Its pool goes on, and so do windows. */
granule_status granule_registered_close(struct granule_registered *r);

/**
 * Keeps the memory around ptr, a block of a pool over r, where it is until the window is closed. Register its base and bytes with
 * the library, once for all blocks in it. GRANULE_INVALID_POINTER for memory of others. Does not call the driver.
 */
granule_status granule_window_open(struct granule_registered *r,
                                   void *ptr,
                                   struct granule_window **out);

/** Where a window begins; null for a null window. */
void *granule_window_base(const struct granule_window *w);

/** How many bytes there are from its base on; 0 for a null window. */
uint64_t granule_window_bytes(const struct granule_window *w);

/**
 * The driver's handle of the physical memory (CUmemGenericAllocationHandle), for cuMulticastBindMem. The window owns it. 0 for a null
 * window.
 */
uint64_t granule_window_physical(const struct granule_window *w);

/**
 * A file descriptor with which another process maps a window's memory (cuMemImportFromShareableHandle); the caller closes it. -1 and
 * the 64 bytes at fabric where the device's memory goes by fabric handles. GRANULE_UNSUPPORTED where it cannot be given away.
 */
granule_status granule_window_share(const struct granule_window *w,
                                    int32_t *descriptor,
                                    uint8_t *fabric);

/** Closes a window; null is fine. What its pool does not need any more may leave from then on. */
granule_status granule_window_close(struct granule_window *w);

/** Begins statistics of a part of the program. Scopes nest and overlap, and no reset changes them. */
granule_status granule_scope_begin(struct granule_allocator *a, int32_t device, struct granule_scope **out);

/** What happened since the scope began: exact, and of one moment. It goes on. */
granule_status granule_scope_peaks(struct granule_scope *s, struct granule_scope_stats *out);

/**
 * Ends a scope, and says what happened in it, where out is not null. A null scope is fine. The handle ends with the call, unless
 * that says that out is wrong.
 */
granule_status granule_scope_end(struct granule_scope *s,
                                 struct granule_scope_stats *out);

/**
 * Lets other processes open the live block at ptr: with handle, which is the same bytes on every call; there it begins
 * offset bytes from the import's base. Blocks.
 */
granule_status granule_share(struct granule_allocator *a,
                             void *ptr,
                             struct granule_bytes *handle,
                             uint64_t *offset);

/**
 * Opens what granule_share gave in another process. Any bytes may be given. The same handle gives the same memory for as long
 * as somebody has it. Blocks.
 */
granule_status granule_open_shared(struct granule_allocator *a,
                                   int32_t device,
                                   const uint8_t *handle,
                                   uint64_t len,
                                   struct granule_import **out);

/** Where an import begins here; null for a null import. */
void *granule_import_base(const struct granule_import *i);

/** How many bytes there are from its base on; 0 for a null import. */
uint64_t granule_import_bytes(const struct granule_import *i);

/** Closes an import; null is fine. The last one of a handle waits for the device. */
granule_status granule_import_close(struct granule_import *i);

/** Bytes of address space on a device that show other processes' memory. */
granule_status granule_imported_bytes(struct granule_allocator *a, int32_t device, uint64_t *out);

/**
 * Gives a pool a sleep tag, or takes it away where tag is null: from here on it takes growable memory. Pools of a higher
 * priority wake first; 0 is usual.
 */
granule_status granule_set_sleep_tag(struct granule_allocator *a,
                                     int32_t device,
                                     struct granule_pool_id pool,
                                     const char *tag,
                                     int32_t priority);

/**
 * Puts the pools with these tags to sleep, or all that have one where tags is null: waits for all work that may use their memory,
 * saves contents as backup says (one of GRANULE_BACKUP_...), and gives the memory back. directory is for files, else null. Blocks.
 * No work that uses the memory may be queued until it is awake again. The report may be null.
 */
granule_status granule_sleep(struct granule_allocator *a,
                             const char *const *tags,
                             uint64_t tag_count,
                             int32_t backup,
                             const char *directory,
                             struct granule_sleep_report *out);

/**
 * Wakes the pools with these tags, or all where tags is null: puts memory behind all that sleeps and restores contents. Blocks.
 * What cannot be woken sleeps on with its contents, and the call can be made again. The report may be null.
 */
granule_status granule_wake(struct granule_allocator *a,
                            const char *const *tags,
                            uint64_t tag_count,
                            struct granule_wake_report *out);

/**
 * Copies to the host what was saved of sleeping memory: bytes from ptr on. found says whether all of it was there; where some is awake,
 * or was not saved, nothing is copied. Any address may be given. Blocks.
 */
granule_status granule_read_backup(struct granule_allocator *a,
                                   void *ptr,
                                   uint64_t bytes,
                                   uint8_t *into,
                                   bool *found);

/** What the calling thread's last sleep left awake, and why: {"kept": [{"device", "pool", "bytes", "because"}]}. */
granule_status granule_sleep_report_json(struct granule_bytes *out);

/** Whether some memory of the pool sleeps. */
granule_status granule_is_pool_asleep(struct granule_allocator *a,
                                      int32_t device,
                                      struct granule_pool_id pool,
                                      bool *out);

/** Whether the live block at ptr sleeps. */
granule_status granule_is_asleep(struct granule_allocator *a, void *ptr, bool *out);

/** Bytes of host memory, or of files, that backups hold now. */
granule_status granule_backup_bytes(const struct granule_allocator *a, uint64_t *out);

/** Gives back host memory that was kept for later sleeps and that no sleeping memory needs. */
granule_status granule_drop_backups(struct granule_allocator *a);

/** Turns history on, changes how it is kept, or turns it off. */
granule_status granule_record_history(struct granule_allocator *a, const struct granule_history *h);

/** Whether history is on. */
granule_status granule_is_history_enabled(const struct granule_allocator *a, bool *out);

/** Whether a device's history is complete, and what is missing in it. */
granule_status granule_history_status(struct granule_allocator *a,
                                      int32_t device,
                                      struct granule_history_status_t *out);

/** Marks the begin (start) or end of a range of the program for snapshots, while the device's history is on. */
granule_status granule_mark_range(struct granule_allocator *a, bool start, const char *name, int32_t device);

/** Writes a note about a live block into the history, if it is on. */
granule_status granule_annotate(struct granule_allocator *a, void *ptr, const char *text);

/** Puts a text on every entry of the calling thread from here on; an empty one ends that. It is the same for all allocators. */
granule_status granule_set_user_metadata(const char *text);

/** The calling thread's text; empty where there is none. */
granule_status granule_user_metadata(struct granule_bytes *out);

/** The calling thread enters a compiled region. */
granule_status granule_push_compile_context(const char *name);

/** The calling thread leaves the compiled region that it entered last; without one, nothing happens. */
granule_status granule_pop_compile_context(void);

/**
 * Shows the context with which a live block was allocated to visit, before the call returns. It is good during the visit.
 * Where there is none, visit is not called.
 */
granule_status granule_context_of(struct granule_allocator *a,
                                  void *ptr,
                                  void (*visit)(void *user, void *context),
                                  void *user);

/** Shows every entry to tracker, whether history is on or not, in order, with no lock held. It is never taken away again. */
granule_status granule_add_trace_tracker(struct granule_allocator *a,
                                         void (*tracker)(void *user, const struct granule_trace_entry *entry),
                                         void *user);

/**
 * Tells observer of memory that was taken from a device, before anyone uses it, and of memory that goes back, before it leaves: for libraries
 * that register memory. It must not wait for a thread that may be inside the allocator.
 */
granule_status granule_add_segment_observer(struct granule_allocator *a,
                                            void (*observer)(void *user,
                                                             const struct granule_segment_event *event),
                                            void *user);

/**
 * Tells observer of requests that end for want of memory: the device, the bytes that were asked from it, what it has in all
 * (or what the process may hold, where that is limited), and what it has free.
 */
granule_status granule_add_oom_observer(struct granule_allocator *a,
                                        void (*observer)(void *user,
                                                         int64_t device,
                                                         uint64_t tried,
                                                         uint64_t device_total_or_allowed,
                                                         uint64_t device_free),
                                        void *user);

/** Tells observer of requests refused before the driver was asked: the device, the bytes wanted, the bytes held, the limit. */
granule_status granule_add_rejection_observer(struct granule_allocator *a,
                                              void (*observer)(void *user,
                                                               int64_t device,
                                                               uint64_t wanted,
                                                               uint64_t held,
                                                               uint64_t limit),
                                              void *user);

/** Runs callback when memory is short, before the device is asked for more. It may free memory, and says whether it did. */
granule_status granule_add_free_memory_callback(struct granule_allocator *a,
                                                bool (*callback)(void *user),
                                                void *user);

/**
 * Where out-of-memory errors learn which processes use how much of a device. The function writes at most capacity entries,
 * and returns how many there are; it is asked again with more room where that was too little. It replaces an earlier one.
 */
granule_status granule_set_process_memory_source(struct granule_allocator *a,
                                                 uint64_t (*source)(void *user,
                                                                    int32_t device,
                                                                    struct granule_process_memory *out,
                                                                    uint64_t capacity),
                                                 void *user);

/**
 * Records what the program asks of all devices, from now on: `DIRECTORY[,rotate=SIZE][,keep=N][,max_entries=N][,on_oom=True]`, as
 * in the variable GRANULE_RECORD, which starts a recording when an allocator is made. Ends with granule_record_stop, with the
 * allocator, or with the process. GRANULE_RECORDING where there is one already.
 */
granule_status granule_record_start(struct granule_allocator *a,
                                    const char *options);

/** Says that an iteration begins: a training step, a decode step, a request. Without a recording, nothing happens. */
granule_status granule_record_mark(struct granule_allocator *a,
                                   uint64_t iteration);

/** Waits until everything that was asked up to now can be read in the files. Without a recording, nothing happens. */
granule_status granule_record_flush(struct granule_allocator *a);

/**
 * Ends the recording; its files are whole then. GRANULE_RECORDING where something could not be written. Without a recording,
 * nothing happens.
 */
granule_status granule_record_stop(struct granule_allocator *a);

/**
 * The recording, or the last one, as JSON:
 * `{"recording": bool, "directory": text, "files": [text], "events": n, "waits": n, "waited_ms": n}`. Calls of the program wait where they come faster than they can be written. `{"recording": false}` where there was
 * none.
 */
granule_status granule_record_json(struct granule_allocator *a,
                                   struct granule_bytes *out);

/** Takes a snapshot of the segments of one pool, or of all where pool is null or {0, 0}; with traces also the history of all. */
granule_status granule_snapshot_take(struct granule_allocator *a,
                                     const struct granule_pool_id *pool,
                                     bool traces,
                                     struct granule_snapshot **out);

/** Frees a snapshot and what points into it; null is fine. */
void granule_snapshot_free(struct granule_snapshot *s);

/** Its segments, by device and address. */
granule_status granule_snapshot_segments(const struct granule_snapshot *s,
                                         const struct granule_segment_info **out,
                                         uint64_t *count);

/** A device's history, oldest first; nothing where the snapshot has none. That of a host allocator's snapshot is device 0's. */
granule_status granule_snapshot_trace(const struct granule_snapshot *s,
                                      int32_t device,
                                      const struct granule_trace_entry **out,
                                      uint64_t *count);

/** The ranges that the program marked, oldest first. */
granule_status granule_snapshot_ranges(const struct granule_snapshot *s,
                                       const struct granule_range_mark **out,
                                       uint64_t *count);

/** A snapshot as the file that torch.cuda.memory._dump_snapshot writes. Contexts of C's show no frames. */
granule_status granule_snapshot_pickle(struct granule_allocator *a,
                                       const struct granule_pool_id *pool,
                                       bool traces,
                                       struct granule_bytes *out);

/** The same as JSON, for the web viewer. */
granule_status granule_snapshot_json(struct granule_allocator *a,
                                     const struct granule_pool_id *pool,
                                     bool traces,
                                     struct granule_bytes *out);

/** Statistics of a device: exact, and of one moment. */
granule_status granule_stats(struct granule_allocator *a, int32_t device, struct granule_device_stats *out);

/** What each private pool of a device holds: at most capacity entries are written, and count says how many there are. */
granule_status granule_pools_reserved(struct granule_allocator *a,
                                      int32_t device,
                                      struct granule_pool_reserved *out,
                                      uint64_t capacity,
                                      uint64_t *count);

/** All peaks become the current values. */
granule_status granule_reset_peak_stats(struct granule_allocator *a, int32_t device);

/** Sums of what came and went, and all counters, are 0 again. Levels and peaks stay. */
granule_status granule_reset_accumulated_stats(struct granule_allocator *a, int32_t device);

/** What growable segments hold, by stream and tier: at most capacity entries are written, and count says how many there are. */
granule_status granule_growable_sizes(struct granule_allocator *a,
                                      int32_t device,
                                      struct granule_stream_segments *out,
                                      uint64_t capacity,
                                      uint64_t *count);

/** What a device's memory is used for, as a table for people; abbreviated without its rows by tier. */
granule_status granule_memory_summary(struct granule_allocator *a,
                                      int32_t device,
                                      bool abbreviated,
                                      struct granule_bytes *out);

/** PyTorch's memory_stats() of a device, as a JSON object: every figure under its flat key ("allocated_bytes.all.peak"). */
granule_status granule_stats_json(struct granule_allocator *a,
                                  int32_t device,
                                  struct granule_bytes *out);

/** Whose the bytes of a device are: a JSON object, as an item of `who` of `granule devices --who --json`. Asks the driver. */
granule_status granule_ledger_json(struct granule_allocator *a,
                                   int32_t device,
                                   struct granule_bytes *out);

/** All figures of the allocator as OpenMetrics text, for Prometheus. GRANULE_UNSUPPORTED where the library was built without. */
granule_status granule_prometheus(struct granule_allocator *a,
                                  struct granule_bytes *out);

/**
 * Makes an allocator for pinned memory over the backend of an allocator, with its settings. It outlives the allocator. No memory
 * is taken before it is needed.
 */
granule_status granule_host_create(struct granule_allocator *a,
                                   struct granule_host_allocator **out);

/** granule_host_create with a say in sizes and places. */
granule_status granule_host_create_with(struct granule_allocator *a,
                                        const struct granule_host_options *options,
                                        struct granule_host_allocator **out);

/** Ends a host allocator; null is fine. Blocks until devices are done with what it has. */
granule_status granule_host_destroy(struct granule_host_allocator *h);

/** Pinned memory of so many bytes, and the id that names it. 0 bytes give null and 0. Blocks where the cache has no fit. */
granule_status granule_host_malloc(struct granule_host_allocator *h,
                                   uint64_t bytes,
                                   void **ptr,
                                   uint64_t *id);

/** granule_host_malloc for a program whose current stream this is: scopes of private pools see it, and captures do. */
granule_status granule_host_malloc_for(struct granule_host_allocator *h,
                                       uint64_t bytes,
                                       int32_t device,
                                       uint64_t stream,
                                       void **ptr,
                                       uint64_t *id);

/** Takes a block back; 0 is fine. It is reused once the streams that were recorded are done with it. */
granule_status granule_host_free(struct granule_host_allocator *h, uint64_t id);

/**
 * Says that work of a stream uses a block: that of id, or the one that begins at ptr. known says whether there is one; it may be
 * null.
 */
granule_status granule_host_record_event(struct granule_host_allocator *h,
                                         void *ptr,
                                         uint64_t id,
                                         int32_t device,
                                         uint64_t stream,
                                         bool *known);

/** Queues a copy (GRANULE_COPY_...), and records it for the pinned blocks that it uses, wherever inside of them. */
granule_status granule_host_copy_async(struct granule_host_allocator *h,
                                       void *dst,
                                       const void *src,
                                       uint64_t bytes,
                                       int32_t kind,
                                       int32_t device,
                                       uint64_t stream);

/** Pins memory of the program's own, in place. It stays valid until it is unregistered. Blocks. */
granule_status granule_host_register(struct granule_host_allocator *h, void *ptr, uint64_t bytes);

/** Undoes granule_host_register. Blocks. */
granule_status granule_host_unregister(struct granule_host_allocator *h, void *ptr);

/** Says that the program has pinned memory of its own by other means: the history shows it. */
granule_status granule_host_note_registered(struct granule_host_allocator *h, void *ptr, uint64_t bytes);

/** Says that such memory is not pinned any more. */
granule_status granule_host_note_unregistered(struct granule_host_allocator *h, void *ptr);

/** Says that a stream is about to be destroyed: its handle is not named again. */
granule_status granule_host_retire_stream(struct granule_host_allocator *h, int32_t device, uint64_t stream);

/** Notices completed uses, without waiting. */
granule_status granule_host_poll(struct granule_host_allocator *h);

/** Waits for all uses of blocks that were given back. Blocks. */
granule_status granule_host_synchronize(struct granule_host_allocator *h);

/** Gives cached blocks back to the driver. Blocks. */
granule_status granule_host_empty_cache(struct granule_host_allocator *h);

/** Changes settings, read as granule_configure reads them on top of an allocator's. */
granule_status granule_host_configure(struct granule_host_allocator *h,
                                      const struct granule_allocator *a,
                                      const char *settings);

/** Says that the driver is about to be unloaded: it is never called again. */
granule_status granule_host_abandon(struct granule_host_allocator *h);

/**
 * Sends requests that the filter accepts to a pool. The device is that of the filter's stream. Where the call fails, the filter's drop
 * has been called, unless the struct itself could not be read (GRANULE_ABI, null, or not aligned).
 */
granule_status granule_host_pool_begin(struct granule_host_allocator *h,
                                       int32_t device,
                                       struct granule_pool_id pool,
                                       const struct granule_filter *filter);

/** Ends the pool's scope; its references stay. */
granule_status granule_host_pool_end(struct granule_host_allocator *h, struct granule_pool_id pool);

/** Takes a reference away. */
granule_status granule_host_pool_release(struct granule_host_allocator *h, struct granule_pool_id pool);

/** Turns the history of pinned memory on, changes how it is kept, or turns it off. */
granule_status granule_host_record_history(struct granule_host_allocator *h,
                                           const struct granule_history *history);

/** Whether history is on. */
granule_status granule_host_is_history_enabled(const struct granule_host_allocator *h, bool *out);

/** A snapshot of pinned memory: each block is a segment while history is on, and the history is the trace of device 0. */
granule_status granule_host_snapshot_take(struct granule_host_allocator *h,
                                          bool traces,
                                          struct granule_snapshot **out);

/** All figures, of one moment. */
granule_status granule_host_stats(struct granule_host_allocator *h, struct granule_host_stats_t *out);

/**
 * Figures by size: bucket n has blocks of over 2^(n-1) up to 2^n bytes. At most capacity entries are written, and count says how many
 * there are.
 */
granule_status granule_host_buckets(struct granule_host_allocator *h,
                                    struct granule_host_bucket *out,
                                    uint64_t capacity,
                                    uint64_t *count);

/** Peaks become the current values; shortest and longest times are forgotten. */
granule_status granule_host_reset_peak_stats(struct granule_host_allocator *h);

/** Sums and counts begin anew. */
granule_status granule_host_reset_accumulated_stats(struct granule_host_allocator *h);

/** The calling thread's device. */
granule_status granule_device_current(struct granule_allocator *a, int32_t *out);

/** Makes a device the calling thread's. */
granule_status granule_device_set(struct granule_allocator *a, int32_t device);

/**
 * What can be had of a device and how much there is, in bytes: as the driver sees it, or the system, where the device shares
 * the host's memory.
 */
granule_status granule_device_memory_info(struct granule_allocator *a,
                                          int32_t device,
                                          uint64_t *free,
                                          uint64_t *total);

/** A device's product name. */
granule_status granule_device_name(struct granule_allocator *a, int32_t device, struct granule_bytes *out);

/** What a device is. */
granule_status granule_device_properties(struct granule_allocator *a,
                                         int32_t device,
                                         struct granule_device_properties_t *out);

/** Waits for all work of a device. Blocks. */
granule_status granule_device_synchronize(struct granule_allocator *a, int32_t device);

/** Copies (GRANULE_COPY_...), and waits for that. The ranges do not overlap. */
granule_status granule_copy(struct granule_allocator *a,
                            void *dst,
                            const void *src,
                            uint64_t bytes,
                            int32_t kind);

/** Queues a copy (GRANULE_COPY_...). Both ranges stay good until the stream has passed it, and do not overlap. */
granule_status granule_copy_on_stream(struct granule_allocator *a,
                                      void *dst,
                                      const void *src,
                                      uint64_t bytes,
                                      int32_t kind,
                                      int32_t device,
                                      uint64_t stream);

/** Queues a fill of device memory with the lowest byte of value. */
granule_status granule_memset(struct granule_allocator *a,
                              void *ptr,
                              int32_t value,
                              uint64_t bytes,
                              int32_t device,
                              uint64_t stream);

/** What an address points into. Any value may be asked about. */
granule_status granule_pointer_info(struct granule_allocator *a,
                                    const void *ptr,
                                    struct granule_pointer_info_t *out);

/** Begins to capture a stream, with memory from pool, or from a pool of its own where that is null. */
granule_status granule_capture_begin(struct granule_allocator *a,
                                     int32_t device,
                                     uint64_t stream,
                                     int32_t mode,
                                     const struct granule_pool_id *pool,
                                     struct granule_capture **out);

/** The pool that serves a capture. */
granule_status granule_capture_pool(const struct granule_capture *c, struct granule_pool_id *out);

/** Keeps another pool of the device, whose memory the capture uses, for as long as the graph lives. */
granule_status granule_capture_retain_pool(struct granule_capture *c, struct granule_pool_id pool);

/** Ends a capture, and makes a graph of it. The capture is over in any case, unless the call says that an argument is wrong. */
granule_status granule_capture_end(struct granule_capture *c,
                                   struct granule_graph **out);

/** Ends a capture and throws its work away; null is fine. */
granule_status granule_capture_abort(struct granule_capture *c);

/** Queues a graph's work on a stream. Memory that it uses beside its pools' is still allocated. */
granule_status granule_graph_launch(struct granule_graph *g, int32_t device, uint64_t stream);

/**
 * The pool that served a graph's capture, then those that it retains: at most capacity entries are written, and count says how
 * many there are.
 */
granule_status granule_graph_pools(const struct granule_graph *g,
                                   struct granule_pool_id *out,
                                   uint64_t capacity,
                                   uint64_t *count);

/** Ends a graph; null is fine. Its pool gives memory back once the launches are done and the cache is emptied. */
granule_status granule_graph_destroy(struct granule_graph *g);

/** The priorities of streams that make a difference: least is 0 or more, greatest 0 or less. */
granule_status granule_stream_priority_range(struct granule_allocator *a,
                                             int32_t device,
                                             int32_t *least,
                                             int32_t *greatest);

/** Makes a stream. 0 is the usual priority, lower is more urgent. */
granule_status granule_stream_create(struct granule_allocator *a,
                                     int32_t device,
                                     int32_t priority,
                                     uint64_t *out);

/**
 * Retires a stream from the allocator and destroys it. Host allocators that know it are told before
 * (granule_host_retire_stream).
 */
granule_status granule_stream_destroy(struct granule_allocator *a, int32_t device, uint64_t stream);

/** Whether all work of a stream is done: GRANULE_OK or GRANULE_NOT_READY. */
granule_status granule_stream_query(struct granule_allocator *a, int32_t device, uint64_t stream);

/** Waits for all work of a stream. Blocks. */
granule_status granule_stream_synchronize(struct granule_allocator *a, int32_t device, uint64_t stream);

/** Makes later work of a stream wait for what an event stands for now. The event may be another device's. */
granule_status granule_stream_wait_event(struct granule_allocator *a,
                                         int32_t device,
                                         uint64_t stream,
                                         int32_t event_device,
                                         uint64_t event);

/** Runs function on the host when a stream reaches it, on some thread. It must not call the library. */
granule_status granule_stream_launch_host(struct granule_allocator *a,
                                          int32_t device,
                                          uint64_t stream,
                                          void (*function)(void *user),
                                          void *user);

/** Makes an event, complete until it is first recorded. */
granule_status granule_event_create(struct granule_allocator *a, int32_t device, bool timing, uint64_t *out);

/** Destroys an event; waits that are queued on it still hold. */
granule_status granule_event_destroy(struct granule_allocator *a, int32_t device, uint64_t event);

/** Sets an event to the end of what is queued on a stream of its device now. */
granule_status granule_event_record(struct granule_allocator *a,
                                    int32_t device,
                                    uint64_t event,
                                    uint64_t stream);

/** Whether an event's last record has been passed: GRANULE_OK or GRANULE_NOT_READY. */
granule_status granule_event_query(struct granule_allocator *a, int32_t device, uint64_t event);

/** Waits until an event's last record has been passed. Blocks. */
granule_status granule_event_synchronize(struct granule_allocator *a, int32_t device, uint64_t event);

/** Milliseconds between two completed events that were made with timing. */
granule_status granule_event_elapsed_ms(struct granule_allocator *a,
                                        int32_t device,
                                        uint64_t start,
                                        uint64_t end,
                                        float *out);

/** Memory for a stream (a cudaStream_t); null where there is none. */
void *granule_pluggable_malloc(int64_t size, int device, void *stream);

/** Takes memory back. Size, device and stream are known already, and not looked at. */
void granule_pluggable_free(void *ptr, int64_t size, int device, void *stream);

/** Makes the allocator, so that what is wrong shows at once. The number of devices is known already. */
void granule_pluggable_init(int device_count);

/** Gives all cached memory back. Blocks. */
void granule_pluggable_reset(void);

/** Limits what is held on a device to a share of its memory. */
void granule_pluggable_set_memory_fraction(double fraction, int device);

/**
 * The segment that holds a block. For growable segments, and for what is no block, that is ptr itself, as PyTorch has it by
 * default. size may be null.
 */
void *granule_pluggable_base_allocation(void *ptr,
                                        size_t *size);

/** Says that work of a stream uses a block. */
void granule_pluggable_record_stream(void *ptr, void *stream);

/** granule_pool_begin of that allocator. */
granule_status granule_pluggable_begin_pool(int device,
                                            struct granule_pool_id pool,
                                            const struct granule_filter *filter);

/** granule_pool_end of that allocator. */
granule_status granule_pluggable_end_pool(int device, struct granule_pool_id pool);

/** granule_pool_release of that allocator. */
granule_status granule_pluggable_release_pool(int device, struct granule_pool_id pool);

/** That allocator, for everything else: statistics, snapshots. It is borrowed, and never ended by the program. */
granule_status granule_pluggable_allocator(struct granule_allocator **out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GRANULE_H */
