// Random numbers for the device layer. Its kernels run on the CPU, so a device's generator keeps a CPU generator.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

namespace granule::privateuse1 {

at::Generator new_generator(c10::DeviceIndex device);

// One per device, alive for ever.
const at::Generator& default_generator(c10::DeviceIndex device);

// The CPU generator with the state of a device's generator.
at::Generator cpu_generator(const at::Generator& generator);

} // namespace granule::privateuse1
