"""Folders of the package's own, of which programs are run: nobody else may have put anything there."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def folder(path: Path) -> Path:
    """Makes the folder and those above it, where they are not there.

    Raises:
        OSError: it cannot be made; or it is a link, another user's (but the administrator's), or writable by others.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    there = path.lstat()
    if not stat.S_ISDIR(there.st_mode) or is_anybodys(there):
        raise PermissionError(f"other users could change {path}: it must be a folder of your own, no link, and writable by you only")
    return path


def is_anybodys(status: os.stat_result) -> bool:
    """Whether another user, but the administrator, made it or can write to it."""
    return status.st_uid not in (0, os.geteuid()) or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
