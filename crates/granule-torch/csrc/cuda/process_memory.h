#pragma once

#include "granule.h"

namespace granule_torch {

// Lets out-of-memory texts say which processes hold the device's memory, where NVIDIA's management library is there.
void tell_process_memory(granule_allocator* granule);

} // namespace granule_torch
