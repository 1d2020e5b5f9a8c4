#pragma once

#include <vector>

#include "errors.h"

namespace granule_torch {

// Reads a list that the library writes into a buffer of the caller's, telling how long it really is.
template <typename Item, typename Read>
std::vector<Item> list(Read&& read) {
  std::vector<Item> items(16);
  for (;;) {
    uint64_t count = 0;
    check(read(items.data(), static_cast<uint64_t>(items.size()), &count));
    const bool complete = count <= items.size();
    items.resize(count);
    if (complete) {
      return items;
    }
  }
}

} // namespace granule_torch
