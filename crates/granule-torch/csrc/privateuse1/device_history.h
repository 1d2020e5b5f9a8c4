// The history of device memory, with call stacks, as PyTorch's snapshots have it.
#pragma once

#include <granule.h>

#include <string>

namespace granule::privateuse1 {

// Turns the history on or off. `wanted` lacks its functions; stacks of C++ are gathered, too, where `cpp` says so.
void record_device_history(granule_history wanted, bool cpp);

// A snapshot of one pool's segments, or of all for {0, 0}, pickled: dict and list, as torch.cuda.memory._snapshot() answers.
std::string pickled_snapshot(granule_pool_id pool, bool traces);

} // namespace granule::privateuse1
