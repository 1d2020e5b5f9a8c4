"""Many recordings, on one machine and on the engines that the book names, each in its local mode."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import granule_alloc as granule
import pytest
from conftest import ROOT
from granule_alloc import fleet

PAGE = (ROOT / "docs/fleet.md").read_text(encoding="utf-8")


def example(begin: str) -> str:
    """The example of the book that begins with this line."""
    return next(text for text in re.findall(r"```python\n(.*?)```", PAGE, re.S) if text.startswith(begin))


@pytest.fixture
def paths(snapshot: Path, trace: Path, tmp_path: Path) -> list[str]:
    corrupt = tmp_path / "corrupt.pickle"
    corrupt.write_bytes(snapshot.read_bytes()[:1000])
    return [str(snapshot), str(corrupt), str(trace), str(tmp_path / "missing.pickle")]


def test_a_bad_file_costs_a_row(paths: list[str], run: granule.Run) -> None:
    rows = list(fleet.rows(fleet.SUMMARY, paths, workers=2))
    assert [row["path"] for row in rows] == paths
    assert [row["error"] is None for row in rows] == [True, False, True, False]
    assert "InputError" in rows[1]["error"] and "FileMissingError" in rows[3]["error"]
    assert all(tuple(row) == tuple(fleet.SUMMARY.all_columns) for row in rows)
    assert rows[2]["peak_live"] == run.inspect().run.peak_live > 0 == rows[2]["refused"]
    assert rows[0]["refused"] > 0 and rows[1]["refused"] is None


def test_which_setting_would_have_fitted(paths: list[str], run: granule.Run) -> None:
    rows = fleet.WHATIF.having(capacity="11.1GiB")(paths[2])
    asked = run.whatif(capacity="11.1GiB")
    assert len(rows) == sum(len(candidate.outcomes) for candidate in asked.candidates) > 3
    assert {row["capacity"] for row in rows} >= {int(11.1 * (1 << 30))}
    refused = {row["refused"] > 0 for row in rows}
    assert refused == {True, False}


def test_the_queries_of_the_book(paths: list[str]) -> None:
    pytest.importorskip("pyarrow")
    duckdb = pytest.importorskip("duckdb")
    names: dict[str, Any] = {"answers": fleet.table(fleet.WHATIF.having(capacity="24GiB"), paths)}
    query = example("import duckdb").partition("\n")[2].strip()
    saved = eval(query, {"duckdb": duckdb, **names}).fetchall()
    # Some settings are made for one file.
    assert all(0 <= count <= asked <= 2 for _, _, count, asked in saved)
    assert max(count for _, _, count, _ in saved) == 2
    before, _, last = example("import pyarrow.compute").strip().rpartition("\n")
    exec(before, names)
    bad = eval(last, names).to_pylist()
    assert [row["path"] for row in bad] == [paths[1], paths[3]]


def test_a_defect_costs_a_row_and_the_rest_is_not_waited_for() -> None:
    class Broken(BaseException):
        pass

    def ask(run: granule.Run) -> Iterator[fleet.Row]:
        raise Broken("on purpose")

    here = ROOT / "crates/tools/granule-cli/data/resnet_train.trace.gz"
    (row,) = fleet.Question({}, ask)(here)
    assert row == {"path": str(here), "error": "Broken: on purpose"}
    endless = fleet.rows(fleet.Question({}, ask), itertools.repeat("missing"), workers=1)
    assert "FileMissingError" in next(endless)["error"]
    endless.close()  # type: ignore[attr-defined]


def test_a_table_has_the_types_of_the_question(paths: list[str]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = fleet.table(fleet.SUMMARY, paths)
    assert table.schema == fleet.SUMMARY.arrow_schema and table.num_rows == len(paths)
    assert table.schema.field("peak_live").type == pyarrow.int64()
    assert table["error"].null_count == 2


def test_questions_of_ones_own(paths: list[str]) -> None:
    names: dict[str, Any] = {"fleet": fleet}
    exec(example("def pieces"), names)
    (row,) = names["PIECES"](paths[0])
    assert row["error"] is None and row["free"] >= row["largest_free"] > 0


def test_files_of_an_object_store(snapshot: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for number in range(3):
        store.pipe(f"/runs/{number}.pickle", snapshot.read_bytes())
    found = fleet.find("memory://runs/*.pickle")
    assert found == [f"memory:///runs/{number}.pickle" for number in range(3)]
    rows = list(fleet.rows(fleet.SUMMARY, found))
    assert [row["error"] for row in rows] == [None] * 3 and len({row["peak_live"] for row in rows}) == 1
    (missing,) = fleet.SUMMARY("memory://runs/none.pickle")
    assert "FileNotFoundError" in missing["error"]


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.pickle", "a.pickle", "c.txt"):
        (tmp_path / name).touch()
    assert fleet.find(f"{tmp_path}/*.pickle") == [str(tmp_path / "a.pickle"), str(tmp_path / "b.pickle")]


def due(paths: list[str]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in fleet.rows(fleet.SUMMARY, paths)]


def same(frame: Any, paths: list[str]) -> bool:
    """Whether a frame of pandas has the rows, in any order."""
    import pandas

    expected = pandas.DataFrame(due(paths), columns=list(frame.columns))
    order = [frame.sort_values("path").reset_index(drop=True) for frame in (frame, expected)]
    found, wanted = (frame.astype(object).where(frame.notna(), None) for frame in order)
    return bool(found.equals(wanted)) or found.to_dict() == wanted.to_dict()


@pytest.mark.filterwarnings("default")
def test_ray(paths: list[str]) -> None:
    ray = pytest.importorskip("ray")
    pytest.importorskip("pandas")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        names: dict[str, Any] = {"fleet": fleet, "paths": paths}
        exec(example("# Ray"), names)
        assert same(names["rows"].to_pandas(), paths)
    finally:
        ray.shutdown()


@pytest.mark.filterwarnings("default")
def test_dask(paths: list[str]) -> None:
    pytest.importorskip("dask.bag")
    pytest.importorskip("pyarrow")
    names: dict[str, Any] = {"fleet": fleet, "paths": paths}
    exec(example("# Dask"), names)
    assert sorted(map(str, names["rows"])) == sorted(str(row) for row in fleet.rows(fleet.SUMMARY, paths))


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql")
    pytest.importorskip("pandas")
    if not shutil.which("java"):
        pytest.skip("Spark needs Java")
    # The workers' Python is this one.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


@pytest.mark.filterwarnings("default")
def test_spark(spark: Any, paths: list[str]) -> None:
    names: dict[str, Any] = {"fleet": fleet, "paths": paths, "spark": spark}
    before, _, last = example("# Spark").strip().rpartition("\n")
    exec(before, names)
    assert same(eval(last, names).toPandas(), paths)
