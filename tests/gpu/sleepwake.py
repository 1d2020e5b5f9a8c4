"""Sleep and wake of gigabytes, contents checked, beside what torch does with .cpu() and .cuda(): sleepwake.py MODE GIB"""
import os
import sys
import tempfile
import time

import common
from common import FAKE, say


def fingerprints(tensors):
    import torch

    # Order matters: each word times its place, in 64 bits.
    found = []
    for tensor in tensors:
        words = tensor.view(torch.int64)
        found.append((int(words.sum()), int((words * torch.arange(1, words.numel() + 1, device="cuda")).sum())))
    return found


def torch_way(tensors, total):
    """The same bytes out and back by torch alone."""
    import torch

    said = {}
    pinned = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]
    for name, work in (
        ("out_pinned", lambda: [p.copy_(t, non_blocking=True) for p, t in zip(pinned, tensors)]),
        ("back_pinned", lambda: [t.copy_(p, non_blocking=True) for p, t in zip(pinned, tensors)]),
    ):
        for turn in range(2):
            torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            torch.cuda.synchronize()
            said[name] = round(total / (time.perf_counter() - start) / 1e9, 2)
    del pinned
    start = time.perf_counter()
    away = [t.cpu() for t in tensors[: max(1, len(tensors) // 4)]]
    torch.cuda.synchronize()
    part = sum(t.nbytes for t in away)
    said["cpu_pageable"] = round(part / (time.perf_counter() - start) / 1e9, 2)
    start = time.perf_counter()
    back = [t.cuda() for t in away]
    torch.cuda.synchronize()
    said["cuda_pageable"] = round(part / (time.perf_counter() - start) / 1e9, 2)
    del away, back
    if hasattr(torch._C, "_host_emptyCache"):
        torch._C._host_emptyCache()
    return said


def slept(backup, tensors, graph, doubled):
    """One sleep and one wake; contents, addresses and a graph that was captured before are looked at afterwards."""
    import granule_torch
    import torch

    before = None if FAKE else fingerprints(tensors)
    addresses = [tensor.data_ptr() for tensor in tensors]
    torch.cuda.empty_cache()
    used = common.driver_used()
    start = time.perf_counter()
    out = granule_torch.sleep("weights", backup=backup)
    outside = time.perf_counter() - start
    gained = used - common.driver_used()
    start = time.perf_counter()
    back = granule_torch.wake("weights")
    inside = time.perf_counter() - start
    graph.replay()
    torch.cuda.synchronize()
    right = addresses == [tensor.data_ptr() for tensor in tensors]
    if not FAKE:
        right = right and fingerprints(tensors) == before and torch.equal(doubled, tensors[0][:1024] * 2)
    return {"right": right, "sleep_s": round(outside, 4), "wake_s": round(inside, 4), "out_gb_s": round(out.gigabytes_per_second, 2),
            "back_gb_s": round(back.gigabytes_per_second, 2), "driver_gained": gained, "freed": out.freed, "slept": out.slept,
            "backed_up": out.backed_up, "restored": back.restored}


def discarded(count):
    """Contents that nobody wants back."""
    import granule_torch
    import torch

    with granule_torch.region("cache"):
        cache = torch.full((count,), 7, dtype=torch.int32, device="cuda")
    used = common.driver_used()
    start = time.perf_counter()
    granule_torch.sleep("cache", backup="discard")
    outside = time.perf_counter() - start
    gained = used - common.driver_used()
    start = time.perf_counter()
    granule_torch.wake("cache")
    inside = time.perf_counter() - start
    cache.fill_(1)
    torch.cuda.synchronize()
    return {"slept": cache.nbytes, "sleep_s": round(outside, 5), "wake_s": round(inside, 5), "driver_gained": gained}


def body():
    mode, gib = sys.argv[1], float(sys.argv[2])
    common.install(mode)
    import granule_torch
    import torch

    def phase(name, work, *given):
        try:
            said = work(*given)
        except Exception as error:  # noqa: BLE001
            said = common.failure(error)
        say(step="sleep", mode=mode, phase=name, **said)

    count = 64
    each = int(gib * 2**30) // count // 8
    with granule_torch.region("weights"):
        tensors = [torch.randint(-(2**62), 2**62, (each + 512 * (i % 7),), dtype=torch.int64, device="cuda") for i in range(count)]
    total = sum(t.nbytes for t in tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = tensors[0][:1024] * 2
    # Memory of the host, where there is enough: a disk would be what is measured.
    shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    place = "/dev/shm" if shm and shm.f_bavail * shm.f_frsize > 2 * total else os.environ.get("KIT_TMP")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for name in ("pinned", "pinned-keep", "pinned-keep", "pinned-keep", "file"):
            phase(name, slept, folder if name == "file" else name, tensors, graph, doubled)
    phase("discard", discarded, int(gib * 2**30) // 4)
    phase("torch", torch_way, tensors, total)
    graph.reset()


if __name__ == "__main__":
    common.main(body)
