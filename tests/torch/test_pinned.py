"""Pinned host memory behind torch.cuda."""
import os
import warnings
from pathlib import Path

import torch
from observe import MIB, error, own_frames, raw
from scene import DEFAULT, GRANULE, NATIVE, POLICY, Run, release, scene

REGISTER = Run("registered", settings="pinned_use_cuda_host_register:True,pinned_num_register_threads:4")
LIMITS = Run("limits", settings="pinned_max_round_threshold_mb:2,pinned_max_cached_size_mb:8")
LAG = Run("events lag", env=(("FAKE_GPU_EVENT_LAG", "3"),))
RUNS = (DEFAULT, REGISTER, LAG)
ALONE = dict(alone=True, install=False, runs=(DEFAULT,))


def pinned(size):
    """A pinned tensor of `size` bytes."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def figures():
    """All of `host_memory_stats()` but times."""
    # PyTorch 2.11 counts what no stream used as in use for ever.
    left_out = ("time", "active") if release() < (2, 13) else ("time",)
    stats = torch.cuda.host_memory_stats().items()
    return {name: value for name, value in stats if not any(word in name for word in left_out)}


def anew():
    """No memory, and no figures, of scenes before."""
    torch.cuda.synchronize()
    torch._C._host_emptyCache()
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()


def steps():
    anew()
    seen, kept = [figures()], []
    for size in (1, 4096, 5000, 3 * MIB, 33 * MIB, 3 * MIB + 1, 100):
        kept.append(pinned(size))
        assert kept[-1].is_pinned()
        seen.append(figures())
    for tensor in kept[2:5]:
        tensor.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    del tensor
    while kept:
        kept.pop(len(kept) // 2)
        seen.append(figures())
    kept += [pinned(4000), pinned(2 * MIB), pinned(MIB)]
    seen.append(figures())
    torch.cuda.reset_peak_host_memory_stats()
    seen.append(figures())
    kept.clear()
    torch._C._host_emptyCache()
    return [*seen, figures()]


def holds_no_more(native, granule):
    """Under Granule's policy requests and their ends are the same, and less is held."""
    for mine, other in zip(granule, native, strict=True):
        if mine.get("active_requests.allocated") != other.get("active_requests.allocated"):
            yield f"requests: {other} | {mine}"
        if mine.get("active_bytes.current", 0) > other.get("active_bytes.current", 0) + 2 * MIB:
            yield f"in use: {other} | {mine}"
    peaks = [max(step["allocated_bytes.current"] for step in seen) for seen in (native, granule)]
    if peaks[1] > 0.8 * peaks[0]:
        yield f"held: {peaks[0]} | {peaks[1]}"


@scene(real=True, allocators=(NATIVE, GRANULE, POLICY), judge=holds_no_more)
def test_n01_n03_n10_figures_follow_every_step():
    return steps()


@scene(runs=(LIMITS,), since=(2, 13))
def test_n04_n05_thresholds_are_pytorchs():
    return steps()


@scene(runs=(Run("contents", contents=True, gib=1), Run("registered contents", contents=True, gib=1, settings=REGISTER.settings)))
def test_n02_contents_arrive():
    side, seen = torch.cuda.Stream(), []
    for n in range(20):
        source = torch.full((MIB,), n, dtype=torch.uint8).pin_memory()
        with torch.cuda.stream(side):
            there = source.to("cuda", non_blocking=True)
        del source
        again = pinned(MIB)
        side.synchronize()
        again.copy_(there, non_blocking=True)
        torch.cuda.synchronize()
        seen.append(bool(again.eq(n).all()))
    assert all(seen)
    return seen


