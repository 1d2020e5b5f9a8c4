"""Any backend will do: a vendor's table of C functions, under the device layer here and under a runtime of the vendor's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from . import build

TABLE = """
    import ctypes, torch
    import granule_torch.privateuse1
    driver = ctypes.CDLL({library!r})
    driver.driver_table.restype = ctypes.c_void_p
    driver.driver_hold.argtypes = (ctypes.c_int, ctypes.c_uint64)
    granule_torch.privateuse1.enable(driver.driver_table(), "npu")
"""

VENDOR = """
    import sys, types, torch
    sys.path.insert(0, {folder!r})
    import vendor
    torch.utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", types.ModuleType("torch.npu"))
    vendor.enable({shortcuts})
"""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vendor")
    here = Path(__file__).resolve().parent
    # In a process of its own: the module is registered for PrivateUse1 where it is loaded.
    code = f"import sys; sys.path.insert(0, {str(here.parent)!r}); from privateuse1 import build; build.runtime(__import__('pathlib').Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    return folder


def test_a_c_table(driver: Path, program: Callable[..., str]) -> None:
    program(
        TABLE.format(library=str(driver))
        + """
    assert torch.accelerator.device_count() == 2
    assert torch.accelerator.get_memory_info() == (1 << 30, 1 << 30)
    x = torch.arange(1000.0, device="npu:1")
    assert torch.equal((x * 2).cpu(), torch.arange(1000.0) * 2)
    assert torch.equal(x.to("npu:0").cpu(), x.cpu())
    assert torch.accelerator.memory_allocated(1) == 4096
    pinned = torch.ones(1000).pin_memory()
    assert pinned.is_pinned() and pinned.to("npu", non_blocking=True).sum().item() == 1000
    try:
        torch.empty(1 << 40, device="npu")
    except torch.OutOfMemoryError as error:
        assert "Tried to allocate 4096.00 GiB. GPU 0 has a total capacity of 1024.00 MiB" in str(error)
    else:
        raise AssertionError
    del x
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved(1) == 0
    """
    )


def test_record_stream_exactly(driver: Path, program: Callable[..., str]) -> None:
    """The driver holds the stream still, so every step is certain."""
    program(
        TABLE.format(library=str(driver))
        + """
    stream = torch.Stream("npu")
    driver.driver_hold(0, stream.stream_id)
    assert not stream.query()
    event = stream.record_event()
    x = torch.empty(1000, device="npu")
    address = x.data_ptr()
    x.record_stream(stream)
    del x
    stats = torch.accelerator.memory_stats()
    assert stats["allocated_bytes.all.current"] == 0 and stats["active_bytes.all.current"] == 4096
    kept = [torch.empty(1000, device="npu") for _ in range(50)]
    assert address not in [tensor.data_ptr() for tensor in kept]
    assert not event.query()
    pinned = torch.ones(1000).pin_memory()
    with stream:
        y = pinned.to("npu", non_blocking=True)
    at = pinned.data_ptr()
    del pinned
    held = torch.empty(1000, pin_memory=True)
    assert held.data_ptr() != at
    driver.driver_release()
    event.synchronize()
    stream.synchronize()
    assert torch.equal(y.cpu(), torch.ones(1000))
    del kept
    again = [torch.empty(1000, device="npu") for _ in range(60)]
    assert address in [tensor.data_ptr() for tensor in again]
    assert at == torch.empty(1000, pin_memory=True).data_ptr()
    """
    )


@pytest.mark.parametrize("shortcuts", [False, True])
def test_a_vendors_runtime(runtime: Path, program: Callable[..., str], shortcuts: bool) -> None:
    """Its guard and its streams, Granule's memory: only the two allocators are taken."""
    program(
        VENDOR.format(folder=str(runtime), shortcuts=shortcuts)
        + f"""
    from torch import accelerator
    assert accelerator.current_accelerator() == torch.device("npu")
    assert not torch._C._accelerator_isAllocatorInitialized(), "no driver is called before it is needed"
    assert accelerator.memory_stats() == {{}}
    x = torch.empty(1000, device="npu:1")
    x.copy_(torch.arange(1000.0))
    assert x.cpu()[-1] == 999
    assert accelerator.memory_allocated(1) == 4096 and accelerator.memory_allocated(0) == 0

    # Streams have the vendor's ids; Granule gets the driver's handles.
    accelerator.set_device_index(0)
    x = torch.empty(1000, device="npu")
    address = x.data_ptr()
    stream, other = torch.Stream("npu"), torch.Stream("npu")
    vendor.hold(0, stream.stream_id)
    x.record_stream(stream)
    del x
    y = torch.empty(1000, device="npu")
    assert y.data_ptr() != address
    vendor.release()
    stream.synchronize()
    assert torch.empty(1000, device="npu").data_ptr() == address
    with other:
        assert torch.empty(1000, device="npu").data_ptr() != address, "another stream has another cache"

    pinned = torch.ones(10).pin_memory()
    assert pinned.data_ptr() and accelerator.get_memory_info(0)[1] == 1 << 30
    del y, pinned
    accelerator.empty_cache()
    accelerator.empty_host_cache()
    assert accelerator.memory_reserved(0) == 0
    assert (vendor.shortcuts_taken() > 0) == {shortcuts}
    try:
        vendor.enable(False)
    except RuntimeError as error:
        assert "already registered" in str(error)
    else:
        raise AssertionError
    """
    )


def test_raw_memory(runtime: Path, program: Callable[..., str]) -> None:
    """Code that has a pointer and no tensor: raw_allocate, raw_deallocate, copy_data."""
    program(
        VENDOR.format(folder=str(runtime), shortcuts=False)
        + """
    source = torch.empty(100, device="npu")
    source.copy_(torch.arange(100.0))
    target = torch.empty(100, device="npu")
    vendor.copy_data(target.data_ptr(), source.data_ptr(), 400)
    assert target.cpu()[-1] == 99
    before = torch.accelerator.memory_allocated()
    memory = vendor.raw_allocate(1000)
    assert torch.accelerator.memory_allocated() == before + 1024
    vendor.raw_deallocate(memory)
    assert torch.accelerator.memory_allocated() == before
    """
    )


def test_pools_and_history_of_pinned_memory(runtime: Path, program: Callable[..., str]) -> None:
    program(
        VENDOR.format(folder=str(runtime), shortcuts=False)
        + """
    ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC = range(4)
    assert vendor.record_host_history(True)
    stream = torch.Stream("npu")
    vendor.send_stream_to_pool(0, stream.stream_id, 7)
    outside = torch.empty(1000, pin_memory=True)
    with stream:
        inside = torch.empty(1000, pin_memory=True)
    vendor.end_pool(7)
    pools = {address: pool for address, _, allocated, pool in vendor.host_segments() if allocated}
    assert pools == {outside.data_ptr(): 0, inside.data_ptr(): 7}, pools
    address = inside.data_ptr()
    del inside
    assert torch.empty(1000, pin_memory=True).data_ptr() != address, "the pool keeps its memory"
    vendor.release_pool(7)
    actions = vendor.host_actions()
    assert actions.count(ALLOC) == 3 and actions.count(FREE_COMPLETED) == 2, actions
    assert actions.count(SEGMENT_ALLOC) == 3, actions
    assert not vendor.record_host_history(False)
    """
    )
