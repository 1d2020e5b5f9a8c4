"""Whether this machine has what steps want: probe.py driver|torch|pytest"""
import ctypes
import os
import sys

import common
from common import say


def driver():
    name = os.environ.get("GRANULE_CUDA_LIBRARY") or "libcuda.so.1"
    try:
        cuda = ctypes.CDLL(name)
    except OSError as error:
        return f"{name} cannot be loaded ({error}): install NVIDIA's driver, or name the library in GRANULE_CUDA_LIBRARY"
    if status := cuda.cuInit(0):
        return f"cuInit answers {status}"
    count, version = ctypes.c_int(), ctypes.c_int()
    status = cuda.cuDeviceGetCount(ctypes.byref(count)) or cuda.cuDriverGetVersion(ctypes.byref(version))
    if status or not count.value:
        return f"the driver finds no device (status {status})"
    say(step="probe", what="driver", cuda=f"{version.value // 1000}.{version.value % 1000 // 10}", devices=count.value)
    return None


def torch():
    try:
        import torch
    except ImportError as error:
        return f"{sys.executable} has no torch: {error}"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no device of CUDA"
    say(step="probe", what="torch", version=torch.__version__, cuda=torch.version.cuda, device=torch.cuda.get_device_name())
    return None


def pytest():
    try:
        import pytest
    except ImportError as error:
        return str(error)
    say(step="probe", what="pytest", version=pytest.__version__)
    return None


def body():
    what = sys.argv[1]
    if lacking := globals()[what]():
        say(step="probe", what=what, lacks=lacking)


if __name__ == "__main__":
    common.main(body)
