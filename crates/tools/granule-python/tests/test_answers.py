"""Each function against the command's own answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import granule_alloc as granule
import pytest
from conftest import COMMAND, ROOT, without_times

Ask = Callable[..., Any]


def test_replay(run: granule.Run, command: Ask, trace: Path) -> None:
    answer = run.replay(policy="granule", conf="expandable_segments:True", capacity="24GiB", lag=100)
    options = ["--policy", "granule", "--conf", "expandable_segments:True", "--capacity", "24GiB", "--lag", "100"]
    assert without_times(answer) == without_times(command("replay", trace, *options))
    assert answer.policy == "granule" and answer.reserved_bytes_peak == answer["reserved_bytes_peak"] > 10 << 30


def test_whatif(run: granule.Run, command: Ask, trace: Path) -> None:
    answer = run.whatif(capacity=["12GiB", 16 << 30], conf="max_split_size_mb:64", policy="pytorch")
    options = ["--capacity", f"12GiB,{16 << 30}", "--conf", "max_split_size_mb:64", "--policy", "pytorch"]
    assert without_times(answer) == without_times(command("whatif", trace, *options))
    assert answer.verdicts[0].capacity == 12 << 30


def test_whatif_of_a_snapshot_of_an_error(run: granule.Run, tmp_path: Path) -> None:
    # The device is asked about that the error is of. Its free memory is in pieces, and one option joins them.
    path = tmp_path / "pieces.pickle"
    with pytest.warns(granule.GranuleWarning, match="refused"):
        run.replay(capacity="11.1GiB", snapshot=path, stop_on_oom=True)
    answer = granule.load(path).whatif(policy="pytorch")
    verdict = answer.verdicts[0]
    assert verdict.capacity == int(11.1 * (1 << 30)) and verdict.least_change is not None
    assert verdict.least_change.changed_options == ["expandable_segments"] and answer.ends_refused
    # What went on without the refused requests fits without them, and held less than it would with more room.
    with pytest.warns(granule.GranuleWarning, match="refused"):
        run.replay(capacity="11.1GiB", snapshot=path)
    answer = granule.load(path).whatif(policy="pytorch")
    assert answer.did_without is not None and answer.doubt is None and not answer.ends_refused
    assert answer.verdicts[0].known and "fits as it is" in answer.verdicts[0].text
    # What the program needs at once is more than 10 GiB: no setting helps.
    verdict = run.whatif(policy="pytorch", capacity="10GiB").verdicts[0]
    assert verdict.least_change is None and verdict.nearest.refused > 0


def test_min_capacity(run: granule.Run, command: Ask, trace: Path) -> None:
    answer = run.min_capacity(step="64MiB", conf="expandable_segments:True")
    expected = command("min-capacity", trace, "--step", "64MiB", "--conf", "expandable_segments:True")
    assert without_times(answer) == without_times(expected)


def test_plan(run: granule.Run, command: Ask, trace: Path, tmp_path: Path) -> None:
    answer = run.plan(tmp_path / "run.plan.gz", iteration=2)
    assert without_times(answer) == without_times(command("plan", trace, "--iteration", "2"))
    followed = run.replay(policy="granule", plan=tmp_path / "run.plan.gz")
    assert followed.plan["height"] == answer.height


def test_inspect_of_a_trace_and_a_snapshot(run: granule.Run, command: Ask, trace: Path, snapshot: Path) -> None:
    assert run.inspect(at="peak") == command("inspect", trace, "--at", "peak")
    answer = granule.load(snapshot).inspect()
    assert answer == command("inspect", snapshot)
    assert answer.refused
    assert answer.summary.text


def test_compare(run: granule.Run, command: Ask, trace: Path, snapshot: Path) -> None:
    with pytest.warns(granule.GranuleWarning, match="ignored"):
        compared = run.compare(snapshot, conf="expandable_segments:True")
    assert compared == command("inspect", trace, snapshot, "--conf", "expandable_segments:True")
    assert run.compare(granule.load(snapshot)).after.name == "snapshot.pickle"


def test_report(run: granule.Run, command: Ask, trace: Path, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.html", tmp_path / "theirs.html"
    answer = run.report(ours, title="a run", whatif=False)
    expected = command("report", trace, "-o", theirs, "--title", "a run", "--no-whatif")
    assert {**answer, "file": ""} == {**expected, "file": ""}
    assert ours.read_bytes() == theirs.read_bytes()


def test_check(run: granule.Run, command: Ask, trace: Path) -> None:
    answer = run.check(max_reserved="12GiB")
    assert answer == command("check", trace, "--max-reserved", "12GiB")
    assert not answer.ok and answer.exceeded == ["reserved_peak"]


def test_export(run: granule.Run, command: Ask, trace: Path, tmp_path: Path) -> None:
    answer = run.export(parquet=tmp_path / "ours", perfetto=tmp_path / "ours.json", run="monday")
    command("export", trace, "--parquet", tmp_path / "theirs", "--run", "monday")
    assert answer.run == "monday"
    for table in granule.TABLES:
        assert (tmp_path / "ours" / f"{table}.parquet").read_bytes() == (tmp_path / "theirs" / f"{table}.parquet").read_bytes()


def test_stopping_early_is_an_answer(run: granule.Run) -> None:
    with pytest.warns(granule.GranuleWarning, match="refused"):
        assert run.replay(capacity="8GiB", stop_on_oom=True).refused == 1


def test_an_answer_says_what_it_has(run: granule.Run) -> None:
    answer = run.check(max_reserved="12GiB")
    with pytest.raises(AttributeError, match="the answer has no exceded; it has .*exceeded"):
        _ = answer.exceded
    assert "exceeded" in dir(answer)


def test_the_classes_of_answers_are_those_of_the_schemas() -> None:
    subprocess.run([sys.executable, ROOT / "crates/tools/granule-python/stubs.py", "--check"], check=True)


def test_the_command(tmp_path: Path) -> None:
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([COMMAND, *words], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert command("--version").stdout.startswith("granule ")
    assert "whatif" in command("--help").stdout
    assert command("no-such-command").returncode == 2
    missing = command("replay", "missing.pickle")
    assert missing.returncode == 1 and missing.stderr.startswith("error: missing.pickle: ")
    demo = command()
    assert demo.returncode == 0 and (tmp_path / "train-oom.html").exists()
    assert f"{COMMAND} replay" in demo.stdout, "what to type is what was typed"
    module = subprocess.run([sys.executable, "-m", "granule_alloc", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == command("--version").stdout


def test_the_command_starts_itself_again(tmp_path: Path) -> None:
    # One of the checks needs a second process.
    words = [COMMAND, "conformance", "--backend", "openreg", "--only", "ipc"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(f"{COMMAND} --help | head -1", shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""
