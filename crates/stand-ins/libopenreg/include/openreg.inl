// What C++ programs launch on a stream.

#ifndef OPENREG_H
#error "include openreg.h, which includes this file"
#endif

#include <functional>
#include <tuple>
#include <utility>

namespace openreg {

// Queues a task; an empty one is orErrorUnknown. An exception that leaves it ends the process.
OPENREG_EXPORT orError_t addTaskToStream(orStream* stream, std::function<void()> task);

}  // namespace openreg

// Queues a call of kernel with copies of args.
template <typename Kernel, typename... Args>
inline orError_t orLaunchKernel(orStream* stream, Kernel&& kernel, Args&&... args) {
#if __cplusplus >= 201703L
  return openreg::addTaskToStream(
      stream,
      [kernel = std::forward<Kernel>(kernel), args = std::make_tuple(std::forward<Args>(args)...)]() mutable {
        std::apply(kernel, std::move(args));
      });
#else
  return openreg::addTaskToStream(stream, std::bind(std::forward<Kernel>(kernel), std::forward<Args>(args)...));
#endif
}
