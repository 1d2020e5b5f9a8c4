"""Recording what the program asks of the allocator, as traces that the granule command reads."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any

from . import _enable, _library


class Recording:
    """A recording that :func:`record` began; as a context manager it ends with its block."""

    def __init__(self, engine: int) -> None:
        self._engine = engine

    def _ask(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(_library.text("granule_record_json", self._engine))
        return said

    @property
    def files(self) -> list[str]:
        """The files that there are: those about failures first, then traces by device, oldest first."""
        return list(self._ask().get("files", []))

    @property
    def events(self) -> int:
        """Events written so far."""
        return int(self._ask().get("events", 0))

    @property
    def waits(self) -> tuple[int, int]:
        """How many calls had to wait because they came faster than they could be written, and the milliseconds of all."""
        said = self._ask()
        return int(said.get("waits", 0)), int(said.get("waited_ms", 0))

    def flush(self) -> None:
        """Waits until everything that was asked up to now can be read in the files."""
        _library.check(_library.load().granule_record_flush(self._engine))

    def stop(self) -> list[str]:
        """Ends the recording; returns its files.

        Raises:
            GranuleError: something could not be written.
        """
        _library.check(_library.load().granule_record_stop(self._engine))
        return self.files

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def record(
    directory: str | os.PathLike[str],
    *,
    rotate: str | int | None = None,
    keep: int = 8,
    max_entries: int | None = None,
    on_oom: bool = False,
) -> Recording:
    """Records every request, free, use on another stream and flush from now on, exactly; initialises CUDA.

    What is live already is requested first. To have everything, set ``GRANULE_RECORD=DIRECTORY`` (with the same options behind
    it: ``,rotate=64MiB,keep=4``) before the program starts. When a request fails for want of memory, a snapshot and a report are
    written beside the trace. The recording ends with :func:`stop_recording`, or with the process.

    Args:
        directory: where files go; made if it is not there.
        rotate: the size at which a file is followed by the next, such as ``"64MiB"``; 256 MiB by default.
        keep: how many trace files are kept, the newest; 0 keeps all.
        max_entries: entries of the history that snapshots have; none by default, since the trace has them.
        on_oom: leave files only where a request failed for want of memory.

    Raises:
        GranuleError: Granule is not enabled, the directory cannot be written to, or a recording goes on already.
    """
    path = os.fspath(directory)
    if "," in path:
        raise ValueError(f"directory is {path!r}: its name must have no comma")
    words = [os.path.abspath(path), f"keep={keep}"]
    words += [f"rotate={rotate}"] if rotate is not None else []
    words += [f"max_entries={max_entries}"] if max_entries is not None else []
    words += ["on_oom=True"] if on_oom else []
    engine = _enable.engine()
    _library.check(_library.load().granule_record_start(engine, ",".join(words).encode()))
    return Recording(engine)


def stop_recording() -> list[str]:
    """Ends the recording, whoever began it, and returns its files; none where there was no recording.

    Raises:
        GranuleError: Granule is not enabled, or something could not be written.
    """
    return Recording(_enable.engine()).stop()


def mark_iteration(number: int) -> None:
    """Says that an iteration of the program begins (a training step, a decode step, a request). Where nothing is recorded, and
    where Granule is not enabled, nothing happens: the call may stay in the program.
    """
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"number is {number!r}: it must be an int of 0 or more")
    import torch

    if _enable.is_enabled() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        _library.check(_library.load().granule_record_mark(_enable.engine(), number))
