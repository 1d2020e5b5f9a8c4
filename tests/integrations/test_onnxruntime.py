"""ONNX Runtime's own library calls Granule's OrtAllocator. Its CPU build: tensors are made in device memory, and nothing computes there."""
import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

from conftest import needed

onnxruntime = needed("onnxruntime", "onnxruntime")

import pytest  # noqa: E402
from granule_torch import GranuleError  # noqa: E402
from granule_torch.adapters.onnxruntime import OrtAllocator  # noqa: E402

VERSION = 25
# Places in OrtApi, to which releases only add at the end.
PLACES = {
    "GetErrorMessage": 2, "CreateEnv": 3, "CreateTensorAsOrtValue": 48, "GetTensorMutableData": 51, "CreateMemoryInfo": 68,
    "AllocatorAlloc": 75, "AllocatorFree": 76, "AllocatorGetInfo": 77, "ReleaseEnv": 92, "ReleaseStatus": 93,
    "ReleaseMemoryInfo": 94, "ReleaseValue": 96, "RegisterAllocator": 176, "UnregisterAllocator": 177,
}  # fmt: skip


class Runtime:
    def __init__(self):
        (library,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
        base = ctypes.CDLL(str(library)).OrtGetApiBase
        base.restype = POINTER(c_void_p)
        get = ctypes.CFUNCTYPE(POINTER(c_void_p), c_uint32)(base()[0])
        self.table = get(VERSION)

    def call(self, name, *arguments):
        """A function that answers a status: null, or what is wrong."""
        status = ctypes.CFUNCTYPE(c_void_p)(self.table[PLACES[name]])(*arguments)
        if status:
            text = ctypes.CFUNCTYPE(c_char_p, c_void_p)(self.table[PLACES["GetErrorMessage"]])(status)
            self.release("ReleaseStatus", c_void_p(status))
            raise RuntimeError(text.decode())

    def made(self, name, *arguments):
        out = c_void_p()
        self.call(name, *arguments, byref(out))
        return out

    def release(self, name, what):
        ctypes.CFUNCTYPE(None, c_void_p)(self.table[PLACES[name]])(what)


@pytest.fixture(scope="module")
def runtime():
    return Runtime()


@pytest.fixture
def memory_info(runtime):
    # OrtDeviceAllocator, device 0, OrtMemTypeDefault.
    info = runtime.made("CreateMemoryInfo", c_char_p(b"Cuda"), c_int(0), c_int(0), c_int(0))
    yield info
    runtime.release("ReleaseMemoryInfo", info)


@pytest.fixture
def ours(memory_info, streams):
    allocator = OrtAllocator(memory_info.value, VERSION, stream=streams[0])
    yield c_void_p(allocator.ptr)
    allocator.close()


def test_tensors_are_made_of_it(runtime, ours, live):
    shape, floats = (c_int64 * 2)(10, 100), 1
    tensor = runtime.made("CreateTensorAsOrtValue", ours, shape, c_size_t(2), c_int(floats))
    assert live() == 4096
    address = runtime.made("GetTensorMutableData", tensor)
    assert address.value % 512 == 0
    runtime.release("ReleaseValue", tensor)
    assert live() == 0


def test_it_is_asked_through_the_runtime(runtime, ours, live, memory_info):
    ptr = runtime.made("AllocatorAlloc", ours, c_size_t(5000))
    assert live() == 5120
    runtime.call("AllocatorFree", ours, ptr)
    assert runtime.made("AllocatorGetInfo", ours).value == memory_info.value


def test_an_environment_takes_it_and_lets_it_go(runtime, ours):
    env = runtime.made("CreateEnv", c_int(3), c_char_p(b"granule"))
    info = runtime.made("AllocatorGetInfo", ours)
    runtime.call("RegisterAllocator", env, ours)
    runtime.call("UnregisterAllocator", env, info)
    with pytest.raises(RuntimeError):
        runtime.call("UnregisterAllocator", env, info)
    runtime.release("ReleaseEnv", env)


def test_a_full_device_is_a_tensor_without_memory(runtime, ours, live, capfd):
    """What this runtime makes of an allocator's null; Granule's log says what there was."""
    tensor = runtime.made("CreateTensorAsOrtValue", ours, (c_int64 * 1)(1 << 45), c_size_t(1), c_int(2))
    assert runtime.made("GetTensorMutableData", tensor).value is None
    assert "out of memory" in capfd.readouterr().err
    runtime.release("ReleaseValue", tensor)
    assert live() == 0


def test_another_release_is_named(memory_info):
    with pytest.raises(GranuleError, match="before 1.18"):
        OrtAllocator(memory_info.value, 17)
