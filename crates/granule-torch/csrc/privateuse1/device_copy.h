// Copies between devices and the host. Device memory is never touched by the host: every byte goes through the driver.
#pragma once

#include <ATen/core/Tensor.h>

namespace granule::privateuse1 {

// `target.copy_(source)` where at least one of them is on a device. Queued on the current stream; waited for where the
// host is involved, unless `non_blocking` and its memory is pinned by this allocator.
void copy_tensor(const at::Tensor& target, const at::Tensor& source, bool non_blocking);

// A CPU tensor with the same sizes, strides and values.
at::Tensor to_host(const at::Tensor& tensor);

} // namespace granule::privateuse1
