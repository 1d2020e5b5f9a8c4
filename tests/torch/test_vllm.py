"""The allocator that vLLM's sleep mode asks, on Granule's regions: vLLM itself is not needed here. Contents are compared."""
import tempfile

import torch
from observe import MIB, error, raw
from scene import GRANULE, Run, scene
from test_sleep import filled, free_bytes, pattern, same

RUNS = (
    Run("contents", contents=True, gib=1),
    Run("growable", settings="expandable_segments:True", contents=True, gib=1),
)
ONLY = dict(allocators=(GRANULE,))


def of_vllm(**tags):
    """An allocator, and a tensor under each of these tags, by its MiB."""
    from granule_torch.adapters.vllm import CuMemAllocator

    allocator, made = CuMemAllocator(), {}
    for number, (tag, size) in enumerate(tags.items(), 1):
        with allocator.use_memory_pool(tag):
            made[tag] = filled(size * MIB, number)
    return allocator, made


def awake(allocator):
    return {data.tag for data in allocator.pointer_to_data.values() if not data.is_asleep}


@scene(**ONLY)
def test_what_is_named_is_kept_and_the_rest_is_given_up():
    allocator, made = of_vllm(weights=20, kv_cache=60, workspace=10, runtime=4)
    addresses = {tag: tensor.data_ptr() for tag, tensor in made.items()}
    before = free_bytes()
    for kept in (("weights", "runtime", "cudagraph"), ("runtime", "cudagraph")):
        allocator.sleep(offload_tags=kept)
        assert free_bytes() >= before + 94 * MIB
        assert allocator.tags_asleep() == set(made) and awake(allocator) == set()
        allocator.wake_up()
        assert allocator.tags_asleep() == set() and awake(allocator) == set(made)
        assert {tag: tensor.data_ptr() for tag, tensor in made.items()} == addresses
        assert same(made["runtime"], 4) and not same(made["kv_cache"], 2)
        assert same(made["weights"], 1) == ("weights" in kept)
        for number, (tag, tensor) in enumerate(made.items(), 1):
            tensor.copy_(pattern(tensor.numel(), number))


@scene(**ONLY)
def test_without_a_name_the_default_tag_is_kept():
    allocator, made = of_vllm(weights=20)
    with allocator.use_memory_pool():
        default = filled(10 * MIB, 5)
    assert allocator.get_current_usage() == 30 * MIB
    allocator.sleep()
    allocator.wake_up()
    assert same(default, 5) and not same(made["weights"], 1)


@scene(**ONLY)
def test_a_wake_of_some_tags_defers_only_weights_and_cache():
    allocator, made = of_vllm(weights=20, kv_cache=30, runtime=4, other=4)
    allocator.sleep(offload_tags=("weights", "runtime"))
    for named, asleep in (([], {"weights", "kv_cache"}), (["weights"], {"kv_cache"}), (["weights"], {"kv_cache"})):
        allocator.wake_up(named)
        assert allocator.tags_asleep() == asleep
    assert same(made["weights"], 1) and same(made["runtime"], 3)
    allocator.wake_up(["kv_cache"])
    assert allocator.tags_asleep() == set()


@scene(**ONLY)
def test_what_sleeps_stays_as_it_is():
    allocator, made = of_vllm(weights=20, kv_cache=30)
    allocator.sleep(offload_tags="weights")
    during = free_bytes()
    # A second time, and with everything given up: the backup is there already.
    allocator.sleep(offload_tags="weights")
    allocator.sleep(offload_tags=())
    allocator.discard("weights")
    assert free_bytes() == during
    allocator.wake_up()
    allocator.wake_up()
    assert same(made["weights"], 1)


@scene(**ONLY)
def test_tags_are_discarded_alone():
    allocator, made = of_vllm(weights=20, kv_cache=60)
    before = free_bytes()
    allocator.discard(("kv_cache",))
    assert free_bytes() >= before + 60 * MIB and allocator.tags_asleep() == {"kv_cache"} and same(made["weights"], 1)
    # Weights that were awake are kept now; the cache, given up before, comes back empty.
    allocator.sleep(offload_tags=("weights", "kv_cache"))
    allocator.wake_up()
    assert same(made["weights"], 1) and not same(made["kv_cache"], 2)


@scene(**ONLY)
def test_what_was_freed_while_loading_is_there_for_the_next_tag():
    from granule_torch.adapters.vllm import CuMemAllocator

    allocator = CuMemAllocator()
    with allocator.use_memory_pool("weights"):
        precise = raw(400 * MIB)
        small = filled(20 * MIB, 1)
        del precise
    before = free_bytes()
    assert allocator.get_current_usage() == 20 * MIB
    with allocator.use_memory_pool("kv_cache"):
        cache = raw(800 * MIB)
    assert same(small, 1) and allocator.get_current_usage() == 820 * MIB
    # Freed while asleep: what wakes is what is left.
    allocator.sleep(offload_tags=("weights", "kv_cache"))
    del cache
    allocator.wake_up()
    assert same(small, 1) and free_bytes() >= before and set(allocator.pointer_to_data) == {small.data_ptr()}


