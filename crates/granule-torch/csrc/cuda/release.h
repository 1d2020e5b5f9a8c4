#pragma once

// What differs between the releases of PyTorch that the shim is compiled against. No other file looks at the release: what
// one of them lacks is written where it belongs, inside GRANULE_SINCE_*, and is nothing on an older release.

#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/headeronly/version.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#define GRANULE_IS_SINCE(minor) (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

#if !GRANULE_IS_SINCE(10)
#error "granule_torch fits torch 2.10 and later"
#endif

// Types of the history have their place in every device's namespace.
#if GRANULE_IS_SINCE(11)
#define GRANULE_SINCE_2_11(...) __VA_ARGS__
#else
#define GRANULE_SINCE_2_11(...)
#endif

// Observers of refused requests, and the context of a pointer.
#if GRANULE_IS_SINCE(12)
#define GRANULE_SINCE_2_12(...) __VA_ARGS__
#else
#define GRANULE_SINCE_2_12(...)
#endif

// Captures are marked apart from pools, exact addresses, bytes of each private pool, two more limits of pinned memory.
#if GRANULE_IS_SINCE(13)
#define GRANULE_SINCE_2_13(...) __VA_ARGS__
#define GRANULE_BEFORE_2_13(...)
#else
#define GRANULE_SINCE_2_13(...)
#define GRANULE_BEFORE_2_13(...) __VA_ARGS__
#endif

// Notes on live memory.
#if GRANULE_IS_SINCE(14)
#define GRANULE_SINCE_2_14(...) __VA_ARGS__
#else
#define GRANULE_SINCE_2_14(...)
#endif

// The allocator's own notes, apart from the program's.
#if GRANULE_IS_SINCE(15)
#define GRANULE_SINCE_2_15(...) __VA_ARGS__
#else
#define GRANULE_SINCE_2_15(...)
#endif

namespace granule_torch {

using c10::DeviceIndex;
using c10::MempoolId_t;
namespace native = c10::cuda::CUDACachingAllocator;

// What parses settings for the devices, after PyTorch has parsed what is common to all.
using SettingsParser = std::function<void(const std::string&)>;

#if GRANULE_IS_SINCE(11)

namespace history_types = c10::CachingDeviceAllocator;
using Interface = native::CUDAAllocator;

inline uint32_t action_bit(const std::string& action) {
  return 1U << static_cast<unsigned>(history_types::parseTraceEntryAction(action));
}

// Has `wrap` put another parser around the one that is there.
template <typename Wrap>
void replace_settings_parser(Wrap&& wrap) {
  auto& parser = c10::CachingAllocator::AcceleratorAllocatorConfig::getConfigParserHook();
  parser = wrap(std::move(parser));
}

#else

namespace history_types = native;

// The questions of 2.10, put as later releases put them.
class Interface : public native::CUDAAllocator {
 public:
  using Source = std::shared_ptr<native::CUDAAllocator>;

  virtual native::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) = 0;
  virtual void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, Source source) = 0;
  virtual void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool on) = 0;
  virtual void recordHistory(
      bool enabled,
      native::CreateContextFn recorder,
      size_t max_entries,
      native::RecordContext when,
      bool clear,
      const std::vector<std::string>& skip_actions) = 0;

  native::SnapshotInfo snapshot(MempoolId_t pool) final {
    return snapshot(pool, true);
  }
  // The pool's owner keeps the source alive.
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, native::CUDAAllocator* source) final {
    createOrIncrefPool(device, pool, Source(Source(), source));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool) final {
    setUseOnOOM(device, pool, true);
  }
  void recordHistory(
      bool enabled, native::CreateContextFn recorder, size_t max_entries, native::RecordContext when, bool clear) final {
    recordHistory(enabled, recorder, max_entries, when, clear, {});
  }
};

inline uint32_t action_bit(const std::string& /*action*/) {
  return 0;
}

// The parser that is there cannot be had, and is known.
template <typename Wrap>
void replace_settings_parser(Wrap&& wrap) {
  const SettingsParser known = [](const std::string& text) { native::CUDAAllocatorConfig::instance().parseArgs(text); };
  c10::CachingAllocator::AcceleratorAllocatorConfig::registerDeviceConfigParserHook(wrap(known), {});
}

#endif

} // namespace granule_torch
