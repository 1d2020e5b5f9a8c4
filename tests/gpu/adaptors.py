"""Other libraries on Granule's memory; each part by itself: adaptors.py PART"""
import os
import sys

import common
from common import FAKE, say


def stats():
    from granule_torch.adapters import _process

    found = _process.device_stats(0)
    return {"allocated": found.allocated_bytes.all.current, "requests": found.allocation.all.allocated, "reserved": found.reserved_bytes.all.current}


def cupy():
    import cupy as cp
    from granule_torch.adapters import cupy as granule_cupy

    granule_cupy.enable()
    a = cp.arange(1 << 20, dtype=cp.float32).reshape(1024, 1024)
    b = a @ a.T
    side = cp.cuda.Stream(non_blocking=True)
    with side:
        c = (a * 2).sum()
    side.synchronize()
    host = a.get()
    product = bool(abs(b[:2].get() / (host[:2].astype("f8") @ host.T.astype("f8")) - 1).max() < 1e-3)
    total = abs(float(c) / float(host.sum(dtype="f8") * 2) - 1) < 1e-4
    right = product and total
    held = stats()
    del a, b, c
    after = stats()
    return {"version": cp.__version__, "right": right, "held": held, "after": after, "pool_used": cp.get_default_memory_pool().total_bytes()}


def numba():
    import numpy as np
    from numba import cuda  # first: its lack is told as such
    from granule_torch.adapters import numba as granule_numba

    granule_numba.enable()

    @cuda.jit
    def add_one(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    host = np.arange(1 << 20, dtype=np.float32)
    x = cuda.to_device(host)
    add_one[4096, 256](x)
    right = bool((x.copy_to_host() == host + 1).all())
    held = stats()
    del x
    return {"right": right, "held": held, "after": stats()}


def dlpack():
    import granule_torch
    import torch

    buffer = granule_torch.Buffer((1024, 256), "float32")
    tensor = torch.from_dlpack(buffer)
    tensor.fill_(3)
    said = {"same_address": tensor.data_ptr() == buffer.ptr, "sum": float(tensor.sum())}
    try:
        import cupy as cp

        theirs = cp.from_dlpack(buffer)
        said["cupy_sum"] = float(theirs.sum())
        del theirs
    except ImportError:
        said["cupy_sum"] = "no cupy"
    back = granule_torch.from_dlpack(tensor)
    said["imported"] = back.ptr == buffer.ptr
    back.close()
    del tensor
    said["held"] = stats()
    buffer.close()
    said["after"] = stats()
    said["right"] = FAKE or said["sum"] == 3.0 * 1024 * 256
    return said


def _child(queue, answers, mode):
    common.install(mode)
    import torch

    x = queue.get(timeout=40)
    answers.put(float(x.double().sum()))
    x.fill_(9)
    torch.cuda.synchronize()
    answers.put("written")
    queue.get(timeout=40)
    del x


def ipc(mode="granule"):
    """A tensor in another process: read there, written there, seen here."""
    import torch
    import torch.multiprocessing as mp

    how = common.install(mode)
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    x = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    expected = float(x.double().sum())
    child = context.Process(target=_child, args=(queue, answers, mode))
    child.start()
    try:
        queue.put(x)
        there = answers.get(timeout=60)
        answers.get(timeout=30)
        torch.cuda.synchronize()
        here = float(x[0])
        queue.put("end")
        child.join(20)
        return {"mode": mode, "right": FAKE or (there == expected and here == 9.0), "there": there, "expected": expected, "here": here,
                "exit": child.exitcode, "how": how}
    finally:
        if child.is_alive():
            child.kill()


def ipc_exp():
    return ipc("granule-exp")


def ipc_policy():
    return ipc("policy")


def ipc_native():
    return ipc("native")


def ipc_native_exp():
    return ipc("native-exp")


def compile_():
    """Graph trees: torch.compile with reduce-overhead on Granule's memory."""
    # No pool of compilers: its end is one more thing that may hang.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch

    how = common.install("granule")
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).cuda()
    fast = torch.compile(net, mode="reduce-overhead")
    worst = 0.0
    for turn in range(6):
        for n in (16, 64):
            x = torch.randn(n, 256, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            with torch.no_grad():
                worst = max(worst, float((fast(x) - net(x)).abs().max()))
    return {"right": worst < 1e-2, "worst": worst, "how": how}


def body():
    part = sys.argv[1]
    try:
        said = globals()[part]()
    except ImportError as error:
        said = {"lacks": str(error)}
    except BaseException as error:  # noqa: BLE001
        said = {"right": False, **common.failure(error)}
    say(step="adaptors", part=part, **said)


if __name__ == "__main__":
    common.main(body)
