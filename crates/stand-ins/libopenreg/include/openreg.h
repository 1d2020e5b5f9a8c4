/*
 * The C interface of PyTorch's openreg reference device, as libopenreg.so offers it.
 *
 * Two devices made of host memory. Everything that is wrong is orErrorUnknown: null where a pointer is needed,
 * a handle that is not live, memory that was not allocated here, and whatever a function adds below.
 */
#ifndef OPENREG_H
#define OPENREG_H

#include <stddef.h>
#include <stdint.h>

#define OPENREG_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum orError_t {
  orSuccess = 0,
  orErrorUnknown = 1,
  orErrorNotReady = 2
} orError_t;

/* From where to where; it must be exactly right. */
typedef enum orMemcpyKind {
  orMemcpyHostToHost = 0,
  orMemcpyHostToDevice = 1,
  orMemcpyDeviceToHost = 2,
  orMemcpyDeviceToDevice = 3
} orMemcpyKind;

typedef enum orMemoryType {
  orMemoryTypeUnmanaged = 0,
  orMemoryTypeHost = 1,
  orMemoryTypeDevice = 2
} orMemoryType;

typedef struct orPointerAttributes {
#ifdef __cplusplus
  orMemoryType type = orMemoryTypeUnmanaged;
#else
  orMemoryType type;
#endif
  int device;    /* -1 unless the memory is a device's */
  void* pointer; /* the allocation's base, or the address itself */
} orPointerAttributes;

/* Other than with CUDA, the bit switches timing on. */
typedef enum orEventFlags {
  orEventDisableTiming = 0,
  orEventEnableTiming = 1
} orEventFlags;

typedef struct orStream* orStream_t;
typedef struct orEvent* orEvent_t;

/*
 * Memory. Allocations are whole pages. Those of a device are closed to the host, which faults when it touches
 * them, except between orMemoryUnprotect and as many orMemoryProtect; both take any address in an allocation,
 * and do nothing for memory that is not a device's.
 */
OPENREG_EXPORT orError_t orMalloc(void** devPtr, size_t size);
OPENREG_EXPORT orError_t orFree(void* devPtr);
OPENREG_EXPORT orError_t orMallocHost(void** hostPtr, size_t size);
OPENREG_EXPORT orError_t orFreeHost(void* hostPtr);
OPENREG_EXPORT orError_t orMemcpy(void* dst, const void* src, size_t count, orMemcpyKind kind);
/* Checked when its turn comes; what is wrong then is lost. */
OPENREG_EXPORT orError_t
orMemcpyAsync(void* dst, const void* src, size_t count, orMemcpyKind kind, orStream_t stream);
OPENREG_EXPORT orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* ptr);
OPENREG_EXPORT orError_t orMemoryUnprotect(void* devPtr);
OPENREG_EXPORT orError_t orMemoryProtect(void* devPtr);

/*
 * Sharing with other processes. A handle is the name of a POSIX shared memory object with a copy of the whole
 * allocation; it can be opened once, and stays until then. offset_out is how far into the allocation devPtr is.
 */
#define OR_IPC_HANDLE_MAX_LEN 64
OPENREG_EXPORT orError_t
orGetIpcMemHandle(void* devPtr, char* name_out, size_t name_buf_len, ptrdiff_t* offset_out);
OPENREG_EXPORT orError_t orOpenIpcMemHandle(void** ptr_out, const char* name, size_t* size_out);
OPENREG_EXPORT orError_t orCloseIpcMemHandle(void* ptr, size_t size);

/* Devices. Each thread has a current one: 0 until it chooses another. */
OPENREG_EXPORT orError_t orGetDeviceCount(int* count);
OPENREG_EXPORT orError_t orSetDevice(int device);
OPENREG_EXPORT orError_t orGetDevice(int* device);
OPENREG_EXPORT orError_t orDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority);
OPENREG_EXPORT orError_t orDeviceSynchronize(void);

/* Streams. Each is a thread of its own. There is no default stream. */
OPENREG_EXPORT orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned int flags, int priority);
OPENREG_EXPORT orError_t orStreamCreate(orStream_t* stream);
OPENREG_EXPORT orError_t orStreamGetPriority(orStream_t stream, int* priority);
OPENREG_EXPORT orError_t orStreamDestroy(orStream_t stream);
OPENREG_EXPORT orError_t orStreamQuery(orStream_t stream);
OPENREG_EXPORT orError_t orStreamSynchronize(orStream_t stream);
OPENREG_EXPORT orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event, unsigned int flags);

/* Events. They belong to the device that was current when they were made, and begin completed. */
OPENREG_EXPORT orError_t orEventCreateWithFlags(orEvent_t* event, unsigned int flags);
OPENREG_EXPORT orError_t orEventCreate(orEvent_t* event);
OPENREG_EXPORT orError_t orEventDestroy(orEvent_t event);
OPENREG_EXPORT orError_t orEventRecord(orEvent_t event, orStream_t stream);
OPENREG_EXPORT orError_t orEventSynchronize(orEvent_t event);
OPENREG_EXPORT orError_t orEventQuery(orEvent_t event);
OPENREG_EXPORT orError_t orEventElapsedTime(float* ms, orEvent_t start, orEvent_t end);

/* Activity tracing. The numbers are a stack per thread. */
OPENREG_EXPORT orError_t orActivityEnableTracing(void);
OPENREG_EXPORT orError_t orActivityDisableTracing(void);
OPENREG_EXPORT orError_t orActivityPushExternalCorrelationId(uint64_t id);
OPENREG_EXPORT orError_t orActivityPopExternalCorrelationId(uint64_t* id);

#ifdef __cplusplus
} /* extern "C" */

#include "openreg.inl"
#endif

#endif /* OPENREG_H */
