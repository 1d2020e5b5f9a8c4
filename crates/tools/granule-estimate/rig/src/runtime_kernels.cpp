// Kernels: registered, configured and launched to no effect.
#include "runtime.h"
#include <cstdlib>
#include <cstring>

using namespace runtime;
namespace {
cudaError_t launch(cudaStream_t s) {
  CUlaunchConfig config{};
  config.hStream = (CUstream)s;
  DRIVER(cuLaunchKernelEx(&config, nullptr, nullptr, nullptr));
}
struct Configuration { dim3 grid, block; size_t shared; cudaStream_t stream; };
thread_local Configuration pushed;
}  // namespace

extern "C" {
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t s) { return launch(s); }
cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t s) { return launch(s); }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void*, void**) { return launch(c->stream); }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t s) { return launch(s); }
cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* f) { *k = (cudaKernel_t)f; return cudaSuccess; }
cudaError_t cudaGetKernel(cudaKernel_t* k, const void* f) { *k = (cudaKernel_t)f; return cudaSuccess; }
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* k, const void* f) { *k = (cudaFunction_t)f; return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = 90;
  a->maxDynamicSharedSizeBytes = 232448;
  a->preferredShmemCarveout = -1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void*, int threads, size_t) {
  *n = threads > 0 ? 2048 / threads : 1;
  if (*n > 16) *n = 16;
  if (*n < 1) *n = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void* f, int threads, size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, shared);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s) {
  pushed = {grid, block, shared, s};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* s) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *(cudaStream_t*)s = pushed.stream;
  return cudaSuccess;
}
void** __cudaRegisterFatBinary(void*) { static void* handle[4]; return handle; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
cudaError_t cudaLibraryLoadData(cudaLibrary_t* l, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*, void**, unsigned) {
  *l = (cudaLibrary_t)calloc(1, 64);
  return cudaSuccess;
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* k, cudaLibrary_t, const char*) { *k = (cudaKernel_t)calloc(1, 64); return cudaSuccess; }
cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* l, const char*, cudaJitOption*, void**, unsigned, cudaLibraryOption*, void**, unsigned) {
  *l = (cudaLibrary_t)calloc(1, 64);
  return cudaSuccess;
}
cudaError_t cudaLibraryUnload(cudaLibrary_t l) { free((void*)l); return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return cudaSuccess; }
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
}
