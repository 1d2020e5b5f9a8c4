/* A Granule backend as a table of C functions.
 *
 * Generated from the `Backend` trait by `cargo xtask codegen`. Do not edit.
 *
 * Fill a `granule_backend_table`: `size`, `version`, `context`, and every function of the required part. The
 * rest may stay NULL: Granule derives some functions, and leaves out an optional family that is not complete.
 * The table is copied; `context` and the functions stay valid for the life of the process.
 *
 * Rules for every function (the numbers are the contract's; comments below refer to them)
 *
 * 1. Handles: Granule passes only those that this backend made, and no destroyed one.
 * 2. Addresses of queued work lie in memory that stays allocated until the stream has passed the work.
 * 3. Frees name what was handed out, once, when no queued work uses it. Granule keeps null to itself.
 * 4. Sizes are bytes, and never 0: Granule refuses 0 itself. It also refuses devices that do not exist.
 * 5. The current device is per thread. A call leaves it as it found it, also on error.
 * 6. A failed call has changed nothing. GRANULE_BACKEND_NOT_READY is the answer of a query, not a failure.
 * 7. Any thread may call any function at any time. One that blocks holds its caller, and no thread of the driver.
 * 8. GRANULE_BACKEND_DEVICE_LOST repeats on every later call about that device.
 * 9. There are 256 devices at most.
 *
 * The first argument is the table's `context`. `answer` is written where the function returns GRANULE_BACKEND_OK, and
 * only then. Memory handed out is aligned to 512 bytes, at least as large as asked, nobody else's, and below address
 * 2^57. Nothing unwinds out of a function (C++ exceptions stay inside).
 *
 * A driver error number and a text for a failure are optional: see `last_error`. So are `name` and `label`, by which
 * users know the backend.
 *
 * All names begin with granule_backend_ or GRANULE_BACKEND_, so that granule.h may be included beside this header. Both
 * are C99 and C++11.
 */
#ifndef GRANULE_BACKEND_H
#define GRANULE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the table below; goes into its field `version`. */
#define GRANULE_BACKEND_VERSION 2

/* A device, counted from 0. */
typedef uint16_t granule_backend_device;
/* An address in device memory, or in page-locked host memory. 0 is none. */
typedef uint64_t granule_backend_address;
/* A driver's handle to physical memory, to a graph, to a node of a graph. */
typedef uint64_t granule_backend_physical_handle;
typedef uint64_t granule_backend_graph;
typedef uint64_t granule_backend_capture_node;
/* Work for the host. Call it once, with its argument, from any thread; never after a failed launch. */
typedef void (*granule_backend_host_function)(void *argument);

/* How a call ended. */
typedef int32_t granule_backend_status;
enum {
    /* It worked. */
    GRANULE_BACKEND_OK = 0,
    /* The answer of a query: something is still running. */
    GRANULE_BACKEND_NOT_READY = 1,
    /* The device has not that much memory left: the only kind after which Granule frees memory and tries
     * again. */
    GRANULE_BACKEND_OUT_OF_MEMORY = 2,
    /* A driver resource other than memory ran out (file descriptors, address space): emptying a cache does
     * not help. */
    GRANULE_BACKEND_RESOURCE_LIMIT = 3,
    /* An argument is wrong: unknown pointer, misaligned size, wrong device. */
    GRANULE_BACKEND_INVALID_VALUE = 4,
    /* This backend, driver or device cannot do that; the text of the failure says why. */
    GRANULE_BACKEND_NOT_SUPPORTED = 5,
    /* The driver library, or a symbol in it, is missing or too old. */
    GRANULE_BACKEND_NO_DRIVER = 6,
    /* The driver works and finds no device. */
    GRANULE_BACKEND_NO_DEVICE = 7,
    /* The device or its context is gone: every later call fails the same way. */
    GRANULE_BACKEND_DEVICE_LOST = 8,
    /* Not allowed while a stream is being captured. */
    GRANULE_BACKEND_CAPTURE_VIOLATION = 9,
    /* A deadline passed. */
    GRANULE_BACKEND_TIMEOUT = 10,
    /* The process is a fork of the one that initialised the driver, or the driver is unloading. */
    GRANULE_BACKEND_UNUSABLE = 11,
    /* Anything else; the driver's number and text say what. */
    GRANULE_BACKEND_OTHER = 12,
};

