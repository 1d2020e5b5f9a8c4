#include "device_runtime.h"

#include "check.h"
#include "privateuse1.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

namespace granule::privateuse1 {
namespace {

constexpr size_t STREAMS_PER_POOL = 32;
constexpr size_t DEVICES = std::numeric_limits<c10::DeviceIndex>::max() + size_t{1};

// The ids of the calling thread's current streams.
thread_local std::array<c10::StreamId, DEVICES> current_streams{};

// Streams of one device and priority. They are never destroyed: PyTorch copies streams about.
struct StreamPool {
  std::vector<c10::StreamId> streams;
  size_t next = 0;
};

std::mutex pools_lock;
std::map<std::pair<c10::DeviceIndex, int>, StreamPool>& pools() {
  static auto* pools = new std::map<std::pair<c10::DeviceIndex, int>, StreamPool>();
  return *pools;
}

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, {c10::DeviceType::PrivateUse1, device}, id);
}

c10::DeviceIndex checked(c10::DeviceIndex device) {
  const auto count = device_count();
  TORCH_CHECK(
      device >= 0 && device < count, "The device index is out of range. It must be in [0, ", int{count}, "), but got ",
      int{device}, ".");
  return device;
}

} // namespace

c10::DeviceIndex device_count() {
  int32_t count = 0;
  check(granule_device_count(allocator(), &count));
  return static_cast<c10::DeviceIndex>(std::min<int32_t>(count, DEVICES - 1));
}

c10::DeviceIndex current_device() {
  int32_t device = 0;
  check(granule_device_current(allocator(), &device));
  return static_cast<c10::DeviceIndex>(device);
}

void set_device(c10::DeviceIndex device) {
  check(granule_device_set(allocator(), checked(device)));
}

c10::Stream pooled_stream(c10::DeviceIndex device, int priority) {
  int32_t least = 0;
  int32_t greatest = 0;
  check(granule_stream_priority_range(allocator(), checked(device), &least, &greatest));
  priority = std::clamp<int>(priority, greatest, least);
  std::lock_guard<std::mutex> guard(pools_lock);
  auto& pool = pools()[{device, priority}];
  if (pool.streams.size() < STREAMS_PER_POOL) {
    uint64_t handle = 0;
    check(granule_stream_create(allocator(), device, priority, &handle));
    pool.streams.push_back(static_cast<c10::StreamId>(handle));
    return stream_of(device, pool.streams.back());
  }
  return stream_of(device, pool.streams[pool.next++ % STREAMS_PER_POOL]);
}

c10::Stream default_stream(c10::DeviceIndex device) {
  return stream_of(checked(device), 0);
}

c10::Stream current_stream(c10::DeviceIndex device) {
  return stream_of(device, current_streams.at(checked(device)));
}

c10::Stream exchange_stream(c10::Stream stream) {
  auto& current = current_streams.at(checked(stream.device_index()));
  const auto previous = stream_of(stream.device_index(), current);
  current = stream.id();
  return previous;
}

void synchronize_stream(c10::Stream stream) {
  check(granule_stream_synchronize(allocator(), stream.device_index(), stream_handle(stream)));
}

} // namespace granule::privateuse1
