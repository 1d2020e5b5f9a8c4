// The hooks through which PyTorch's generic code reaches the device layer.
#include "check.h"
#include "device_generator.h"
#include "device_runtime.h"
#include "privateuse1.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>

namespace granule::privateuse1 {
namespace {

using c10::DeviceIndex;

granule_pointer_info_t info_of(const void* ptr) {
  granule_pointer_info_t info{};
  info.size = sizeof info;
  check(granule_pointer_info(allocator(), ptr, &info));
  return info;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }

  bool isAvailable() const override {
    return c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->deviceCount() > 0;
  }

  bool hasPrimaryContext(DeviceIndex) const override {
    return true;
  }

  DeviceIndex deviceCount() const override {
    return device_count();
  }

  void setCurrentDevice(DeviceIndex device) const override {
    set_device(device);
  }

  DeviceIndex getCurrentDevice() const override {
    return current_device();
  }

  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const auto previous = current_device();
    set_device(device);
    return previous;
  }

  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return exchangeDevice(device);
  }

  bool isPinnedPtr(const void* ptr) const override {
    return info_of(ptr).kind == GRANULE_POINTER_PINNED_HOST;
  }

  at::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(c10::DeviceType::PrivateUse1);
  }

  at::Device getDeviceFromPtr(void* ptr) const override {
    const auto info = info_of(ptr);
    TORCH_CHECK(info.kind == GRANULE_POINTER_DEVICE, "The pointer is not memory of a device: ", ptr);
    return {c10::DeviceType::PrivateUse1, static_cast<DeviceIndex>(info.device)};
  }

  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return default_generator(device);
  }

  at::Generator getNewGenerator(DeviceIndex device) const override {
    return new_generator(device);
  }

  // The storage keeps what it holds.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    auto* impl = storage.unsafeGetStorageImpl();
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
    auto grown = impl->allocator()->allocate(bytes);
    const auto kept = std::min(bytes, storage.nbytes());
    if (kept != 0) {
      const auto stream = current_stream(storage.device().index());
      check(granule_copy_on_stream(
          allocator(), grown.get(), storage.data(), kept, GRANULE_COPY_DEVICE_TO_DEVICE, stream.device_index(),
          stream_handle(stream)));
      record_on_stream(storage.data_ptr(), stream);
    }
    impl->set_data_ptr_noswap(std::move(grown));
    impl->set_nbytes(bytes);
  }
};

} // namespace

void register_hooks() {
  // Kept for ever by PyTorch's registry.
  at::RegisterPrivateUse1HooksInterface(new Hooks());
}

} // namespace granule::privateuse1
