"""One question to many recordings: paths go in, rows come out, an Arrow table if you like.

    from granule_alloc import fleet

    paths = fleet.find("s3://runs/oom/*.pickle")
    fleet.table(fleet.WHATIF, paths)

A question is a function from a path to rows, so that Ray, Dask and Spark run it as they run any other. A path is a file's, or
what fsspec opens (`s3://`, `gs://`, `https://`). A file that cannot be read or answered costs one row, with its error.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from ._run import Path, Run, load

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SUMMARY", "WHATIF", "Question", "Row", "find", "rows", "table"]

#: A row: its columns are those of the question, in their order.
Row = dict[str, Any]

#: Files whose rows may be known before those of a slower one, for each worker; and rows of one piece of a table.
AHEAD = 16
PIECE = 1 << 16


@dataclass(frozen=True)
class Question:
    """What is asked of every file.

    `columns` are the types of what `ask` returns, in words of Spark: string, long, double, boolean. The columns `path` and
    `error` come before them. `options` are given to `ask`.
    """

    columns: dict[str, str]
    ask: Callable[..., Iterable[Row]]
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, path: Path) -> list[Row]:
        """The rows of one file: at least one."""
        name = os.fspath(path)
        # A name that is no text is shown as well as it can be.
        empty = {**dict.fromkeys(self.all_columns), "path": name.encode(errors="surrogateescape").decode(errors="replace")}
        try:
            with _Local(name) as file:
                found = [{**empty, **row} for row in self.ask(load(file), **dict(self.options))]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a defect in Rust is no `Exception`
            return [{**empty, "error": f"{type(error).__name__}: {error}"}]
        return found or [empty]

    def having(self, **options: Any) -> Question:
        """The same question with these options."""
        return Question(self.columns, self.ask, (*self.options, *options.items()))

    @property
    def all_columns(self) -> dict[str, str]:
        """The columns of a row and their types."""
        return {"path": "string", "error": "string", **self.columns}

    @property
    def spark_schema(self) -> str:
        """The columns as `mapInPandas` wants them."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.all_columns.items())

    @property
    def arrow_schema(self) -> pyarrow.Schema:
        """The columns as an Arrow schema."""
        import pyarrow

        kinds = {
            "string": pyarrow.string(),
            "long": pyarrow.int64(),
            "double": pyarrow.float64(),
            "boolean": pyarrow.bool_(),
        }
        return pyarrow.schema([(name, kinds[kind]) for name, kind in self.all_columns.items()])


def _summary(run: Run) -> Iterator[Row]:
    said = run.inspect()
    names = ("peak_live", "peak_reserved", "live_at_end", "reserved_at_end", "refused", "iterations")
    row: Row = {name: said.run[name] for name in names}
    row = {**row, "lower_bounds": said.lower_bounds, "growth_per_step": said.growth.per_step}
    yield {**row, "conf": said.conf, "capacity": said.capacity}


def _whatif(run: Run, capacity: int | str | None = None) -> Iterator[Row]:
    said = run.whatif(capacity=capacity)
    known = {verdict.capacity: verdict.known for verdict in said.verdicts}
    for candidate in said.candidates:
        for outcome in candidate.outcomes:
            yield {
                "setting": candidate.name,
                "policy": candidate.policy,
                "conf": candidate.conf,
                "capacity": outcome.capacity,
                "refused": outcome.refused,
                "known": known.get(outcome.capacity, False),
                "num_alloc_retries": outcome.num_alloc_retries,
                "reserved_bytes_peak": outcome.reserved_bytes_peak,
                "modelled_driver_ns": outcome.modelled_driver_ns,
                "exact": said.exact,
            }


#: A row for each file: how much memory it takes, whether requests were refused, whether it grows. Where `lower_bounds` is true,
#: the recording began late, and peaks may have been higher. `growth_per_step` is null where the file has no steps.
SUMMARY = Question(
    {
        "peak_live": "long",
        "peak_reserved": "long",
        "live_at_end": "long",
        "reserved_at_end": "long",
        "refused": "long",
        "iterations": "long",
        "lower_bounds": "boolean",
        "growth_per_step": "long",
        "conf": "string",
        "capacity": "long",
    },
    _summary,
)

#: A row for each file, setting and size of device: how many requests are refused there. The option `capacity` is the size.
#: `known` is false where a recording begins too late to tell.
WHATIF = Question(
    {
        "setting": "string",
        "policy": "string",
        "conf": "string",
        "capacity": "long",
        "refused": "long",
        "known": "boolean",
        "num_alloc_retries": "long",
        "reserved_bytes_peak": "long",
        "modelled_driver_ns": "long",
        "exact": "boolean",
    },
    _whatif,
)


def find(pattern: str) -> list[str]:
    """The files that a pattern names, in order: `runs/*.pickle`, `s3://bucket/runs/*.pickle`. The latter needs fsspec."""
    if "://" not in pattern:
        from glob import glob

        return sorted(path for path in glob(pattern, recursive=True) if os.path.isfile(path))
    import fsspec

    return sorted(file.full_name for file in fsspec.open_files(pattern))


def rows(question: Question, paths: Iterable[Path], *, workers: int | None = None) -> Iterator[Row]:
    """The rows of all files, in their order, as they are known. `workers` files are worked on at once; as many as there are
    processors where it is left out. `paths` may be endless."""
    count = workers or os.cpu_count() or 1
    pool = ThreadPoolExecutor(count)
    ahead: deque[Future[list[Row]]] = deque()
    try:
        for path in paths:
            ahead.append(pool.submit(question, path))
            if len(ahead) >= AHEAD * count:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def table(question: Question, paths: Iterable[Path], *, workers: int | None = None) -> pyarrow.Table:
    """The same as an Arrow table, which needs pyarrow."""
    import pyarrow

    schema, found, pieces = question.arrow_schema, rows(question, paths, workers=workers), []
    while piece := list(islice(found, PIECE)):
        pieces.append(pyarrow.RecordBatch.from_pylist(piece, schema=schema))
    return pyarrow.Table.from_batches(pieces, schema=schema)


class _Local:
    """A path's file on this machine: itself, or a copy of what fsspec opens."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.copy: Any = None

    def __enter__(self) -> str:
        if "://" not in self.path:
            return self.path
        import fsspec

        with fsspec.open(self.path, "rb") as remote:
            self.copy = tempfile.NamedTemporaryFile()
            try:
                while piece := remote.read(1 << 20):
                    self.copy.write(piece)
                self.copy.flush()
            except BaseException:
                self.copy.close()
                raise
        return str(self.copy.name)

    def __exit__(self, *_: object) -> None:
        if self.copy is not None:
            self.copy.close()