@scene(**ONLY)
def test_a_tag_is_entered_again_inside_another_and_while_it_sleeps():
    allocator, made = of_vllm(runtime=4)
    with allocator.use_memory_pool("runtime"):
        with allocator.use_memory_pool("kv_cache"):
            cache = filled(10 * MIB, 5)
        state = filled(4 * MIB, 6)
    assert sorted(data.tag for data in allocator.pointer_to_data.values()) == ["kv_cache", "runtime", "runtime"]
    allocator.sleep(offload_tags="runtime")
    with allocator.use_memory_pool("runtime"):
        more = filled(4 * MIB, 7)
    assert same(more, 7) and awake(allocator) == {"runtime"}
    allocator.wake_up(["weights"])
    assert same(made["runtime"], 1) and same(state, 6) and same(more, 7) and allocator.tags_asleep() == {"kv_cache"}
    allocator.wake_up()
    cache.copy_(pattern(10 * MIB, 8))
    assert same(cache, 8)


@scene(**ONLY)
def test_a_wake_without_room_is_done_again():
    allocator, made = of_vllm(weights=300, kv_cache=300)
    allocator.sleep(offload_tags="weights")
    other = raw(600 * MIB)
    said = error(allocator.wake_up)
    assert "GranuleError" in said and allocator.tags_asleep()
    said = error(allocator.wake_up, ["weights", "kv_cache"])
    assert "GranuleError" in said
    del other
    allocator.wake_up()
    assert same(made["weights"], 1) and allocator.tags_asleep() == set()


@scene(**ONLY)
def test_memory_of_graphs_is_kept():
    allocator, made = of_vllm(weights=20)
    source, graphs, results = made["weights"][:MIB], [], []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with allocator.cudagraph_pool() as pool, torch.cuda.graph(graph, pool=pool):
            results.append(source.clone())
        graphs.append(graph)
    results[0].copy_(pattern(MIB, 9))
    inside = allocator.pointer_to_data
    assert {inside[tensor.data_ptr()].tag for tensor in results} == {"cudagraph"}
    said = error(allocator.discard, ("kv_cache", "cudagraph"))
    assert "GranuleError" in said and "'cudagraph'" in said and allocator.tags_asleep() == set()
    before = free_bytes()
    # Not named, and kept.
    allocator.sleep(offload_tags="weights")
    assert free_bytes() > before + 20 * MIB and allocator.tags_asleep() == {"weights", "cudagraph"}
    allocator.wake_up(["weights"])
    assert allocator.pointer_to_data.keys() == inside.keys() and same(results[0], 9)
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    del graph, graphs
    allocator.release_pools()


@scene(**ONLY)
def test_pools_that_were_let_go_of_still_wake():
    allocator, made = of_vllm(weights=20)
    allocator.sleep(offload_tags="weights")
    allocator.release_pools()
    allocator.wake_up()
    assert same(made.pop("weights"), 1)
    torch.cuda.empty_cache()
    # A second engine begins with nothing.
    assert allocator.get_current_usage() == 0 and allocator.pointer_to_data == {}


@scene(**ONLY)
def test_a_slip_of_the_pen_costs_nothing():
    allocator, made = of_vllm(weights=20)
    for call in (allocator.sleep, allocator.discard, allocator.wake_up):
        assert "'wieghts'" in error(call, ("wieghts",)) and allocator.tags_asleep() == set()
    # What vLLM names without having it is none.
    allocator.sleep(offload_tags=("weights", "runtime", "cudagraph"))
    allocator.discard("workspace")
    allocator.wake_up(["weights", "kv_cache"])
    assert same(made["weights"], 1)


@scene(**ONLY)
def test_an_allocator_without_memory_has_nothing_to_do():
    allocator, _ = of_vllm()
    allocator.sleep()
    allocator.discard("kv_cache")
    allocator.wake_up()
    assert allocator.get_current_usage() == 0 and allocator.tags_asleep() == set() and allocator.pointer_to_data == {}


@scene(**ONLY)
def test_contents_wait_where_the_environment_says():
    import os
    from unittest import mock

    from granule_torch.adapters.vllm import CuMemAllocator

    with tempfile.TemporaryDirectory() as folder:
        for backup in ("pinned", "pinned-keep", folder):
            with mock.patch.dict(os.environ, GRANULE_VLLM_BACKUP=backup), mock.patch.object(CuMemAllocator, "instance", None):
                allocator = CuMemAllocator.get_instance()
                assert allocator is CuMemAllocator.get_instance() and allocator.backup == backup
            with allocator.use_memory_pool("weights"):
                weights = filled(20 * MIB, 1)
            allocator.sleep(offload_tags="weights")
            allocator.wake_up()
            assert same(weights, 1)
        for backup in ("discard", "/no/such/directory"):
            with mock.patch.dict(os.environ, GRANULE_VLLM_BACKUP=backup), mock.patch.object(CuMemAllocator, "instance", None):
                said = error(CuMemAllocator.get_instance)
                assert "ValueError" in said and "GRANULE_VLLM_BACKUP" in said and backup in said
