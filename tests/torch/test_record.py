"""Recordings: of Granule by granule_torch and GRANULE_RECORD, of PyTorch's own allocator by `granule record`.

What is recorded is read by the granule command, whose figures must be those that the program itself saw.
"""
import glob
import json
import os
import pickle
import subprocess
import sys
import tempfile

import pytest
import torch
from observe import MIB, raw
from rig import ROOT, Rig
from scene import GRANULE, Run, scene

RUNS = (Run("default", gib=4),)
ALONE = dict(alone=True, allocators=(GRANULE,))

# A small training run with two streams, iterations, a flush, and a request that cannot be served; prints its statistics.
PROGRAM = """
import json, sys, torch
GRANULE = sys.argv[1] == "granule"
if GRANULE:
    import granule_torch
    granule_torch.enable()
torch.backends.cuda.enable_cudnn_sdp(False)
# Autograd's own threads would still let go of memory while the interpreter ends.
torch.autograd.set_multithreading_enabled(False)
net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 16)).cuda()
optimizer, side = torch.optim.AdamW(net.parameters()), torch.cuda.Stream()
for step in range(30):
    if GRANULE:
        granule_torch.mark_iteration(step)
    with torch.cuda.stream(side):
        rows = torch.ones(200 + 37 * (step % 5), 512, device="cuda")
    rows.record_stream(torch.cuda.current_stream())
    net(rows).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 10:
        torch.cuda.empty_cache()
try:
    torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
del rows
figures = torch.cuda.memory_stats()
print(json.dumps({key: figures[key] for key in figures if not isinstance(figures[key], dict)}))
"""

# Asks twenty times, and ends in one of many ways.
ENDS = """
import ctypes, glob, os, signal, sys, time, torch
allocator, way = sys.argv[1:]
if allocator == "granule":
    import granule_torch
    granule_torch.enable()
def written_after(moment):
    while not any(os.stat(path).st_mtime > moment for path in glob.glob("recording/*so-far.pickle")):
        time.sleep(0.1)
    return time.time()
kept = [torch.empty(1 << 20, device="cuda") for _ in range(20)]
first = written_after(0) if allocator == "native" else 0
kept.append(torch.empty(1, device="cuda"))
if allocator == "native":
    written_after(first)
else:
    time.sleep(2)
if way == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif way == "abort":
    os.abort()
elif way == "_exit":
    os._exit(7)
else:
    ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()
"""


def command():
    """The granule command, if it was built."""
    named = os.environ.get("GRANULE_COMMAND")
    target = os.environ.get("CARGO_TARGET_DIR") or str(ROOT / "target")
    built = [named] if named else [f"{target}/release/granule", f"{target}/debug/granule"]
    return next((path for path in built if path and os.path.exists(path)), None)


