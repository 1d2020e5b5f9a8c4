"""Where a recording comes from, and how its figures are shown."""

from __future__ import annotations

import copy
import gzip
import io
import json
import pickle
from pathlib import Path
from typing import Any

import granule_alloc as granule
import pytest
from conftest import without_times
from granule_alloc._units import BYTES, NANOSECONDS


def figures(run: granule.Run) -> Any:
    answer = without_times(run.inspect())
    return {key: value for key, value in answer.items() if key not in ("file", "name", "workload")}


def test_a_recording_is_the_same_wherever_it_comes_from(snapshot: Path, trace: Path) -> None:
    for path in (snapshot, trace):
        content, expected = path.read_bytes(), figures(granule.load(path))
        sources: list[Any] = [str(path), content, bytearray(content), memoryview(content), io.BytesIO(content)]
        for source in sources:
            assert figures(granule.load(source)) == expected, type(source)
        with path.open("rb") as file:
            assert granule.load(file).path == str(path)
    with gzip.open(trace) as file:
        assert figures(granule.load(file)) == expected


def test_the_object_that_pytorch_returns(snapshot: Path) -> None:
    # As torch.cuda.memory._snapshot() gives it: dicts and lists, of which _dump_snapshot makes a file.
    taken = pickle.loads(snapshot.read_bytes())
    run = granule.load(taken)
    assert run.path == "snapshot" and figures(run) == figures(granule.load(snapshot))


def test_two_recordings_in_memory_are_compared(snapshot: Path, trace: Path) -> None:
    [first, second] = [granule.load(path.read_bytes()) for path in (trace, snapshot)]
    there = granule.load(trace).compare(snapshot)
    for other in (second, snapshot.read_bytes()):
        assert first.compare(other).comparison == there.comparison


def test_what_is_no_recording() -> None:
    with pytest.raises(granule.InputError, match="recording: "):
        granule.load(b"hello")
    with pytest.raises(granule.InputError, match="segments"):
        granule.load({"model": 1})
    with pytest.raises(granule.InputError, match='open it with "rb"'):
        granule.load(io.StringIO("text"))
    with pytest.raises(granule.InputError, match="what cannot be written"):
        granule.load({"segments": [lambda: None]})
    with pytest.raises(TypeError, match="a path, bytes, an open file or a snapshot, not int"):
        granule.load(5)  # type: ignore[arg-type]


def test_figures_have_units(run: granule.Run) -> None:
    peak = run.inspect().run.peak_live
    assert repr(peak) == f"{peak.gib:.2f} GiB" and (peak.kib, peak.mib) == (peak / 1024, peak / 2**20)
    # They are numbers wherever others are: printed, counted with, written.
    assert f"{peak} {peak!s} {peak:d}" == " ".join([str(int(peak))] * 3)
    assert json.loads(json.dumps({"peak": peak})) == {"peak": int(peak)}
    assert pickle.loads(pickle.dumps(peak)) == copy.copy(peak) == peak
    assert type(peak + 1) is int
    shown = repr(granule.Bytes(0)), repr(granule.Bytes(1023)), repr(granule.Bytes(4549296140)), repr(granule.Bytes(-(3 << 20)))
    assert shown == ("0 B", "1023 B", "4.24 GiB", "-3.00 MiB")
    driver = run.replay().modelled_driver_ns
    assert isinstance(driver, granule.Nanoseconds) and driver.ms == driver / 1e6 and driver.seconds == driver / 1e9
    shown = repr(granule.Nanoseconds(17)), repr(granule.Nanoseconds(18_705_000)), repr(granule.Nanoseconds(2_500_000_000))
    assert shown == ("17 ns", "18.7 ms", "2.5 s")
    assert "peak_live': " + repr(peak) in repr(run.inspect().run)


def test_units_are_of_figures_that_answers_have() -> None:
    import inspect

    from granule_alloc import answers

    names = {name for kind in vars(answers).values() if inspect.isclass(kind) for name in getattr(kind, "__annotations__", {})}
    assert names >= BYTES | NANOSECONDS
