"""Work in Rust, with the interpreter free: what it says, how far it is, and how it ended."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ._errors import GranuleWarning, in_python
from ._native import Listener

T = TypeVar("T")

log = logging.getLogger("granule_alloc")

#: Seconds before a bar is shown, and between looks at how far the work is.
PATIENCE = 0.5
LOOK = 0.1


def work(call: Callable[[Listener], T]) -> T:
    """Does it on another thread, so that Ctrl-C is heard. Work that was left goes on to its end and is thrown away."""
    listener = Listener()
    result: list[T] = []
    failure: list[BaseException] = []

    def do() -> None:
        try:
            result.append(call(listener))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=do, name="granule")
    thread.start()
    bar = _Bar()
    try:
        thread.join(PATIENCE)
        while thread.is_alive():
            bar.show(listener.progress())
            thread.join(LOOK)
    finally:
        bar.close()
    _tell(listener)
    if failure:
        raise failure[0]
    return result[0]


def _tell(listener: Listener) -> None:
    for kind, said in listener.messages():
        text = in_python(said)
        if kind == "warning":
            warnings.warn(text, GranuleWarning, stacklevel=5)
        else:
            log.info("%s: %s", kind, text)


class _Bar:
    """A bar of tqdm, where tqdm is."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._what: tuple[str, int | None] | None = None
        try:
            from tqdm.auto import tqdm
        except ImportError:
            self._make = None
        else:
            self._make = tqdm

    def show(self, progress: tuple[str, int, int | None] | None) -> None:
        if self._make is None or progress is None:
            return
        what, done, total = progress
        if self._bar is None or self._what != (what, total):
            self.close()
            # Where it is not known how much there is to do, the time that it takes is all there is to show.
            form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}" if total else "{desc}: {elapsed}"
            self._bar = self._make(desc=what, total=total, initial=done, leave=False, bar_format=form)
            self._what = (what, total)
        self._bar.n = done
        self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
