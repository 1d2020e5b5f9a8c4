// CUDA's API headers mark their declarations with these words, which mean something to nvcc only. The header that defines
// them belongs to the compiler and is not in NVIDIA's Python wheels; this one stands in for it where only a host compiler
// is at work and no toolkit is installed.
#pragma once

#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __no_return__ __attribute__((noreturn))
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __location__(a)
#define __specialization_static static
#define CUDARTAPI
#define CUDARTAPI_CDECL