@scene(runs=(DEFAULT,), since=(2, 14))
def test_n09_the_history_is_pytorchs():
    anew()
    torch.cuda.memory._record_memory_history(stacks="python", record_pinned_host_memory=True, max_entries=20)
    memory = torch.zeros(3 * MIB, dtype=torch.uint8)
    first = pinned(10240)
    first.to("cuda", non_blocking=True)
    second = pinned(3 * MIB)
    torch.cuda.synchronize()
    del first
    third = pinned(9000)
    torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.numel(), 0))
    during = torch.cuda.memory._snapshot()
    torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(memory.data_ptr()))
    del second, third
    torch._C._host_emptyCache()
    after = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(None)
    assert after["host_segments"] == []

    def segment(entry):
        assert entry["blocks"][0]["address"] == entry["address"] and len(entry["blocks"]) == 1
        own = [{key: value for key, value in block.items() if key not in ("address", "frames")} for block in entry["blocks"]]
        return [entry["device"], entry["total_size"], entry["segment_type"], sorted(entry), own]

    def event(entry):
        return [entry["action"], entry["size"], sorted(set(entry) - {"frames"})]

    shown = sorted(map(segment, during["host_segments"]), key=str)
    places = [own_frames(entry["frames"]) for entry in after["host_traces"] if entry["action"] == "alloc"]
    # Granule shows where more of them were made; cached blocks leave in an order of their own.
    events = [event(entry) for entry in after["host_traces"]]
    return [shown, [entry for entry in events if entry[0] != "segment_free"], sorted(entry[1] for entry in events if entry[0] == "segment_free"), places]


@scene(**ALONE, allocators=(GRANULE,), since=(2, 14))
def test_a_look_before_the_first_use_makes_nothing_and_a_history_begins_there():
    import granule_torch
    from granule_torch import _enable

    granule_torch.enable()
    host = torch._C
    host._host_emptyCache()
    torch.cuda.reset_peak_host_memory_stats()
    assert torch.cuda.memory._snapshot()["host_segments"] == [] and not _enable.pinned()
    torch.cuda.memory._record_memory_history(context=None, record_pinned_host_memory=True)
    kept = pinned(5000)
    assert [segment["total_size"] for segment in torch.cuda.memory._snapshot()["host_segments"]] == [8192]
    assert kept.is_pinned() and _enable.pinned()


@scene(runs=(DEFAULT,))
def test_n08_captures_have_pinned_memory_of_their_own():
    anew()
    seen, device = [], raw(MIB)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside = pinned(MIB)
        device.copy_(inside, non_blocking=True)
        used = inside.data_ptr()
        del inside
        unused = pinned(2 * MIB)
        seen.append(figures())
    del unused
    kept = [pinned(MIB) for _ in range(2)]
    assert used not in [tensor.data_ptr() for tensor in kept]
    seen.append(figures())
    graph.reset()
    kept.clear()
    torch._C._host_emptyCache()
    return [*seen, figures()]


@scene(**ALONE, allocators=(GRANULE,))
def test_a_forked_child_may_drop_a_graph_that_used_pinned_memory():
    import granule_torch

    granule_torch.enable()
    graph, device = torch.cuda.CUDAGraph(), raw(MIB)
    with torch.cuda.graph(graph):
        device.copy_(pinned(MIB), non_blocking=True)
    child = os.fork()
    if child == 0:
        del graph
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@scene(runs=(DEFAULT,))
def test_pinned_memory_that_is_not_there_is_refused_and_the_next_request_served():
    said = error(pinned, 1 << 60)
    kept = pinned(5 * MIB)
    assert "memory" in said and kept.is_pinned()


