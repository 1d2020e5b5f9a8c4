// What the simulated driver has beside the entry points of CUDA (crates/stand-ins/granule-lookalike-cuda/src/statistics.rs).
#pragma once
#include <cuda.h>
// The header gives these names the newest form; the library has both.
#undef cuGetProcAddress
#undef cuGraphNodeGetDependencies
#undef cuStreamUpdateCaptureDependencies
#include <cstddef>

namespace fakegpu {
constexpr int MAX_DEVICES = 64;
}  // namespace fakegpu

extern "C" {
int fakegpu_device_count();  // before cuInit, too
size_t fakegpu_used(int device);
}
