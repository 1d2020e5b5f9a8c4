"""Exceptions. Their texts are the command's; what to do next is in `hint`."""

from __future__ import annotations

import errno


class GranuleError(Exception):
    """Anything that granule refuses to do."""

    #: What to do next, where the message does not say it.
    hint: str | None = None

    def __str__(self) -> str:
        return str(self.message)

    @property
    def message(self) -> str:
        """What is wrong."""
        return str(self.args[-1]) if self.args else ""


class UsageError(GranuleError, ValueError):
    """An option that there is not, or a value that it does not take."""


class InputError(GranuleError, ValueError):
    """A file that is no recording, or a question that it has no answer to."""


class FileError(GranuleError, OSError):
    """A file that cannot be read or written."""


class FileMissingError(FileError, FileNotFoundError):
    """A file or a directory that is not there."""


class GranuleWarning(UserWarning):
    """What is probably not meant."""


def exception(kind: str, number: int | None, message: str, hint: str | None) -> GranuleError:
    """The exception for what Rust refused."""
    error: GranuleError
    if kind == "usage":
        error = UsageError(message)
    elif kind == "input":
        error = InputError(message)
    elif number == errno.ENOENT:
        error = FileMissingError(number, message)
    elif number is not None:
        error = FileError(number, message)
    else:
        error = FileError(message)
    error.hint = hint
    if hint is not None and hasattr(error, "add_note"):
        error.add_note(f"hint: {hint}")
    return error
