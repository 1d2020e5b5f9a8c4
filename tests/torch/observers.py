"""What of PyTorch's allocator interface only C++ can call: `cpp/observers.cpp`, compiled once in each session."""
import ctypes
import fcntl
import os
import subprocess
import sysconfig
from pathlib import Path

import torch

HERE = Path(__file__).parent


def include():
    """Folders of headers: PyTorch's, CUDA's from NVIDIA's wheels, and the one of nvcc that those lack."""
    site = Path(torch.__file__).parent.parent
    cuda = [path.parent for path in sorted(site.glob("nvidia/*/include/cuda_runtime_api.h"))]
    granule = HERE.parent.parent / "crates/granule-torch/csrc/cuda_headers"
    return [site / "torch/include", *cuda, granule, Path(sysconfig.get_paths()["include"])]


def load():
    """The library."""
    folder = Path(os.environ["GRANULE_E2E_BUILD"])
    library = folder / "observers.so"
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            made = folder / "made.so"
            command = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", str(HERE / "cpp/observers.cpp"), "-o", str(made)]
            command += [f"-I{path}" for path in include()]
            command += [f"-L{Path(torch.__file__).parent / 'lib'}", "-lc10_cuda", "-lc10"]
            subprocess.run(command, check=True)
            made.rename(library)
    loaded = ctypes.CDLL(str(library))
    loaded.watched.restype = ctypes.c_char_p
    loaded.refusals.restype = loaded.growable_segment.restype = ctypes.c_int64
    loaded.growable_segment.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(ctypes.c_bool)]
    loaded.base_of.restype = ctypes.c_void_p
    loaded.base_of.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    loaded.allocate_in_cpp.restype = ctypes.c_bool
    loaded.allocate_in_cpp.argtypes = [ctypes.c_size_t]
    return loaded