/* What an address points into. */
typedef int32_t granule_backend_pointer_kind;
enum {
    /* Nothing the driver knows. */
    GRANULE_BACKEND_POINTER_KIND_UNMANAGED = 0,
    /* Page-locked or registered host memory. */
    GRANULE_BACKEND_POINTER_KIND_HOST = 1,
    /* Device memory. */
    GRANULE_BACKEND_POINTER_KIND_DEVICE = 2,
    /* Memory that migrates. */
    GRANULE_BACKEND_POINTER_KIND_MANAGED = 3,
};

/* Which side of a copy is what. */
typedef int32_t granule_backend_copy_kind;
enum {
    /* Host to host. */
    GRANULE_BACKEND_COPY_KIND_HOST_TO_HOST = 0,
    /* Host to device. */
    GRANULE_BACKEND_COPY_KIND_HOST_TO_DEVICE = 1,
    /* Device to host. */
    GRANULE_BACKEND_COPY_KIND_DEVICE_TO_HOST = 2,
    /* Device to device, possibly another one. */
    GRANULE_BACKEND_COPY_KIND_DEVICE_TO_DEVICE = 3,
};

/* Questions about a device. Numbers differ between drivers: backends translate. */
typedef int32_t granule_backend_attribute;
enum {
    /* Major part of the compute capability or architecture. */
    GRANULE_BACKEND_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 0,
    /* Minor part of the compute capability or architecture. */
    GRANULE_BACKEND_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 1,
    /* Number of multiprocessors or compute units. */
    GRANULE_BACKEND_ATTRIBUTE_MULTIPROCESSOR_COUNT = 2,
    /* Threads per warp or wavefront. */
    GRANULE_BACKEND_ATTRIBUTE_WARP_SIZE = 3,
    /* 1 where virtual memory management is offered. */
    GRANULE_BACKEND_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT = 4,
    /* 1 where physical handles export as POSIX file descriptors. */
    GRANULE_BACKEND_ATTRIBUTE_POSIX_FILE_DESCRIPTOR_HANDLES = 5,
    /* 1 where physical handles export as fabric handles. */
    GRANULE_BACKEND_ATTRIBUTE_FABRIC_HANDLES = 6,
    /* 1 where GPUDirect RDMA works on virtual memory. */
    GRANULE_BACKEND_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_VIRTUAL_MEMORY = 7,
    /* 1 for an integrated device that shares host memory. */
    GRANULE_BACKEND_ATTRIBUTE_INTEGRATED = 8,
    /* The system's node that a device's own memory is, where the system gives programs that, too; -1 where
     * it is none. */
    GRANULE_BACKEND_ATTRIBUTE_MEMORY_NODE = 9,
};

/* How a physical handle can be given to another process. */
typedef int32_t granule_backend_handle_type;
enum {
    /* Not at all. */
    GRANULE_BACKEND_HANDLE_TYPE_NONE = 0,
    /* As a POSIX file descriptor. */
    GRANULE_BACKEND_HANDLE_TYPE_POSIX_FD = 1,
    /* As a 64-byte fabric handle, across hosts. */
    GRANULE_BACKEND_HANDLE_TYPE_FABRIC = 2,
};

/* Who may do what with a mapped range. */
typedef int32_t granule_backend_access;
enum {
    /* Nothing. */
    GRANULE_BACKEND_ACCESS_NONE = 0,
    /* Read. */
    GRANULE_BACKEND_ACCESS_READ = 1,
    /* Read and write. */
    GRANULE_BACKEND_ACCESS_READ_WRITE = 2,
};

/* Which granularity is asked for. */
typedef int32_t granule_backend_granularity;
enum {
    /* The smallest that works. */
    GRANULE_BACKEND_GRANULARITY_MINIMUM = 0,
    /* The one the driver likes best. */
    GRANULE_BACKEND_GRANULARITY_RECOMMENDED = 1,
};

/* What a thread may do while a capture is under way. */
typedef int32_t granule_backend_capture_mode;
enum {
    /* Unsafe calls are refused in every thread. */
    GRANULE_BACKEND_CAPTURE_MODE_GLOBAL = 0,
    /* Unsafe calls are refused in this thread. */
    GRANULE_BACKEND_CAPTURE_MODE_THREAD_LOCAL = 1,
    /* Unsafe calls are allowed. */
    GRANULE_BACKEND_CAPTURE_MODE_RELAXED = 2,
};

/* How an event is made. */
enum {
    /* It keeps a time stamp. */
    GRANULE_BACKEND_EVENT_FLAG_TIMING = 1,
    /* A thread that waits for it sleeps instead of spinning. */
    GRANULE_BACKEND_EVENT_FLAG_BLOCKING_SYNC = 2,
};

