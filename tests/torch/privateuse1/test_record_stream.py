"""Memory used on another stream is not reused too early."""

from __future__ import annotations

import threading

import torch
from torch import accelerator

from .support import MIB, held


def active_bytes() -> int:
    return accelerator.memory_stats()["active_bytes.all.current"]


def block(device: str = "granule") -> torch.Tensor:
    return torch.empty(3 * MIB, dtype=torch.uint8, device=device)


def test_a_block_waits_for_the_other_stream() -> None:
    stream = torch.Stream()
    tensor = block()
    address = tensor.data_ptr()
    with held(stream):
        tensor.record_stream(stream)
        del tensor
        assert accelerator.memory_allocated() == 0
        assert active_bytes() == 3 * MIB, "the block is still in use"
        others = [block() for _ in range(10)]
        assert address not in [other.data_ptr() for other in others]
        del others
    assert block().data_ptr() == address
    assert active_bytes() == 0


def test_without_it_the_block_is_reused_at_once() -> None:
    stream = torch.Stream()
    tensor = block()
    address = tensor.data_ptr()
    with held(stream):
        del tensor
        assert block().data_ptr() == address


def test_only_work_before_the_free_counts() -> None:
    stream = torch.Stream()
    tensor = block()
    address = tensor.data_ptr()
    tensor.record_stream(stream)
    del tensor
    stream.synchronize()
    with held(stream):
        assert block().data_ptr() == address


def test_a_view_stands_for_its_block() -> None:
    stream = torch.Stream()
    tensor = block()
    address = tensor.data_ptr()
    with held(stream):
        tensor[MIB:].record_stream(stream)
        del tensor
        assert block().data_ptr() != address


def test_streams_of_another_device(second_device: str) -> None:
    stream = torch.Stream(second_device)
    tensor = block("granule:0")
    address = tensor.data_ptr()
    with held(stream):
        tensor.record_stream(stream)
        del tensor
        assert block("granule:0").data_ptr() != address
    assert block("granule:0").data_ptr() == address


def test_what_is_tolerated() -> None:
    stream = torch.Stream()
    torch.empty(0, device="granule").record_stream(stream)
    tensor = torch.empty(10, device="granule")
    tensor.record_stream(accelerator.current_stream())
    address = tensor.data_ptr()
    del tensor
    assert torch.empty(10, device="granule").data_ptr() == address
    # Memory of another allocator: its deleter is not ours.
    base = torch.empty(10, device="granule")
    torch.from_dlpack(torch.utils.dlpack.to_dlpack(base)).record_stream(stream)


def test_each_stream_has_its_own_cache() -> None:
    stream = torch.Stream()
    tensor = torch.empty(1000, device="granule")
    address = tensor.data_ptr()
    del tensor
    with stream:
        assert torch.empty(1000, device="granule").data_ptr() != address
    assert torch.empty(1000, device="granule").data_ptr() == address


def test_threads_on_streams_of_their_own() -> None:
    failures: list[Exception] = []

    def work(value: int) -> None:
        try:
            with torch.Stream():
                for i in range(60):
                    size = 1 + (value * 7919 + i * 104729) % 50_000
                    tensor = torch.full((size,), float(value), device="granule")
                    copy = tensor.clone()
                    tensor.record_stream(torch.Stream())
                    del tensor
                    assert copy.cpu().eq(value).all()
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    accelerator.synchronize()
    accelerator.empty_cache()
    assert accelerator.memory_allocated() == accelerator.memory_reserved() == 0


def test_blocks_are_freed_on_other_threads() -> None:
    tensors = [torch.empty(1000, device="granule") for _ in range(100)]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert accelerator.memory_allocated() == 0
