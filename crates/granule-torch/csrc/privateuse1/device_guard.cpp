// The device guard: how PyTorch switches devices and streams, and uses events.
#include "check.h"
#include "device_runtime.h"
#include "privateuse1.h"

namespace granule::privateuse1 {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

// PyTorch hands the events back without their device, which the driver wants to know.
struct DeviceEvent {
  uint64_t handle;
  DeviceIndex device;
};

DeviceEvent& event_of(void* event) {
  return *static_cast<DeviceEvent*>(event);
}

// A device without a number is the current one.
DeviceIndex index_of(Device device) {
  return device.has_index() ? device.index() : current_device();
}

bool ready(granule_status status) {
  if (status == GRANULE_NOT_READY) {
    return false;
  }
  check(status);
  return true;
}

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override {
    return DeviceType::PrivateUse1;
  }

  Device exchangeDevice(Device device) const override {
    const auto previous = getDevice();
    if (previous != device) {
      setDevice(device);
    }
    return previous;
  }

  Device getDevice() const override {
    return {DeviceType::PrivateUse1, current_device()};
  }

  void setDevice(Device device) const override {
    TORCH_CHECK(
        device.type() == DeviceType::PrivateUse1, "Expected a PrivateUse1 device, but got ", device.type(), ".");
    set_device(device.index());
  }

  void uncheckedSetDevice(Device device) const noexcept override {
    warn(granule_device_set(allocator(), device.index()));
  }

  DeviceIndex deviceCount() const noexcept override {
    try {
      return device_count();
    } catch (const c10::Error& error) {
      TORCH_WARN_ONCE("Granule's backend did not start: ", error.what_without_backtrace());
      return 0;
    }
  }

  c10::DeviceCapability getDeviceCapability(Device) const override {
    return {};
  }

  // --- streams -----------------------------------------------------------------------------------------------------

  Stream getStream(Device device) const override {
    return current_stream(index_of(device));
  }

  Stream getDefaultStream(Device device) const override {
    return default_stream(index_of(device));
  }

  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    return pooled_stream(index_of(device), high_priority ? -1 : 0);
  }

  Stream getNewStream(Device device, int priority) const override {
    return pooled_stream(index_of(device), priority);
  }

  Stream exchangeStream(Stream stream) const override {
    return exchange_stream(stream);
  }

  void* getStreamNativeHandle(const Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }

  bool queryStream(const Stream& stream) const override {
    return ready(granule_stream_query(allocator(), stream.device_index(), stream_handle(stream)));
  }

  void synchronizeStream(const Stream& stream) const override {
    synchronize_stream(stream);
  }

  void synchronizeDevice(DeviceIndex device) const override {
    check(granule_device_synchronize(allocator(), device));
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& stream) const override {
    record_on_stream(memory, stream);
  }

  // --- events ------------------------------------------------------------------------------------------------------

  void record(void** event, const Stream& stream, DeviceIndex device, c10::EventFlag flag) const override {
    TORCH_CHECK(
        device == -1 || device == stream.device_index(), "Event device ", int{device},
        " does not match recording stream's device ", int{stream.device_index()}, ".");
    if (*event == nullptr) {
      *event = create(stream.device_index(), flag);
    }
    const auto& recorded = event_of(*event);
    check(granule_event_record(allocator(), recorded.device, recorded.handle, stream_handle(stream)));
  }

  void block(void* event, const Stream& stream) const override {
    if (event == nullptr) {
      return;
    }
    const auto& awaited = event_of(event);
    check(granule_stream_wait_event(
        allocator(), stream.device_index(), stream_handle(stream), awaited.device, awaited.handle));
  }

  bool queryEvent(void* event) const override {
    return event == nullptr || ready(granule_event_query(allocator(), event_of(event).device, event_of(event).handle));
  }

  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      check(granule_event_synchronize(allocator(), event_of(event).device, event_of(event).handle));
    }
  }

  double elapsedTime(void* start, void* end, DeviceIndex device) const override {
    TORCH_CHECK(
        event_of(start).device == event_of(end).device,
        "Both events must be of one device to calculate elapsed time: ", int{event_of(start).device}, " and ",
        int{event_of(end).device}, ".");
    float milliseconds = 0;
    check(granule_event_elapsed_ms(
        allocator(), event_of(start).device, event_of(start).handle, event_of(end).handle, &milliseconds));
    return milliseconds;
  }

  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    if (event != nullptr) {
      warn(granule_event_destroy(allocator(), event_of(event).device, event_of(event).handle));
      delete &event_of(event);
    }
  }

 private:
  static void* create(DeviceIndex device, c10::EventFlag flag) {
    bool timing = false;
    switch (flag) {
      case c10::EventFlag::PYTORCH_DEFAULT:
        break;
      case c10::EventFlag::BACKEND_DEFAULT:
        timing = true;
        break;
      default:
        TORCH_CHECK(false, "Received unknown flag");
    }
    auto event = std::make_unique<DeviceEvent>(DeviceEvent{0, device});
    check(granule_event_create(allocator(), device, timing, &event->handle));
    return event.release();
  }
};

} // namespace

void register_guard() {
  // Kept for ever by PyTorch's registry.
  c10::impl::DeviceGuardImplRegistrar(DeviceType::PrivateUse1, new DeviceGuard());
}

} // namespace granule::privateuse1
