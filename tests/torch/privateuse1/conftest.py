"""One PrivateUse1 device per process: the simulated accelerator. Tests of other backends run programs of their own."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch


from scene import release

from .support import NAME, privateuse1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if release() >= (2, 14):
        return
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.skip(reason="PrivateUse1 devices absent before torch 2.14"))


@pytest.fixture(scope="session", autouse=True)
def _enabled() -> None:
    privateuse1.enable("openreg", NAME, "expandable_segments:False")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    """Every test begins on device 0, with nothing allocated or cached."""
    # A failed test's frames hold its tensors, for debuggers.
    sys.last_value = sys.last_traceback = sys.last_exc = None  # type: ignore[assignment]
    gc.collect()
    torch.accelerator.set_device_index(0)
    for index in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(index)
    torch.accelerator.empty_cache()
    for index in range(torch.accelerator.device_count()):
        torch.accelerator.reset_peak_memory_stats(index)
        torch.accelerator.reset_accumulated_memory_stats(index)
        assert torch.accelerator.memory_allocated(index) == 0, "the test before left memory behind"
    yield
    torch.accelerator.set_device_index(0)


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., str]:
    """Runs Python text in a fresh process and answers what it printed; a failure fails the test."""

    def run(text: str, **environment: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, str(path)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def second_device() -> str:
    if torch.accelerator.device_count() < 2:
        pytest.skip("the machine has one device")
    return f"{NAME}:1"
