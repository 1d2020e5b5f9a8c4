"""Nanoseconds of a cached allocation and its free, PyTorch's own class and Granule's, in one process: hotpath.py MODE"""
import statistics
import sys
import threading
import time

import common
from common import TINY, say

SIZES = {"512B": 512, "64KiB": 64 << 10, "4MiB": 4 << 20, "64MiB": 64 << 20}
PAIRS, ROUNDS = (200, 3) if TINY else (5000, 21)


def pairs(shim, allocators):
    """By turns, so that both meet the same machine."""
    for path, loop in {"tensor": shim.granule_torch_time_data_ptr, "raw": shim.granule_torch_time_raw}.items():
        for label, size in SIZES.items():
            for allocator in allocators:
                loop(allocator, size, 1000)
            times = [[loop(allocator, size, PAIRS) for allocator in allocators] for _ in range(ROUNDS)]
            ours, native = (statistics.median(taken) for taken in zip(*times))
            yield dict(path=path, size=label, granule_ns=round(ours, 1), native_ns=round(native, 1), ratio=round(ours / native, 3))


def million_pairs(shim, allocator, count):
    """In a second, by threads that each have a stream. ctypes lets the lock of Python go during a loop."""
    import torch

    gate, ended = threading.Barrier(count), []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            shim.granule_torch_time_raw(allocator, 64 << 10, 200)
            gate.wait()
            start = time.perf_counter()
            shim.granule_torch_time_raw(allocator, 64 << 10, 10 * PAIRS)
            ended.append((start, time.perf_counter()))

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count * 10 * PAIRS / (max(end for _, end in ended) - min(start for start, _ in ended)) / 1e6


def from_python():
    """A whole tensor, and a miss that the driver serves."""
    import torch

    whole, grown, emptied = [], [], []
    for _ in range(3 if TINY else 15):
        start = time.perf_counter()
        for _ in range(1000):
            torch.empty(65536, dtype=torch.uint8, device="cuda")
        whole.append((time.perf_counter() - start) * 1e6)
        start = time.perf_counter()
        held = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        grown.append((time.perf_counter() - start) * 1e6)
        del held
        start = time.perf_counter()
        torch.cuda.empty_cache()
        emptied.append((time.perf_counter() - start) * 1e6)
    yield dict(path="torch.empty", size="64KiB", granule_ns=round(statistics.median(whole), 1))
    yield dict(path="miss", size="64MiB", grow_us=round(statistics.median(grown), 1), empty_cache_us=round(statistics.median(emptied), 1))


def body():
    mode = sys.argv[1]
    common.install(mode)
    import torch
    from granule_torch import _shim

    torch.cuda.init()
    shim = _shim.load()
    ours, native = shim.granule_torch_current_allocator(), shim.granule_torch_displaced_allocator()
    shim.granule_torch_prepare(native, torch.cuda.device_count())
    common.turn()
    for found in pairs(shim, (ours, native)):
        say(step="hotpath", mode=mode, **found)
    for count in (1, 2, 4, 8):
        rates = (statistics.median(million_pairs(shim, allocator, count) for _ in range(1 if TINY else 3)) for allocator in (ours, native))
        say(step="hotpath", mode=mode, path="threads", threads=count, **dict(zip(("granule_million_s", "native_million_s"), map(lambda r: round(r, 3), rates))))
    for found in from_python():
        say(step="hotpath", mode=mode, **found)


if __name__ == "__main__":
    common.main(body)
