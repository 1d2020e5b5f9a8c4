// Captures that PyTorch's generic code asks for.
#pragma once

#include <granule.h>

namespace granule::privateuse1 {

// Makes torch.accelerator.Graph capture on these devices. Once, after the device has its name.
void register_graphs();

// Keeps a pool for as long as the graph lives that the calling thread captures, if it captures one.
void retain_in_capture(granule_pool_id pool);

} // namespace granule::privateuse1
