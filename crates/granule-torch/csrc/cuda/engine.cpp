#include "engine.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <utility>
#include <vector>

#include "errors.h"
#include "process_memory.h"

namespace granule_torch::engine {
namespace {

// Never destroyed: allocators are used while the process's static objects go.
struct State {
  std::mutex mutex;
  Options options;
  std::vector<std::function<void(granule_allocator*)>> actions;
};
State& state = *new State;

// PyTorch's registry of those who can free memory when an allocation would fail, such as the ledger of tensors that
// other processes have finished with.
bool run_free_memory_callbacks(void* /*user*/) {
  return shielded("a free-memory callback", false, [] {
    bool freed = false;
    for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
      freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    }
    return freed;
  });
}

} // namespace

std::atomic<granule_allocator*> current{nullptr};

void set_options(Options wanted) {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.options = std::move(wanted);
}

granule_allocator* make() {
  std::vector<std::function<void(granule_allocator*)>> waiting;
  granule_allocator* made = nullptr;
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    made = current.load(std::memory_order_acquire);
    if (made != nullptr) {
      return made;
    }
    TORCH_CHECK(
        granule_abi_version() == GRANULE_ABI_VERSION,
        "libgranule_capi has ABI version ", granule_abi_version(), ", and this module was built for version ",
        GRANULE_ABI_VERSION, ": reinstall granule_torch");
    // PyTorch reads its variables now, too. It comes first, so that a mistake in them is reported in its words.
    c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::instance();
    c10::CachingAllocator::AcceleratorAllocatorConfig::instance();
    granule_options wanted{};
    wanted.size = sizeof wanted;
    wanted.backend = state.options.backend.empty() ? nullptr : state.options.backend.c_str();
    wanted.settings = state.options.has_settings ? state.options.settings.c_str() : nullptr;
    check(granule_allocator_create(&wanted, &made));
    check(granule_add_free_memory_callback(made, run_free_memory_callbacks, nullptr));
    tell_process_memory(made);
    waiting = std::exchange(state.actions, {});
    current.store(made, std::memory_order_release);
  }
  for (const auto& action : waiting) {
    action(made);
  }
  return made;
}

void make(int device_count) {
  int32_t devices = 0;
  check(granule_device_count(make(), &devices));
  TORCH_CHECK(
      device_count <= devices,
      "Granule sees ", devices, " devices of backend ", granule_backend_name(get()), ", PyTorch ", device_count);
}

void when_made(std::function<void(granule_allocator*)> action) {
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    if (current.load(std::memory_order_acquire) == nullptr) {
      state.actions.push_back(std::move(action));
      return;
    }
  }
  action(get());
}

} // namespace granule_torch::engine
