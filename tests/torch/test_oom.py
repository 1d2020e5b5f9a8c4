"""Out of memory: the error, what it says, who hears of it, and that work goes on after it."""
import ctypes
import gc
import re

import torch
from observe import MIB, brief, error, raw, snapshot, stats
from scene import DEFAULT, EXPANDABLE, Run, release, scene

GIB = 1 << 30
RUNS = (DEFAULT, EXPANDABLE)
MESSAGE = re.compile(
    r"CUDA out of memory\. Tried to allocate ([\d.]+ \w+)\. GPU 0 has a total capacity of ([\d.]+ \w+) of which "
    r"([\d.]+ \w+) is free\. (.*?)Of the allocated memory ([\d.]+ \w+) is allocated by PyTorch, "
    r"(with [\d.]+ \w+ allocated in private pools \(e\.g\., CUDA Graphs\), )?and ([\d.]+ \w+) is reserved by "
    r"PyTorch but unallocated\."
)

# Until 2.15 PyTorch keeps the addresses of a growable segment that could not be mapped, so that what a process does after
# an error lies elsewhere than Granule's. Scenes that tell begin in a process of their own there.
LEAVES_RESERVATIONS = release() < (2, 15)


def fill(piece=256 * MIB):
    """Tensors until nothing more fits."""
    kept = []
    try:
        while True:
            kept.append(raw(piece))
    except torch.OutOfMemoryError as failure:
        return kept, str(failure)


@scene
def test_o01_the_message_has_its_structure_and_figures():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        raw(30 * MIB)
    kept, said = fill()
    assert MESSAGE.match(said), said
    huge = error(torch.empty, 1 << 61, dtype=torch.uint8, device="cuda")
    assert "more than 1EB" in huge
    del kept, pool
    return [said, huge]


@scene
def test_o02_nothing_sticks_after_an_error():
    kept, _ = fill()
    kept.pop()
    try:
        raw(5 * GIB)
    except torch.OutOfMemoryError as failure:
        assert isinstance(failure, RuntimeError) and type(failure) is torch.cuda.OutOfMemoryError
    small = torch.ones(100, device="cuda") * 2
    torch.cuda.synchronize()
    steps = [brief(), len(kept)]
    del kept, small
    return [*steps, brief()]


@scene
def test_o03_tensors_deleted_in_the_handler_let_a_retry_succeed():
    kept, steps = [], []

    def forward():
        held = []
        while True:
            held.append(raw(512 * MIB))

    for _ in range(3):
        try:
            forward()
        except torch.OutOfMemoryError:
            # The traceback holds on to what `forward` had: that is only gone once the clause is left.
            assert torch.cuda.memory_allocated() > 2 * GIB
            kept.clear()
            failed = True
        assert failed
        gc.collect()
        assert torch.cuda.memory_allocated() < GIB
        kept.append(raw(768 * MIB))
        steps.append(brief())
    kept.append(raw(1536 * MIB))
    del kept
    return [*steps, stats()]


@scene(alone=LEAVES_RESERVATIONS)
def test_training_goes_on_after_an_error():
    """A step that is too large is caught and done again in smaller parts."""
    net = torch.nn.Sequential(torch.nn.Linear(1024, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 1024)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    seen = []

    def step(rows):
        loss = net(torch.ones(rows, 1024, device="cuda")).square().mean()
        loss.backward()

    for rows in (1024, 65536, 2048, 1 << 17, 4096):
        parts = 1
        while True:
            try:
                for _ in range(parts):
                    step(rows // parts)
                break
            except torch.OutOfMemoryError:
                parts *= 2
            optimizer.zero_grad(set_to_none=True)
            gc.collect()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen.append([rows, parts, brief()])
    assert any(parts > 1 for _, parts, _ in seen) and seen[-1][2][-1] > 0
    del net, optimizer
    return [seen, stats()]


@scene(runs=(Run("split limit", settings="max_split_size_mb:64"),))
def test_o04_with_a_split_limit_an_error_is_raised():
    kept, said = fill(100 * MIB)
    seen = [said, brief(), error(raw, 200 * MIB)]
    del kept[::2]
    seen += [error(raw, 200 * MIB) if not raw_fits(200 * MIB) else "fits", brief()]
    del kept
    return [seen, stats()]


def raw_fits(size):
    try:
        raw(size)
    except torch.OutOfMemoryError:
        return False
    return True


@scene(alone=True)
def test_o05_the_observer_hears_of_each_error_once_and_before_it():
    torch.cuda.init()
    heard, order = [], []

    def observer(device, alloc, total, free):
        heard.append([device, alloc, total, free])
        order.append("observer")
        # It is called without a lock, so it may ask.
        heard.append(len(torch.cuda.memory._snapshot()["segments"]))

    torch._C._cuda_attach_out_of_memory_observer(observer)
    kept = raw(3 * GIB)
    for size in (2 * GIB, 2 * GIB + 5):
        try:
            raw(size)
        except torch.OutOfMemoryError:
            order.append("error")
    assert order == ["observer", "error"] * 2
    torch.cuda.set_per_process_memory_fraction(0.9)
    seen = [heard, error(raw, 2 * GIB)]
    assert heard[-2][2] < 4 * GIB
    del kept
    return seen


@scene
def test_o06_o07_retries_and_errors_are_counted():
    cached = [raw(700 * MIB) for _ in range(5)]
    del cached
    kept = raw(3 * GIB)
    after = stats()
    # A growable segment serves the request from one range: nothing has to be given back.
    growable = any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot())
    assert after["num_alloc_retries"] == (0 if growable else 1) and after["num_ooms"] == 0
    seen = [after, error(raw, 3 * GIB), error(raw, 3 * GIB)]
    assert torch.cuda.memory_stats()["num_ooms"] == 2
    del kept
    return [*seen, stats()]


@scene(alone=True, runs=(DEFAULT,), since=(2, 13))
def test_o08_a_pools_allocator_that_gives_null_is_named():
    """The custom allocator is a function of this process: no memory but none."""
    asked = []
    alloc_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    free_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    alloc = alloc_type(lambda size, device, stream: asked.append(size) and None)
    free = free_type(lambda pointer, size, device, stream: None)
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in (alloc, free)]
    pool = torch.cuda.MemPool(torch._C._cuda_customAllocator(*addresses))
    try:
        with torch.cuda.use_mem_pool(pool):
            raw(3 * MIB)
        said = ""
    except torch.OutOfMemoryError as failure:
        said = str(failure)
    assert ("custom allocator backing this MemPool returned nullptr" in said) == (release() >= (2, 15))
    assert len(asked) >= 2 and set(asked) == {20 * MIB}, "once more after free memory was given back"
    return [said, stats()]


@scene(alone=LEAVES_RESERVATIONS)
def test_an_error_is_in_the_history_with_the_free_memory():
    torch.cuda.memory._record_memory_history(context=None)
    kept = raw(3 * GIB)
    seen = [error(raw, 2 * GIB + 7)]
    taken = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    errors = [entry for entry in taken["device_traces"][0] if entry["action"] == "oom"]
    assert [entry["size"] for entry in errors] == [2 * GIB + 512] and errors[0]["device_free"] <= GIB
    del kept
    return [seen, snapshot(taken)]
