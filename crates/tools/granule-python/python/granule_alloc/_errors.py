"""Exceptions. Their texts are the command's, in Python's words; what to do next is in `hint`."""

from __future__ import annotations

import errno
import re


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


_OPTION = re.compile(r"--([a-z][a-z-]*)(?:[ =](peak\b|end\b|oom\b|auto\b|openreg\b|[0-9][\w.]*))?(?: <[A-Z|]+>)?")
_COMMAND = re.compile(r"\bgranule (inspect|whatif|replay|min-capacity|plan|check|report|export)\b")
#: Options without a value.
_SWITCHES = {"across_streams", "force", "no_virtual_memory", "overwrite", "stop_on_oom", "trust", "whatif"}


def in_python(text: str) -> str:
    """A text of the command in Python's words: `--min-gain 5` is `min_gain="5"`, `granule whatif` is `run.whatif()`."""

    def keyword(found: re.Match[str]) -> str:
        name, value = found[1].replace("-", "_"), found[2]
        if name == "no_whatif":
            return "whatif=False"
        if name in _SWITCHES:
            return f"{name}=True" + (f" {value}" if value else "")
        return f'{name}="{value}"' if value else name

    text = _COMMAND.sub(lambda found: f"run.{found[1].replace('-', '_')}()", _OPTION.sub(keyword, text))
    return re.sub(r"(?<!\S)-o (?=gives)", "another path ", text)


def exception(kind: str, number: int | None, message: str, hint: str | None) -> GranuleError:
    """The exception for what Rust refused."""
    message, hint = in_python(message), hint and in_python(hint)
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
