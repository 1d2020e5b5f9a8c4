// Device and pinned host memory of a PrivateUse1 device from Granule: what a vendor includes.
//
// A vendor who has a PyTorch runtime of its own (device guard, streams, kernels) compiles registration.cpp,
// device_allocator.cpp and the files of ../host into its extension, links granule_capi, and calls
// register_allocators() once. The other files device_* are not needed then: they are a device layer for accelerators
// without a runtime. README.md says more.
//
// The vendor provides
//  - a Granule backend: the name of a compiled-in one, or a table of C functions (granule_backend.h);
//  - a registered device guard whose getDevice() and getStream() answer for the calling thread, and whose
//    getStreamNativeHandle() answers the driver's handle, the one that the backend's `stream.raw` stands for. The
//    default stream's handle is null, or one real handle that is always the same. (Or the two functions of Options.)
//  - the same device numbers in the guard and in the backend;
//  - a guard whose recordDataPtrOnStream() calls record_on_stream() below. PyTorch's own does nothing, silently;
//  - a kernel for `aten::record_stream` that calls it, too (PyTorch has none for PrivateUse1);
//  - hooks whose getPinnedMemoryAllocator() answers at::getHostAllocator(at::kPrivateUse1).
// Where streams are destroyed, retire_stream() is called first.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>
#include <granule.h>

#include <cstdint>

namespace granule::privateuse1 {

// Where memory is wanted: the calling thread's device and the driver's handle of its current stream there.
struct Place {
  c10::DeviceIndex device;
  uint64_t stream;
};

struct Options {
  // A compiled-in backend; null where `table` is given, or to take GRANULE_BACKEND, else the first that is there.
  const char* backend = nullptr;
  // A vendor's own backend. It is read at first use, and its context and functions are used for ever: let it be static.
  const granule_backend_table* table = nullptr;
  // Settings as in PYTORCH_ALLOC_CONF; null takes them from the environment.
  const char* settings = nullptr;
  // Shortcuts past the device guard, each optional. `place` runs at every allocation.
  Place (*place)() = nullptr;
  uint64_t (*stream_handle)(c10::Stream stream) = nullptr;
  // An allocator that was registered for PrivateUse1 with a higher priority stays.
  uint8_t priority = 0;
};

// Registers the device allocator and the host allocator for PrivateUse1. No driver is called: that happens at first
// use, so that a module may be imported where there is no device, and before a fork. Call it once; a second call is
// an error, as PyTorch keeps allocators for ever.
void register_allocators(const Options& options);

// The allocator behind both, made at first use. Throws where the backend does not start, with its text. It lives as
// long as the process; everything of granule.h may be done with it.
granule_allocator* allocator();

// The same for pinned host memory.
granule_host_allocator* pinned_memory();

// Says that work of `stream` uses the memory, which is then not reused before that work is done. Null pointers,
// memory of other allocators, and streams of other device types are ignored.
void record_on_stream(const c10::DataPtr& memory, c10::Stream stream);

// Says that `stream` is about to be destroyed, so that its handle may be given to a new one.
void retire_stream(c10::Stream stream);

// The driver's handle of a stream.
uint64_t stream_handle(c10::Stream stream);

} // namespace granule::privateuse1
