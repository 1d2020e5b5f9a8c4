// The memory history: what is recorded, the contexts of calls, and what programs note beside events.

#include <c10/cuda/CUDAFunctions.h>

#include <atomic>
#include <string_view>

#include "granule_allocator.h"
#include "trace_entry.h"

namespace granule_torch {
namespace {

// PyTorch's function that captures the current Python and C++ stacks. Read by every thread that allocates.
std::atomic<native::CreateContextFn> context_recorder{nullptr};

// Whether a history is wanted, as long as there is no allocator to ask.
std::atomic<bool> wanted_before_made{false};

void* gather(void* /*user*/) {
  return shielded("the recorder of call contexts", static_cast<void*>(nullptr), []() -> void* {
    const auto recorder = context_recorder.load(std::memory_order_acquire);
    Context context = recorder == nullptr ? nullptr : recorder();
    return context == nullptr ? nullptr : new Context(std::move(context));
  });
}

void release(void* /*user*/, void* context) {
  shielded("a call context", 0, [&] {
    delete static_cast<Context*>(context);
    return 0;
  });
}

uint32_t action_bits(const std::vector<std::string>& actions) {
  uint32_t bits = 0;
  for (const auto& action : actions) {
    bits |= 1U << static_cast<unsigned>(history_types::parseTraceEntryAction(action));
  }
  return bits;
}

} // namespace

bool GranuleAllocator::isHistoryEnabled() {
  bool on = wanted_before_made.load();
  if (granule_allocator* granule = engine::peek()) {
    check(granule_is_history_enabled(granule, &on));
  }
  return on;
}

void GranuleAllocator::recordHistory(
    bool enabled,
    native::CreateContextFn recorder,
    size_t max_entries,
    native::RecordContext when,
    bool clear,
    const std::vector<std::string>& skip_actions) {
  TORCH_CHECK(
      when == native::RecordContext::NEVER || recorder != nullptr, "contexts are wanted, and there is nobody to record them");
  granule_history wanted{};
  wanted.size = sizeof wanted;
  wanted.enabled = enabled;
  wanted.clear = clear;
  wanted.contexts = static_cast<int32_t>(when);
  wanted.max_entries = max_entries;
  wanted.skip_actions = action_bits(skip_actions);
  wanted.gather = gather;
  wanted.release = release;
  wanted_before_made.store(enabled);
  context_recorder.store(enabled ? recorder : nullptr, std::memory_order_release);
  engine::when_made([wanted](granule_allocator* granule) { check(granule_record_history(granule, &wanted)); });
}

GRANULE_SINCE_2_12(Context GranuleAllocator::getContextForPointer(const void* pointer) {
  Context found;
  granule_allocator* granule = engine::peek();
  if (granule == nullptr) {
    return found;
  }
  check(granule_context_of(
      granule,
      const_cast<void*>(pointer),
      [](void* user, void* context) { *static_cast<Context*>(user) = context_of(context); },
      &found));
  return found;
})

// PyTorch sends the name of a range of the program and which end of it this is.
void GranuleAllocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) {
  if (!isHistoryEnabled()) {
    return;
  }
  const std::string* name = nullptr;
  bool start = false;
  for (const auto& [key, value] : annotation) {
    if (key == "name") {
      name = &value;
    } else if (key == "stage") {
      start = value == "START";
    }
  }
  if (name == nullptr) {
    return;
  }
  const DeviceIndex device = c10::cuda::current_device();
  check(granule_mark_range(engine::get(device), start, name->c_str(), device));
}

void GranuleAllocator::pushCompileContext(std::string& name) {
  check(granule_push_compile_context(name.c_str()));
}

void GranuleAllocator::popCompileContext() {
  check(granule_pop_compile_context());
}

GRANULE_SINCE_2_14(bool GranuleAllocator::supportsUserMetadata() {
  return true;
})

void GranuleAllocator::setUserMetadata(const std::string& text) {
  check(granule_set_user_metadata(text.c_str()));
}

std::string GranuleAllocator::getUserMetadata() {
  granule_bytes text{};
  check(granule_user_metadata(&text));
  std::string result(reinterpret_cast<const char*>(text.data), text.len);
  granule_bytes_free(&text);
  return result;
}

GRANULE_SINCE_2_14(void GranuleAllocator::annotateMemory(const void* pointer, const std::string& text) {
  granule_allocator* granule = engine::peek();
  const granule_status status = granule == nullptr
      ? GRANULE_INVALID_POINTER
      : granule_annotate(granule, const_cast<void*>(pointer), text.c_str());
  TORCH_CHECK(
      status != GRANULE_INVALID_POINTER, "annotateMemory: no live allocation found at pointer ", pointer);
  check(status);
})

} // namespace granule_torch
