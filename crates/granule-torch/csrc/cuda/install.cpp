// What the Python package calls: putting Granule in the place of PyTorch's allocator. Plain C, so that no Python headers
// are needed and one build serves every Python version.

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/headeronly/version.h>

#include <exception>
#include <memory>
#include <string>

#include "exported.h"
#include "granule_allocator.h"
#include "host_allocator.h"
#include "settings.h"

namespace granule_torch {
namespace {

// Never destroyed: PyTorch still frees tensors while the process's static objects go.
std::shared_ptr<GranuleAllocator>& installed = *new std::shared_ptr<GranuleAllocator>;
native::CUDAAllocator* displaced = nullptr;
at::HostAllocator* displaced_pinned = nullptr;

thread_local std::string problem;

// Runs it for a caller who cannot be given exceptions; says whether it worked.
template <typename Function>
bool succeeds(Function&& function) {
  try {
    function();
    return true;
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return false;
}

} // namespace
} // namespace granule_torch

using namespace granule_torch;

// The release of PyTorch whose headers this was compiled with; another one has other layouts.
GRANULE_TORCH_API const char* granule_torch_built_for() {
  return TORCH_VERSION;
}

// Why the last call on this thread failed.
GRANULE_TORCH_API const char* granule_torch_problem() {
  return problem.c_str();
}

// Null backend: the library's choice. Null settings: those of the environment. `pins`: pinned memory is Granule's, too. False where
// it did not work: then PyTorch's allocator is where it was.
GRANULE_TORCH_API bool granule_torch_install(const char* backend, const char* settings, bool pins) {
  return succeeds([&] {
    if (installed != nullptr) {
      return;
    }
    engine::Options options;
    options.backend = backend == nullptr ? "" : backend;
    options.has_settings = settings != nullptr;
    options.settings = settings == nullptr ? "" : settings;
    engine::set_options(std::move(options));
    // PyTorch reads its variables here rather than later, when it would compare the backend named there with ours. What is
    // wrong with them is said in its words.
    native::CUDAAllocatorConfig::instance();
    c10::CachingAllocator::AcceleratorAllocatorConfig::instance();
    auto* before = native::get();
    TORCH_CHECK(
        !before->initialized(),
        "PyTorch has taken memory already, such as a pinned tensor: call granule_torch.enable() before that");
    // Asked first: once the device's allocator is changed nothing may fail.
    auto* pinned_before = pins ? at::getHostAllocator(c10::DeviceType::CUDA) : nullptr;
    auto fresh = std::make_shared<GranuleAllocator>();
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(fresh);
    // torch.accelerator asks by device type, and finds PyTorch's own allocator otherwise.
    constexpr uint8_t kAboveAll = 255;
    c10::SetAllocator(c10::DeviceType::CUDA, fresh.get(), kAboveAll);
    follow_settings();
    if (pins) {
      displaced_pinned = pinned_before;
      at::setHostAllocator(c10::DeviceType::CUDA, granule::host::allocator(), kAboveAll);
    }
    displaced = before;
    installed = std::move(fresh);
  });
}

// Whether PyTorch's current allocator is Granule.
GRANULE_TORCH_API bool granule_torch_is_installed() {
  return installed != nullptr && native::get() == installed.get();
}

// Whether PyTorch takes pinned memory from Granule.
GRANULE_TORCH_API bool granule_torch_pins() {
  return at::getHostAllocator(c10::DeviceType::CUDA) == granule::host::allocator();
}

// Changes settings of the allocator. False where it did not work: nothing was changed then.
GRANULE_TORCH_API bool granule_torch_configure(const char* settings) {
  return succeeds([&] { change_settings(engine::get(-1), settings); });
}

// The allocator of pinned memory; null where nothing was pinned yet.
GRANULE_TORCH_API granule_host_allocator* granule_torch_pinned() {
  return granule::host::peek();
}

// The allocator behind it, for calls of the C ABI; PyTorch must have initialised CUDA. Null where it cannot be made.
GRANULE_TORCH_API granule_allocator* granule_torch_engine() {
  granule_allocator* granule = nullptr;
  succeeds([&] { granule = engine::get(-1); });
  return granule;
}

// PyTorch's current allocator, and the one that was current before Granule (null if it still is): for measurements.
GRANULE_TORCH_API void* granule_torch_current_allocator() {
  return native::get();
}

GRANULE_TORCH_API void* granule_torch_displaced_allocator() {
  return displaced;
}

// The same for pinned memory.
GRANULE_TORCH_API void* granule_torch_current_pinned() {
  return at::getHostAllocator(c10::DeviceType::CUDA);
}

GRANULE_TORCH_API void* granule_torch_displaced_pinned() {
  return displaced_pinned;
}
