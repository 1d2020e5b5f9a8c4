"""Raw memory, streams, the switch for caching, exact addresses."""
import random
import threading

import torch
from observe import MIB, brief, error, raw, stats
from scene import DEFAULT, EXPANDABLE, POLICY, Run, scene

LAG = Run("events lag", env=(("FAKE_GPU_EVENT_LAG", "3"),))
RUNS = (DEFAULT, EXPANDABLE)


@scene(real=True)
def test_a01_raw_memory_on_streams_given_as_none_object_and_number():
    memory, side = torch.cuda.memory, torch.cuda.Stream()
    seen = [brief()]
    for stream in (None, side, side.cuda_stream, torch.cuda.current_stream()):
        pointer = memory.caching_allocator_alloc(5000, stream=stream)
        assert pointer > 0 and pointer % 512 == 0
        seen.append([brief(), [s["stream"] != 0 for s in torch.cuda.memory_snapshot()]])
        memory.caching_allocator_delete(pointer)
        seen.append(brief())
    assert seen[1][0][0] == seen[0][0] + 5120 and seen[-1][0] == seen[0][0]
    again = memory.caching_allocator_alloc(5000, device=0)
    memory.caching_allocator_enable(False)
    uncached = memory.caching_allocator_alloc(7000)
    seen.append(brief())
    memory.caching_allocator_delete(uncached)
    memory.caching_allocator_enable(True)
    memory.caching_allocator_delete(again)
    return [*seen, brief()]


@scene(real=True, since=(2, 12))
def test_a02_a_negative_size_is_a_value_error_that_names_it():
    said = error(torch.cuda.caching_allocator_alloc, -5)
    assert said.startswith("builtins.ValueError") and "-5" in said
    return [said, error(torch.cuda.caching_allocator_alloc, 5, stream="side")]


@scene
def test_a03_mixed_sizes_never_overlap_and_keep_their_figures():
    dice = random.Random(7)
    kept, seen = [], []
    for step in range(1500):
        if kept and (len(kept) > 60 or dice.random() < 0.45):
            kept.pop(dice.randrange(len(kept)))
        else:
            kept.append(raw(int(2 ** dice.uniform(0, 25))))
        if step % 50 == 0:
            seen.append(brief())
            spans = sorted((t.data_ptr(), t.data_ptr() + t.numel()) for t in kept)
            assert all(left[1] <= right[0] for left, right in zip(spans, spans[1:]))
    del kept
    return [seen, stats()]


@scene(real=True)
def test_a04_memory_of_a_side_stream_serves_that_stream_only():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kept = raw(3 * MIB)
    address = kept.data_ptr()
    del kept
    assert raw(3 * MIB).data_ptr() != address
    with torch.cuda.stream(side):
        kept = raw(3 * MIB)
        assert kept.data_ptr() == address
    return brief()


@scene(runs=(LAG, Run("events lag, expandable", "expandable_segments:True", env=LAG.env)))
def test_a05_a06_record_stream_delays_reuse_until_the_streams_work_is_done():
    side = torch.cuda.Stream()
    seen = []
    for stream, delayed in ((side, True), (torch.cuda.current_stream(), False)):
        kept = raw(30 * MIB)
        address = kept.data_ptr()
        kept.record_stream(stream)
        del kept
        seen.append(brief())
        again = raw(30 * MIB)
        assert (again.data_ptr() != address) == delayed
        seen.append(brief())
        del again
        for _ in range(5):
            torch.ones(1, device="cuda").add_(1)
        again = [raw(30 * MIB) for _ in range(2)]
        assert not delayed or address in [tensor.data_ptr() for tensor in again]
        seen.append(brief())
        del again
    return [seen, stats()]


@scene(runs=(LAG,))
def test_a07_a_shifted_view_protects_its_whole_storage():
    side = torch.cuda.Stream()
    kept = raw(30 * MIB)
    address, view = kept.data_ptr(), kept[12345:]
    view.record_stream(side)
    del kept, view
    again = raw(30 * MIB)
    assert again.data_ptr() != address
    before = brief()
    assert before[2] - before[0] == 30 * MIB
    return before


@scene(runs=(Run("two devices", devices=2),))
def test_a08_emptying_the_cache_leaves_the_current_device():
    with torch.cuda.device(1):
        other = torch.cuda.Stream()
        kept = raw(30 * MIB)
        kept.record_stream(other)
        del kept
    torch.cuda.empty_cache()
    assert torch.cuda.current_device() == 0 and torch.cuda.memory_reserved(1) == 0
    return [brief(0), brief(1)]


