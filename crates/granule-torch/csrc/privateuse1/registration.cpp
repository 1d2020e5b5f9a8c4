// Registers both allocators, and makes the Granule allocator behind them at first use.
#include "allocators.h"
#include "check.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

namespace granule::privateuse1 {
namespace {

// The options of the program. Written once, before the allocators can be reached.
struct Registration {
  std::optional<std::string> backend;
  std::optional<std::string> settings;
  Options options;
};

std::atomic<Registration*> registration{nullptr};
std::atomic<granule_allocator*> live{nullptr};
std::mutex making;

const char* text(const std::optional<std::string>& value) {
  return value ? value->c_str() : nullptr;
}

std::optional<std::string> copy(const char* value) {
  return value ? std::make_optional<std::string>(value) : std::nullopt;
}

const Options& options() {
  const auto* registered = registration.load(std::memory_order_acquire);
  TORCH_CHECK(registered, "Granule is not registered for PrivateUse1: register_allocators() was not called");
  return registered->options;
}

granule_allocator* make() {
  // A failed attempt leaves nothing behind: the next use tries again.
  std::lock_guard<std::mutex> guard(making);
  if (auto* made = live.load(std::memory_order_acquire)) {
    return made;
  }
  const auto& wanted = options();
  granule_options request{};
  request.size = sizeof request;
  request.backend = wanted.backend;
  request.settings = wanted.settings;
  request.table = wanted.table;
  granule_allocator* made = nullptr;
  check(granule_allocator_create(&request, &made));
  live.store(made, std::memory_order_release);
  return made;
}

const c10::impl::DeviceGuardImplInterface* guard() {
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1);
}

} // namespace

void register_allocators(const Options& wanted) {
  auto made = std::make_unique<Registration>(Registration{copy(wanted.backend), copy(wanted.settings), wanted});
  made->options.backend = text(made->backend);
  made->options.settings = text(made->settings);
  Registration* none = nullptr;
  TORCH_CHECK(
      registration.compare_exchange_strong(none, made.get()),
      "Granule is already registered for PrivateUse1; PyTorch keeps an allocator for the life of the process");
  made.release();
  c10::SetAllocator(c10::DeviceType::PrivateUse1, device_allocator(), wanted.priority);
  at::setHostAllocator(c10::DeviceType::PrivateUse1, host_allocator(), wanted.priority);
}

granule_allocator* allocator() {
  auto* made = live.load(std::memory_order_acquire);
  return C10_LIKELY(made != nullptr) ? made : make();
}

bool is_live() noexcept {
  return live.load(std::memory_order_acquire) != nullptr;
}

uint64_t stream_handle(c10::Stream stream) {
  if (auto* handle = options().stream_handle) {
    return handle(stream);
  }
  return reinterpret_cast<uint64_t>(guard()->getStreamNativeHandle(stream));
}

Place place() {
  if (auto* own = options().place) {
    return own();
  }
  const auto device = guard()->getDevice();
  return {device.index(), stream_handle(guard()->getStream(device))};
}

Place place_on(c10::DeviceIndex device) {
  return {device, stream_handle(guard()->getStream({c10::DeviceType::PrivateUse1, device}))};
}

} // namespace granule::privateuse1
