#include "settings.h"

#include <c10/core/AllocatorConfig.h>

#include <mutex>
#include <string>
#include <utility>

#include "engine.h"
#include "errors.h"

namespace granule_torch {

void follow_settings() {
  static std::once_flag once;
  std::call_once(once, [] {
    // PyTorch's own parser comes first: it knows the pinned-memory options, and its errors are the ones that programs expect.
    auto& hook = c10::CachingAllocator::AcceleratorAllocatorConfig::getConfigParserHook();
    hook = [inner = std::move(hook)](const std::string& text) {
      if (inner) {
        inner(text);
      }
      engine::when_made([text](granule_allocator* granule) { check(granule_configure(granule, text.c_str())); });
    };
  });
}

} // namespace granule_torch
