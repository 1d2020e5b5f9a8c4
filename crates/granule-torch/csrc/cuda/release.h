#pragma once

// What differs between the releases of PyTorch that the shim is compiled against. No other file looks at the release: what
// one of them lacks is written where it belongs, inside GRANULE_SINCE_*, and is nothing on an older release.

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/headeronly/version.h>

#define GRANULE_IS_SINCE(minor) (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

#if !GRANULE_IS_SINCE(11)
#error "granule_torch fits torch 2.11 and later"
#endif

// Observers of refused requests, and the context of a pointer.
#if GRANULE_IS_SINCE(12)
#define GRANULE_SINCE_2_12(...) __VA_ARGS__
#else
#define GRANULE_SINCE_2_12(...)
#endif

// Captures are marked apart from pools, exact addresses, bytes of each private pool, two more limits of pinned memory.
#if GRANULE_IS_SINCE(13)
#define GRANULE_SINCE_2_13(...) __VA_ARGS__
#define GRANULE_BEFORE_2_13(...)
#else
#define GRANULE_SINCE_2_13(...)
#define GRANULE_BEFORE_2_13(...) __VA_ARGS__
#endif

// Notes on live memory.
#if GRANULE_IS_SINCE(14)
#define GRANULE_SINCE_2_14(...) __VA_ARGS__
#else
#define GRANULE_SINCE_2_14(...)
#endif

// The allocator's own notes, apart from the program's.
#if GRANULE_IS_SINCE(15)
#define GRANULE_SINCE_2_15(...) __VA_ARGS__
#else
#define GRANULE_SINCE_2_15(...)
#endif

namespace granule_torch {

using c10::DeviceIndex;
using c10::MempoolId_t;
namespace native = c10::cuda::CUDACachingAllocator;
namespace history_types = c10::CachingDeviceAllocator;

} // namespace granule_torch
