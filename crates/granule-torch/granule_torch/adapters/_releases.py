"""Which releases of other libraries fit, and what one is told whose release does not."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from types import ModuleType

from .._errors import GranuleError


def imported(module: str, package: str, oldest: str, needs: tuple[str, ...] = ()) -> ModuleType:
    """A library's module, if it is of a release that fits.

    Args:
        module: its name.
        package: what pip installs.
        oldest: the first release that fits.
        needs: names that the module must have.

    Raises:
        GranuleError: it is missing, too old, or lacks a name.
    """
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise GranuleError(f"{module} cannot be imported ({error}): install {package} {oldest} or later") from error
    version = _version(found, package)
    if _numbers(version) and _numbers(version) < _numbers(oldest):
        raise GranuleError(f"{module} {version} is here, and {oldest} or later fits: pip install -U {package}")
    for name in needs:
        if not hasattr(found, name):
            raise GranuleError(f"{module} {version} is here, which has no {name}; {oldest} has")
    return found


def _version(module: ModuleType, package: str) -> str:
    """What the module says, or else the package."""
    said = getattr(module, "__version__", None)
    if said is None:
        try:
            said = metadata.version(package)
        except metadata.PackageNotFoundError:
            said = "of an unknown release"
    return str(said)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