def run(folder, allocator, before=(), **env):
    """Runs the program on the rig; what it printed, and what was said beside that."""
    rig = Rig()
    script = os.path.join(folder, "train.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    env = dict(os.environ, FAKE_GPU_MEM_GB="4", **env)
    words = [*before, *rig.command(), script, allocator]
    done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def replayed(path):
    """What the granule command makes of a file, on the device that it was recorded on."""
    words = [command(), "replay", path, "--capacity", "4GiB", "--json"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def find(answer, key):
    """A figure, wherever the command's answer has it."""
    if isinstance(answer, dict):
        if key in answer:
            return answer[key]
        answer = list(answer.values())
    found = (find(value, key) for value in answer) if isinstance(answer, list) else ()
    return next((value for value in found if value is not None), None)


def agrees(path, figures):
    answer = replayed(path)
    for key in ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes"):
        assert find(answer, f"{key}_peak") == figures[f"{key}.all.peak"], (key, answer)
    for key in ("num_ooms", "num_device_alloc"):
        assert find(answer, key) == figures[key], (key, answer)


@scene(**ALONE)
def test_record_and_stop():
    import granule_torch

    granule_torch.mark_iteration(0)
    before = raw(5 * MIB)
    with tempfile.TemporaryDirectory() as folder:
        with granule_torch.record(folder) as recording:
            granule_torch.mark_iteration(1)
            kept = raw(3 * MIB)
            del before
            recording.flush()
            assert recording.events == 4 and recording.waits[0] == 0, recording.events
            try:
                granule_torch.record(folder)
                raise AssertionError("a second recording began")
            except granule_torch.GranuleError as error:
                assert "already" in str(error)
        assert recording.files == granule_torch.stop_recording() and len(recording.files) == 1
        import gzip

        lines = gzip.open(recording.files[0], "rt").read().splitlines()
        assert lines[1:] == ["a 0 5242880 0", "i 1", "a 1 3145728 0", "f 0"], lines
        assert '"window":true' in lines[0]
    try:
        granule_torch.record("a,b")
        raise AssertionError("a comma was taken")
    except ValueError:
        pass
    return kept.numel()


def test_granule_is_recorded_exactly():
    with tempfile.TemporaryDirectory() as folder:
        # The program never ends its recording: the end of the process does.
        figures, _ = run(folder, "granule", GRANULE_RECORD="recording")
        (trace,) = glob.glob(f"{folder}/recording/*.trace.gz")
        assert len(glob.glob(f"{folder}/recording/*-oom.pickle")) == 1
        with open(glob.glob(f"{folder}/recording/*-oom.txt")[0], encoding="utf-8") as report:
            assert "200.00 GiB" in report.read()
        if command():
            agrees(trace, figures)


def test_native_is_recorded_by_the_command():
    if not command():
        pytest.skip("the granule command is not built here")
    with tempfile.TemporaryDirectory() as folder:
        figures, said = run(folder, "native", [command(), "record", "-o", "recording", "--"], XDG_CACHE_HOME=folder)
        files = sorted(os.listdir(f"{folder}/recording"))
        assert [name.split("-", 2)[2] for name in files] == ["0001-d0-oom.pickle", "0002.pickle"]
        assert f"granule inspect recording/{files[0]}" in said
        for name in files:
            answer = replayed(f"{folder}/recording/{name}")
            assert find(answer, "requested_bytes_peak") == figures["requested_bytes.all.peak"]
            assert find(answer, "num_ooms") == 1


def test_a_program_that_uses_pytorchs_recorder_itself_is_recorded_whole():
    if not command():
        pytest.skip("the granule command is not built here")
    program = """
import torch
record = torch.cuda.memory._record_memory_history
kept = [torch.empty(1 << 20, device="cuda") for _ in range(40)]
record(max_entries=10)
kept += [torch.empty(1 << 20, device="cuda") for _ in range(20)]
record(enabled=None)
try:
    torch.empty(1 << 40, device="cuda")
except torch.OutOfMemoryError:
    pass
"""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/own.py", "w", encoding="utf-8") as file:
            file.write(program)
        words = [command(), "record", "-o", "recording", "--", *Rig().command(), "own.py"]
        env = dict(os.environ, FAKE_GPU_MEM_GB="4", XDG_CACHE_HOME=folder)
        done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
        assert "uses PyTorch's recorder itself" in done.stderr and "own.py:5)" in done.stderr, done.stderr
        before, refused, _ = sorted(glob.glob(f"{folder}/recording/granule-*"))
        with open(before, "rb") as file:
            actions = [entry["action"] for entry in pickle.load(file)["device_traces"][0]]
        assert before.endswith("0001-before-own.pickle") and actions.count("alloc") == 60, actions
        assert refused.endswith("0002-d0-oom.pickle") and find(replayed(refused), "num_ooms") == 1


def test_a_recording_is_not_written_through_a_link(tmp_path):
    """Where others can write to the folder, one of them could have a file of the user's be overwritten."""
    program = """
import os, sys, types
import granule_record
directory, precious = sys.argv[1:]
open(precious, "w").write("precious")
recorder = types.SimpleNamespace(
    options=types.SimpleNamespace(directory=directory, keep=0), number=0, entries=1, files=([], []), stood_still=0.0,
    torch=types.SimpleNamespace(cuda=types.SimpleNamespace(memory=types.SimpleNamespace(_snapshot=dict))), _name=lambda why: why,
)
os.symlink(precious, os.path.join(directory, "end.unfinished"))
path = granule_record.Recorder._write_alone(recorder, "end", {})
assert open(precious).read() == "precious" and os.path.isfile(path) and not os.path.islink(path)
"""
    (tmp_path / "recording").mkdir()
    words = [sys.executable, "-c", program, str(tmp_path / "recording"), str(tmp_path / "precious")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "crates/tools/granule-cli/python")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_pytorchs_snapshot_imports_is_imported_before_its_thread_begins():
    """Two threads that import it and Dynamo at once see each other's half."""
    if not command():
        pytest.skip("the granule command is not built here")
    program = "import sys, torch; torch.cuda.init(); print('torch._inductor.codecache' in sys.modules)"
    for stacks, imported in (("python", True), ("none", False)):
        with tempfile.TemporaryDirectory() as folder:
            words = [command(), "record", "-o", "recording", "--stacks", stacks, "--", *Rig().command(), "-c", program]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
            assert done.stdout.split() == [str(imported)], done.stdout + done.stderr


def ended(folder, allocator, way, before=(), **env):
    """Runs the program that ends in some way; the files that are left."""
    script = os.path.join(folder, "ends.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(ENDS)
    words = [*before, *Rig().command(), script, allocator, way]
    env = dict(os.environ, FAKE_GPU_MEM_GB="4", **env)
    done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode != 0, done.stderr
    return glob.glob(f"{folder}/recording/granule-*")


@pytest.mark.parametrize("way", ["kill", "abort", "_exit", "terminate"])
def test_whatever_ends_granules_process_its_recording_is_there(way):
    with tempfile.TemporaryDirectory() as folder:
        (trace,) = ended(folder, "granule", way, GRANULE_RECORD="recording")
        if command():
            assert find(replayed(trace), "requested_bytes_peak") == (20 << 22) + 4


@pytest.mark.parametrize("way", ["kill", "abort", "_exit", "terminate"])
def test_whatever_ends_natives_process_its_recording_is_there(way):
    if not command():
        pytest.skip("the granule command is not built here")
    with tempfile.TemporaryDirectory() as folder:
        before = [command(), "record", "-o", "recording", "--"]
        (snapshot,) = ended(folder, "native", way, before, XDG_CACHE_HOME=folder)
        assert snapshot.endswith("so-far.pickle") == (way != "_exit")
        assert find(replayed(snapshot), "requested_bytes_peak") == (20 << 22) + 4
