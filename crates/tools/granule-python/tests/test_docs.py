"""The examples of the page and the notebooks of the documentation run as they are written."""

from __future__ import annotations

import os
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
def test_a_notebook_has_the_outputs_that_it_gives(path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("pyarrow")
    shipped = nbformat.read(path, as_version=4)
    nbformat.validate(shipped)
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        # Bars, and what libraries say of the machine.
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    if os.environ.get("UPDATE_NOTEBOOKS"):
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
        notebook.metadata = shipped.metadata
        nbformat.write(notebook, path)
        return
    assert len(cells) > 3 and all(cell.outputs for cell in cells)
    for old, new in zip(shipped.cells, notebook.cells, strict=True):
        assert old.get("outputs") == new.get("outputs"), f"{old.id}: UPDATE_NOTEBOOKS=1 writes what it gives"
    outputs: list[Any] = [output for cell in cells for output in cell.outputs]
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in outputs), "the run shows its picture"
