"""Tensors in other processes and on other devices. Device memory has contents here, and they are compared."""
import gc
import os
import tempfile

import allocators
import torch
import torch.multiprocessing as mp
from observe import MIB, brief, error, snapshot, stats
from scene import Run, scene

CONTENTS = Run("contents", contents=True, gib=1)
GROWABLE = Run(
    "growable", settings="expandable_segments:True", contents=True, gib=1,
    env=(("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "1"),),
)
TWO = Run("two devices", contents=True, gib=1, devices=2)
TWO_GROWABLE = Run("two devices, growable", settings="expandable_segments:True", contents=True, gib=1, devices=2)
RUNS = (CONTENTS, GROWABLE)
# Seconds for another process to start and answer.
PATIENCE = 120


def pattern(size, start):
    once = (torch.arange(256) * 7 + start).to(torch.uint8)
    return once.repeat(size // 256 + 1)[:size]


def held(size, start, device="cuda"):
    return pattern(size, start).to(device)


def same(tensor, start):
    return bool((tensor.cpu() == pattern(tensor.numel(), start)).all())


def consumer(inbox, outbox):
    """Another process: looks at what it is given, writes into it, and lets go of it."""
    try:
        allocators.install(allocators.current())
        while True:
            given = inbox.get(timeout=PATIENCE)
            if given is None:
                break
            tensor, start, reply = given
            outbox.put(["same", same(tensor, start)])
            tensor.copy_(pattern(tensor.numel(), reply))
            torch.cuda.synchronize()
            outbox.put(["own bytes", torch.cuda.memory_allocated(), tensor.untyped_storage().data_ptr() != 0])
            del tensor, given
            gc.collect()
            torch.cuda.ipc_collect()
            outbox.put(["done"])
    except BaseException as failure:
        outbox.put(["failed", repr(failure)])
        raise


def start(target, *more):
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=target, args=(inbox, outbox, *more))
    process.start()
    return process, inbox, outbox


@scene
def test_e03_tensors_in_another_process_have_their_contents():
    process, inbox, outbox = start(consumer)
    seen = []
    for size, offset in ((5000, 0), (3 * MIB, 0), (30 * MIB, 0), (30 * MIB, 12345)):
        whole = held(size, 3)
        tensor = whole[offset:]
        tensor.copy_(pattern(tensor.numel(), 5))
        torch.cuda.synchronize()
        inbox.put((tensor, 5, 99))
        answers = [outbox.get(timeout=PATIENCE) for _ in range(3)]
        assert answers[0] == ["same", True] and answers[2] == ["done"], answers
        assert same(tensor, 99)
        seen.append([answers, brief()])
        del tensor, whole
        gc.collect()
        torch.cuda.ipc_collect()
    inbox.put(None)
    process.join(PATIENCE)
    assert process.exitcode == 0
    return seen


@scene
def test_e05_two_tensors_of_one_segment_in_another_process():
    process, inbox, outbox = start(consumer)
    tensors = [held(600_000, number) for number in range(3)]
    torch.cuda.synchronize()
    for number, tensor in enumerate(tensors):
        inbox.put((tensor, number, number + 50))
        answers = [outbox.get(timeout=PATIENCE) for _ in range(3)]
        assert answers[0] == ["same", True], answers
    assert all(same(tensor, number + 50) for number, tensor in enumerate(tensors))
    inbox.put(None)
    process.join(PATIENCE)
    assert process.exitcode == 0
    del tensor, tensors
    gc.collect()
    torch.cuda.ipc_collect()
    # The memory is back with this, and no request is needed.
    assert torch.cuda.memory_stats()["active.all.current"] == 0
    return [brief(), snapshot()["segments"]]


@scene(since=(2, 13))
def test_e04_e06_handles_have_their_form():
    tensor = held(3 * MIB, 1)
    first = tensor.untyped_storage()._share_cuda_()
    device, handle, size, offset, *_ = first
    again = tensor.untyped_storage()._share_cuda_()
    assert handle[0] == 3 and handle[1:2] in b"ce"
    if allocators.current() == "granule":
        assert again[1] == handle, "the same block has the same handle"
    newer = bytes([99]) + handle[1:]
    counter, place, *_ = again[4:]
    said = error(torch.UntypedStorage._new_shared_cuda, device, newer, size, offset, counter, place, b"", False)
    assert "future version" in said
    # Nobody will receive what was shared: let go of it in the receivers' place.
    for *_, counter, place, _, _ in (first, again):
        torch.UntypedStorage._release_ipc_counter(counter, place, device="cuda")
    return [device, handle[:2].hex(), size, offset, said]


@scene(runs=(TWO, TWO_GROWABLE))
def test_a15_memory_of_two_devices_is_copied_both_ways():
    seen = []
    for size in (700, 5 * MIB, 30 * MIB):
        here = held(size, 9, "cuda:0")
        there = here.to("cuda:1")
        assert same(there, 9)
        back = torch.empty_like(here)
        there.copy_(pattern(size, 13))
        back.copy_(there)
        torch.cuda.synchronize()
        assert same(back, 13) and same(here, 9)
        seen.append([brief(0), brief(1)])
    with torch.cuda.device(1):
        more = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
        assert more.device.index == 1
    seen += [torch.cuda.can_device_access_peer(0, 1), stats(0), stats(1)]
    del here, there, back, more
    return seen


def training(_, outbox, file):
    """One of two processes that train on the memory of one model."""
    allocators.install(allocators.current())
    net = torch.load(file, weights_only=False, map_location="cuda")
    net(torch.ones(8, 64, device="cuda")).sum().backward()
    outbox.put([brief(), all(p.grad is not None for p in net.parameters())])
    # Before Python 3.14 an ending interpreter stops autograd's threads in the middle of C++, which now and then aborts the
    # process, whatever its allocator.
    outbox.close()
    outbox.join_thread()
    os._exit(0)


@scene(runs=(CONTENTS,), since=(2, 13))
def test_data_loader_workers_and_training_processes():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "net")
        torch.save(torch.nn.Linear(64, 64), file)
        processes = [start(training, file) for _ in range(2)]
        seen = [outbox.get(timeout=PATIENCE) for _, _, outbox in processes]
        [process.join(PATIENCE) for process, _, _ in processes]
    assert all(process.exitcode == 0 for process, _, _ in processes)
    return seen
