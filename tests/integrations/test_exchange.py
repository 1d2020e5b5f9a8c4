"""Buffers, DLPack and the CUDA array interface, with cuda.core and NumPy on the other side."""
import numpy
import pytest
from cuda.core.utils import StridedMemoryView

import granule_torch
from granule_torch import Buffer, GranuleError, from_dlpack

CUDA, CPU = 2, 1


def test_pytorch_is_not_needed():
    import sys

    assert "torch" not in sys.modules


def test_a_buffer_goes_with_its_object(live):
    buffer = Buffer((3, 100), "float32")
    assert (buffer.nbytes, live()) == (1200, 1536)
    assert buffer.ptr % 512 == 0
    del buffer
    assert live() == 0
    with Buffer(10) as closed:
        pass
    assert live() == 0
    assert "closed" in repr(closed)
    for use in (closed.__dlpack__, lambda: closed.record_stream(None), lambda: closed.__cuda_array_interface__):
        with pytest.raises(GranuleError, match="closed"):
            use()
    assert Buffer((0, 5)).ptr == 0


def test_another_library_sees_it_and_keeps_it(live, streams):
    buffer = Buffer((4, 8), "int16", stream=streams[0])
    view = StridedMemoryView.from_dlpack(buffer, stream_ptr=int(streams[1].handle))
    assert (view.ptr, view.shape, view.strides or (8, 1)) == (buffer.ptr, (4, 8), (8, 1))
    assert view.dtype == numpy.dtype("int16") and view.device_id == 0
    buffer.close()
    assert live() == 512
    del view
    streams[1].sync()
    again = Buffer(64, stream=streams[0])
    del again
    assert live() == 0


def test_the_array_interface_names_the_stream(live, streams):
    buffer = Buffer(16, "float64", stream=streams[0])
    view = StridedMemoryView.from_cuda_array_interface(buffer, stream_ptr=int(streams[1].handle))
    assert (view.ptr, view.shape, view.dtype) == (buffer.ptr, (16,), numpy.dtype("float64"))
    assert buffer.__cuda_array_interface__["stream"] == int(streams[0].handle)
    assert Buffer(16).__cuda_array_interface__["stream"] == 1
    with pytest.raises(AttributeError, match="bfloat16"):
        Buffer(16, "bfloat16").__cuda_array_interface__


@pytest.mark.parametrize("max_version, name", [(None, "dltensor"), ((0, 8), "dltensor"), ((1, 1), "dltensor_versioned")])
def test_a_tensor_that_nobody_takes_ends_with_its_capsule(live, max_version, name):
    buffer = Buffer(100)
    capsule = buffer.__dlpack__(stream=-1, max_version=max_version)
    assert f'"{name}"' in repr(capsule)
    buffer.close()
    assert live() == 512
    del capsule
    assert live() == 0


def test_what_cannot_be_had_by_dlpack(live):
    buffer = Buffer(100)
    with pytest.raises(BufferError, match="copy it on the other side"):
        buffer.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="was asked for"):
        buffer.__dlpack__(dl_device=(CPU, 0))
    # On CUDA 0 has no meaning, as two streams are called the default one.
    with pytest.raises(ValueError, match="stream is 0"):
        buffer.__dlpack__(stream=0)
    with pytest.raises(ValueError, match="dtype is 'float7'"):
        Buffer(1, "float7")
    with pytest.raises(ValueError, match="negative"):
        Buffer((2, -1))
    with pytest.raises(TypeError, match="stream is 'x'"):
        Buffer(1, stream="x")
    with pytest.raises(granule_torch.OutOfMemory, match="out of memory") as full:
        Buffer(1 << 45)
    assert isinstance(full.value, MemoryError)


def test_tensors_of_others_are_imported(live, streams):
    from granule_torch.adapters.cuda_core import GranuleMemoryResource

    theirs = GranuleMemoryResource().allocate(256, stream=streams[0])
    here = from_dlpack(theirs, stream=streams[1])
    assert (here.ptr, here.shape, here.device) == (int(theirs.handle), (256,), (CUDA, 0))
    here.record_stream(streams[1])
    del theirs
    # Whoever imported it keeps it.
    assert live() == 512
    here.close()
    here.close()
    assert live() == 0


def test_ours_comes_back():
    buffer = Buffer((2, 3), "complex64")
    here = from_dlpack(buffer)
    assert (here.ptr, here.shape, here.strides, here.type.typestr) == (buffer.ptr, (2, 3), (3, 1), "<c8")


def test_memory_of_the_host_is_imported_too():
    array = numpy.arange(6.0).reshape(2, 3)
    here = from_dlpack(array)
    assert (here.ptr, here.shape, here.device[0], here.type.typestr) == (array.ctypes.data, (2, 3), CPU, "<f8")
    with pytest.raises(GranuleError):
        here.record_stream(None)


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match="list has no __dlpack__"):
        from_dlpack([1])

    class Odd:
        def __dlpack_device__(self):
            return CPU, 0

        def __dlpack__(self, **_):
            return _taken

    source = numpy.arange(3)
    _taken = source.__dlpack__()
    kept = from_dlpack(Odd())
    with pytest.raises(GranuleError, match="used_dltensor"):
        from_dlpack(Odd())
    kept.close()
