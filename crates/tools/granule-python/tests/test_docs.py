"""The examples of the page and the notebooks of the documentation run as they are written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_examples_run(snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(snapshot, tmp_path / "snapshot.pickle")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    examples = EXAMPLE.findall((ROOT / "docs/python.md").read_text())
    assert examples
    for example in examples:
        try:
            exec(example, names)
        except ModuleNotFoundError as error:
            pytest.skip(f"{error.name} is not installed")


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}})
    executed = client.execute()
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    outputs: list[Any] = [output for cell in cells for output in cell.outputs]
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in outputs), "the run shows its picture"
