"""CUDA graphs, graph trees, and the bindings that those use."""
import ctypes
import gc

import torch
from observe import MIB, brief, error, raw, stats
from observe import segments_of as segments
from scene import DEFAULT, EXPANDABLE, scene

RUNS = (DEFAULT, EXPANDABLE)


@scene(real=True)
def test_g01_a_capture_allocates_from_its_pool():
    seen = []
    for size in (500, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 19 * MIB, 21 * MIB):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = raw(size)
            other = raw(size // 2)
        graph.replay()
        assert len(segments(graph.pool())) >= 1 and tuple(graph.pool())[1] == 0
        seen.append([brief(), segments(graph.pool())])
        graph.reset()
        del kept, other, graph
        torch.cuda.empty_cache()
        seen.append(brief())
    return [seen, stats()]


@scene(real=True)
def test_g02_g03_memory_is_reused_within_the_capture():
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        first = raw(3 * MIB)
        address = first.data_ptr()
        del first
        second = raw(3 * MIB)
        assert second.data_ptr() == address
        side.wait_stream(torch.cuda.current_stream())
        second.record_stream(side)
        with torch.cuda.stream(side):
            second.add_(1)
        torch.cuda.current_stream().wait_stream(side)
        del second
        third = raw(3 * MIB)
        assert third.data_ptr() != address
        inside = brief()
    graph.replay()
    raw(1)  # An allocation looks at what other streams have done.
    after = [brief(), segments()]
    graph.reset()
    return [inside, after, third.numel()]


@scene(real=True)
def test_g05_g06_graphs_share_a_pool_until_both_are_gone():
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        kept = raw(30 * MIB)
    with torch.cuda.graph(second, pool=first.pool()):
        more = raw(30 * MIB)
    pool = first.pool()
    assert second.pool() == pool
    seen = [brief(), segments(pool)]
    first.replay()
    second.replay()
    first.reset()
    torch.cuda.empty_cache()
    seen.append(segments(pool))
    second.reset()
    del kept
    torch.cuda.empty_cache()
    seen.append(segments(pool))
    assert len(seen[2]) >= 1 and more.numel()
    del more
    torch.cuda.empty_cache()
    assert segments(pool) == []
    return [*seen, stats()]


@scene(real=True, since=(2, 14))
def test_g07_a_graphs_pools_list_a_mempool_used_inside():
    pool, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with torch.cuda.use_mem_pool(pool):
            kept = raw(3 * MIB)
        other = raw(3 * MIB)
    assert pool.id in [tuple(identity) for identity in graph.pools()]
    seen = [len(graph.pools()), pool.use_count()]
    graph.reset()
    seen.append(pool.use_count())
    assert seen[1:] == [2, 1]
    del kept, other
    return [*seen, stats()]


@scene(real=True)
def test_training_step_captured_whole():
    net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 8)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rows, side = torch.ones(64, 512, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            net(rows).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = net(rows).sum()
        loss.backward()
        optimizer.step()
    for _ in range(3):
        rows.fill_(2)
        graph.replay()
    seen = [stats(), segments()]
    graph.reset()
    del net, optimizer, loss, graph
    return [*seen, brief()]


@scene(alone=True, real=True)
def test_g08_make_graphed_callables():
    net = torch.nn.Linear(256, 256).cuda()
    graphed = torch.cuda.make_graphed_callables(net, (torch.ones(8, 256, device="cuda", requires_grad=True),))
    for _ in range(2):
        graphed(torch.ones(8, 256, device="cuda", requires_grad=True)).sum().backward()
    return [stats(), segments()]


def begin(pool):
    torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)


def end(pool):
    torch._C._cuda_endAllocateToPool(0, pool)


def live(pool):
    """Addresses of the live blocks of a pool."""
    found = set()
    for segment in torch.cuda.memory_snapshot(pool):
        found |= {block["address"] for block in segment["blocks"] if block["state"] == "active_allocated"}
    return found


def captured(work, pool):
    """The tensors that a capture into the pool made."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        tensors = work()
    return graph, tensors


def shape(pool):
    """Sizes and states of a pool's blocks, by segment."""
    return [
        [(block["size"], block["state"]) for block in segment["blocks"]]
        for segment in torch.cuda.memory_snapshot(pool)
    ]


