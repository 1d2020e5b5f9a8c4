"""torch.accelerator's view of the memory, number by number (PyTorch's default policy)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import accelerator

from .support import MIB


def bytes_tensor(count: int, device: str = "granule") -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8, device=device)


def test_allocated_reserved_and_peaks() -> None:
    small = bytes_tensor(1)
    assert accelerator.memory_allocated() == 512
    assert accelerator.memory_reserved() == 2 * MIB
    large = bytes_tensor(5 * MIB)
    assert accelerator.memory_allocated() == 5 * MIB + 512
    assert accelerator.memory_reserved() == 22 * MIB
    huge = bytes_tensor(30 * MIB + 1)
    assert accelerator.memory_reserved() == 22 * MIB + 32 * MIB
    peak = accelerator.memory_allocated()
    assert accelerator.max_memory_allocated() == peak
    del large, huge
    assert accelerator.memory_allocated() == 512
    assert accelerator.max_memory_allocated() == peak
    assert accelerator.memory_reserved() == 54 * MIB
    accelerator.empty_cache()
    assert accelerator.memory_reserved() == 2 * MIB
    assert accelerator.max_memory_reserved() == 54 * MIB
    accelerator.reset_peak_memory_stats()
    assert accelerator.max_memory_allocated() == 512
    assert accelerator.max_memory_reserved() == 2 * MIB
    del small
    accelerator.empty_cache()
    assert accelerator.memory_allocated() == 0
    assert accelerator.memory_reserved() == 0


def test_fields() -> None:
    kept = [bytes_tensor(1000), bytes_tensor(3 * MIB)]
    freed = bytes_tensor(2000)
    del freed
    stats = accelerator.memory_stats()
    assert stats["allocation.all.current"] == 2
    assert stats["allocation.all.allocated"] == 3
    assert stats["allocation.all.freed"] == 1
    assert stats["allocation.all.peak"] == 3
    assert stats["allocation.small_pool.current"] == 1
    assert stats["allocation.large_pool.current"] == 1
    assert stats["requested_bytes.all.current"] == 1000 + 3 * MIB
    assert stats["allocated_bytes.small_pool.current"] == 1024
    assert stats["active_bytes.all.current"] == stats["allocated_bytes.all.current"]
    assert stats["segment.all.current"] == 2
    assert stats["inactive_split.all.current"] == 2
    assert stats["inactive_split_bytes.all.current"] == accelerator.memory_reserved() - accelerator.memory_allocated()
    assert stats["num_device_alloc"] == 2
    assert stats["num_device_free"] == 0
    assert stats["num_alloc_retries"] == stats["num_ooms"] == 0
    assert stats["oversize_allocations.current"] == 0
    del kept
    accelerator.empty_cache()
    accelerator.reset_accumulated_memory_stats()
    stats = accelerator.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 0
    assert stats["num_device_alloc"] == stats["num_device_free"] == 0


def test_memory_info_follows_the_device() -> None:
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total
    tensor = bytes_tensor(100 * MIB)
    assert accelerator.get_memory_info() == (free - 100 * MIB, total)
    del tensor
    accelerator.empty_cache()
    assert accelerator.get_memory_info() == (free, total)


def test_devices_are_apart(second_device: str) -> None:
    tensor = bytes_tensor(5000, second_device)
    assert accelerator.memory_allocated(0) == 0
    assert accelerator.memory_allocated(1) == 5120
    assert accelerator.memory_allocated("granule:1") == 5120
    accelerator.set_device_index(1)
    assert accelerator.memory_allocated() == 5120
    del tensor
    accelerator.empty_cache()
    assert accelerator.memory_reserved(1) == 0
    assert accelerator.max_memory_allocated(1) == 5120
    accelerator.reset_peak_memory_stats(1)
    assert accelerator.max_memory_allocated(1) == 0


def test_the_device_module_agrees() -> None:
    tensor = bytes_tensor(1000)
    assert torch.granule.memory_allocated() == accelerator.memory_allocated() == 1024
    assert torch.granule.memory_stats() == accelerator.memory_stats()
    assert torch.granule.mem_get_info() == accelerator.get_memory_info()
    del tensor


def test_snapshot() -> None:
    tensor = bytes_tensor(1000)
    snapshot = torch.granule.memory_snapshot()
    (segment,) = snapshot["segments"]
    assert segment["total_size"] == 2 * MIB
    assert segment["allocated_size"] == 1024
    assert segment["address"] == tensor.data_ptr()
    assert [block["state"] for block in segment["blocks"]] == ["active_allocated", "inactive"]


def test_settings() -> None:
    from granule_torch import privateuse1

    before = privateuse1.settings()
    assert before == "expandable_segments:False"
    privateuse1.configure("expandable_segments:True")
    try:
        tensor = bytes_tensor(30 * MIB)
        (segment,) = torch.granule.memory_snapshot()["segments"]
        assert segment["is_expandable"]
        del tensor
    finally:
        privateuse1.configure(before)


def test_the_profiler_sees_memory() -> None:
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(profile_memory=True, activities=cpu) as profile, torch.profiler.record_function("both"):
        tensor = bytes_tensor(10 * MIB)
        del tensor
    changes = [
        event.extra_fields.alloc_size
        for event in events_of(profile.profiler.kineto_results.experimental_event_tree())
        if isinstance(event.extra_fields, torch._C._profiler._ExtraFields_Allocation)
        and event.extra_fields.device.type == "granule"
    ]
    assert changes == [10 * MIB, -10 * MIB]


def events_of(events: list) -> list:
    return [found for event in events for found in (event, *events_of(event.children))]


def test_the_summary_is_a_table_for_people() -> None:
    kept = bytes_tensor(3 * MIB)
    table = torch.granule.memory_summary()
    assert "device ID 0" in table and "3072 KiB" in table
    assert torch.granule.memory_summary("granule:0") == table
    assert 0 < len(torch.granule.memory_summary(abbreviated=True)) < len(table)
    assert kept.numel()


def test_granules_own_policy(program: Callable[..., str]) -> None:
    said = program(
        """
        import torch
        from granule_torch import privateuse1

        privateuse1.enable("openreg", settings="policy:granule")
        kept = torch.arange(3 << 18, device="granule")
        assert torch.equal(kept.cpu(), torch.arange(3 << 18))
        assert kept.nbytes <= torch.accelerator.memory_reserved() < 20 << 20
        try:
            privateuse1.configure("policy:pytorch")
        except RuntimeError as refused:
            print(refused)
        """
    )
    assert "policy:pytorch is refused" in said
