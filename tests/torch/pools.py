"""Allocators of this process, for pools."""
import ctypes

import torch

ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


def custom(more=None, on_host=False):
    """An allocator for a pool, the list of what is asked of it, and its functions, which must outlive it.

    The memory is the device's, or pinned host memory. `more` is called each time, and what it says is kept, too.
    """
    asked = []
    runtime = ctypes.CDLL(None)

    def note(*what):
        asked.append([*what, more()] if more else list(what))

    def alloc(size, device, stream):
        pointer = ctypes.c_void_p()
        if on_host:
            assert runtime.cudaHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(size), 0) == 0
        else:
            assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
        note("alloc", size, device)
        return pointer.value

    def free(pointer, size, device, stream):
        note("free", size, device)
        (runtime.cudaFreeHost if on_host else runtime.cudaFree)(ctypes.c_void_p(pointer))

    functions = (ALLOC(alloc), FREE(free))
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    return torch._C._cuda_customAllocator(*addresses), asked, functions
