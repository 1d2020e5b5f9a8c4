"""MemPool and use_mem_pool."""
import ctypes
import gc
import json
import os
import re
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
import torch
from observe import MIB, brief, error, raw, stats
from observe import segments_of as layout
from pools import custom
from scene import DEFAULT, EXPANDABLE, GRANULE, NATIVE, scene

RUNS = (DEFAULT, EXPANDABLE)


@scene(real=True)
def test_p01_p02_use_counts_ids_and_the_snapshot_of_a_pool():
    pool, other = torch.cuda.MemPool(), torch.cuda.MemPool()
    assert pool.id[0] == 0 and other.id[1] == pool.id[1] + 1 > 1
    seen = [pool.use_count()]
    with torch.cuda.use_mem_pool(pool):
        inside = raw(3 * MIB)
        seen.append(pool.use_count())
    seen.append(pool.use_count())
    outside = raw(3 * MIB)
    shown = pool.snapshot()
    assert seen == [1, 2, 1] and len(shown) == 1 and tuple(shown[0]["segment_pool_id"]) == pool.id
    assert other.snapshot() == [] and pool.snapshot(include_traces=False)[0]["address"] == shown[0]["address"]
    seen += [torch.cuda.memory_snapshot((0, 999)), layout(), stats()]
    del inside, outside
    return seen


@scene(runs=(DEFAULT,), alone=True, real=True)
def test_p03_the_pool_keeps_an_allocator_whose_python_object_died():
    allocator, asked, functions = custom()
    pool = torch.cuda.MemPool(allocator)
    with torch.cuda.use_mem_pool(pool):
        kept = [raw(100), raw(3 * MIB), raw(30 * MIB)]
    seen = [list(asked), layout()]
    del allocator
    gc.collect()
    with torch.cuda.use_mem_pool(pool):
        kept.append(raw(40 * MIB))
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    seen.append(list(asked))
    assert not any(kind == "free" for kind, _, _ in asked)
    del kept
    torch.cuda.empty_cache()
    assert sorted(size for kind, size, _ in asked if kind == "free") == sorted(
        size for kind, size, _ in asked if kind == "alloc"
    )
    return [*seen, asked, stats(), len(functions)]


@scene(real=True)
def test_p04_a_tensor_outlives_its_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = torch.ones(MIB, device="cuda")
    address = kept.data_ptr()
    del pool
    torch.cuda.empty_cache()
    seen = [brief(), layout()]
    kept.add_(1)
    assert kept.data_ptr() == address and torch.cuda.memory_reserved() > 0
    del kept
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    return [*seen, brief()]


@scene(runs=(DEFAULT,))
def test_p05_an_opted_in_pool_lends_where_nothing_else_can_serve():
    seen = []
    for opted in (True, False):
        pool = torch.cuda.MemPool(use_on_oom=opted)
        with torch.cuda.use_mem_pool(pool):
            raw(2 << 30)
        try:
            kept, fitted = [raw(1 << 30), raw(1 << 30), raw(3 << 29)], True
        except torch.OutOfMemoryError:
            kept, fitted = None, False
        assert fitted == opted
        seen.append([fitted, brief()])
        del kept, pool
        gc.collect()
        torch.cuda.empty_cache()
    return seen


def lends_35_of_40_mib_under_a_limit_of_64():
    pool = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        raw(40 * MIB)
    torch.cuda.set_per_process_memory_fraction(64 * MIB / torch.cuda.mem_get_info()[1])
    try:
        raw(35 * MIB)
        return True
    except torch.OutOfMemoryError:
        return False


@scene(runs=(EXPANDABLE,), allocators=(NATIVE,), alone=True)
def test_pytorchs_own_pool_lends_no_growable_memory():
    assert not lends_35_of_40_mib_under_a_limit_of_64()


@scene(runs=(EXPANDABLE,), allocators=(GRANULE,), alone=True)
def test_p13_an_opted_in_pool_lends_growable_memory():
    assert lends_35_of_40_mib_under_a_limit_of_64()


@scene(real=True)
def test_p06_a_pool_without_splits_hands_out_whole_segments():
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        kept = [raw(3 * MIB), raw(3 * MIB), raw(100)]
        del kept[0]
        kept.append(raw(2 * MIB))
    shown = layout()
    del kept
    return [shown, stats()]


@scene(real=True)
def test_p07_of_nested_pools_the_innermost_serves():
    first, second = torch.cuda.MemPool(), torch.cuda.MemPool()
    use = torch.cuda.use_mem_pool
    kept = []
    with use(first):
        kept.append(raw(3 * MIB))
        with use(second):
            kept += [raw(3 * MIB), raw(30 * MIB)]
            seen = [first.use_count(), second.use_count()]
        kept.append(raw(30 * MIB))
    kept.append(raw(3 * MIB))
    seen += [len(first.snapshot()), len(second.snapshot()), layout(), stats()]
    del kept
    return seen


@scene(real=True)
def test_p08_two_threads_in_two_pools_do_not_mix():
    pools = [torch.cuda.MemPool(), torch.cuda.MemPool()]
    ready, kept = threading.Barrier(2), [[], []]

    def worker(number):
        with torch.cuda.use_mem_pool(pools[number]):
            ready.wait()
            for _ in range(10):
                kept[number].append(raw(3 * MIB))

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for number, pool in enumerate(pools):
        spans = [(s["address"], s["address"] + s["total_size"]) for s in pool.snapshot()]
        assert all(any(a <= t.data_ptr() < b for a, b in spans) for t in kept[number])
    kept.clear()
    # Which of the two asks first decides how much of both pools' segments was free at one time.
    by_turns = re.compile(r"inactive_split(_bytes)?\..*\.peak")
    return {name: figure for name, figure in stats().items() if not by_turns.fullmatch(name)}


