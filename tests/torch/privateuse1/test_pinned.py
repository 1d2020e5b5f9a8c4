"""Pinned host memory."""

from __future__ import annotations

import pytest
import torch
from torch import accelerator

from .support import MIB, held


def stats() -> dict[str, int]:
    return torch.granule.host_memory_stats()


@pytest.fixture(autouse=True)
def _no_cached_host_memory() -> None:
    accelerator.empty_host_cache()


def test_pinning() -> None:
    plain = torch.arange(10.0)
    assert not plain.is_pinned()
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and torch.equal(pinned, plain)
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()
    assert torch.empty(5, pin_memory=True).is_pinned()


def test_views_are_pinned() -> None:
    pinned = torch.empty(4, 6, pin_memory=True)
    assert pinned[1:3].is_pinned()
    assert pinned[:, ::2].is_pinned()
    assert pinned.reshape(2, 12).is_pinned()
    assert torch.tensor([]).set_(pinned.untyped_storage()).is_pinned()


def test_storages() -> None:
    storage = torch.arange(10.0).untyped_storage()
    assert not storage.is_pinned()
    assert storage.pin_memory().is_pinned()


def test_only_cpu_tensors_are_pinned() -> None:
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(3, device="granule", pin_memory=True)
    assert not torch.empty(3, device="granule").is_pinned()


def test_copies() -> None:
    pinned = torch.arange(1000.0).pin_memory()
    device = pinned.to("granule", non_blocking=True)
    back = torch.empty(1000, pin_memory=True)
    back.copy_(device, non_blocking=True)
    accelerator.synchronize()
    assert torch.equal(back, pinned)


def test_a_block_is_cached_and_given_back() -> None:
    first = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    address = first.data_ptr()
    held = stats()
    assert held["active_requests.current"] == 1
    assert held["active_bytes.current"] == 4 * MIB
    del first
    assert stats()["active_requests.current"] == 0
    assert stats()["allocated_bytes.current"] == 4 * MIB
    assert torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True).data_ptr() == address
    accelerator.empty_host_cache()
    assert stats()["allocated_bytes.current"] == 0


def test_a_block_waits_for_the_copy_that_reads_it() -> None:
    stream = torch.Stream()
    pinned = torch.full((MIB,), 5, dtype=torch.uint8).pin_memory()
    address = pinned.data_ptr()
    with held(stream):
        with stream:
            device = pinned.to("granule", non_blocking=True)
        del pinned
        other = torch.zeros(MIB, dtype=torch.uint8).pin_memory()
        assert other.data_ptr() != address
        assert stats()["active_requests.current"] == 2
    assert device.cpu().eq(5).all()
    kept = [torch.empty(MIB, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    assert address in [tensor.data_ptr() for tensor in kept]


def test_a_block_waits_for_the_copy_that_writes_it() -> None:
    stream = torch.Stream()
    device = torch.ones(MIB, dtype=torch.uint8, device="granule")
    accelerator.synchronize()
    pinned = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    address = pinned.data_ptr()
    with held(stream):
        with stream:
            pinned.copy_(device, non_blocking=True)
        del pinned
        assert torch.empty(MIB, dtype=torch.uint8, pin_memory=True).data_ptr() != address


def test_a_blocking_copy_from_pinned_memory_has_happened() -> None:
    pinned = torch.ones(MIB).pin_memory()
    device = pinned.to("granule")
    pinned.zero_()
    assert device.cpu().eq(1).all()


def test_data_loader_pins() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert batch.is_pinned()
        assert batch.to("granule", non_blocking=True).sum().item() == batch.sum().item()
