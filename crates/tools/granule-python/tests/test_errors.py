"""What is refused, in the command's sentences and Python's words."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import granule_alloc as granule
import pytest
from conftest import COMMAND
from granule_alloc._errors import in_python


def said(*words: str | Path) -> str:
    """The message of the command's error in Python's words, without its `error: `, and without the hint."""
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return in_python(lines[0].removeprefix("error: "))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "nothing.pickle"
    with pytest.raises(FileNotFoundError) as caught:
        granule.load(path)
    assert isinstance(caught.value, granule.FileError) and caught.value.errno == 2
    assert str(caught.value) == said("inspect", path)


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(granule.GranuleError) as caught:
        granule.load(tmp_path)
    assert str(caught.value) == said("inspect", tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"# {", b"\x80\x04garbage", b"\x1f\x8b\x08broken"])
def test_files_that_are_no_recordings(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(granule.InputError) as caught:
        granule.load(path)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == said("inspect", path)


def test_files_that_end_early(tmp_path: Path, trace: Path, snapshot: Path) -> None:
    for whole in (gzip.decompress(trace.read_bytes())[:100_001], snapshot.read_bytes()[:-1000]):
        path = tmp_path / "cut"
        path.write_bytes(whole)
        with pytest.raises(granule.InputError) as caught:
            granule.load(path).inspect()
        assert str(caught.value) == said("inspect", path)


def test_options(run: granule.Run, trace: Path) -> None:
    for options, words in [
        ({"capacity": "many"}, ["--capacity=many"]),
        ({"capacity": -1}, ["--capacity=-1"]),
        ({"policy": "none"}, ["--policy=none"]),
    ]:
        with pytest.raises(granule.UsageError) as caught:
            run.replay(**options)  # type: ignore[arg-type]
        assert isinstance(caught.value, ValueError)
        assert str(caught.value).splitlines()[0] == said("replay", *words, trace)


def test_settings_and_their_hints(run: granule.Run, trace: Path) -> None:
    with pytest.raises(granule.InputError) as caught:
        run.replay(conf="no_such_option:1")
    assert str(caught.value) == said("replay", "--conf", "no_such_option:1", trace)
    with pytest.raises(granule.InputError, match="there is no such moment") as caught:
        run.inspect(at="oom")
    assert caught.value.hint == 'at="peak" and at="end" are always there'


def test_results_that_cannot_be_written(run: granule.Run, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "page.html"
    with pytest.raises(FileNotFoundError) as caught:
        run.report(path)
    assert str(caught.value) == said("report", trace, "-o", path)
    assert caught.value.hint is not None and "does not exist" in caught.value.hint


def test_a_closed_file_is_of_no_matter(trace: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.trace.gz"
    copy.write_bytes(trace.read_bytes())
    run = granule.load(copy)
    copy.unlink()
    assert run.min_capacity(step="256MiB").min_capacity > 0
    assert run.allocations.num_rows > 0


def test_devices_that_a_snapshot_has_not(snapshot: Path) -> None:
    run = granule.load(snapshot, device=3)
    with pytest.raises(granule.InputError) as caught:
        run.inspect()
    assert str(caught.value) == said("inspect", snapshot, "--device", "3")


def test_a_table_that_there_is_not(run: granule.Run) -> None:
    with pytest.raises(KeyError, match="there is no table blocks; there are runs"):
        run.table("blocks")


@pytest.mark.parametrize(
    ("said", "python"),
    [
        ("--conf, --policy and --capacity are ignored", "conf, policy and capacity are ignored"),
        ("search larger devices too, with --capacity 96GiB", 'search larger devices too, with capacity="96GiB"'),
        ("--force replaces it; -o gives another name", "force=True replaces it; another path gives another name"),
        ("other settings are not tried: granule whatif tries them", "other settings are not tried: run.whatif() tries them"),
        ("invalid value 'many' for '--capacity <SIZE>': no size", "invalid value 'many' for 'capacity': no size"),
        ("try --backend openreg or --no-virtual-memory", 'try backend="openreg" or no_virtual_memory=True'),
        ("granule-p1-0001.pickle -- is no option", "granule-p1-0001.pickle -- is no option"),
    ],
)
def test_words_of_python(said: str, python: str) -> None:
    assert in_python(said) == python


def test_no_message_names_an_option_of_the_command(
    run: granule.Run, snapshot: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded, page = granule.load(snapshot), tmp_path / "page.html"
    page.write_text("mine")
    asked = [
        lambda: run.replay(capacity="many"),
        lambda: run.replay(conf="no_such_option:1"),
        lambda: run.inspect(at="oom"),
        lambda: run.inspect(at=10**9),
        lambda: run.report(page),
        lambda: run.check(),
        lambda: run.plan(iteration=10**6),
        lambda: run.plan(capacity="1MiB"),
        lambda: run.min_capacity(capacity="1MiB"),
        lambda: granule.load(snapshot, device=7).inspect(),
    ]
    for ask in asked:
        with pytest.raises(granule.GranuleError) as caught:
            ask()
        assert "--" not in f"{caught.value} {caught.value.hint}"
    with pytest.warns(granule.GranuleWarning, match="conf, policy and capacity are ignored"), caplog.at_level("INFO"):
        recorded.inspect(capacity="1GiB", conf="expandable_segments:True")
    assert not any("--" in record.getMessage() for record in caplog.records)
