"""Granule as a `CUDAPluggableAllocator`: what works there, and what PyTorch itself refuses."""
import torch
from observe import MIB, error, raw
from scene import DEFAULT, PLUGGABLE, scene

RUNS = (DEFAULT,)
ONLY = dict(allocators=(PLUGGABLE,))


@scene(**ONLY)
def test_memory_streams_and_hooks():
    assert torch.cuda.get_allocator_backend() == "pluggable"
    start = torch.cuda.mem_get_info()[0]
    kept = [raw(size) for size in (5, 3 * MIB, 30 * MIB)]
    assert start - torch.cuda.mem_get_info()[0] == (2 + 20 + 30) * MIB, "requests are cached in segments"
    side = torch.cuda.Stream()
    kept[1].record_stream(side)
    address = kept[2].data_ptr()
    del kept
    again = raw(30 * MIB)
    assert again.data_ptr() == address, "freed memory is kept and reused"
    del again
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == start, "empty_cache gives it back"
    torch.cuda.set_per_process_memory_fraction(0.5)
    # PyTorch makes no error of it where a pluggable allocator has nothing to give.
    assert raw(3 << 30).data_ptr() == 0
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert raw(3 << 30).data_ptr() != 0
    torch.cuda.empty_cache()


@scene(env={"GRANULE_CONF": "policy:granule"}, alone=True, **ONLY)
def test_the_environment_chooses_the_policy():
    start = torch.cuda.mem_get_info()[0]
    kept = raw(3 * MIB)
    assert start - torch.cuda.mem_get_info()[0] < 20 * MIB, "memory is cut to size"
    side = torch.cuda.Stream()
    kept.record_stream(side)
    del kept
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == start


@scene(**ONLY)
def test_graphs_are_captured_into_pools():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = raw(3 * MIB)
        more = raw(30 * MIB)
    graph.replay()
    del more
    graph.reset()
    assert kept.numel()


@scene(**ONLY, since=(2, 14))
def test_pytorch_refuses_the_rest_of_a_pluggable_allocator():
    """The column "pluggable" of the table in docs/parity.md."""
    cuda, low = torch.cuda, torch._C
    refused = {
        "getDeviceStats": cuda.memory_stats,
        "resetPeakStats": cuda.reset_peak_memory_stats,
        "resetAccumulatedStats": cuda.reset_accumulated_memory_stats,
        "getMemoryFraction": cuda.get_per_process_memory_fraction,
        "snapshot": cuda.memory_snapshot,
        "recordHistory": cuda.memory._record_memory_history,
        "attachOutOfMemoryObserver": lambda: low._cuda_attach_out_of_memory_observer(print),
        "createOrIncrefPool": cuda.MemPool,
        "getCheckpointState": lambda: low._cuda_getCheckpointState(0, (1, 0)),
        "checkPoolLiveAllocations": lambda: low._cuda_checkPoolLiveAllocations(0, (1, 0), set()),
        "shareIPcHandle": lambda: raw(5).untyped_storage()._share_cuda_(),
    }
    for name, call in refused.items():
        said = error(call)
        assert name.lower() in said.lower() and "not yet support" in said, (name, said)
    assert not cuda.memory._memory_metadata_supported()
