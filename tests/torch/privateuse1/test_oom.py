"""Memory runs out, and the program goes on."""

from __future__ import annotations

import pytest
import torch
from torch import accelerator

from .support import MIB


def test_the_error_is_torchs_with_granules_text() -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 40, dtype=torch.uint8, device="granule")
    text = str(caught.value)
    assert "out of memory. Tried to allocate 1024.00 GiB. GPU 0 has a total capacity of 4.00 GiB" in text
    assert accelerator.memory_stats()["num_ooms"] == 1


def test_the_cache_is_given_back_before_the_error() -> None:
    free, _ = accelerator.get_memory_info()
    half = free // 2 + 64 * MIB
    first = torch.empty(half, dtype=torch.uint8, device="granule")
    del first
    assert accelerator.memory_reserved() >= half
    second = torch.empty(half + 4 * MIB, dtype=torch.uint8, device="granule")
    assert accelerator.memory_stats()["num_alloc_retries"] == 1
    assert accelerator.memory_stats()["num_ooms"] == 0
    del second


def test_training_goes_on_after_it() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to("granule")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(64, 8)
    target = inputs.sum(1, keepdim=True).to("granule")
    inputs = inputs.to("granule")
    losses, refused = [], 0
    for step in range(30):
        if step % 10 == 5:
            try:
                model(torch.empty(1 << 34, 8, device="granule"))
            except torch.OutOfMemoryError:
                refused += 1
        optimizer.zero_grad()
        loss = (model(inputs) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert refused == 3
    assert losses[-1] < 0.2 * losses[0]
    del model, optimizer, inputs, target, loss
    assert accelerator.memory_allocated() == 0


def test_an_error_leaves_the_device_usable() -> None:
    with pytest.raises(RuntimeError):
        torch.ones(3, device="granule") @ torch.ones(4, device="granule")
    assert torch.ones(3, device="granule").sum().item() == 3
