"""Tables as other libraries take them, against the Parquet files of the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import granule_alloc as granule
import pytest
from conftest import COMMAND

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(scope="session")
def files(snapshot: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    subprocess.run([COMMAND, "export", snapshot, "--parquet", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def recorded(snapshot: Path) -> granule.Run:
    return granule.load(snapshot)


@pytest.mark.parametrize("name", granule.TABLES)
def test_pyarrow_has_what_the_file_has(recorded: granule.Run, files: Path, name: str) -> None:
    import pyarrow.parquet

    table = getattr(recorded, name)
    ours = pyarrow.table(table)
    assert ours.equals(pyarrow.parquet.read_table(files / f"{name}.parquet"))
    assert pyarrow.schema(table) == ours.schema
    assert len(table) == table.num_rows == ours.num_rows
    assert table.column_names == ours.column_names


def test_memory_is_shared(recorded: granule.Run) -> None:
    def place() -> int:
        return int(pyarrow.table(recorded.allocations)["size"].chunk(0).buffers()[1].address)

    assert place() == place()


def test_tables_outlive_the_run(trace: Path) -> None:
    table = pyarrow.table(granule.load(trace).segments)
    assert table["size"].to_pylist() and all(size > 0 for size in table["size"].to_pylist())


def test_polars(recorded: granule.Run) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(recorded.allocations)
    assert frame.height == len(recorded.allocations)
    assert frame["size"].to_list() == pyarrow.table(recorded.allocations)["size"].to_pylist()


def test_pandas(recorded: granule.Run) -> None:
    pytest.importorskip("pandas")
    frame = recorded.segments.to_pandas()
    assert list(frame.columns) == recorded.segments.column_names
    assert int(frame["size"].sum()) == sum(pyarrow.table(recorded.segments)["size"].to_pylist())


def test_pandas_is_imported_when_it_is_asked_for(recorded: granule.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas pyarrow"):
        recorded.segments.to_pandas()


def test_duckdb(recorded: granule.Run) -> None:
    duckdb = pytest.importorskip("duckdb")
    events = pyarrow.table(recorded.events)  # noqa: F841: the query names it
    [[ooms]] = duckdb.sql("SELECT count(*) FROM events WHERE action = 'oom'").fetchall()
    assert ooms == pyarrow.table(recorded.runs)["refusals"][0].as_py() > 0


def test_a_trace_is_replayed_as_asked(run: granule.Run) -> None:
    fixed, growable = run.table("segments"), run.table("segments", conf="expandable_segments:True")
    assert not any(pyarrow.table(fixed)["growable"].to_pylist())
    assert any(pyarrow.table(growable)["growable"].to_pylist())