@scene(alone=True, real=True)
def test_k01_checkpoints_go_round():
    pool = torch.cuda.graph_pool_handle()
    graph, (first, second, third) = captured(lambda: (raw(3 * MIB), raw(5 * MIB), raw(700)), pool)
    state = torch._C._cuda_getCheckpointState(0, pool)
    before, shown = live(pool), shape(pool)
    # The middle one goes, and other memory comes.
    del second
    more_graph, more = captured(lambda: [raw(MIB + 1) for _ in range(6)], pool)
    seen = [segments(pool)]
    assert live(pool) != before and shape(pool) != shown
    stale = [tensor.untyped_storage()._cdata for tensor in (first, third, *more)]
    torch._C._cuda_setCheckpointPoolState(0, state, stale, [])
    assert live(pool) == before and shape(pool)[: len(shown)] == shown
    seen.append(shape(pool))
    assert not any(torch._C._has_Standard_Deleter(storage) for storage in stale)
    graph.reset()
    more_graph.reset()
    # Native takes a restored block's size for what was requested; Granule remembers that, so it is not compared.
    return [*seen, torch.cuda.memory_allocated()]


@scene(alone=True, real=True)
def test_k02_storages_are_given_their_deleters_again():
    pool = torch.cuda.graph_pool_handle()
    graph, (kept, other) = captured(lambda: (raw(3 * MIB), raw(3 * MIB)), pool)
    state = torch._C._cuda_getCheckpointState(0, pool)
    storage = other.untyped_storage()
    assert torch._C._has_Standard_Deleter(storage._cdata)
    address = storage.data_ptr()
    torch._C._free_And_Remove_DeleterFn(storage._cdata)
    assert address not in live(pool) and not torch._C._has_Standard_Deleter(storage._cdata)
    seen = [segments(pool)]
    again = torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata
    metadata = {
        "nbytes": storage.nbytes(), "data_ptr": address, "size": (3 * MIB,), "stride": (1,), "dtype": torch.uint8,
        "device": torch.device("cuda", 0), "storage_offset": 0,
    }
    stale = kept.untyped_storage()
    fresh = torch._C._construct_storage_from_data_pointer(address, torch.device("cuda", 0), storage.nbytes())
    tensor = again(metadata, fresh)
    torch._C._cuda_setCheckpointPoolState(0, state, [stale._cdata], [fresh._cdata])
    assert address in live(pool) and torch._C._has_Standard_Deleter(fresh._cdata)
    seen.append(shape(pool))
    del tensor, fresh, other, storage
    gc.collect()
    assert address not in live(pool)
    graph.reset()
    return [*seen, torch.cuda.memory_allocated()]


@scene(alone=True, real=True)
def test_k03_a_stale_storage_that_was_not_passed_is_an_error():
    pool = torch.cuda.graph_pool_handle()
    graph, kept = captured(lambda: raw(3 * MIB), pool)
    state = torch._C._cuda_getCheckpointState(0, pool)
    more_graph, more = captured(lambda: raw(3 * MIB), pool)
    said = error(torch._C._cuda_setCheckpointPoolState, 0, state, [], [])
    assert "stale tensors" in said
    # Both were freed under their storages, which must never free them again.
    for tensor in (kept, more):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
    assert "Could not find pool of id" in error(torch._C._cuda_getCheckpointState, 0, (77, 0))
    return [said, graph is not more_graph]


@scene(alone=True, real=True)
def test_k05_live_allocations_are_compared_exactly():
    pool = torch.cuda.graph_pool_handle()
    check = torch._C._cuda_checkPoolLiveAllocations
    graph, (first, second) = captured(lambda: (raw(3 * MIB), raw(700)), pool)
    both = {first.data_ptr(), second.data_ptr()}
    seen = [check(0, pool, both), check(0, pool, {first.data_ptr()}), check(0, pool, both | {512})]
    assert seen == [True, False, False]
    del second
    seen += [check(0, pool, both), check(0, pool, {first.data_ptr()})]
    assert "Could not find pool of id" in error(check, 0, (77, 0), set())
    graph.reset()
    return seen


