// Memory: device, host, pools, copies, handles for other processes.
#include "runtime.h"
#include <cstring>

using namespace runtime;
static CUstream queue(cudaStream_t s) { return (CUstream)s; }
#define PTR(p) ((CUdeviceptr)(p))

extern "C" {
cudaError_t cudaMalloc(void** p, size_t n) {
  if (!p) return ret(cudaErrorInvalidValue);
  *p = nullptr;
  if (!n) return ret(enter());
  DRIVER(cuMemAlloc_v2((CUdeviceptr*)p, n));
}
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned flags) { DRIVER(cuMemAllocManaged((CUdeviceptr*)p, n, flags)); }
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t s) {
  *p = nullptr;
  if (!n) return ret(enter());
  DRIVER(cuMemAllocAsync((CUdeviceptr*)p, n, queue(s)));
}
cudaError_t cudaMallocFromPoolAsync(void** p, size_t n, cudaMemPool_t pool, cudaStream_t s) {
  DRIVER(cuMemAllocFromPoolAsync((CUdeviceptr*)p, n, (CUmemoryPool)pool, queue(s)));
}
cudaError_t cudaFree(void* p) { DRIVER(cuMemFree_v2(PTR(p))); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
  if (!p) return ret(enter());
  DRIVER(cuMemFreeAsync(PTR(p), queue(s)));
}
cudaError_t cudaMemGetInfo(size_t* f, size_t* t) { DRIVER(cuMemGetInfo_v2(f, t)); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned flags) {
  *p = nullptr;
  if (!n) return ret(enter());
  DRIVER(cuMemHostAlloc(p, n, flags));
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void* p) {
  if (!p) return ret(enter());
  DRIVER(cuMemFreeHost(p));
}
cudaError_t cudaHostRegister(void* p, size_t n, unsigned flags) { DRIVER(cuMemHostRegister_v2(p, n, flags)); }
cudaError_t cudaHostUnregister(void* p) { DRIVER(cuMemHostUnregister(p)); }
cudaError_t cudaHostGetDevicePointer(void** out, void* p, unsigned flags) {
  DRIVER(cuMemHostGetDevicePointer_v2((CUdeviceptr*)out, p, flags));
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* p) { DRIVER(cuMemHostGetFlags(flags, p)); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  if (int r = enter()) return ret(r);
  memset(a, 0, sizeof *a);
  unsigned type = 0, managed = 0;
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, PTR(p))) {
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2;
    return cudaSuccess;
  }
  cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, PTR(p));
  cuPointerGetAttribute(&a->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, PTR(p));
  a->type = managed ? cudaMemoryTypeManaged : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  a->devicePointer = (void*)p;
  a->hostPointer = a->type == cudaMemoryTypeDevice ? nullptr : (void*)p;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind) {
  if (!n) return ret(enter());
  DRIVER(cuMemcpy(PTR(d), PTR(s), n));
}
cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind, cudaStream_t q) {
  if (!n) return ret(enter());
  DRIVER(cuMemcpyAsync(PTR(d), PTR(s), n, queue(q)));
}
cudaError_t cudaMemcpyPeer(void* d, int, const void* s, int, size_t n) { DRIVER(cuMemcpy(PTR(d), PTR(s), n)); }
cudaError_t cudaMemcpyPeerAsync(void* d, int, const void* s, int, size_t n, cudaStream_t q) {
  return cudaMemcpyAsync(d, s, n, cudaMemcpyDefault, q);
}
cudaError_t cudaMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, cudaMemcpyKind kind,
                              cudaStream_t q) {
  for (size_t i = 0; i < h; i++)
    if (cudaError_t r = cudaMemcpyAsync((char*)d + i * dp, (const char*)s + i * sp, w, kind, q)) return r;
  return cudaSuccess;
}
cudaError_t cudaMemcpy2D(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, cudaMemcpyKind kind) {
  for (size_t i = 0; i < h; i++)
    if (cudaError_t r = cudaMemcpy((char*)d + i * dp, (const char*)s + i * sp, w, kind)) return r;
  return cudaSuccess;
}
cudaError_t cudaMemset(void* d, int v, size_t n) {
  if (!n) return ret(enter());
  DRIVER(cuMemsetD8_v2(PTR(d), (unsigned char)v, n));
}
cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t q) {
  if (!n) return ret(enter());
  DRIVER(cuMemsetD8Async(PTR(d), (unsigned char)v, n, queue(q)));
}
// A variable of a kernel's image: the device has no images, so it is the host's shadow of it.
cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) { *p = (void*)symbol; return cudaSuccess; }

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* p, int d) {
  return ret(cuDeviceGetDefaultMemPool((CUmemoryPool*)p, d));
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* p, int d) { return cudaDeviceGetDefaultMemPool(p, d); }
cudaError_t cudaDeviceSetMemPool(int d, cudaMemPool_t p) { return ret(cuDeviceSetMemPool(d, (CUmemoryPool)p)); }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t p, cudaMemPoolAttr a, void* v) {
  return ret(cuMemPoolGetAttribute((CUmemoryPool)p, (CUmemPool_attribute)a, v));
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t p, cudaMemPoolAttr a, void* v) {
  return ret(cuMemPoolSetAttribute((CUmemoryPool)p, (CUmemPool_attribute)a, v));
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t p, size_t n) { return ret(cuMemPoolTrimTo((CUmemoryPool)p, n)); }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t p, const cudaMemAccessDesc* a, size_t n) {
  return ret(cuMemPoolSetAccess((CUmemoryPool)p, (const CUmemAccessDesc*)a, n));
}
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* v) {
  memset(v, 0, 8);
  return cudaSuccess;
}
cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) { return cudaSuccess; }
cudaError_t cudaDeviceGraphMemTrim(int) { return cudaSuccess; }

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle) && sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* h, void* p) { DRIVER(cuIpcGetMemHandle((CUipcMemHandle*)h, PTR(p))); }
cudaError_t cudaIpcOpenMemHandle(void** p, cudaIpcMemHandle_t h, unsigned flags) {
  CUipcMemHandle handle;
  memcpy(&handle, &h, sizeof handle);
  DRIVER(cuIpcOpenMemHandle_v2((CUdeviceptr*)p, handle, flags));
}
cudaError_t cudaIpcCloseMemHandle(void* p) { DRIVER(cuIpcCloseMemHandle(PTR(p))); }
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* h, cudaEvent_t e) {
  DRIVER(cuIpcGetEventHandle((CUipcEventHandle*)h, (CUevent)e));
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* e, cudaIpcEventHandle_t h) {
  CUipcEventHandle handle;
  memcpy(&handle, &h, sizeof handle);
  DRIVER(cuIpcOpenEventHandle((CUevent*)e, handle));
}
}
