"""What took the memory of a recorded run, why a request was refused, and which setting would have fitted.

    import granule_alloc as granule

    run = granule.load("snapshot.pickle")
    run.whatif(capacity="36GiB").verdicts[0].least_change
"""

from __future__ import annotations

from importlib.metadata import version as _version

from ._answer import Answer
from ._errors import FileError, FileMissingError, GranuleError, GranuleWarning, InputError, UsageError
from ._native import Table
from ._page import Page
from ._run import TABLES, Run, load
from ._units import Bytes, Nanoseconds

__all__ = [
    "TABLES",
    "Answer",
    "Bytes",
    "FileError",
    "FileMissingError",
    "GranuleError",
    "GranuleWarning",
    "InputError",
    "Nanoseconds",
    "Page",
    "Run",
    "Table",
    "UsageError",
    "load",
]

__version__ = _version("granule-alloc")
