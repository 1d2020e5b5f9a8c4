"""`granule estimate` on real programs: unmodified scripts give the figures of the recorded traces, request for request."""
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rig import SETTINGS
from scene import release

HERE = Path(__file__).resolve().parent
COMMAND = os.environ.get("GRANULE_COMMAND")
TRACES = Path(os.environ.get("GRANULE_SHARED", ""), "traces")

pytestmark = [
    pytest.mark.skipif(
        not COMMAND or bool(os.environ.get("GRANULE_E2E_REAL")), reason="GRANULE_COMMAND names no granule command"
    ),
    pytest.mark.skipif(release() < (2, 14), reason="what `granule estimate` records with fits torch 2.14 and later"),
]
SHORT = ("dlrm_prefetch",)
ALL = ("bert_varlen", "dlrm_prefetch", "gpt2_train", "llama_generate", "llama_lora", "resnet_train")


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """The drivers are built once for all tests."""
    return tmp_path_factory.mktemp("cache")


def estimate(cache, folder, options, script, *arguments, launcher=()):
    env = dict(os.environ, XDG_CACHE_HOME=str(cache), TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1")
    for name in SETTINGS:
        env.pop(name, None)
    program = [sys.executable, *launcher, str(HERE / "programs" / script), *arguments]
    command = [COMMAND, "estimate", "--json", *options, "--", *program]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1200, check=False)


def one_recording(ran):
    assert ran.returncode == 0, ran.stderr[-4000:]
    recordings = json.loads(ran.stdout)["recordings"]
    assert len(recordings) == 1
    return recordings[0]


def events(path):
    """All but iteration marks; the order of frees with nothing between them has no meaning."""
    burst = []
    with gzip.open(path, "rt") as lines:
        next(lines)
        for line in lines:
            if line[0] == "f":
                burst.append(line)
            elif line[0] != "i":
                yield from sorted(burst)
                burst.clear()
                yield line
    yield from sorted(burst)


@pytest.mark.parametrize("name", ALL)
def test_an_unmodified_script_gives_the_recorded_figures(name, cache, tmp_path, request):
    if name not in SHORT and not request.config.getoption("--long"):
        pytest.skip("only with --long")
    recorded = TRACES / f"{name}.trace.gz"
    if not recorded.exists():
        pytest.skip("GRANULE_SHARED names no folder with the recorded traces")
    found = one_recording(estimate(cache, tmp_path, ["-o", "found.trace.gz"], "estimate_workload.py", name))
    assert list(events(tmp_path / "found.trace.gz")) == list(events(recorded))
    with gzip.open(recorded, "rt") as lines:
        native = json.loads(next(lines)[1:])["native"]
    for need, told in zip(found["needs"], (native["default"], native["expandable"])):
        assert found["requested_bytes_peak"] == told["requested_bytes_peak"]
        assert need["reserved_bytes_peak"] == told["reserved_bytes_peak"]
        # That was searched in steps of 16 MiB.
        assert told["min_capacity"] - (16 << 20) < need["min_capacity"] <= told["min_capacity"]
    assert found["needs"][2]["conf"] == "policy:granule"


def test_the_replay_gives_what_the_program_itself_saw(cache, tmp_path):
    ran = estimate(cache, tmp_path, [], "estimate_workload.py", "resnet_train", "1")
    found = one_recording(ran)
    requested, reserved = map(int, ran.stderr.splitlines()[-1].split())
    assert found["requested_bytes_peak"] == requested
    assert found["needs"][0]["reserved_bytes_peak"] == reserved
    assert found["iterations"] == 6, "one for each step of the optimizer"


def test_pools_and_refusals_are_in_the_trace(cache, tmp_path):
    ran = estimate(cache, tmp_path, ["--capacity", "4GiB"], "estimate_pools.py")
    found = one_recording(ran)
    (said,) = re.findall(r"^(\d+) (\d+)$", ran.stderr, re.MULTILINE)
    reserved, allocations = map(int, said)
    assert found["refused"] == 2 and "2 requests were refused" in ran.stderr
    with gzip.open(tmp_path / found["trace"], "rt") as lines:
        limits = [int(line.split()[2]) for line in lines if line[0] == "x"]
    assert limits == [(4 << 30) - (512 << 20), int((4 << 30) * 0.001)]
    # Up to the first refusal, which a replay on this device repeats.
    replay = [COMMAND, "replay", found["trace"], "--capacity", str(limits[0]), "--json"]
    told = json.loads(subprocess.run(replay, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert (told["reserved_bytes_peak"], told["refused"]) == (reserved, 2), (told, allocations)
    assert told["num_device_alloc"] == allocations, told


def test_what_programs_do_besides_training_works(cache, tmp_path):
    ran = estimate(cache, tmp_path, ["--capacity", "4GiB"], "estimate_habits.py")
    assert "all done" in ran.stderr, ran.stderr[-4000:]
    found = one_recording(ran)
    assert found["iterations"] == 4
    kinds = {line[0] for line in events(tmp_path / found["trace"])}
    assert kinds == {"a", "f", "r", "e", "p", "q", "x"}


def test_processes_that_train_together_over_gloo(cache, tmp_path):
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    ran = estimate(cache, tmp_path, ["--devices", "2"], "estimate_ddp.py", launcher=launcher)
    assert ran.returncode == 0, ran.stderr[-4000:]
    said = sorted(tuple(map(int, line.split()[1:])) for line in ran.stderr.splitlines() if line.startswith("rank:"))
    recordings = sorted(json.loads(ran.stdout)["recordings"], key=lambda one: one["device"])
    assert said == [(one["device"], one["requested_bytes_peak"]) for one in recordings]
    assert len(said) == 2
    # Parameters, gradients in buckets, two moments.
    assert all(peak > 4 * 4 * 512 * 512 * 4 for _, peak in said)
    assert all(one["iterations"] == 3 for one in recordings)


def test_a_program_is_ended_after_its_iterations(cache, tmp_path):
    ran = estimate(cache, tmp_path, ["--max-iterations", "2"], "estimate_workload.py", "resnet_train")
    assert "stopped after 2 iterations" in ran.stderr
    assert one_recording(ran)["iterations"] == 1, "the second ends where the third would begin"
