#include "settings.h"

#include <c10/core/AllocatorConfig.h>

#include <cctype>
#include <mutex>
#include <string>
#include <utility>

#include "engine.h"
#include "errors.h"
#include "host_allocator.h"

namespace granule_torch {
namespace {

// The text without "backend:native". PyTorch's parser compares a backend with the current allocator's name, which is ours;
// a program that names the usual one means no other.
std::string without_usual_backend(const std::string& text) {
  std::string result;
  std::string item;
  int depth = 0;
  const auto keep = [&] {
    if (item != "backend:native" && !item.empty()) {
      result += (result.empty() ? "" : ",") + item;
    }
    item.clear();
  };
  for (const char c : text) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0) {
      keep();
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      item += c;
    }
  }
  keep();
  return result;
}

} // namespace

void follow_settings() {
  static std::once_flag once;
  std::call_once(once, [] {
    // PyTorch's own parser comes first: it knows the pinned-memory options, and its errors are the ones that programs expect.
    auto& parser = c10::CachingAllocator::AcceleratorAllocatorConfig::getConfigParserHook();
    parser = [inner = std::move(parser)](const std::string& text) {
      if (inner) {
        inner(text.find("backend") == std::string::npos ? text : without_usual_backend(text));
      }
      engine::when_made([text](granule_allocator* granule) { change_settings(granule, text); });
    };
  });
}

void change_settings(granule_allocator* granule, const std::string& text) {
  check(granule_configure(granule, text.c_str()));
  granule::host::follow_settings();
}

} // namespace granule_torch
