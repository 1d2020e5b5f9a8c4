// Device memory as the driver hands it out, and questions about addresses.
#include "fakegpu.h"
#include <cstring>

using namespace fakegpu;
namespace {

CUresult host_attribute(void* out, CUpointer_attribute which, CUdeviceptr p, const HostRange& host) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned*)out = CU_MEMORYTYPE_HOST; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr*)out = p; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(void**)out = (void*)p; break;
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext*)out = context_of(0); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int*)out = 0; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr*)out = host.base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t*)out = host.size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int*)out = 1; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(int*)out = 0; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult device_attribute(void* out, CUpointer_attribute which, CUdeviceptr p, const Range& r) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned*)out = CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int*)out = r.device; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr*)out = p; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (r.kind != Kind::Managed) return CUDA_ERROR_INVALID_VALUE;
      *(CUdeviceptr*)out = p;
      break;
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext*)out = r.mapped ? nullptr : context_of(r.device); break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long*)out = r.id; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(int*)out = r.kind == Kind::Managed; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(int*)out = !r.mapped && r.kind == Kind::Malloc; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr*)out = r.base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t*)out = r.size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int*)out = 1; break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *(CUmemoryPool*)out = nullptr;
      if (r.kind == Kind::Pool) cuDeviceGetDefaultMemPool((CUmemoryPool*)out, r.device);
      break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *(unsigned long long*)out = r.mapped ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: *(int*)out = 0; break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(int*)out = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  memory_info(device, free_bytes, total);
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t size) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  if (!out || !size) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = not_while_capturing()) return r;
  uintptr_t at;
  if (CUresult r = allocate(device, size, Kind::Malloc, &at)) return r;
  *out = at;
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr at) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  if (!at) return CUDA_SUCCESS;
  if (CUresult r = not_while_capturing()) return r;
  Range range;
  if (find_range(at, &range)) device_synchronize(range.device);  // as the real one does
  return pool_free(at) ? CUDA_SUCCESS : release(at);
}
CUresult cuMemAllocManaged(CUdeviceptr* out, size_t size, unsigned flags) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  if (!out || !size || !(flags & 3)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = not_while_capturing()) return r;
  uintptr_t at;
  if (CUresult r = allocate(device, size, Kind::Managed, &at)) return r;
  *out = at;
  return CUDA_SUCCESS;
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr at, size_t size, CUmemLocation, unsigned, CUstream stream) {
  Range range;
  if (!find_range(at, &range) || range.kind != Kind::Managed || at + size > range.base + range.size)
    return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [] {}, CU_GRAPH_NODE_TYPE_EMPTY);
}
CUresult cuMemPrefetchAsync(CUdeviceptr at, size_t size, CUdevice, CUstream stream) {
  return cuMemPrefetchAsync_v2(at, size, {}, 0, stream);
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute which, CUdeviceptr p) {
  if (!out || !p) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  if (find_range(p, &range)) return device_attribute(out, which, p, range);
  HostRange host;
  if (find_host(p, &host)) return host_attribute(out, which, p, host);
  return CUDA_ERROR_INVALID_VALUE;
}
// Of an address that the driver does not know it answers nothing, and no error.
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* which, void** out, CUdeviceptr p) {
  for (unsigned i = 0; i < n; i++) {
    if (which[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) return CUDA_ERROR_NOT_SUPPORTED;
    if (!cuPointerGetAttribute(out[i], which[i], p)) continue;
    bool wide = which[i] == CU_POINTER_ATTRIBUTE_CONTEXT || which[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                which[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER || which[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID;
    memset(out[i], which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? 0xfe : 0, wide ? 8 : 4);
    if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int*)out[i] = -2;
  }
  return CUDA_SUCCESS;
}
CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr) { return CUDA_SUCCESS; }
CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr p) {
  Range range;
  if (!find_range(p, &range)) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = range.base;
  if (size) *size = range.size;
  return CUDA_SUCCESS;
}
}