@scene(real=True)
def test_p09_emptying_the_cache_in_a_scope_leaves_the_pool_alone():
    pool = torch.cuda.MemPool()
    raw(3 * MIB)
    with torch.cuda.use_mem_pool(pool):
        raw(30 * MIB)
        seen = [brief()]
        torch.cuda.empty_cache()
        seen.append(brief())
    torch.cuda.empty_cache()
    assert len(pool.snapshot()) == 1
    return [*seen, brief(), layout()]


@scene(allocators=("granule",), alone=True)
def test_p10_beginning_twice_is_refused_and_leaks_nothing():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        said = error(torch._C._cuda_beginAllocateCurrentThreadToPool, 0, pool.id)
        assert "already recording" in said
    assert pool.use_count() == 1


@scene(runs=(EXPANDABLE,), allocators=("granule",), alone=True)
def test_p12_a_growable_pool_survives_partial_frees_and_its_end():
    """PyTorch 2.15 ends the process here."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        raw(200 * MIB)
        kept = [raw(20 * MIB) for _ in range(4)]
    del kept[2], kept[0]
    identity = pool.id
    del pool
    torch.cuda.empty_cache()
    del kept
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0 and torch.cuda.memory_snapshot(identity) == []


@scene(real=True)
def test_training_inside_a_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 8)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    seen = []
    for _ in range(3):
        with torch.cuda.use_mem_pool(pool):
            loss = net(torch.ones(256, 512, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(stats())
    del net, optimizer, loss
    return [seen, len(pool.snapshot())]


class UnifiedRuntime:
    """Stands for cuda-python, which carries a CUDA runtime of its own: that one wants tables of the driver that nobody documents,
    so that it works over NVIDIA's driver only."""

    cudaMemAttachGlobal = 1
    cudaError_t = types.SimpleNamespace(cudaSuccess=0)
    cudaDeviceAttr = types.SimpleNamespace()

    def __init__(self):
        self.runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
        self.managed = 0

    def cudaMallocManaged(self, size, flags):
        pointer = ctypes.c_void_p()
        status = self.runtime.cudaMallocManaged(ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_uint(flags))
        self.managed += size
        return status, pointer.value or 0

    def cudaFree(self, pointer):
        return (self.runtime.cudaFree(ctypes.c_void_p(pointer)),)


# 2.13 has them too, and ends in this stand-in with a fault of its own.
@scene(alone=True, runs=(DEFAULT,), since=(2, 14))
def test_unified_memory_pools():
    import cuda.bindings

    runtime = cuda.bindings.runtime = sys.modules["cuda.bindings.runtime"] = UnifiedRuntime()
    with torch.cuda._use_uvm():
        kept = raw(30 * MIB)
    assert runtime.managed == 30 * MIB
    seen = [stats()]
    del kept
    torch.cuda.empty_cache()
    return [*seen, brief()]


@scene(alone=True, since=(2, 12))
def test_the_pool_of_symmetric_memory():
    """Its memory comes from PyTorch's own allocator of such memory, in whichever segments the pool asks for."""
    import torch.distributed as dist
    from torch.distributed import _symmetric_memory as symmetric

    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    pool = symmetric.get_mem_pool(torch.device("cuda:0"))
    with torch.cuda.use_mem_pool(pool):
        kept = [torch.empty(1000, 1000, device="cuda"), torch.empty(100, device="cuda")]
    seen = [layout(), stats()]
    for tensor in kept:
        met = symmetric.rendezvous(tensor, dist.group.WORLD.group_name)
        seen.append([met.buffer_size, met.offset, met.rank, met.world_size])
    del tensor, met, kept
    torch.cuda.empty_cache()
    with torch.cuda.use_mem_pool(pool):
        again = torch.empty(1000, 1000, device="cuda")
    seen += [layout(), stats(), brief()]
    del again
    dist.destroy_process_group()
    return seen


@scene(alone=True, runs=(DEFAULT,), real=True)
def test_the_profiler_follows_a_pool_over_host_memory():
    """The memory of such a pool belongs to no device, as far as the driver says."""
    allocator, asked, functions = custom(on_host=True)
    pool = torch.cuda.MemPool(allocator)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with torch.cuda.use_mem_pool(pool):
            kept = raw(4 * MIB)
        del kept
    del pool
    torch.cuda.empty_cache()
    assert len(asked) == 2 and len(functions) == 2
    return sorted(event.self_device_memory_usage for event in profile.key_averages())


def test_one_allocator_serves_five_consumers():
    """PyTorch, a `cuda::mr` resource, cuda.core, Numba and the C ABI: the device gives hardly more than what is live at a time."""
    for module in ("cuda.core", "numba.cuda"):
        pytest.importorskip(module, reason=f"{module} is not here: it is in tests/torch/requirements.txt")
    if not any(Path(torch.__file__).parents[1].glob("nvidia/*/include/cccl")):
        pytest.skip("this PyTorch brings no headers of CCCL")
    here = Path(__file__).resolve().parent
    on_rig = [here.parents[1] / "crates/tools/granule-estimate/rig/fakegpu-run", "--", sys.executable, here / "programs/one_pool.py"]
    env = {**os.environ, "CUDA_PYTHON_DISABLE_MAJOR_VERSION_WARNING": "1"}

    def run(allocator):
        said = subprocess.run([*on_rig, allocator], env=env, check=True, capture_output=True, text=True, timeout=300)
        return json.loads(said.stdout.splitlines()[-1])

    shared, own = run("granule"), run("own")
    assert shared["live"] == own["live"]
    assert shared["held"] <= 1.02 * shared["live"], shared
    # Else there would be nothing to gain.
    assert own["held"] >= 1.5 * own["live"], own