/* How page-locked host memory is made. */
enum {
    /* Page-locked for every device. */
    GRANULE_BACKEND_HOST_FLAG_PORTABLE = 1,
    /* Mapped into device addresses. */
    GRANULE_BACKEND_HOST_FLAG_MAPPED = 2,
    /* Write-combined: fast to write, slow to read. */
    GRANULE_BACKEND_HOST_FLAG_WRITE_COMBINED = 4,
};

/* A stream. raw 0 is the device's default stream. */
typedef struct granule_backend_stream {
    /* What create_stream answered. */
    uint64_t raw;
    /* The device it runs on. */
    uint16_t device;
} granule_backend_stream;

/* An event. */
typedef struct granule_backend_event {
    /* What create_event answered. */
    uint64_t raw;
    /* The device it belongs to. */
    uint16_t device;
} granule_backend_event;

/* A device's memory, in bytes, other processes included. */
typedef struct granule_backend_memory_info {
    /* Not taken by anyone. */
    uint64_t free;
    /* All there is. */
    uint64_t total;
} granule_backend_memory_info;

/* An allocation's extent. */
typedef struct granule_backend_address_range {
    /* First address. */
    uint64_t base;
    /* Length in bytes. */
    uint64_t bytes;
} granule_backend_address_range;

/* What an address points into. */
typedef struct granule_backend_pointer_info {
    /* A granule_backend_pointer_kind. */
    int32_t kind;
    /* The owning device; -1 for host and unmanaged memory. */
    int32_t device;
    /* Start of the allocation; 0 for unmanaged memory. */
    uint64_t base;
} granule_backend_pointer_info;

/* What a device is. It comes to the function filled with zeroes. */
typedef struct granule_backend_device_properties {
    /* The product's name, with its 0. */
    char name[256];
    /* Bytes that identify the device; all 0 where the driver has none. */
    uint8_t uuid[16];
    /* "domain:bus:device.function", with its 0; empty where the driver has none. */
    char pci_bus_id[32];
    /* Total memory in bytes. */
    uint64_t total_memory;
    /* Threads per warp or wavefront. */
    uint32_t warp_size;
} granule_backend_device_properties;

/* Stream priorities that make a difference: 0 is normal, negative is more urgent. */
typedef struct granule_backend_priority_range {
    /* The least urgent. */
    int32_t least;
    /* The most urgent. */
    int32_t greatest;
} granule_backend_priority_range;

/* A handle of memory that another process can open. */
typedef struct granule_backend_ipc_handle {
    /* Opaque. */
    uint8_t bytes[64];
} granule_backend_ipc_handle;

/* A physical handle on its way to another process. */
typedef struct granule_backend_shareable_handle {
    /* A granule_backend_handle_type: which of the other fields holds it. */
    int32_t handle_type;
    /* An open file descriptor. Granule closes one that an export gave, and keeps one that it imports. */
    int32_t fd;
    /* A fabric handle. */
    uint8_t fabric[64];
} granule_backend_shareable_handle;

/* Whether a stream is being captured. */
typedef struct granule_backend_capture_status {
    /* The capture's id, where it is active. */
    uint64_t id;
    /* 0: it runs its work; 1: it records into the capture id; 2: the capture was invalidated. */
    int32_t state;
} granule_backend_capture_status;

