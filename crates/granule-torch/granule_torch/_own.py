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
    others_write = there.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(there.st_mode) or there.st_uid not in (0, os.geteuid()) or others_write:
        raise PermissionError(f"other users could change {path}: it must be a folder of your own, no link, and writable by you only")
    return path
