"""The notebooks run from a clean kernel, from top to bottom, with the solutions of their exercises.

A solution is Python in a ``<details>`` of a Markdown cell, behind an exercise; it runs in the kernel at its place. Its
cell's metadata hold a wrong answer (``syno_wrong``), which must be refused before.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from syno_widgets.course import OPEN, RIGHT, WRONG
from traitlets.config import Config

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(path for path in FOLDER.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
TOUR = FOLDER / "01_tour.ipynb"
COURSE = [path for path in NOTEBOOKS if path.parent.name == "course"]
SOLUTION = re.compile(r"<details>\n<summary>Solution</summary>\n\n.*?```python\n(.*?)```\n.*?</details>", re.DOTALL)


#: Lessons whose story needs a widget.
LESSONS = [path for path in COURSE if 4 <= int(path.name[:2]) <= 15]
WIDGET = "application/vnd.jupyter.widget-view+json"


def _name(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


def _read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def _text(cell: NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def _exercises(book: NotebookNode) -> int:
    return sum(
        len(re.findall(r"^### Exercise \d", cell.source, re.MULTILINE))
        for cell in book.cells
        if cell.cell_type == "markdown"
    )


def test_there_are_notebooks() -> None:
    assert [_name(path) for path in NOTEBOOKS][:1] == ["01_tour"]
    numbers = [path.name[:2] for path in COURSE]
    assert numbers[:2] == ["01", "02"]
    assert len(set(numbers)) == len(numbers), "two notebooks of the course have one number"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=_name)
def test_notebook_names_a_kernel_and_keeps_no_outputs_of_a_failed_run(path: Path) -> None:
    book = _read(path)
    nbformat.validate(book)
    assert book.metadata.kernelspec.name == "python3"
    for cell in book.cells:
        assert not [o for o in cell.get("outputs", []) if o.output_type == "error"]


@pytest.mark.parametrize("path", COURSE, ids=_name)
def test_notebook_of_the_course_has_exercises_with_hidden_solutions(path: Path) -> None:
    book = _read(path)
    solved = [cell for cell in book.cells if cell.cell_type == "markdown" and "<details>" in cell.source]
    assert _exercises(book) >= 1
    assert len(solved) == _exercises(book)
    for cell in solved:
        assert SOLUTION.search(cell.source), "a solution that the test does not find would not be run"
        assert cell.metadata.get("syno_wrong"), "an oracle is worth what it refuses"
    assert any(cell.get("outputs") for cell in book.cells), "it is kept as it was run"


@pytest.mark.parametrize("path", LESSONS, ids=_name)
def test_a_lesson_has_a_widget_and_its_picture(path: Path) -> None:
    shown = [output.get("data", {}) for cell in _read(path).cells for output in cell.get("outputs", [])]
    assert [data for data in shown if WIDGET in data]
    assert [data for data in shown if "syno-static" in data.get("text/html", "")]


def test_the_tour_is_of_widgets_first_and_leaves_its_stepper_at_the_start() -> None:
    cells = [cell for cell in _read(TOUR).cells if cell.cell_type == "code"]
    folded = [cell for cell in cells if cell.metadata.get("jupyter", {}).get("source_hidden")]
    assert cells[: len(folded)] == folded
    for name in ("Stepper(", "OperatorView(", "Explorer(", "RunsView(", "Compare("):
        assert any(name in cell.source for cell in folded), f"no {name} among the folded cells"
    assert all(any(WIDGET in output.get("data", {}) for output in cell.outputs) for cell in folded)
    # Saved after *Run All*: the picture beside the stepper is its last.
    (picture,) = (o["data"]["text/plain"] for o in cells[0].outputs if "syno-static" in o["data"].get("text/html", ""))
    assert "no steps yet" in picture


@pytest.mark.parametrize("path", NOTEBOOKS, ids=_name)
def test_links_of_notebooks_lead_somewhere(path: Path) -> None:
    for cell in _read(path).cells:
        for link in re.findall(r"\]\(([^)#\s]+)\)", cell.source) if cell.cell_type == "markdown" else []:
            assert "://" in link or (path.parent / unquote(link)).exists(), f"{path.name} points to {link}"


def test_index_names_every_notebook() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    index, times, _ = re.split(r"<!-- times: (?:begin|end) -->", index)
    every = sorted(path.relative_to(FOLDER).as_posix() for path in NOTEBOOKS)
    assert sorted(re.findall(r"\]\(([^)]+\.ipynb)\)", index)) == every
    assert sorted(re.findall(r"\]\(([^)]+\.ipynb)\)", times)) == every, "python benchmarks/notebooks.py measures them"


def _solved(book: NotebookNode) -> Iterator[NotebookNode]:
    """The cells, and behind each solution two more: a wrong answer, and it."""
    for cell in book.cells:
        yield cell
        if found := cell.cell_type == "markdown" and SOLUTION.search(cell.source):
            yield nbformat.v4.new_code_cell(cell.metadata["syno_wrong"], metadata={"expected": WRONG})
            yield nbformat.v4.new_code_cell(found[1], metadata={"expected": RIGHT})


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=_name)
def test_notebook_runs_from_a_clean_kernel(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = _read(path)
    book.cells = list(_solved(book))
    # Kernels may start at the same time: each has its own history, and pipes instead of ports that another could take.
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    with tempfile.TemporaryDirectory(prefix="syno") as pipes:  # their names have at most 107 characters
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{pipes}/kernel"}})
        client = NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}, config=config)
        client.execute()
    for cell in book.cells:
        if "expected" in cell.metadata:
            assert _text(cell).strip().splitlines()[-1:] != [], f"no answer was checked in\n{cell.source}"
            assert _text(cell).strip().splitlines()[-1].startswith(cell.metadata["expected"]), (
                cell.source,
                _text(cell),
            )
    assert sum(OPEN in _text(cell) for cell in book.cells) == _exercises(book), "exercises are left to the reader"
    shown = [output for cell in book.cells for output in cell.get("outputs", [])]
    warned = [output.text for output in shown if output.output_type == "stream" and output.name == "stderr"]
    assert not warned, "a reader sees warnings in red"
    widgets = [o for o in shown if WIDGET in o.get("data", {})]
    pictures = [o for o in shown if "syno-static" in o.get("data", {}).get("text/html", "")]
    assert len(pictures) >= len([w for w in widgets if "stepper" in w["data"]["text/plain"]])
