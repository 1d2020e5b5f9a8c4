"""CuPy and RMM's Python package. Their own CUDA runtime does not start on a simulated driver, so the stream is named here; what
asks that runtime for the current stream or device cannot run.
"""
from conftest import needed

cupy = needed("cupy", "cupy-cuda13x")
rmm = needed("rmm", "rmm-cu13")

import pytest  # noqa: E402
from granule_torch.adapters import cupy as granule_cupy  # noqa: E402
from granule_torch.adapters import rmm as granule_rmm  # noqa: E402


@pytest.fixture
def on_granule(streams):
    with cupy.cuda.using_allocator(granule_cupy.allocator(cupy.cuda.Stream.from_external(streams[0]))):
        yield


def test_arrays_of_cupy(live, on_granule):
    array = cupy.empty((10, 100), dtype="float32")
    assert live() == 4096
    part = array[2:4]
    assert part.data.ptr == array.data.ptr + 800
    del array
    assert live() == 4096
    del part
    assert live() == 0
    assert cupy.empty(0).size == 0


def test_a_full_device_is_a_memory_error(on_granule):
    with pytest.raises(MemoryError, match="out of memory"):
        cupy.empty(1 << 45, dtype="int8")


def test_it_becomes_the_allocator_of_cupy():
    before = cupy.cuda.get_allocator()
    granule_cupy.enable()
    try:
        assert cupy.cuda.get_allocator().__module__ == granule_cupy.__name__
    finally:
        cupy.cuda.set_allocator(before)


def test_buffers_of_rmm(live, streams):
    stream = rmm.pylibrmm.stream.Stream(streams[0])
    memory = granule_rmm.resource()
    address = memory.allocate(1000, stream=stream)
    assert live() == 1024
    memory.deallocate(address, 1000, stream=stream)
    buffer = rmm.DeviceBuffer(size=5000, stream=stream, mr=memory)
    assert (buffer.size, live()) == (5000, 5120)
    del buffer
    assert live() == 0
    counted = rmm.mr.StatisticsResourceAdaptor(memory)
    buffer = rmm.DeviceBuffer(size=100, stream=stream, mr=counted)
    assert counted.allocation_counts.current_bytes == 100
    del buffer
    with pytest.raises(MemoryError):
        memory.allocate(1 << 45, stream=stream)
