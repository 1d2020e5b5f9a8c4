#include "filter.h"

#include <utility>

#include "errors.h"

namespace granule_torch {
namespace {

using Filter = std::function<bool(cudaStream_t)>;

bool accepts(void* user, uint64_t stream) {
  return shielded("the filter of a pool", false, [&] {
    return (*static_cast<Filter*>(user))(reinterpret_cast<cudaStream_t>(stream));
  });
}

void drop(void* user) {
  shielded("the filter of a pool", 0, [&] {
    delete static_cast<Filter*>(user);
    return 0;
  });
}

} // namespace

granule_filter filter_of(Filter filter) {
  granule_filter result{};
  result.size = sizeof result;
  result.kind = GRANULE_FILTER_CUSTOM;
  result.user = new Filter(std::move(filter));
  result.accepts = accepts;
  result.drop = drop;
  return result;
}

} // namespace granule_torch