@scene(real=True)
def test_pools_by_the_low_level_bindings():
    pool = torch.cuda.graph_pool_handle()
    seen = []
    begin(pool)
    kept = raw(3 * MIB)
    end(pool)
    seen.append([brief(), segments(pool)])
    torch._C._cuda_releasePool(0, pool)
    del kept
    torch.cuda.empty_cache()
    seen.append(segments(pool))
    assert len(seen[0][1]) == 1 and seen[1] == []
    stream, other = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    with torch.cuda.stream(stream):
        torch._C._cuda_beginAllocateCurrentStreamToPool(0, other)
    outside = raw(3 * MIB)
    with torch.cuda.stream(stream):
        inside = raw(3 * MIB)
    end(other)
    torch._C._cuda_releasePool(0, other)
    assert live(other) == {inside.data_ptr()}
    third = torch.cuda.graph_pool_handle()
    torch._C._cuda_beginAllocateToPool(0, third)
    whole = raw(5 * MIB)
    end(third)
    assert live(third) == {whole.data_ptr()}
    assert "endAllocatePool: not currently recording to mempool_id" in error(end, third)
    seen += [brief(), segments()]
    torch._C._cuda_releasePool(0, third)
    del inside, outside, whole
    torch.cuda.empty_cache()
    return [*seen, stats()]


def tree_program(steps):
    """A function run by graph trees: warm-up, capture, replay, and memory from one step to the next."""
    from torch._inductor.cudagraph_trees import cudagraphify_impl

    def grow(inputs):
        (rows,) = inputs
        inputs.clear()
        return [rows.add(1).matmul(rows.t()), rows.mul(2)]

    def fold(inputs):
        square, rows = inputs
        inputs.clear()
        return [square.matmul(rows)]

    options = dict(device_index=0, is_backward=False, is_inference=True, constants=(), placeholders=())
    first = rest = None
    seen = []
    for step in range(steps):
        torch.compiler.cudagraph_mark_step_begin()
        rows = torch.ones(512, 700, device="cuda")
        if first is None:
            first = cudagraphify_impl(grow, [rows], (), stack_traces=["square", "rows"], **options)
        made = first([rows])
        if rest is None:
            rest = cudagraphify_impl(fold, list(made), (), stack_traces=["folded"], **options)
        out = rest(list(made))
        seen.append([list(out[0].shape), brief()])
        del made, out
    return seen, (first, rest)


@scene(alone=True, real=True)
def test_graph_trees_run_and_share_memory():
    torch.cuda.init()
    seen, functions = tree_program(5)
    from torch._inductor import cudagraph_trees

    manager = cudagraph_trees.get_manager(0, create_if_none_exists=False)
    assert manager is not None and manager.roots
    shown = segments()
    del manager, functions
    cudagraph_trees.reset_cudagraph_trees()
    gc.collect()
    torch.cuda.empty_cache()
    return [seen, shown, brief()]


@scene(alone=True, real=True)
def test_graph_trees_of_a_compiled_model():
    """`torch.compile(backend="cudagraphs")`: the trees of `mode="reduce-overhead"`, without its code generator."""
    net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).cuda()
    compiled = torch.compile(net, backend="cudagraphs")
    seen = []
    with torch.no_grad():
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            out = compiled(torch.ones(64, 512, device="cuda"))
            seen.append([list(out.shape), brief()])
            del out
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        compiled(torch.ones(64, 512, device="cuda")).sum().backward()
        net.zero_grad(set_to_none=True)
        seen.append(brief())
    return [seen, segments()]


@scene(alone=True, real=True, runs=(EXPANDABLE,))
def test_reduce_overhead_with_its_code_generator():
    """`torch.compile(mode="reduce-overhead")`, where Triton and a C++ compiler are."""
    from torch._inductor import config as inductor

    # Trying a kernel takes memory. With a common cache only the first of two processes would try it.
    inductor.force_disable_caches = True
    net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8)).cuda()
    compiled = torch.compile(net, mode="reduce-overhead")
    seen = []
    with torch.no_grad():
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            out = compiled(torch.ones(64, 256, device="cuda"))
            seen.append([list(out.shape), brief()])
            del out
    pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    assert len(pools) > 1, "the trees have their own pool"
    return [seen, segments()]
