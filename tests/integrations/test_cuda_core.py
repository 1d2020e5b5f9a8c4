"""Granule as a memory resource of cuda.core."""
import sys
import types

import pytest

import granule_torch
from granule_torch import GranuleError
from granule_torch.adapters import _releases
from granule_torch.adapters.cuda_core import GranuleMemoryResource


def test_buffers_come_and_go(live, streams):
    memory = GranuleMemoryResource()
    buffer = memory.allocate(1000, stream=streams[0])
    assert live() == 1024
    assert (buffer.size, buffer.device_id, buffer.is_device_accessible, buffer.is_host_accessible) == (1000, 0, True, False)
    assert buffer.memory_resource is memory
    buffer.close()
    assert live() == 0
    kept = memory.allocate(10, stream=streams[0])
    del kept
    assert live() == 0


def test_contents_go_through_it(live, streams):
    memory = GranuleMemoryResource()
    first, second = (memory.allocate(4096, stream=streams[0]) for _ in range(2))
    first.fill(0x5A, stream=streams[0])
    second.copy_from(first, stream=streams[0])
    streams[0].sync()
    assert live() == 8192


def test_the_stream_that_closes_is_waited_for(live, device, streams):
    from granule_torch import _library
    from granule_torch.adapters import _process

    memory = GranuleMemoryResource()
    buffer = memory.allocate(4 << 20, stream=streams[0])
    address = int(buffer.handle)
    library = _library.load()
    # A function on the host holds the other stream back.
    import ctypes
    import threading

    go = threading.Event()
    hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait())
    library.granule_stream_launch_host.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
    _library.check(
        library.granule_stream_launch_host(_process.engine(), 0, int(streams[1].handle), ctypes.cast(hold, ctypes.c_void_p), None)
    )
    buffer.close(streams[1])
    meanwhile = memory.allocate(4 << 20, stream=streams[0])
    assert int(meanwhile.handle) != address
    go.set()
    streams[1].sync()
    after = memory.allocate(4 << 20, stream=streams[0])
    assert int(after.handle) == address
    meanwhile.close()
    after.close()


def test_a_full_device_is_a_memory_error(streams):
    with pytest.raises(MemoryError, match="out of memory"):
        GranuleMemoryResource().allocate(1 << 45, stream=streams[0])


def test_equality(device):
    assert GranuleMemoryResource() == GranuleMemoryResource(0) != GranuleMemoryResource(1)


def test_cuda_cores_own_memory_stays_beside_it(live, device, streams):
    theirs = device.memory_resource.allocate(64, stream=streams[0])
    ours = GranuleMemoryResource().allocate(64, stream=streams[0])
    theirs.copy_from(ours, stream=streams[0])
    assert live() == 512
    ours.close()
    theirs.close()


def test_releases_that_do_not_fit_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "array_library", types.SimpleNamespace(__version__="0.9.2"))
    with pytest.raises(GranuleError, match=r"array_library 0\.9\.2 is here, and 1\.0 or later fits: pip install -U some-arrays"):
        _releases.imported("array_library", "some-arrays", "1.0")
    with pytest.raises(GranuleError, match=r"has no Stream; 0\.9 has"):
        _releases.imported("array_library", "some-arrays", "0.9", ("Stream",))
    with pytest.raises(GranuleError, match="no_such_library cannot be imported .*: install nothing 1.0 or later"):
        _releases.imported("no_such_library", "nothing", "1.0")


def test_a_retired_streams_memory_serves_another(live, device):
    memory = GranuleMemoryResource()
    ending = device.create_stream()
    buffer = memory.allocate(6 << 20, stream=ending)
    address = int(buffer.handle)
    buffer.close()
    ending.sync()
    granule_torch.retire_stream(ending)
    ending.close()
    buffer = memory.allocate(6 << 20, stream=device.create_stream())
    assert int(buffer.handle) == address
    buffer.close()
