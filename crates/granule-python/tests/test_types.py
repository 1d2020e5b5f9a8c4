"""The types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import granule_alloc
import pytest

pytest.importorskip("mypy")
HERE = Path(__file__).parent


@pytest.mark.parametrize("what", [HERE / "typed.py", Path(granule_alloc.__file__).parent], ids=["program", "package"])
def test_mypy_is_content(what: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", f"--cache-dir={tmp_path}"]
    words += ["--ignore-missing-imports", str(what)]
    # From elsewhere, so that the installed package is found and not a folder of its name.
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
