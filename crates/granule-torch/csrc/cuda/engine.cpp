#include "engine.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include <exception>
#include <memory>
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

std::atomic<int> devices{0};

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

namespace {

using Made = std::unique_ptr<granule_allocator, decltype(&granule_allocator_destroy)>;

// With the lock held.
Made create() {
  TORCH_CHECK(
      granule_abi_version() == GRANULE_ABI_VERSION,
      "libgranule_capi has ABI version ", granule_abi_version(), ", and this module was built for version ",
      GRANULE_ABI_VERSION, ": reinstall granule_torch");
  granule_options wanted{};
  wanted.size = sizeof wanted;
  wanted.backend = state.options.backend.empty() ? nullptr : state.options.backend.c_str();
  wanted.settings = state.options.has_settings ? state.options.settings.c_str() : nullptr;
  wanted.pytorch_release = TORCH_VERSION;
  granule_allocator* raw = nullptr;
  check(granule_allocator_create(&wanted, &raw));
  Made made(raw, granule_allocator_destroy);
  int32_t found = 0;
  check(granule_device_count(raw, &found));
  TORCH_CHECK(
      device_count() <= found,
      "Granule sees ", found, " devices of backend ", granule_backend_name(raw), ", PyTorch ", device_count());
  check(granule_add_free_memory_callback(raw, run_free_memory_callbacks, nullptr));
  tell_process_memory(raw);
  return made;
}

} // namespace

void init(int count) {
  int known = devices.load();
  while (known < count && !devices.compare_exchange_weak(known, count)) {
  }
}

int device_count() {
  return devices.load();
}

granule_allocator* make(int device) {
  TORCH_CHECK(device_count() > 0, "Invalid device argument ", device, ": did you call init?");
  std::vector<std::function<void(granule_allocator*)>> waiting;
  granule_allocator* granule = nullptr;
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    granule = peek();
    if (granule != nullptr) {
      return granule;
    }
    granule = create().release();
    waiting = std::exchange(state.actions, {});
    current.store(granule, std::memory_order_release);
  }
  // All of them, whatever one of them throws: they are of different parts of the program.
  std::exception_ptr first;
  for (const auto& action : waiting) {
    try {
      action(granule);
    } catch (...) {
      first = first ? first : std::current_exception();
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
  return granule;
}

void when_made(std::function<void(granule_allocator*)> action) {
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    if (peek() == nullptr) {
      state.actions.push_back(std::move(action));
      return;
    }
  }
  action(peek());
}

} // namespace granule_torch::engine