@scene(real=True)
def test_a09_threads_at_once_get_memory_of_their_own():
    kept, lock = [], threading.Lock()

    def worker():
        own = [raw(MIB // 2) for _ in range(20)]
        with lock:
            kept.extend(own)

    threads = [threading.Thread(target=worker) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len({tensor.data_ptr() for tensor in kept}) == 80
    return stats()


@scene(real=True, since=(2, 13))
def test_a12_storages_at_an_exact_address_and_their_views():
    filler = [raw(MIB // 2) for _ in range(8)]
    addresses = [tensor.data_ptr() for tensor in filler]
    tensor = torch.zeros(1000, device="cuda")
    view, storage = tensor[10:20], tensor.untyped_storage()
    size, home = storage.size(), storage.data_ptr()
    storage.resize_(0)
    seen = [brief()]
    assert view.data_ptr() != home + 40
    storage._resize_with_addr_(size, home)
    assert tensor.data_ptr() == home and view.data_ptr() == home + 40
    seen.append(brief())
    seen.append(error(storage._resize_with_addr_, size, home))
    empty = torch.empty(0, dtype=torch.uint8, device="cuda").untyped_storage()
    for address, text in ((addresses[2], "exact address"), (home + 1, "must be aligned to"), (0, "non-null addr")):
        assert text in error(empty._resize_with_addr_, 512, address)
    empty._resize_with_addr_(0, 12345)
    # In the middle of free memory, which several blocks left.
    del filler[1:4]
    empty._resize_with_addr_(MIB, addresses[1] + 4096)
    assert empty.data_ptr() == addresses[1] + 4096
    seen.append(brief())
    del filler, empty, storage, tensor, view
    return [seen, brief()]


@scene(alone=True, runs=(Run("no caching", env=(("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),)),), since=(2, 14))
def test_a13_without_caching_graph_trees_say_so():
    from torch._inductor import cudagraph_utils

    torch.cuda.init()
    kept = [raw(5), raw(30 * MIB)]
    assert not torch._C._cuda_cudaCachingAllocator_is_enabled()
    seen = [stats(), torch.cuda.mem_get_info()[0] < torch.cuda.mem_get_info()[1] - 30 * MIB]
    del kept
    seen.append(torch.cuda.mem_get_info())
    said = cudagraph_utils.check_caching_allocator_for_cudagraphs()
    assert "requires the caching allocator" in said
    return [seen, said]


@scene(real=True, since=(2, 12))
def test_a14_caching_is_off_inside_the_context_manager_nested_too():
    enabled = torch._C._cuda_cudaCachingAllocator_is_enabled
    memory = torch.cuda.memory
    seen = []
    with memory.caching_allocator_disabled():
        assert not enabled()
        kept = raw(30 * MIB)
        with memory.caching_allocator_disabled():
            assert not enabled()
        assert not enabled()
        seen.append(brief())
    assert enabled()
    del kept
    seen.append(brief())
    try:
        with memory.caching_allocator_disabled():
            raise KeyError
    except KeyError:
        assert enabled()
    memory.caching_allocator_enable(False)
    with memory.caching_allocator_disabled():
        pass
    assert not enabled()
    memory.caching_allocator_enable()
    return [*seen, enabled()]


@scene(runs=(DEFAULT,))
def test_c07_growable_segments_are_switched_on_and_off_under_way():
    seen, kept = [], []
    try:
        for step in range(6):
            torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{step % 2 == 0}")
            kept += [raw(30 * MIB), raw(700)]
            if step > 2:
                del kept[step]
            seen.append([brief(), [s["is_expandable"] for s in torch.cuda.memory_snapshot()]])
    finally:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    assert len({flag for _, flags in seen for flag in flags}) == 2
    return [seen, stats()]


@scene(runs=(DEFAULT,), real=True)
def test_wrong_settings_are_refused_with_the_same_errors():
    texts = ("no_such_option:1", "max_split_size_mb:1", "garbage_collection_threshold:7", "expandable_segments:Yes",
             "roundup_power2_divisions:3", "per_process_memory_fraction:2", "backend:cudaMallocAsync")
    said = [error(torch._C._accelerator_setAllocatorSettings, text) for text in texts]
    assert "no_such_option" in said[0]
    # This one names the allocator that is in place.
    assert "Allocator backend parsed at runtime" in said.pop()
    return [said, torch.cuda.memory._snapshot()["allocator_settings"]["max_split_size"]]


@scene(allocators=(POLICY,), alone=True)
def test_what_a_stream_may_take_of_others_is_a_setting():
    import granule_torch

    def grown(stream):
        """By how much more is held once a stream has what another one has freed, if it may."""
        other = torch.cuda.Stream()
        with torch.cuda.stream(other):
            freed = raw(40 * MIB)
        del freed
        torch.cuda.synchronize()
        before = torch.cuda.memory_reserved()
        with torch.cuda.stream(stream):
            kept = raw(40 * MIB)
        held = torch.cuda.memory_reserved() - before
        del kept
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return held

    stream = torch.cuda.Stream()
    granule_torch.configure("cross_stream:never")
    assert grown(stream) >= 40 * MIB
    granule_torch.configure("cross_stream:completed")
    assert grown(stream) == 0
    assert "GranuleError" in error(granule_torch.configure, "cross_stream:wait")
