// A vendor's own PyTorch runtime, as small as it can be, over Granule's allocators: its streams have ids of their own,
// and its device memory is the host's, so that its kernels are loops.
#include "privateuse1.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include <array>
#include <cstring>
#include <mutex>
#include <vector>

extern "C" {
const granule_backend_table* driver_table();
int driver_device();
void driver_set_device(int device);
uint64_t driver_create_stream(int device);
bool driver_is_idle(int device, uint64_t stream);
void driver_synchronize(int device, uint64_t stream);
void driver_hold(int device, uint64_t stream);
void driver_release();
}

namespace py = pybind11;

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr int DEVICES = 2;
constexpr auto TYPE = c10::DeviceType::PrivateUse1;

// Stream k of a device has id 100 + k; id 0 is the default stream.
std::mutex lock;
std::array<std::vector<uint64_t>, DEVICES> handles;
thread_local std::array<c10::StreamId, DEVICES> current{};

Stream stream_of(DeviceIndex device, c10::StreamId id) {
  return Stream(Stream::UNSAFE, {TYPE, device}, id);
}

uint64_t handle_of(Stream stream) {
  std::lock_guard<std::mutex> guard(lock);
  return stream.id() == 0 ? 0 : handles.at(stream.device_index()).at(stream.id() - 100);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return TYPE;
  }
  Device exchangeDevice(Device device) const override {
    const auto previous = getDevice();
    setDevice(device);
    return previous;
  }
  Device getDevice() const override {
    return {TYPE, static_cast<DeviceIndex>(driver_device())};
  }
  void setDevice(Device device) const override {
    driver_set_device(device.index());
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    driver_set_device(device.index());
  }
  DeviceIndex deviceCount() const noexcept override {
    return DEVICES;
  }
  Stream getStream(Device device) const override {
    return stream_of(device.index(), current.at(device.index()));
  }
  Stream getNewStream(Device device, int) const override {
    const auto index = device.has_index() ? device.index() : getDevice().index();
    std::lock_guard<std::mutex> guard(lock);
    auto& streams = handles.at(index);
    streams.push_back(driver_create_stream(index));
    return stream_of(index, 99 + static_cast<c10::StreamId>(streams.size()));
  }
  Stream exchangeStream(Stream stream) const override {
    const auto previous = getStream(stream.device());
    current.at(stream.device_index()) = stream.id();
    return previous;
  }
  void* getStreamNativeHandle(const Stream stream) const override {
    return reinterpret_cast<void*>(handle_of(stream));
  }
  bool queryStream(const Stream& stream) const override {
    return driver_is_idle(stream.device_index(), handle_of(stream));
  }
  void synchronizeStream(const Stream& stream) const override {
    driver_synchronize(stream.device_index(), handle_of(stream));
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& stream) const override {
    granule::privateuse1::record_on_stream(memory, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(DeviceIndex) const override {
    return true;
  }
  DeviceIndex deviceCount() const override {
    return DEVICES;
  }
  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(driver_device());
  }
  void setCurrentDevice(DeviceIndex device) const override {
    driver_set_device(device);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(TYPE);
  }
};

at::Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(*device);
  return at::detail::empty_generic(
      size, c10::GetAllocator(TYPE), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype),
      format);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool) {
  std::memcpy(target.mutable_data_ptr(), self.const_data_ptr(), self.nbytes());
  return target;
}

void record_stream(at::Tensor& self, at::Stream stream) {
  granule::privateuse1::record_on_stream(self.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("_copy_from", copy_from);
  m.impl("record_stream", record_stream);
}

int shortcuts_taken = 0;

granule::privateuse1::Place place() {
  ++shortcuts_taken;
  const auto device = static_cast<DeviceIndex>(driver_device());
  return {device, handle_of(stream_of(device, current.at(device)))};
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("enable", [](bool shortcuts) {
    granule::privateuse1::Options options;
    options.table = driver_table();
    if (shortcuts) {
      options.place = place;
      options.stream_handle = handle_of;
    }
    granule::privateuse1::register_allocators(options);
    at::RegisterPrivateUse1HooksInterface(new Hooks());
  });
  m.def("shortcuts_taken", [] { return shortcuts_taken; });
  m.def("hold", [](int device, c10::StreamId id) { driver_hold(device, handle_of(stream_of(device, id))); });
  m.def("release", [] { driver_release(); });
  // What graph capture does with pinned memory, and what a memory profiler does.
  m.def("send_stream_to_pool", [](int device, c10::StreamId id, uint64_t pool) {
    at::getHostAllocator(TYPE)->begin_allocate_to_pool(
        {0, pool}, [=](Stream stream) { return stream == stream_of(device, id); });
  });
  m.def("end_pool", [](uint64_t pool) { at::getHostAllocator(TYPE)->end_allocate_to_pool({0, pool}); });
  m.def("release_pool", [](uint64_t pool) { at::getHostAllocator(TYPE)->release_pool({0, pool}); });
  m.def("record_host_history", [](bool on) {
    at::getHostAllocator(TYPE)->record_history(
        on, nullptr, 100, c10::CachingDeviceAllocator::RecordContext::NEVER, true);
    return at::getHostAllocator(TYPE)->is_history_enabled();
  });
  m.def("host_segments", [] {
    py::list list;
    for (const auto& segment : at::getHostAllocator(TYPE)->get_segments()) {
      list.append(py::make_tuple(
          segment.address, segment.size, segment.allocated, segment.owner_private_pool_id.second));
    }
    return list;
  });
  m.def("host_actions", [] {
    py::list list;
    for (const auto& entry : at::getHostAllocator(TYPE)->get_traces()) {
      list.append(static_cast<int>(entry.action_));
    }
    return list;
  });
  m.def("copy_data", [](uint64_t target, uint64_t source, size_t bytes) {
    c10::GetAllocator(TYPE)->copy_data(reinterpret_cast<void*>(target), reinterpret_cast<void*>(source), bytes);
  });
  m.def("raw_allocate", [](size_t bytes) {
    return reinterpret_cast<uint64_t>(c10::GetAllocator(TYPE)->raw_allocate(bytes));
  });
  m.def("raw_deallocate", [](uint64_t ptr) {
    c10::GetAllocator(TYPE)->raw_deallocate(reinterpret_cast<void*>(ptr));
  });
}
