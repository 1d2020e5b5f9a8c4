// Kernels, which do nothing; the look-up of entry points; the driver's errors by name.
#include "fakegpu.h"
#include <dlfcn.h>
#include <cstdlib>
#include <cstring>

using namespace fakegpu;
namespace {

// A handle that the device never looks into.
template <typename T>
CUresult opaque(T* out) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = (T)calloc(1, 64);
  return CUDA_SUCCESS;
}
CUresult launch(CUstream stream) { return enqueue(stream, nullptr, CU_GRAPH_NODE_TYPE_KERNEL); }

struct Named { int code; const char* name; const char* text; };
const Named ERRORS[] = {
  {0, "CUDA_SUCCESS", "no error"},
  {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
  {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
  {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
  {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
  {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
  {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
  {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
  {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
  {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
  {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
  {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
  {600, "CUDA_ERROR_NOT_READY", "device not ready"},
  {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
  {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
  {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
  {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
  {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
  {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
  {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
  {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
  {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
  {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
  {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
  {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream"},
  {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
  {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread"},
};
const Named* named(int code) {
  for (auto& e : ERRORS)
    if (e.code == code) return &e;
  return nullptr;
}

}  // namespace

extern "C" {
CUresult cuGetErrorName(CUresult code, const char** out) {
  const Named* e = named(code);
  *out = e ? e->name : nullptr;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult code, const char** out) {
  const Named* e = named(code);
  *out = e ? e->text : nullptr;
  return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream s,
                        void**, void**) {
  return launch(s);
}
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   CUstream s, void**) {
  return launch(s);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction, void**, void**) { return launch(c->hStream); }
CUresult cuModuleLoadData(CUmodule* m, const void*) { return opaque(m); }
CUresult cuModuleLoadDataEx(CUmodule* m, const void*, unsigned, CUjit_option*, void**) { return opaque(m); }
CUresult cuModuleLoadFatBinary(CUmodule* m, const void*) { return opaque(m); }
CUresult cuModuleLoad(CUmodule* m, const char*) { return opaque(m); }
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* f, CUmodule, const char*) { return opaque(f); }
CUresult cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule, const char*) { return CUDA_ERROR_NOT_FOUND; }
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* m) { *m = CU_MODULE_LAZY_LOADING; return CUDA_SUCCESS; }
CUresult cuLibraryLoadData(CUlibrary* l, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**, unsigned) {
  return opaque(l);
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* k, CUlibrary, const char*) { return opaque(k); }
CUresult cuLibraryGetModule(CUmodule* m, CUlibrary) { return opaque(m); }
CUresult cuKernelGetFunction(CUfunction* f, CUkernel) { return opaque(f); }
CUresult cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction) {
  *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : a == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, CUfunction, int, size_t) { *n = 2; return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, CUfunction, int, size_t, unsigned) {
  *n = 2;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int* n, CUfunction, const CUlaunchConfig*) { *n = 1; return CUDA_SUCCESS; }

CUresult cuKernelGetAttribute(int* v, CUfunction_attribute a, CUkernel, CUdevice) { return cuFuncGetAttribute(v, a, nullptr); }
CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) { return CUDA_SUCCESS; }
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                                const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_SUCCESS;
}
#if CUDA_VERSION >= 12090
// The device has nothing to say in a log.
CUresult cuLogsRegisterCallback(CUlogsCallback, void*, CUlogsCallbackHandle* out) { return opaque(out); }
CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) { free((void*)handle); return CUDA_SUCCESS; }
#endif

// The newest form of a function, as a caller asks for whom the header names it.
CUresult cuGetProcAddress_v2(const char* symbol, void** out, int, cuuint64_t, CUdriverProcAddressQueryResult* status) {
  if (!symbol || !out) return CUDA_ERROR_INVALID_VALUE;
  static void* const self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *out = nullptr;
  for (const char* suffix : {"_v3", "_v2", ""}) {
    std::string name = std::string(symbol) + suffix;
    // These keep their old form beside a newer one with other arguments.
    if (!strcmp(suffix, "_v3") && strcmp(symbol, "cuStreamGetCaptureInfo")) continue;
    if ((*out = dlsym(self ? self : RTLD_DEFAULT, name.c_str()))) break;
  }
  if (status) *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuGetProcAddress(const char* symbol, void** out, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, out, version, flags, nullptr);
}
}
