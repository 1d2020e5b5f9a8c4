// The fake runtime: a thin layer over the fake driver, whose error numbers it shares.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace runtime {
// Keeps an error for cudaGetLastError and hands it on.
cudaError_t ret(int code);
// Makes the thread's device current where nothing is, as the first call of a program does.
int enter();
}  // namespace runtime

// A driver call that needs a context.
#define DRIVER(call) do { int r_ = runtime::enter(); return runtime::ret(r_ ? r_ : (int)(call)); } while (0)
