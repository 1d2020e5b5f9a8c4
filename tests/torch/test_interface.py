"""The allocator's C++ interface, where Python does not reach."""
import ctypes
import time

import observers
import torch
from observe import MIB, error, raw
from pools import custom
from scene import DEFAULT, EXPANDABLE, Run, scene

RUNS = (DEFAULT, EXPANDABLE)


@scene(alone=True, real=True, since=(2, 12))
def test_observers_that_only_cpp_can_attach():
    torch.cuda.init()
    cpp = observers.load()
    cpp.watch_traces()
    cpp.watch_refusals()
    kept = [raw(5000), raw(30 * MIB)]
    del kept
    torch.cuda.empty_cache()
    error(raw, 1 << 42)
    # Trackers hear of everything, whatever the history keeps.
    heard = [cpp.watched().decode()]
    assert heard[0].count("a") == 2 and heard[0].endswith("o")
    torch._C._accelerator_setAllocatorSettings("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.1")
    said = error(raw, torch.cuda.mem_get_info()[1] // 2)
    until = time.monotonic() + 20
    while cpp.refusals() == 0 and time.monotonic() < until:
        time.sleep(0.01)  # It is called on another thread.
    assert "preemptively rejected" in said and cpp.refusals() == 1
    figures = (ctypes.c_int64 * 3)()
    cpp.last_refusal(figures)
    assert figures[2] == torch.cuda.mem_get_info()[1], "the device's memory, not the limit"
    return [heard, list(figures)]


@scene(alone=True, runs=(DEFAULT,), real=True, since=(2, 12))
def test_trackers_hear_of_segments_while_their_memory_is_there():
    """Libraries register segments with the network when they hear of them, and must let go before the memory does."""
    torch.cuda.init()
    cpp = observers.load()
    allocator, asked, functions = custom(lambda: cpp.watched().decode())
    pool = torch.cuda.MemPool(allocator)
    cpp.watch_traces()
    with torch.cuda.use_mem_pool(pool):
        kept = raw(5 * MIB)
    asked.append(["allocated", cpp.watched().decode()])
    del kept, pool
    torch.cuda.empty_cache()
    asked.append(["freed", cpp.watched().decode()])
    heard = [entry[-1] for entry in asked if entry[0] in ("allocated", "free")]
    assert heard[0].startswith("S") and heard[1].endswith("F") and len(functions) == 2
    return asked


@scene(alone=True, real=True, since=(2, 12))
def test_growable_segments_are_listed_by_stream():
    torch.cuda.init()
    cpp = observers.load()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kept = [raw(5000), raw(50 * MIB)]
    sizes, small = [], ctypes.c_bool()
    while (size := cpp.growable_segment(0, len(sizes), ctypes.byref(small))) >= 0:
        sizes.append([size, small.value])
    growable = any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot())
    assert bool(sizes) == growable and kept
    return sorted(sizes)


@scene(alone=True, real=True, since=(2, 12))
def test_the_base_of_a_block():
    torch.cuda.init()
    cpp = observers.load()
    kept = [raw(5 * MIB), raw(5 * MIB)]
    length = ctypes.c_size_t()
    if any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot()):
        return "PyTorch refuses it for growable segments, by an exception that ctypes does not catch"
    base = cpp.base_of(kept[1].data_ptr(), ctypes.byref(length))
    assert base == kept[0].data_ptr() and length.value == 20 * MIB
    return length.value


@scene(alone=True, real=True, since=(2, 12))
def test_frames_of_a_caller_in_cpp():
    torch.cuda.init()
    cpp = observers.load()
    torch.cuda.memory._record_memory_history(stacks="all", context="alloc")
    assert cpp.allocate_in_cpp(5000)
    taken = torch.cuda.memory._snapshot()
    entry = next(entry for entry in taken["device_traces"][0] if entry["action"] == "alloc")
    assert any("allocate_in_cpp" in frame["name"] for frame in entry["frames"]), entry["frames"][:8]
    return [entry["size"], [entry["action"] for entry in taken["device_traces"][0]]]


@scene(runs=(Run("contents", contents=True, gib=1),), real=True)
def test_storages_are_copied_whole():
    """A lazy clone is made real by the allocator's own copy."""
    start = torch.arange(1000, dtype=torch.int32).to("cuda")
    lazy = torch._lazy_clone(start)
    lazy.copy_(torch.full((1000,), 7, dtype=torch.int32))
    twin = torch._lazy_clone(start)
    twin[:1].copy_(torch.tensor([-1], dtype=torch.int32))
    torch.cuda.synchronize()
    assert lazy.data_ptr() != start.data_ptr() != twin.data_ptr()
    assert twin.cpu().tolist() == [-1, *range(1, 1000)] and start.cpu().tolist() == list(range(1000))
    return torch.cuda.memory_stats()["allocation.all.allocated"]


@scene(real=True)
def test_the_backends_name():
    from allocators import current

    assert torch.cuda.get_allocator_backend() == current()
    # What `MemPool` takes: the allocator in place can be a pool's own, too.
    assert torch.cuda.MemPool(torch.cuda.memory._get_current_allocator().allocator()).use_count() == 1


@scene(real=True)
def test_another_allocator_cannot_be_put_in_place():
    raw(5)
    said = error(torch.cuda.memory.change_current_allocator, torch.cuda.memory._get_current_allocator())
    assert "already initialized" in said
    return said
