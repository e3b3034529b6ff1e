"""The comparison without a browser: its traits, its page, and the views that open it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import syno_widgets
from known_runs import fill_lab
from pages import page_state
from syno_widgets import Compare, RunsView, Stepper
from syno_widgets.scripts import joined

from syno_lab.canvas.known import KNOWN as KERNELS
from syno_lab.errors import SpecError, StoreError
from syno_lab.operators import conv2d, operator_1, separable

WIDGETS = Path(syno_widgets.__file__).parent
SIZES = {"N": 1, "C_in": 16, "C_out": 32, "H": 10, "W": 12, "k_1": 3, "g": 4, "s": 2}


def groups(view: Compare) -> list[str]:
    assert view.wait(120)
    return list(dict.fromkeys(row["group"] for row in view.table))


def ask(view: Any, **message: Any) -> None:
    number = view.answered + 1
    view.handle({"request": number, **message})
    assert view.answered == number


def test_all_is_in_one_table(tmp_path: Path) -> None:
    fill_lab(tmp_path, 12)
    view = Compare(conv2d(), operator_1(), lab=tmp_path, binding=SIZES)
    assert groups(view) == ["Costs", "Receptive field", "Results"]
    assert view.status == "4 of 11 steps are the same in all."
    assert (view.sizes, view.example) == (SIZES, False)
    ask(view, kind="bind", binding={**SIZES, "H": 20})
    assert view.sizes["H"] == 20
    assert groups(view) == ["Costs", "Receptive field", "Results"]
    flops = next(row for row in view.table if row["title"] == "FLOPs")
    assert flops["cells"][1]["text"] == f"{operator_1().flops({**SIZES, 'H': 20}):,}"
    ask(view, kind="bind", binding={**SIZES, "C_in": 7})
    assert "no sizes that fit all operators" in view.error
    assert view.sizes["H"] == 20, "what was refused changes nothing"
    ask(view, kind="nonsense")
    assert "the browser sent a message that the comparison does not know" in view.error
    view.close()


def test_a_lab_that_cannot_be_read(tmp_path: Path) -> None:
    view = Compare(conv2d(), separable(), lab=tmp_path / "nowhere")
    assert groups(view) == ["Costs", "Receptive field"]
    assert "nowhere" in view.error
    view.close()


def test_the_page_is_small_and_fetches_nothing(tmp_path: Path) -> None:
    view = Compare(conv2d(), operator_1(), separable(), KERNELS["convolution"](), names=["<a>", "b", "c", "d"])
    text = view.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 2_000_000
    script = joined("compare.js", "compare.css", "operator_graph.js", "stepper_compare.js")
    assert not re.search(r"https?:|@import|import\s*\(|url\(|fetch\(|eval\(|innerHTML", script)
    assert "<title>&lt;a&gt; and b and c and d</title>" in text
    assert "CONTRACTION share r_C_in, r_k_1, r_k_1__2, give i_C_out</td>" in text, "the part for pages without scripts"
    assert page_state(text)["rows"] == view.rows
    view.close()


def test_the_runs_view_compares_what_is_selected(tmp_path: Path) -> None:
    fill_lab(tmp_path, 12)
    runs = RunsView(tmp_path)
    try:
        ask(runs, kind="compare")
        assert "expected 2 to 4 operators, found 0" in runs.error
        runs.selected = ["search:known#0", "search:known#1"]
        ask(runs, kind="compare")
        assert runs.error == ""
        first = runs.compared
        assert first is not None
        assert [column["name"] for column in first.columns] == ["trial 0 of search:known", "trial 1 of search:known"]
        assert groups(first) == ["Costs", "Receptive field", "Results"]
        assert runs.compare("search:known#4", "search:known#2") is runs.compared
        assert first.comm is None, "one comparison is open at a time"
        with pytest.raises(StoreError, match="there is no operator to show"):
            runs.compare("search:known#baseline", "search:known#2")
        assert page_state(runs.to_html())["compared"] is None
    finally:
        runs.close()


def test_the_stepper_compares_places() -> None:
    stepper = Stepper.of("conv2d", at_start=False)
    stepper.undo()
    ask(stepper, kind="compare", revision=stepper.revision, index=4)
    assert stepper.error == ""
    assert stepper.compared is not None
    assert [column["name"] for column in stepper.compared.columns] == ["place 5", "place 4"]
    assert [row["mark"] for row in stepper.compared.rows] == ["same"] * 4 + ["only"]
    assert "FLOPs" in [row["title"] for row in stepper.compare(6).table]
    with pytest.raises(SpecError, match="place: expected a number from 0 to 6, found 7"):
        stepper.compare(7)
    stepper.close()
