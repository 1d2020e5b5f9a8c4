// Registers both allocators, and makes the Granule allocator behind them at first use.
#include "allocators.h"
#include "check.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
// Settings that the program changed before there was an allocator; under `making`.
std::vector<std::string> changes;

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
  for (const auto& change : std::exchange(changes, {})) {
    const auto status = granule_configure(made, change.c_str());
    if (status != GRANULE_OK) {
      const std::string text = granule_last_error_for_pytorch();
      warn(granule_allocator_destroy(made));
      TORCH_CHECK_VALUE(false, text);
    }
  }
  live.store(made, std::memory_order_release);
  return made;
}

void change(const std::string& settings) {
  if (!is_live()) {
    std::lock_guard<std::mutex> guard(making);
    if (!is_live()) {
      changes.push_back(settings);
      return;
    }
  }
  check(granule_configure(allocator(), settings.c_str()));
  host::follow_settings();
}

// From now on every settings text that PyTorch takes at run time reaches Granule, too, after PyTorch's own parsers.
void follow_settings() {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  // What the environment says is read now, and not taken for a change: Granule reads that itself, if it is to.
  Config::instance();
  auto& parser = Config::getConfigParserHook();
  parser = [inner = std::move(parser)](const std::string& settings) {
    if (inner) {
      inner(settings);
    }
    change(settings);
  };
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
  follow_settings();
  c10::SetAllocator(c10::DeviceType::PrivateUse1, device_allocator(), wanted.priority);
  at::setHostAllocator(c10::DeviceType::PrivateUse1, host::allocator(), wanted.priority);
}

granule_allocator* allocator() {
  auto* made = live.load(std::memory_order_acquire);
  return C10_LIKELY(made != nullptr) ? made : make();
}

granule_host_allocator* pinned_memory() {
  return host::pinned();
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
