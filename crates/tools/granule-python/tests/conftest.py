"""What the tests work on: the training run that the repository has, and the command of the same wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import granule_alloc as granule
import pytest

ROOT = Path(__file__).resolve().parents[4]
COMMAND = Path(sys.executable).parent / "granule"

#: What is measured, and so differs from run to run.
MEASURED = {"ns_per_op", "seconds", "host_ns", "wall_ns"}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if "ALLOC_CONF" in name or name.startswith("GRANULE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def trace() -> Path:
    return ROOT / "crates/tools/granule-cli/data/resnet_train.trace.gz"


@pytest.fixture(scope="session")
def run(trace: Path) -> granule.Run:
    return granule.load(trace)


@pytest.fixture(scope="session")
def snapshot(run: granule.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of the run on a device that is too small for it."""
    path = tmp_path_factory.mktemp("snapshot") / "snapshot.pickle"
    with pytest.warns(granule.GranuleWarning, match="refused"):
        run.replay(capacity="10GiB", snapshot=path)
    return path


def without_times(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {key: without_times(value) for key, value in answer.items() if key not in MEASURED}
    return [without_times(value) for value in answer] if isinstance(answer, list) else answer


@pytest.fixture(scope="session")
def command() -> Callable[..., Any]:
    """The command's JSON answer."""

    def ask(*words: str | Path) -> Any:
        done = subprocess.run([COMMAND, *words, "--json"], capture_output=True, text=True, check=False)
        return json.loads(done.stdout)

    return ask
