"""Putting Granule in place: how it is asked for, and what refuses with native left as it was."""
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from observe import MIB, error, native_works, raw
from rig import ROOT, Rig
from scene import DEFAULT, GRANULE, Run, scene

RUNS = (DEFAULT,)
ALONE = dict(alone=True, install=False, allocators=(GRANULE,))


@scene(**ALONE)
def test_enabled_before_cuda_is_initialised():
    import granule_torch

    assert not granule_torch.is_enabled() and "not PyTorch's allocator" in granule_torch.report()
    assert granule_torch.privateuse1.enable and granule_torch.adapters
    granule_torch.enable()
    granule_torch.enable()
    assert granule_torch.is_enabled() and not torch.cuda.is_initialized()
    kept = raw(3 * MIB)
    assert torch.cuda.memory_allocated() == kept.numel()
    report = granule_torch.report()
    assert "backend cuda" in report and "allocated 3.0 MiB" in report
    assert granule_torch.is_enabled()


@scene(**ALONE)
def test_adaptors_are_imported_when_they_are_named():
    import granule_torch

    adapters = granule_torch.adapters
    names = [m.name for m in pkgutil.iter_modules(adapters.__path__) if not m.name.startswith("_")]
    assert {"rmm", "torch_memory_saver"} <= set(names) and not any(f"{adapters.__name__}.{n}" in sys.modules for n in names)
    for name in names:
        try:
            assert getattr(adapters, name) is sys.modules[f"{adapters.__name__}.{name}"]
        except (granule_torch.GranuleError, ModuleNotFoundError) as error:
            # Its library is not here, and that is what is said.
            assert name.split("_")[0] in str(error)
    assert adapters.torch_memory_saver.install and not hasattr(adapters, "nothing")


@scene(**ALONE)
def test_refused_once_cuda_is_initialised():
    import granule_torch

    kept = raw(5)
    said = error(granule_torch.enable)
    assert "CannotEnable" in said and "initialised CUDA already" in said and "left in place" in said
    assert not granule_torch.is_enabled() and kept.numel() and native_works()


@scene(**ALONE)
def test_refused_without_cuda_in_torch():
    import granule_torch

    torch.version.cuda, kept = None, torch.version.cuda
    said = error(granule_torch.enable)
    torch.version.cuda = kept
    assert "without CUDA or ROCm" in said and not granule_torch.is_enabled() and native_works()


@scene(**ALONE)
def test_refused_on_a_release_before_the_tested_ones():
    import granule_torch

    torch.__version__, kept = "2.10.0", torch.__version__
    said = error(granule_torch.enable)
    torch.__version__ = kept
    assert "2.10.0" in said and "2.11 and later" in said and not granule_torch.is_enabled() and native_works()


@scene(**ALONE)
def test_a_release_is_tested_by_its_whole_version():
    from granule_torch import _enable

    kept, untested = torch.__version__, {}
    for version in ("2.11.0+cu130", "2.12.1", "2.14.1+cu130", "2.15.0", "2.15.0a0+git1", "2.16.0.dev20261101", "3.0.0"):
        torch.__version__ = version
        untested[version] = _enable._is_untested(torch)
    torch.__version__ = kept
    assert [version for version in untested if not untested[version]] == ["2.11.0+cu130", "2.14.1+cu130", "2.15.0"], untested


@scene(**ALONE)
def test_wrong_settings_are_refused_by_name():
    import granule_torch

    wrong = ("no_such_option:1", "expandable_segments:Maybe", "host_reserve:900000G", "system_root:/no/such/folder")
    for text in wrong:
        said = error(granule_torch.enable, settings=text)
        assert "CannotEnable" in said and text.split(":")[0] in said and "left in place" in said, said
    assert "There is no such option" in error(granule_torch.enable, settings="no_such_option:1")
    assert "TypeError" in error(granule_torch.enable, settings=3)
    assert not granule_torch.is_enabled() and native_works()


