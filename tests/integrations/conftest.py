"""Other libraries on Granule's memory, over a driver that the simulated device is behind. Started by `cargo xtask integrations`,
which sets GRANULE_CAPI_LIBRARY and puts the driver where libraries look for it.
"""
import gc
import importlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def needed(module, package):
    """A library that only the long run has."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"{package} is not here ({error}): cargo xtask integrations --long installs it", allow_module_level=True)


@pytest.fixture
def live():
    """Bytes that the program has of device 0. A test leaves as much as it found."""
    from granule_torch.adapters import _process

    def now():
        gc.collect()
        return _process.device_stats().allocated_bytes.all.current

    before = now()
    yield lambda: now() - before
    assert now() == before


@pytest.fixture(scope="session")
def device():
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    return device


@pytest.fixture(scope="session")
def streams(device):
    return device.create_stream(), device.create_stream()


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Compiles a program of `cpp` against the real headers, and gives what runs it."""
    site = Path(sysconfig.get_paths()["purelib"])
    cuda = site / "nvidia/cu13/include"
    rmm = [site / "librmm/include/rapids", site / "librmm/include", site / "rapids_logger/include", cuda]
    libraries = [site / "librmm/lib64/librmm.so", site / "rapids_logger/lib64/librapids_logger.so"]
    capi = Path(os.environ["GRANULE_CAPI_LIBRARY"])

    def compile(name, standard, *, with_rmm=False, headers=None, source=None):
        program = tmp_path_factory.mktemp(name) / name
        theirs = headers or (rmm if with_rmm else [cuda / "cccl", cuda])
        command = [os.environ.get("CXX", "c++"), f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-g"]
        command += ["-I", ROOT / "crates/granule-capi/include"]
        command += [part for folder in theirs for part in ("-isystem", folder)]
        command += [source or HERE / "cpp" / f"{name}.cpp", "-o", program, capi, *(libraries if with_rmm else [])]
        command += [f"-Wl,-rpath,{folder}" for folder in {capi.parent, *(l.parent for l in libraries)}]
        subprocess.run(command, check=True)
        return lambda: subprocess.run([program], check=True, timeout=120, stdout=subprocess.PIPE, text=True).stdout

    return compile


sys.path.insert(0, str(HERE))