/* The table. Functions that are NULL at its end may be left out: `size` says where it ends. */
typedef struct granule_backend_table {
    /* sizeof(granule_backend_table). */
    uint64_t size;
    /* GRANULE_BACKEND_VERSION. */
    uint64_t version;
    /* First argument of every function. */
    void *context;
    /* What the driver said of the calling thread's last failure: its number, and a text of at most `capacity`
     * bytes with its 0. Asked right after a failure. May be NULL. */
    void (*last_error)(void *context, int32_t *code, char *text, uint64_t capacity);

    /* ---- Required ---------------------------------------------------------------------------------- */

    /* How many devices there are; 0 where the driver works and finds none. Does not block; legal during
     * capture. CUDA cuDeviceGetCount, HIP hipGetDeviceCount, OpenReg orGetDeviceCount. */
    granule_backend_status (*device_count)(void *context, uint16_t *answer);
    /* The calling thread's device. Does not block; legal during capture. CUDA cuCtxGetDevice, HIP
     * hipGetDevice, OpenReg orGetDevice. */
    granule_backend_status (*current_device)(void *context, granule_backend_device *answer);
    /* Makes device the calling thread's device (the one exception to rule 5). May create its context,
     * which blocks. CUDA cuCtxSetCurrent with the primary context, HIP hipSetDevice, OpenReg orSetDevice. */
    granule_backend_status (*set_device)(void *context, granule_backend_device device);
    /* Waits for all work of the device. Blocks. Illegal during capture. CUDA cuCtxSynchronize, HIP
     * hipDeviceSynchronize, OpenReg orDeviceSynchronize. */
    granule_backend_status (*synchronize_device)(void *context, granule_backend_device device);
    /* Takes bytes of device memory, aligned to 512 bytes at least: from a driver that aligns to less, take
     * so much more. May block for all work of the device. During capture only under the relaxed mode. Not
     * stream-ordered. CUDA cuMemAlloc, HIP hipMalloc, OpenReg orMalloc. */
    granule_backend_status (*malloc)(
        void *context,
        granule_backend_device device,
        uint64_t bytes,
        granule_backend_address *answer);
    /* Gives memory back. Null is fine. May block for all work of the device. During capture only under the
     * relaxed mode. Not stream-ordered. CUDA cuMemFree, HIP hipFree, OpenReg orFree. The caller promises:
     * Rule 3. A pointer that is no live base is answered with GRANULE_BACKEND_INVALID_VALUE, never
     * undefined. */
    granule_backend_status (*free)(void *context, granule_backend_device device, granule_backend_address ptr);
    /* Free and total bytes as the driver sees them, other processes included. Of a driver that does not
     * tell what is free, all is free but what was handed out here. Does not block. CUDA cuMemGetInfo, HIP
     * hipMemGetInfo, OpenReg: capacity and what is used of it. */
    granule_backend_status (*memory_info)(
        void *context,
        granule_backend_device device,
        granule_backend_memory_info *answer);
    /* What kind of memory an address is, whose, and where its allocation begins. Any 64-bit value may be
     * asked; unknown ones are GRANULE_BACKEND_POINTER_KIND_UNMANAGED. Does not block; legal during
     * capture. CUDA cuPointerGetAttribute, HIP hipPointerGetAttributes, OpenReg orPointerGetAttributes. */
    granule_backend_status (*pointer_info)(
        void *context,
        granule_backend_address ptr,
        granule_backend_pointer_info *answer);
    /* Base and size of the allocation that holds ptr. Does not block. CUDA cuMemGetAddressRange, HIP
     * hipMemGetAddressRange, OpenReg: its registry. */
    granule_backend_status (*address_range)(
        void *context,
        granule_backend_address ptr,
        granule_backend_address_range *answer);
    /* Queues a copy. Does not block (from pageable host memory it may). Legal during capture.
     * Stream-ordered. CUDA cuMemcpyHtoDAsync and so on, HIP hipMemcpyAsync, OpenReg orMemcpyAsync. The
     * caller promises: As for copy, until the stream has passed it. */
    granule_backend_status (*copy_async)(
        void *context,
        granule_backend_address dst,
        granule_backend_address src,
        uint64_t bytes,
        granule_backend_copy_kind kind,
        granule_backend_stream stream);
    /* Queues a fill with one byte value. Does not block. Legal during capture. Stream-ordered. CUDA
     * cuMemsetD8Async, HIP hipMemsetAsync, OpenReg: a task. The caller promises: Rule 2 for the range,
     * until the stream has passed it. */
    granule_backend_status (*memset_async)(
        void *context,
        granule_backend_address dst,
        uint8_t value,
        uint64_t bytes,
        granule_backend_stream stream);
    /* A new non-blocking stream. priority: 0 is normal, negative is more urgent; values out of range are
     * clamped. May block. CUDA cuStreamCreateWithPriority, HIP hipStreamCreateWithPriority, OpenReg
     * orStreamCreateWithPriority (inverted range). */
    granule_backend_status (*create_stream)(
        void *context,
        granule_backend_device device,
        int32_t priority,
        uint64_t *answer);
    /* Destroys a stream; work queued on it still runs. Does not wait (OpenReg's C library does). CUDA
     * cuStreamDestroy, HIP hipStreamDestroy, OpenReg orStreamDestroy. The caller promises: Rule 1, and the
     * handle is not used again. */
    granule_backend_status (*destroy_stream)(void *context, granule_backend_stream stream);
    /* Whether all work queued so far is done. Does not block. Illegal while the stream is captured. CUDA
     * cuStreamQuery, HIP hipStreamQuery, OpenReg orStreamQuery. */
    granule_backend_status (*query_stream)(void *context, granule_backend_stream stream);
    /* Waits for all work queued so far. Blocks. Illegal while the stream is captured. CUDA
     * cuStreamSynchronize, HIP hipStreamSynchronize, OpenReg orStreamSynchronize. */
    granule_backend_status (*synchronize_stream)(void *context, granule_backend_stream stream);
    /* Makes later work of stream wait for what event stands for at this call; a later re-record of the
     * event changes nothing. Does not block. Legal during capture. CUDA cuStreamWaitEvent, HIP
     * hipStreamWaitEvent, OpenReg orStreamWaitEvent. */
    granule_backend_status (*wait_event)(
        void *context,
        granule_backend_stream stream,
        granule_backend_event event);
    /* Runs function on the host when the stream reaches it, never on the calling thread. Does not block.
     * Legal during capture. function may hold the driver's threads: other streams may stand still until it
     * returns. CUDA cuLaunchHostFunc, HIP hipLaunchHostFunc, OpenReg addTaskToStream. */
    granule_backend_status (*launch_host_function)(
        void *context,
        granule_backend_stream stream,
        granule_backend_host_function function,
        void *argument);
    /* A new event, complete until first recorded. May block. CUDA cuEventCreate, HIP
     * hipEventCreateWithFlags, OpenReg orEventCreateWithFlags. */
    granule_backend_status (*create_event)(
        void *context,
        granule_backend_device device,
        uint32_t flags,
        uint64_t *answer);
    /* Destroys an event; waits already queued on it still hold. Does not block. CUDA cuEventDestroy, HIP
     * hipEventDestroy, OpenReg orEventDestroy. The caller promises: Rule 1, and the handle is not used
     * again. */
    granule_backend_status (*destroy_event)(void *context, granule_backend_event event);
    /* Sets the event to the end of what is queued on stream now. Both are of one device, else
     * GRANULE_BACKEND_INVALID_VALUE. Does not block. Legal during capture (it then belongs to the graph).
     * CUDA cuEventRecord, HIP hipEventRecord, OpenReg orEventRecord. */
    granule_backend_status (*record_event)(
        void *context,
        granule_backend_event event,
        granule_backend_stream stream);
    /* Whether the event's last record has been passed. Does not block. Illegal during capture. CUDA
     * cuEventQuery, HIP hipEventQuery, OpenReg orEventQuery. */
    granule_backend_status (*query_event)(void *context, granule_backend_event event);
    /* Waits until the event's last record has been passed. Blocks. Illegal during capture. CUDA
     * cuEventSynchronize, HIP hipEventSynchronize, OpenReg orEventSynchronize. */
    granule_backend_status (*synchronize_event)(void *context, granule_backend_event event);

    /* ---- Optional family: pinned host memory ------------------------------------------------------- */

    /* Page-locked host memory, aligned to 64 bytes at least. Blocks. CUDA cuMemHostAlloc, HIP
     * hipHostMalloc, OpenReg orMallocHost. */
    granule_backend_status (*host_malloc)(
        void *context,
        uint64_t bytes,
        uint32_t flags,
        granule_backend_address *answer);
    /* Gives page-locked memory back. Null is fine. Blocks. CUDA cuMemFreeHost, HIP hipHostFree, OpenReg
     * orFreeHost. The caller promises: Rule 3. */
    granule_backend_status (*host_free)(void *context, granule_backend_address ptr);

    /* ---- Derived where NULL ------------------------------------------------------------------------ */

    /* What the driver calls an error code (CUDA_ERROR_OUT_OF_MEMORY); "unknown" for one it does not know.
     * Never blocks. CUDA cuGetErrorName, HIP hipGetErrorName, OpenReg: three names. Where it is NULL:
     * "unknown". */
    const char *(*error_name)(void *context, int32_t code);
    /* Clears the error that some drivers keep for the next caller, after an expected failure. Never
     * blocks. CUDA driver: nothing to do; HIP hipGetLastError; OpenReg: nothing to do. Where it is NULL:
     * nothing. */
    void (*clear_error)(void *context);
    /* Whether the device's primary context exists; must not create it. Does not block. CUDA
     * cuDevicePrimaryCtxGetState, HIP hipDevicePrimaryCtxGetState, OpenReg: always. Where it is NULL:
     * true. */
    granule_backend_status (*has_primary_context)(void *context, granule_backend_device device, bool *answer);
    /* One number about a device. Does not block; legal during capture. CUDA cuDeviceGetAttribute, HIP
     * hipDeviceGetAttribute (other numbers), OpenReg: a table. GRANULE_BACKEND_NOT_SUPPORTED where it has
     * no answer. Where it is NULL: GRANULE_BACKEND_NOT_SUPPORTED. */
    granule_backend_status (*attribute)(
        void *context,
        granule_backend_device device,
        granule_backend_attribute attribute,
        int64_t *answer);
    /* Name, ids and total memory. Does not block. CUDA cuDeviceGetName, cuDeviceGetUuid,
     * cuDeviceGetPCIBusId, cuDeviceTotalMem; HIP hipDeviceGetName and so on; OpenReg: a table. Where it is
     * NULL: the backend's name, and the total of memory_info. */
    granule_backend_status (*properties)(
        void *context,
        granule_backend_device device,
        granule_backend_device_properties *answer);
    /* Copies and waits. Blocks. Illegal during capture. Host addresses are passed as their numeric value.
     * CUDA cuMemcpyHtoD and so on, HIP hipMemcpy, OpenReg orMemcpy. The caller promises: Rule 2 for both
     * ranges; they do not overlap; kind says truly which side is host memory. Where it is NULL: copy_async
     * on the device's default stream, then synchronize_stream. */
    granule_backend_status (*copy)(
        void *context,
        granule_backend_address dst,
        granule_backend_address src,
        uint64_t bytes,
        granule_backend_copy_kind kind);
    /* The priorities that make a difference, as create_stream takes them. Does not block. CUDA
     * cuCtxGetStreamPriorityRange, HIP hipDeviceGetStreamPriorityRange, OpenReg
     * orDeviceGetStreamPriorityRange. Where it is NULL: 0 to 0: priorities make no difference. */
    granule_backend_status (*priority_range)(
        void *context,
        granule_backend_device device,
        granule_backend_priority_range *answer);
    /* Milliseconds between two completed events made with GRANULE_BACKEND_EVENT_FLAG_TIMING;
     * GRANULE_BACKEND_NOT_SUPPORTED without timing. Does not block. CUDA cuEventElapsedTime, HIP
     * hipEventElapsedTime, OpenReg orEventElapsedTime. Where it is NULL: GRANULE_BACKEND_NOT_SUPPORTED. */
    granule_backend_status (*elapsed_ms)(
        void *context,
        granule_backend_event start,
        granule_backend_event end,
        float *answer);

    /* ---- Optional family: virtual memory ----------------------------------------------------------- */

    /* The unit of sizes and offsets for physical memory of device, in bytes. Does not block; legal during
     * capture. CUDA cuMemGetAllocationGranularity, HIP hipMemGetAllocationGranularity. */
    granule_backend_status (*virtual_memory_granularity)(
        void *context,
        granule_backend_device device,
        granule_backend_granularity which,
        uint64_t *answer);
    /* Reserves addresses, without memory. alignment 0 is the granularity; hint null lets the driver
     * choose. May block. CUDA cuMemAddressReserve, HIP hipMemAddressReserve. */
    granule_backend_status (*virtual_memory_reserve_address)(
        void *context,
        granule_backend_device device,
        uint64_t bytes,
        uint64_t alignment,
        granule_backend_address hint,
        granule_backend_address *answer);
    /* Gives reserved addresses back; GRANULE_BACKEND_INVALID_VALUE while something is mapped there. May
     * block. CUDA cuMemAddressFree, HIP hipMemAddressFree. The caller promises: Rule 3: base and size of
     * one reservation. */
    granule_backend_status (*virtual_memory_release_address)(
        void *context,
        granule_backend_address base,
        uint64_t bytes);
    /* Creates physical memory; bytes is a multiple of the granularity. Other handle types than
     * GRANULE_BACKEND_HANDLE_TYPE_NONE need the family that shares physical memory. Where a device refuses
     * file descriptors the memory is private, and dropped says so. May block. CUDA cuMemCreate, HIP
     * hipMemCreate. */
    granule_backend_status (*virtual_memory_create_physical)(
        void *context,
        granule_backend_device device,
        uint64_t bytes,
        granule_backend_handle_type handle_type,
        uint64_t *answer);
    /* Gives a handle up; the memory lives on while it is mapped or exported. May block. CUDA cuMemRelease,
     * HIP hipMemRelease. The caller promises: Rule 1, and the handle is not used again. */
    granule_backend_status (*virtual_memory_release_physical)(
        void *context,
        granule_backend_physical_handle handle);
    /* Maps a whole handle (offset 0) at an address inside a reservation where nothing is mapped. No one
     * may touch the mapping before set_access. May block. CUDA cuMemMap, HIP hipMemMap. One handle may be
     * mapped at several addresses at once (CUDA calls that virtual aliasing). Each mapping shows the same
     * bytes and has its own access, and unmapping one leaves the others. Bytes written at one address are
     * seen at all others by later work. Work is later if it comes later in the stream's order, or is
     * ordered after the write by an event or a wait. A driver may refuse a second mapping, and nothing has
     * changed then: allocators do without. The caller promises: [at, at + bytes) lies in one live
     * reservation; bytes is the handle's size; rule 1. */
    granule_backend_status (*virtual_memory_map)(
        void *context,
        granule_backend_address at,
        uint64_t bytes,
        granule_backend_physical_handle handle);
    /* Takes a mapping away; whole mappings only. May block, but does not wait for queued work. CUDA
     * cuMemUnmap, HIP hipMemUnmap. The caller promises: Rule 3: the range is one mapping or several
     * adjacent ones. */
    granule_backend_status (*virtual_memory_unmap)(void *context, granule_backend_address at, uint64_t bytes);
    /* Sets what each of devices may do with a mapped range. May block. CUDA cuMemSetAccess, HIP
     * hipMemSetAccess. The caller promises: The range is mapped; taking access away needs rule 3. */
    granule_backend_status (*virtual_memory_set_access)(
        void *context,
        granule_backend_address at,
        uint64_t bytes,
        const granule_backend_device *devices,
        uint64_t device_count,
        granule_backend_access access);
    /* What device may do with the mapping at at. Does not block; legal during capture. CUDA
     * cuMemGetAccess, HIP hipMemGetAccess. */
    granule_backend_status (*virtual_memory_access)(
        void *context,
        granule_backend_address at,
        granule_backend_device device,
        granule_backend_access *answer);

    /* ---- Optional family: sharing of physical memory ----------------------------------------------- */

    /* Makes a handle that another process can import. May block. CUDA cuMemExportToShareableHandle, HIP
     * hipMemExportToShareableHandle. */
    granule_backend_status (*virtual_memory_export_physical)(
        void *context,
        granule_backend_physical_handle handle,
        granule_backend_handle_type handle_type,
        granule_backend_shareable_handle *answer);
    /* Takes a handle another process exported. May block. CUDA cuMemImportFromShareableHandle, HIP
     * hipMemImportFromShareableHandle (the descriptor is passed by pointer up to 7.0, by value from 7.1). */
    granule_backend_status (*virtual_memory_import_physical)(
        void *context,
        granule_backend_device device,
        const granule_backend_shareable_handle *shared,
        uint64_t *answer);

    /* ---- Optional family: IPC ---------------------------------------------------------------------- */

    /* A handle for a whole malloc allocation; ranges of virtual memory answer
     * GRANULE_BACKEND_NOT_SUPPORTED. Does not block. CUDA cuIpcGetMemHandle, HIP hipIpcGetMemHandle,
     * OpenReg orGetIpcMemHandle. */
    granule_backend_status (*ipc_export_memory)(
        void *context,
        granule_backend_address base,
        granule_backend_ipc_handle *answer);
    /* Maps what another process exported; the same bytes again give the same address and one more
     * reference. May block. CUDA cuIpcOpenMemHandle, HIP hipIpcOpenMemHandle, OpenReg orOpenIpcMemHandle. */
    granule_backend_status (*ipc_open_memory)(
        void *context,
        granule_backend_device device,
        const granule_backend_ipc_handle *handle,
        granule_backend_address *answer);
    /* Gives one reference back. May block. CUDA cuIpcCloseMemHandle, HIP hipIpcCloseMemHandle, OpenReg
     * orCloseIpcMemHandle. The caller promises: Rule 3: ptr came from open_memory. */
    granule_backend_status (*ipc_close_memory)(void *context, granule_backend_address ptr);

    /* ---- Optional family: peers -------------------------------------------------------------------- */

    /* Whether from can reach to's memory. Does not block. CUDA cuDeviceCanAccessPeer, HIP
     * hipDeviceCanAccessPeer. */
    granule_backend_status (*peers_can_access)(
        void *context,
        granule_backend_device from,
        granule_backend_device to,
        bool *answer);
    /* Lets from reach to's memory; enabling twice is fine. May block. CUDA cuCtxEnablePeerAccess, HIP
     * hipDeviceEnablePeerAccess. */
    granule_backend_status (*peers_enable_access)(
        void *context,
        granule_backend_device from,
        granule_backend_device to);
    /* Queues a copy between devices, through the host where there is no direct way. Does not block.
     * Stream-ordered. CUDA cuMemcpyPeerAsync, HIP hipMemcpyPeerAsync. The caller promises: Rule 2 for both
     * ranges, until the stream has passed it. */
    granule_backend_status (*peers_copy_peer_async)(
        void *context,
        granule_backend_device dst_device,
        granule_backend_address dst,
        granule_backend_device src_device,
        granule_backend_address src,
        uint64_t bytes,
        granule_backend_stream stream);

    /* ---- Optional family: capture ------------------------------------------------------------------ */

    /* The stream's state. Does not block; legal at any time. CUDA cuStreamGetCaptureInfo, HIP
     * hipStreamGetCaptureInfo. */
    granule_backend_status (*capture_status)(
        void *context,
        granule_backend_stream stream,
        granule_backend_capture_status *answer);
    /* Begins to record. Does not block. CUDA cuStreamBeginCapture, HIP hipStreamBeginCapture. */
    granule_backend_status (*capture_begin)(
        void *context,
        granule_backend_stream stream,
        granule_backend_capture_mode mode);
    /* Ends the recording; GRANULE_BACKEND_CAPTURE_VIOLATION where it was invalidated. Does not wait for
     * work. CUDA cuStreamEndCapture, HIP hipStreamEndCapture. */
    granule_backend_status (*capture_end)(void *context, granule_backend_stream stream, uint64_t *answer);
    /* Queues a graph's work. Does not wait for work. Stream-ordered. CUDA cuGraphInstantiate and
     * cuGraphLaunch, HIP hipGraphInstantiate and hipGraphLaunch. The caller promises: Rule 2 for every
     * address that the graph's work uses. */
    granule_backend_status (*capture_launch)(
        void *context,
        granule_backend_graph graph,
        granule_backend_stream stream);
    /* Destroys a graph; queued launches still run. Does not wait for them. CUDA cuGraphDestroy, HIP
     * hipGraphDestroy. The caller promises: Rule 1, and the handle is not used again. */
    granule_backend_status (*capture_destroy_graph)(void *context, granule_backend_graph graph);
    /* Sets the calling thread's mode and returns the one before. Does not block; legal at any time. CUDA
     * cuThreadExchangeStreamCaptureMode, HIP hipThreadExchangeStreamCaptureMode. */
    granule_backend_status (*capture_exchange_mode)(
        void *context,
        granule_backend_capture_mode mode,
        granule_backend_capture_mode *answer);
    /* The nodes that the stream's next work would depend on. Does not block. CUDA and HIP: the dependency
     * list of StreamGetCaptureInfo. */
    granule_backend_status (*capture_frontier)(
        void *context,
        granule_backend_stream stream,
        granule_backend_capture_node *answer,
        uint64_t capacity,
        uint64_t *count);
    /* The nodes that node depends on. Does not block. CUDA cuGraphNodeGetDependencies, HIP
     * hipGraphNodeGetDependencies. */
    granule_backend_status (*capture_dependencies)(
        void *context,
        granule_backend_stream stream,
        granule_backend_capture_node node,
        granule_backend_capture_node *answer,
        uint64_t capacity,
        uint64_t *count);

    /* ---- Optional family: host registration -------------------------------------------------------- */

    /* Page-locks a range. Blocks. CUDA cuMemHostRegister, HIP hipHostRegister. The caller promises: The
     * range is valid host memory until it is unregistered. */
    granule_backend_status (*host_registration_register)(
        void *context,
        granule_backend_address ptr,
        uint64_t bytes,
        uint32_t flags);
    /* Undoes it; null is GRANULE_BACKEND_INVALID_VALUE. Blocks. CUDA cuMemHostUnregister, HIP
     * hipHostUnregister. The caller promises: Rule 3. */
    granule_backend_status (*host_registration_unregister)(void *context, granule_backend_address ptr);

    /* ---- What users know it by: UTF-8 with its 0, good for the life of the process ------------------ */

    /* A short lower-case name, such as "npu": errors, reports and snapshots name the backend so. NULL: "vendor". */
    const char *name;
    /* What errors call its devices, as in "NPU out of memory". NULL: the name in capitals. */
    const char *label;
} granule_backend_table;

#ifdef __cplusplus
}
#endif

#endif