@scene(env={"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, **ALONE)
def test_the_drivers_pools_in_pytorchs_place_are_named():
    """PyTorch has made that allocator when it was imported."""
    import granule_torch

    said = error(granule_torch.enable)
    assert "CannotEnable" in said and "'cudaMallocAsync' already: remove the backend option" in said, said
    assert not granule_torch.is_enabled()


@scene(**ALONE)
def test_the_drivers_pools_in_its_settings_are_a_note_and_no_refusal():
    import granule_torch

    granule_torch.enable(settings="backend:cudaMallocAsync")
    block = torch.empty(1 << 20, device="cuda")
    assert granule_torch.is_enabled() and torch.cuda.memory_allocated() >= block.numel()


@scene(env={"GRANULE_BACKEND": "openreg"}, **ALONE)
def test_backends_of_other_devices_are_refused():
    """Their memory would be foreign to every kernel."""
    import granule_torch

    said = error(granule_torch.enable)
    assert "GRANULE_BACKEND names 'openreg'" in said and "privateuse1" in said
    for name in ("openreg", "hip", "nvidia"):
        said = error(granule_torch.enable, backend=name)
        assert "CannotEnable" in said and repr(name) in said and "left in place" in said, said
    assert not granule_torch.is_enabled() and native_works()


@scene(**ALONE)
def test_a_second_enable_changes_nothing_in_silence():
    import granule_torch

    granule_torch.enable(backend="cuda")
    assert "configure()" in error(granule_torch.enable, settings="expandable_segments:True")
    granule_torch.enable()
    assert granule_torch.is_enabled()


@scene(env={"GRANULE_TORCH": "1"}, **ALONE)
def test_the_environment_enables_it():
    import granule_torch

    assert granule_torch.is_enabled()
    kept = raw(3 * MIB)
    assert torch.cuda.memory_allocated() == 3 * MIB and kept.numel()


@scene(env={"GRANULE_TORCH": "0"}, **ALONE)
def test_the_environment_can_say_no():
    import granule_torch

    assert not granule_torch.is_enabled() and native_works()


@scene(**ALONE)
def test_settings_are_given_and_changed():
    import granule_torch

    granule_torch.enable(settings="max_split_size_mb:64")
    torch.cuda.init()
    assert torch.cuda.memory_stats()["max_split_size"] == 64 * MIB
    granule_torch.configure("expandable_segments:True")
    kept = raw(30 * MIB)
    assert [segment["is_expandable"] for segment in torch.cuda.memory_snapshot()] == [True]
    assert kept.numel()
    granule_torch.configure("segments_ipc:False")
    (settings,) = (line for line in granule_torch.report().splitlines() if line.startswith("Settings: "))
    # On an older PyTorch the release is among them.
    settings = re.sub(r"pytorch_release:[0-9.]+,", "", settings)
    assert settings == "Settings: expandable_segments:True,segments_ipc:False"
    near = error(granule_torch.configure, "crosstream:never")
    assert "there is no such option" in near and "cross_stream" in near and "max_split_size_mb" not in near
    unknown = error(granule_torch.configure, "weather:True")
    assert "there is no such option" in unknown and "cross_stream, " in unknown and "max_split_size_mb, " in unknown


def one_policy():
    import granule_torch

    kept = raw(3 * MIB)
    assert "Settings: policy:granule\n" in granule_torch.report()
    assert "policy:pytorch is refused" in error(granule_torch.configure, "policy:pytorch")
    granule_torch.configure("policy:granule,segments_ipc:False")
    assert "Settings: policy:granule,segments_ipc:False\n" in granule_torch.report()
    # Cut to size, where PyTorch's takes 20 MiB.
    assert 3 * MIB <= torch.cuda.memory_reserved() < 20 * MIB
    assert kept.numel()


@scene(**ALONE)
def test_the_policy_is_chosen_when_granule_is_enabled():
    import granule_torch

    assert "allowed: pytorch" in error(granule_torch.enable, settings="policy:fastest")
    granule_torch.enable(settings="policy:granule")
    one_policy()


@scene(env={"GRANULE_CONF": "policy:granule"}, **ALONE)
def test_the_environment_chooses_the_policy():
    import granule_torch

    granule_torch.enable()
    one_policy()


@scene(runs=(Run("backend named", settings="backend:native,max_split_size_mb:64"),), **ALONE)
def test_the_settings_may_name_the_native_backend():
    """Many launch scripts do: it is the default of PyTorch."""
    import granule_torch

    granule_torch.enable()
    kept = raw(3 * MIB)
    assert torch.cuda.memory_allocated() == kept.numel() and torch.cuda.memory_stats()["max_split_size"] == 64 * MIB


@scene(since=(2, 12), **ALONE)
def test_a_look_before_the_first_use_leaves_the_process_free_to_fork():
    import granule_torch

    granule_torch.enable()
    taken = torch.cuda.memory._snapshot()
    assert taken["segments"] == [] and taken["device_traces"] == []
    assert torch.cuda.memory._allocation_traceback(4096) is None and not torch.cuda.is_initialized()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if raw(5).numel() == 5 else 3)
        except BaseException:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@scene(**ALONE)
def test_forked_children_before_the_first_use():
    """A data loader forks after `enable`, before CUDA is used."""
    import granule_torch

    granule_torch.enable()
    child = os.fork()
    if child == 0:
        try:
            kept = raw(3 * MIB)
            os._exit(0 if torch.cuda.memory_allocated() == kept.numel() else 3)
        except BaseException:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert raw(3 * MIB).numel()


def bare(program, **env):
    """Runs Python without the rig: no driver, no device."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAKE_GPU", "LD_"))}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**kept, **env}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_import_needs_no_gpu_no_driver_and_no_torch():
    text = bare("import sys, granule_torch; print('torch' in sys.modules, granule_torch.is_enabled())")
    assert text.split() == ["False", "False"]
    assert "not PyTorch's allocator" in bare("import granule_torch; print(granule_torch.report())")


def test_without_a_device_it_refuses_and_torch_still_works():
    if Rig().real:
        return
    program = """
import torch, granule_torch
try:
    granule_torch.enable()
except granule_torch.CannotEnable as failure:
    print(failure)
print(torch.ones(3).sum().item())
"""
    text = bare(program)
    assert "no GPU or no driver" in text and "left in place" in text and "3.0" in text
    assert "3.0" in bare("import torch; print(torch.ones(3).sum().item())", GRANULE_TORCH="1")


def test_a_driver_that_lacks_a_function_is_refused_before_anything_is_installed(tmp_path):
    """Native stays, with the reason; and what only timing needs is no reason."""
    if Rig().real:
        return
    program = """
import sys, torch, granule_torch
try:
    granule_torch.enable()
except granule_torch.CannotEnable as failure:
    print(failure)
print(torch.cuda.get_allocator_backend(), torch.ones(3, device="cuda").numel(), granule_torch.is_enabled())
"""
    rig = Path(os.environ.get("FAKE_GPU_LIB") or ROOT / "target/fakegpu")
    # The rig's own runtime needs the first one for PyTorch's native allocator: only Granule looks into a driver without it.
    for function, said, of_rig in (("cuMemAlloc_v2", "native 3 False", False), ("cuEventElapsedTime", "3 True", True)):
        # The rig, with a driver whose table of names has another word in this place.
        lacking = tmp_path / function
        shutil.copytree(rig, lacking, symlinks=True)
        name = b"\0%s\0" % function.encode()
        driver = (lacking / "libcuda.so.1").read_bytes()
        assert name in driver
        (lacking / "libcuda.so.1").write_bytes(driver.replace(name, name.replace(b"\0c", b"\0-")))
        where = {"FAKE_GPU_LIB": str(lacking)} if of_rig else {"GRANULE_CUDA_LIBRARY": str(lacking / "libcuda.so.1")}
        done = subprocess.run(
            [*Rig().command(), "-c", program],
            env={**os.environ, **where}, capture_output=True, text=True, timeout=120, check=False,
        )
        assert done.returncode == 0 and said in done.stdout, done.stdout + done.stderr
        assert (f"lacks {function}" in done.stdout) == (function == "cuMemAlloc_v2"), done.stdout


def test_ninja_is_found_beside_the_interpreter():
    """As after `venv/bin/pip install`, where nobody activated the environment."""
    program = """
import os
import re
from torch.utils import cpp_extension
from granule_torch import _build
os.environ["PATH"] = "/nonexistent"
assert not cpp_extension.is_ninja_available()
with _build.ninja_at_hand():
    assert cpp_extension.is_ninja_available()
assert os.environ["PATH"] == "/nonexistent"
"""
    bare(program)


def test_what_the_builder_said_is_told(tmp_path):
    program = """
from granule_torch import GranuleError, _build, _shim
for said, wanted in (
    ("Ninja is required to load C++ extensions", "Ninja is required"),
    ("[1/2] c++\\na.cpp:1: error: no such thing\\nbuild stopped", "a.cpp:1: error: no such thing"),
):
    def compile_shim(*_, **__):
        raise RuntimeError(said)
    _build.compile_shim, _build.key = compile_shim, lambda *_: "never built"
    try:
        _shim.build("cuda", cuda=True)
        raise AssertionError("it was built")
    except GranuleError as failure:
        assert wanted in str(failure).splitlines()[1] and len(str(failure).splitlines()) == 2, failure
"""
    bare(program, GRANULE_TORCH_CACHE=str(tmp_path))


def test_a_cache_that_others_can_change_is_refused(tmp_path):
    program = """
import os
from pathlib import Path
from granule_torch import GranuleError, _build, _shim
cache = Path(os.environ["GRANULE_TORCH_CACHE"])
_build.key = lambda *_: "planted"
def refused():
    try:
        return not _shim.build("cuda", cuda=True)
    except GranuleError as failure:
        return "GRANULE_TORCH_CACHE" in str(failure)
planted = cache / "planted"
planted.mkdir(parents=True)
(planted / "granule_torch_cuda.so").touch()
assert not refused(), "it is the user's own"
for folder in (cache, planted):
    folder.chmod(0o777)
    assert refused(), folder
    folder.chmod(0o755)
cache.rename(cache.with_name("elsewhere"))
cache.symlink_to(cache.with_name("elsewhere"))
assert refused(), "a link"
"""
    bare(program, GRANULE_TORCH_CACHE=str(tmp_path / "cache"))


def test_a_build_that_was_killed_does_not_hold_up_the_next(tmp_path):
    """PyTorch's builder leaves a file behind then, and waits for whoever made it."""
    program = f"""
from pathlib import Path
from torch.utils import cpp_extension
from granule_torch import _build
folder = Path({str(tmp_path)!r})
(folder / "lock").touch()
def load(**_):
    assert not (folder / "lock").exists()
    return None
cpp_extension.load = load
_build.compile_shim("cuda", folder, cuda=True)
"""
    bare(program)
