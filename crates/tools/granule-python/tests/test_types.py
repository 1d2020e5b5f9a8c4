"""The types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
HERE = Path(__file__).parent


def test_mypy_is_content(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", f"--cache-dir={tmp_path}"]
    words += ["--ignore-missing-imports", "-m", "typed", "-p", "granule_alloc"]
    # Here, the package that is found is the installed one.
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=HERE)
    assert done.returncode == 0, done.stdout + done.stderr