@scene(runs=(DEFAULT,))
def test_a_data_loader_and_saved_tensors_take_it():
    anew()
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    sums = [batch.to("cuda", non_blocking=True).numel() for (batch,) in loader if batch.is_pinned()]
    before = torch.cuda.host_memory_stats()["active_requests.allocated"]
    weight = torch.ones(1000, device="cuda", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = (weight * weight).sum()
    saved = torch.cuda.host_memory_stats()["active_requests.allocated"] - before
    loss.backward()
    assert saved >= 2
    return [sums, saved]


@scene(alone=True, runs=(DEFAULT, REGISTER), since=(2, 15))
def test_memory_comes_from_the_node_that_pytorch_binds_the_process_to():
    """What `torchrun --numa-binding` does in a worker, but for the question where the device is: the rig's is on no bus."""
    from torch.numa import binding

    cpus = binding._get_allowed_logical_cpu_indices_for_numa_node(numa_node_index=0)
    binding._bind_all_threads_in_current_process_to_logical_cpus(logical_cpu_indices={min(cpus)})
    kept = [pinned(size).fill_(1) for size in (MIB, 8 * MIB)]
    # A line for each mapping: where it begins, its policy, and how many pages each node has.
    maps = [(int(line.split()[0], 16), line.split()[1:]) for line in Path("/proc/self/numa_maps").read_text().splitlines()]
    there = [max(entry for entry in maps if entry[0] <= tensor.data_ptr())[1] for tensor in kept]
    nodes = [sorted(word.split("=")[0] for word in words if word.startswith("N")) for words in there]
    assert nodes == [["N0"]] * 2 and all(words[0] == "default" for words in there), there
    return [os.sched_getaffinity(0) == {min(cpus)}, [tensor.is_pinned() for tensor in kept]]


@scene(**ALONE)
def test_pinned_memory_is_pinned_before_cuda_is_initialised():
    from allocators import current, install

    install(current())
    kept = pinned(3 * MIB)
    before = torch.cuda.is_initialized()
    torch.cuda.init()
    return [kept.is_pinned(), before, figures()]


@scene(**ALONE, allocators=(GRANULE,))
def test_pytorchs_own_stays_where_it_is_wanted():
    import granule_torch
    from granule_torch import _enable, _shim

    assert "TypeError" in error(granule_torch.enable, pinned=1)
    granule_torch.enable(pinned=False)
    assert "configure()" in error(granule_torch.enable, pinned=False)
    kept = pinned(3 * MIB)
    torch.cuda.init()
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == 4 * MIB and kept.is_pinned()
    assert granule_torch.is_enabled() and not _shim.load().granule_torch_pins() and not _enable.pinned()
    granule_torch.configure("segments_ipc:False")


@scene(**ALONE, allocators=(GRANULE,))
def test_a_release_that_keeps_its_own_is_named():
    import granule_torch
    from granule_torch import _shim

    _shim.load().granule_torch_pins = lambda: False
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        granule_torch.enable()
    assert "allocator of pinned memory, which stays in place" in str(said[0].message) and granule_torch.is_enabled()
    raw(1)
    assert "which stays in place" in granule_torch.report()


@scene(**ALONE, allocators=(GRANULE,))
def test_granule_comes_before_memory_is_pinned():
    """PyTorch's allocator is in use from then on."""
    import granule_torch
    from granule_torch import _shim

    kept = pinned(3 * MIB)
    said = error(granule_torch.enable)
    assert "taken memory already, such as a pinned tensor" in said and "left in place" in said, said
    assert not granule_torch.is_enabled() and not _shim.load().granule_torch_pins()
    assert kept.to("cuda", non_blocking=True).numel() == 3 * MIB


@scene(**ALONE, allocators=(GRANULE,))
def test_sizes_are_chosen_apart_from_the_policy():
    import granule_torch

    granule_torch.enable(settings="policy:granule")
    kept = [pinned(33 * MIB)]
    held = torch.cuda.init() or torch.cuda.host_memory_stats()["allocated_bytes.current"]
    assert held == 33 * MIB
    granule_torch.configure("pinned_sizes:pytorch")
    kept.append(pinned(5 * MIB))
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == held + 8 * MIB
    # A text of PyTorch's leaves it, and reaches pinned memory.
    torch._C._accelerator_setAllocatorSettings("pinned_use_background_threads:True")
    kept.append(pinned(6 * MIB))
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == held + 16 * MIB


@scene(**ALONE, env={"GRANULE_CONF": "pinned_sizes:granule"}, allocators=(GRANULE,))
def test_exact_sizes_come_under_pytorchs_policy_where_they_are_asked_for():
    import granule_torch

    granule_torch.enable()
    kept = pinned(33 * MIB)
    torch.cuda.init()
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == kept.numel()
