"""The notebooks run from a clean kernel, from top to bottom."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS][:1] == ["01_tour.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_names_a_kernel_and_keeps_no_outputs_of_a_failed_run(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert book.metadata.kernelspec.name == "python3"
    for cell in book.cells:
        assert not [o for o in cell.get("outputs", []) if o.output_type == "error"]


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_a_clean_kernel(path: Path, tmp_path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in book.cells for output in cell.get("outputs", [])]
    widgets = [o for o in shown if "application/vnd.jupyter.widget-view+json" in o.get("data", {})]
    pictures = [o for o in shown if "syno-static" in o.get("data", {}).get("text/html", "")]
    assert len(pictures) >= len([w for w in widgets if "stepper" in w["data"]["text/plain"]])
