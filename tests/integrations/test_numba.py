"""Numba-CUDA on Granule's memory. Numba wants a GPU of a known kind, so each test is a process on a simulated one."""
import os
import subprocess
import sys
import textwrap

import pytest
from conftest import needed

needed("numba.cuda", "numba-cuda")

ON_GRANULE = """
    import numpy as np
    from numba import cuda
    from granule_torch.adapters import _process
    from granule_torch.adapters import numba as granule_numba

    def live():
        return _process.device_stats().allocated_bytes.all.current

"""


def python(*words, **more):
    """Runs Python where the device has contents."""
    env = {**os.environ, "GRANULE_LOOKALIKE": "h100", "FAKE_GPU_BYTES": "1", **more}
    return subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, timeout=120, check=False)


def run(source, **more):
    done = python("-c", textwrap.dedent(ON_GRANULE) + textwrap.dedent(source), **more)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


BYTES_COME_BACK = """
    array = cuda.to_device(np.arange(1000))
    assert live() == 8192, live()
    part = array[10:20]
    del array
    assert list(part.copy_to_host()) == list(range(10, 20)) and live() == 8192
    del part
    assert live() == 0, live()
    assert cuda.device_array(0).size == 0
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free < total
    kept = cuda.device_array(100)
"""


def test_arrays_come_and_go_and_have_their_bytes():
    run("granule_numba.enable()\n" + textwrap.dedent(BYTES_COME_BACK))


def test_the_environment_names_it():
    run(BYTES_COME_BACK, NUMBA_CUDA_MEMORY_MANAGER="granule_torch.adapters.numba")


def test_a_full_device_is_a_memory_error():
    run("""
        granule_numba.enable()
        try:
            cuda.device_array(1 << 45, dtype="int8")
        except MemoryError as error:
            assert "out of memory" in str(error)
        else:
            raise AssertionError("there was memory")
        """)


def test_what_comes_too_late_is_refused():
    run("""
        from granule_torch import GranuleError

        cuda.device_array(10)
        try:
            granule_numba.enable()
        except GranuleError as error:
            assert "before the first use" in str(error), error
        else:
            raise AssertionError("it was not refused")
        """)


@pytest.mark.parametrize("home", ["one", "other"])
def test_memory_is_used_again_after_the_work_of_all_streams(home):
    """The stream that used an array last is held back; an array in its place is written by another stream, afterwards."""
    run(f"""
        import ctypes, threading
        from granule_torch import _library

        granule_numba.enable()
        streams = dict(one=cuda.stream(), other=cuda.stream())
        last, next = streams["one"], streams["{home}"]
        array = cuda.device_array(1 << 20, dtype="uint8")
        address = array.device_ctypes_pointer.value
        go, done = threading.Event(), threading.Event()
        hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait())
        tell = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: done.set())

        def queue(stream, function):
            library, handle = _library.load(), int(stream.handle)
            launch = library.granule_stream_launch_host
            launch.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
            _library.check(launch(_process.engine(), 0, handle, ctypes.cast(function, ctypes.c_void_p), None))

        queue(last, hold)
        del array
        again = cuda.device_array(1 << 20, dtype="uint8")
        assert again.device_ctypes_pointer.value == address
        queue(next, tell)
        assert not done.wait(0.3)
        go.set()
        assert done.wait(20)
        cuda.synchronize()
        """)


# Those that need no kernel.
@pytest.mark.parametrize("module", ["test_array_attr", "test_cuda_memory", "test_pinned", "test_reset_device"])
def test_numbas_own_tests_pass(module):
    needed("filecheck", "filecheck")
    tests = f"numba.cuda.tests.cudadrv.{module}"
    done = python("-W", "ignore", "-m", "unittest", tests, NUMBA_CUDA_MEMORY_MANAGER="granule_torch.adapters.numba")
    assert done.returncode == 0 and done.stderr.endswith("OK\n"), done.stdout + done.stderr


def test_what_the_driver_does_not_let_be_given_back_comes_back_with_the_next():
    run("""
        granule_numba.enable()
        first, second = cuda.device_array(100), cuda.device_array(100)
        held, order = live(), granule_numba._order
        def refuse(device):
            raise RuntimeError("the driver is busy")
        granule_numba._order = refuse
        import sys
        sys.unraisablehook = lambda _: None
        del first
        assert live() == held, live()
        granule_numba._order = order
        del second
        assert live() == 0, live()
        """)
