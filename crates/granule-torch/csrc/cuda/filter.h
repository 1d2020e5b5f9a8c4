#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "granule.h"

namespace granule_torch {

// PyTorch's filter of a pool scope as the library takes it. The library owns the result from the call that it is given to,
// also where that call fails.
granule_filter filter_of(std::function<bool(cudaStream_t)> filter);

} // namespace granule_torch
