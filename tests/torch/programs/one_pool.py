"""Five consumers of device memory in one process, whose turns to need much of it come one after another: PyTorch, a `cuda::mr` resource
in C++, cuda.core, Numba, and code that calls Granule's C ABI, as a Rust library of its own would.

usage: one_pool.py granule|own

Prints the most that was live at a time, and the most that the device had to give: with one allocator for all, or with each one's own
pool. Its own pool is PyTorch's allocator, Numba's is Numba's way to ask the driver, and for each of the others a pool of the driver.
"""
import ctypes
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

MIB = 1 << 20
TREE = Path(__file__).resolve().parents[3]


class Torch:
    def take(self, nbytes):
        return torch.empty(nbytes, dtype=torch.uint8, device="cuda")

    def give(self, tensor):
        del tensor


class Core:
    """A memory resource of cuda.core."""

    def __init__(self, memory, stream):
        self.memory, self.stream = memory, stream

    def take(self, nbytes):
        return self.memory.allocate(nbytes, stream=self.stream)

    def give(self, buffer):
        buffer.close()


class Resource:
    """C++ with a `cuda::mr` resource."""

    def __init__(self, engine):
        site = Path(torch.__file__).parents[1]
        cuda = next(folder for folder in site.glob("nvidia/*/include") if (folder / "cccl").is_dir())
        made = Path(tempfile.mkdtemp()) / "libresource.so"
        command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", TREE / "tests/torch/cpp/resource.cpp", "-o", made]
        command += ["-I", TREE / "crates/granule-capi/include", "-isystem", cuda / "cccl", "-isystem", cuda]
        command += ["-isystem", TREE / "crates/granule-torch/csrc/cuda_headers"]
        subprocess.run(command, check=True)
        self.library = ctypes.CDLL(str(made))
        self.library.resource_over.restype = self.library.resource_take.restype = ctypes.c_void_p
        self.memory = ctypes.c_void_p(self.library.resource_over(ctypes.c_void_p(engine)))

    def take(self, nbytes):
        return self.library.resource_take(self.memory, None, ctypes.c_size_t(nbytes)), nbytes

    def give(self, block):
        ptr, nbytes = block
        self.library.resource_give(self.memory, None, ctypes.c_void_p(ptr), ctypes.c_size_t(nbytes))


class Numba:
    def take(self, nbytes):
        from numba import cuda

        return cuda.device_array(nbytes, dtype="uint8")

    def give(self, array):
        del array


class Abi:
    def take(self, nbytes):
        from granule_torch.adapters import _process

        return _process.take(nbytes, 0, 0)

    def give(self, address):
        from granule_torch.adapters import _process

        _process.give(address, 0, 0)


def consumers(allocator):
    from cuda.core import LEGACY_DEFAULT_STREAM, Device, DeviceMemoryResource

    if allocator == "granule":
        import granule_torch
        from granule_torch.adapters import _process
        from granule_torch.adapters import numba as granule_numba
        from granule_torch.adapters.cuda_core import GranuleMemoryResource

        granule_torch.enable(settings="policy:granule")
        granule_numba.enable()
        torch.cuda.init()
        Device(0).set_current()
        core = Core(GranuleMemoryResource(), LEGACY_DEFAULT_STREAM)
        return [Torch(), core, Resource(_process.engine()), Abi(), Numba()]
    torch.cuda.init()
    Device(0).set_current()
    return [Torch(), *(Core(DeviceMemoryResource(0), LEGACY_DEFAULT_STREAM) for _ in range(3)), Numba()]


def turns(everyone):
    """Each in turn grows and shrinks, and keeps a little meanwhile; gives the most that was live."""
    chance, live, most = random.Random(7), 0, 0
    kept = [[] for _ in everyone]
    for turn in range(3 * len(everyone)):
        mine, blocks = everyone[turn % len(everyone)], kept[turn % len(everyone)]
        for _ in range(chance.randint(20, 40)):
            nbytes = chance.choice((1, 3, 8, 20, 33)) * MIB + chance.randint(0, 1000) * 512
            blocks.append((mine.take(nbytes), nbytes))
            live += nbytes
            most = max(most, live)
        chance.shuffle(blocks)
        while len(blocks) > 3:
            block, nbytes = blocks.pop()
            mine.give(block)
            del block
            live -= nbytes
    return most


def main():
    (allocator,) = sys.argv[1:]
    everyone = consumers(allocator)
    driver = ctypes.CDLL("libcuda.so.1")
    driver.fakegpu_peak.restype = driver.fakegpu_used.restype = ctypes.c_size_t
    before = driver.fakegpu_used(0)
    driver.fakegpu_reset_peak(0)
    live = turns(everyone)
    print(json.dumps({"live": live, "held": driver.fakegpu_peak(0) - before}))


if __name__ == "__main__":
    main()
