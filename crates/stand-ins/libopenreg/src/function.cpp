// What only C++ can do with a std::function: keep it, call it, end it.
//
// Rust exports openreg::addTaskToStream itself, under its mangled name (see abi/task.rs).

#include <functional>
#include <new>
#include <utility>

typedef std::function<void()> Function;

extern "C" {

// Moves a function to the heap. Null where it is empty or memory has run out.
void* openreg_function_keep(void* function) noexcept {
  Function& from = *static_cast<Function*>(function);
  return from ? new (std::nothrow) Function(std::move(from)) : nullptr;
}

// An exception ends the process, as in any thread that lets one escape.
void openreg_function_call(void* function) noexcept {
  (*static_cast<Function*>(function))();
}

void openreg_function_end(void* function) noexcept {
  delete static_cast<Function*>(function);
}

}  // extern "C"
