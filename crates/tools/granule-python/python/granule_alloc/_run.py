"""A recorded run, and the questions one has about it."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, TypeVar

from . import _picture, answers
from ._answer import Answer, read
from ._errors import InputError
from ._native import History, Recording, Table
from ._page import Page
from ._work import work

if TYPE_CHECKING:
    from matplotlib.axes import Axes

A = TypeVar("A", bound=Answer)

#: A number of bytes, or a text such as "24GiB".
Size = int | str
#: A file.
Path = str | os.PathLike[str]
#: A recording.
Source = Path | bytes | bytearray | memoryview | IO[bytes] | Mapping[str, Any]

#: The tables that a run has, which are those of `granule export`.
TABLES = ("runs", "iterations", "sites", "segments", "allocations", "events")


def load(source: Source, *, device: int | None = None, trust: bool = False) -> Run:
    """Reads a trace, or a snapshot: its path, its bytes, an open file, or what torch.cuda.memory._snapshot() returned.

    `device` chooses one of a snapshot's histories; the first is taken where it is left out. `trust` reads a file whatever
    memory that takes.
    """
    name, content = _content(source)
    return Run(work(lambda listener: Recording(name, content, device, trust, listener)), name)


def _content(source: Any) -> tuple[str, bytes | None]:
    """What to call it, and its bytes, where they are not in a file of that name."""
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        # To the command, this name is standard input.
        return ("./-" if name == "-" else name), None
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "recording", bytes(source)
    if isinstance(source, Mapping):
        try:
            return "snapshot", pickle.dumps(dict(source), protocol=4)
        except Exception as error:
            raise InputError(f"the snapshot holds what cannot be written to a file: {error}") from error
    if not hasattr(source, "read"):
        raise TypeError(f"load() takes a path, bytes, an open file or a snapshot, not {type(source).__name__}")
    content = source.read()
    if isinstance(content, str):
        raise InputError('the file is open for text: open it with "rb"')
    name = getattr(source, "name", None)
    return (name if isinstance(name, str) else "recording"), bytes(content)


class Run:
    """A recorded run. `load` makes one.

    A method is a command: it takes the command's options, with `_` for `-`, and returns what the command prints under `--json`.
    A snapshot is shown as it was recorded; a trace is replayed for the tables and pictures, under the options given.
    """

    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        #: The file it was read from, or what stands for it.
        self.path = name

    def inspect(
        self,
        *,
        at: str | int | None = None,
        conf: str | None = None,
        policy: str | None = None,
        capacity: Size | None = None,
    ) -> answers.Inspect:
        """What took the memory: at the peak, at the end, and where a request was refused, or at one moment."""
        return self._ask(answers.Inspect, "inspect", locals())

    def compare(
        self,
        other: Run | Source,
        *,
        at: str | int | None = None,
        conf: str | None = None,
        policy: str | None = None,
        capacity: Size | None = None,
    ) -> answers.InspectComparison:
        """What changed from this run to another."""
        options = dict(locals())
        second = options.pop("other")
        return self._ask(answers.InspectComparison, "inspect", options, second if isinstance(second, Run) else load(second))

    def replay(
        self,
        *,
        policy: str | None = None,
        conf: str | None = None,
        capacity: Size | None = None,
        lag: int | None = None,
        of_peak: float | None = None,
        scale: float | None = None,
        snapshot: Path | None = None,
        plan: Path | None = None,
        stop_on_oom: bool = False,
        cost: str | None = None,
        no_virtual_memory: bool = False,
        backend: str | None = None,
    ) -> answers.Replay:
        """The same requests once more, on a simulated device: what is held, what the driver is asked, what is refused."""
        return self._ask(answers.Replay, "replay", locals())

    def whatif(
        self,
        *,
        capacity: Size | Iterable[Size] | None = None,
        conf: str | Iterable[str] | None = None,
        policy: str | Iterable[str] | None = None,
        lag: int | None = None,
    ) -> answers.Whatif:
        """Which setting would have fitted on which device, with the least change."""
        options = dict(locals())
        options["capacity"] = ",".join(map(str, _several(capacity))) or None
        return self._ask(answers.Whatif, "whatif", options)

    def min_capacity(
        self,
        *,
        policy: str | None = None,
        conf: str | None = None,
        capacity: Size | None = None,
        step: Size | None = None,
        lag: int | None = None,
        try_larger: int | None = None,
        no_virtual_memory: bool = False,
    ) -> answers.MinCapacity:
        """The smallest device on which nothing is refused."""
        return self._ask(answers.MinCapacity, "min-capacity", locals())

    def plan(
        self,
        output: Path | None = None,
        *,
        iteration: int | None = None,
        capacity: Size | None = None,
        solver: str | None = None,
        time_limit: int | None = None,
        alignment: Size | None = None,
        across_streams: bool = False,
        seed: int | None = None,
    ) -> answers.Plan:
        """Where the requests would go, worked out in advance. `output` is a file for the plan."""
        return self._ask(answers.Plan, "plan", locals())

    def check(
        self,
        *,
        max_reserved: Size | None = None,
        max_growth: float | str | None = None,
        conf: str | None = None,
        policy: str | None = None,
        capacity: Size | None = None,
    ) -> answers.Check:
        """Whether the run is within limits."""
        return self._ask(answers.Check, "check", locals())

    def report(
        self,
        path: Path | None = None,
        *,
        force: bool = False,
        anonymous: bool = False,
        title: str | None = None,
        conf: str | None = None,
        policy: str | None = None,
        capacity: Size | None = None,
        whatif: bool | None = None,
    ) -> answers.Report:
        """Writes a page that shows the run; over another file only with `force`. `anonymous` puts placeholders in the place of paths, names and texts. `whatif` says whether other settings are tried; left out, short runs are."""
        options = dict(locals())
        options.update(output=options.pop("path"), whatif=whatif is True, no_whatif=whatif is False)
        return self._ask(answers.Report, "report", options)

    def show(self, *, height: int = 800, whatif: bool | None = None) -> Page:
        """The page of `report` within a notebook, where it is the last line of a cell."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            self.report(path, whatif=whatif)
            with open(path, encoding="utf-8") as file:
                return Page(file.read(), height)

    def export(
        self,
        *,
        parquet: Path | None = None,
        perfetto: Path | None = None,
        overwrite: bool = False,
        run: str | None = None,
        slices: int | None = None,
        conf: str | None = None,
        policy: str | None = None,
        capacity: Size | None = None,
    ) -> answers.Export:
        """Writes the tables as Parquet files into a folder, or a trace for ui.perfetto.dev."""
        return self._ask(answers.Export, "export", locals())

    def table(
        self,
        name: str,
        *,
        conf: str | None = None,
        policy: str | None = None,
        capacity: Size | None = None,
    ) -> Table:
        """One of TABLES, as pandas, Polars, DuckDB and pyarrow take it. The options are for the replay of a trace."""
        if name not in TABLES:
            raise KeyError(f"there is no table {name}; there are {', '.join(TABLES)}")
        options = _words(conf=conf, policy=policy, capacity=capacity)
        history = work(lambda listener: self._recording.history(options, listener)) if options else self._history
        return history.table(name)

    @cached_property
    def runs(self) -> Table:
        """The run: one row."""
        return self.table("runs")

    @cached_property
    def iterations(self) -> Table:
        """Its iterations."""
        return self.table("iterations")

    @cached_property
    def allocations(self) -> Table:
        """Every allocation's life."""
        return self.table("allocations")

    @cached_property
    def segments(self) -> Table:
        """What was held from the device."""
        return self.table("segments")

    @cached_property
    def sites(self) -> Table:
        """Call sites."""
        return self.table("sites")

    @cached_property
    def events(self) -> Table:
        """Everything that happened."""
        return self.table("events")

    def curve(self, points: int = 1000) -> list[tuple[int, int, int]]:
        """Memory over time: first moment, most live and most reserved bytes of that many stretches of the run."""
        return self._history.curve(points)

    def plot(self, ax: Axes | None = None, *, points: int = 2000) -> Axes:
        """Memory over time, drawn by matplotlib into `ax` or into a new figure."""
        return _picture.plot(self._history, self._title, ax, points)

    def _repr_html_(self) -> str:
        return _picture.html(self._history, self._title)

    def __repr__(self) -> str:
        return f"<granule_alloc.Run {self.path!r}>"

    @property
    def _title(self) -> str:
        return os.path.basename(self.path)

    @cached_property
    def _history(self) -> History:
        return work(lambda listener: self._recording.history([], listener))

    def _ask(self, kind: type[A], command: str, options: dict[str, Any], second: Run | None = None) -> A:
        """`options` are a method's own keywords, and itself."""
        del options["self"]
        words, other = _words(**options), second._recording if second else None
        return read(work(lambda listener: self._recording.ask(command, words, other, listener)), kind)


def _several(value: object) -> Iterable[object]:
    if value is None:
        return []
    return value if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _words(**options: object) -> list[str]:
    """Options as a command line has them."""
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] * value
            continue
        for one in _several(value):
            text = os.fspath(one) if isinstance(one, os.PathLike) else str(one)
            # In one word, so that a value may begin with a dash.
            words.append(f"{option}={text}")
    return words
