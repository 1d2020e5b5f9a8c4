// What the Python package calls: putting Granule in the place of PyTorch's allocator. Plain C, so that no Python headers
// are needed and one build serves every Python version.

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/headeronly/version.h>

#include <exception>
#include <memory>
#include <string>

#include "exported.h"
#include "granule_allocator.h"
#include "settings.h"

namespace granule_torch {
namespace {

// Never destroyed: PyTorch still frees tensors while the process's static objects go.
std::shared_ptr<GranuleAllocator>& installed = *new std::shared_ptr<GranuleAllocator>;
native::CUDAAllocator* displaced = nullptr;

} // namespace
} // namespace granule_torch

using namespace granule_torch;

// The release of PyTorch whose headers this was compiled with; another one has other layouts.
GRANULE_TORCH_API const char* granule_torch_built_for() {
  return TORCH_VERSION;
}

// Null backend: the library's choice. Null settings: those of the environment. Null if it worked, else why not; then
// PyTorch's allocator is where it was.
GRANULE_TORCH_API const char* granule_torch_install(const char* backend, const char* settings) {
  static thread_local std::string problem;
  try {
    if (installed == nullptr) {
      engine::Options options;
      options.backend = backend == nullptr ? "" : backend;
      options.has_settings = settings != nullptr;
      options.settings = settings == nullptr ? "" : settings;
      engine::set_options(std::move(options));
      auto fresh = std::make_shared<GranuleAllocator>();
      auto* before = native::get();
      torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(fresh);
      // torch.accelerator asks by device type, and finds PyTorch's own allocator otherwise.
      constexpr uint8_t kAboveAll = 255;
      c10::SetAllocator(c10::DeviceType::CUDA, fresh.get(), kAboveAll);
      follow_settings();
      displaced = before;
      installed = std::move(fresh);
    }
    return nullptr;
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return problem.c_str();
}

// Whether PyTorch's current allocator is Granule.
GRANULE_TORCH_API bool granule_torch_is_installed() {
  return installed != nullptr && native::get() == installed.get();
}

// The allocator behind it, for calls of the C ABI; null until PyTorch has initialised CUDA.
GRANULE_TORCH_API granule_allocator* granule_torch_engine() {
  return engine::current.load(std::memory_order_acquire);
}

// PyTorch's current allocator, and the one that was current before Granule (null if it still is): for measurements.
GRANULE_TORCH_API void* granule_torch_current_allocator() {
  return native::get();
}

GRANULE_TORCH_API void* granule_torch_displaced_allocator() {
  return displaced;
}
