// Devices, streams and events over the C ABI: the runtime of a device layer for accelerators that have none in PyTorch.
//
// A stream's id is the driver's handle; 0 is the default stream.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <granule.h>

namespace granule::privateuse1 {

// How many devices there are; throws where the backend does not start.
c10::DeviceIndex device_count();

c10::DeviceIndex current_device();
// Throws where there is no such device.
void set_device(c10::DeviceIndex device);

// A stream of the device: of 32 that are handed out in turn, per priority. Negative is more urgent.
c10::Stream pooled_stream(c10::DeviceIndex device, int priority);
c10::Stream default_stream(c10::DeviceIndex device);

// The calling thread's stream of a device.
c10::Stream current_stream(c10::DeviceIndex device);
// Answers the stream that was current.
c10::Stream exchange_stream(c10::Stream stream);

void synchronize_stream(c10::Stream stream);

// Registers the device guard, the hooks that PyTorch's generic code asks, and the kernels. PyTorch keeps them for ever.
void register_guard();
void register_hooks();
void register_kernels();

// Makes torch.accelerator.Graph capture on these devices. Once, after the device has its name.
void register_graphs();

// Keeps a pool for as long as the graph lives that the calling thread captures, if it captures one.
void retain_in_capture(granule_pool_id pool);

} // namespace granule::privateuse1
