"""What checks the answers of the course: right ones however they were built, wrong ones with a hint."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from syno_widgets.course import Cards, Moved, check, letters, stored, terms, tour_lab

import syno_lab as sl
from syno_lab.nas_pte.operator import nas_pte_1, nas_pte_2
from syno_lab.reports import LabReader

SIZES = {"N": 1, "C_in": 2, "C_out": 3, "H": 4, "W": 5}


def _conv(windows: str = "hw", shared: str = "cpq") -> sl.Build:
    build = sl.Build("[N, C_in, H, W]", "[N, C_out, H, W]", [*SIZES], ["k_1=3"], fixed_io_pairs=[(0, 0)])
    _, o, h, w = build.output
    found = dict(zip("qpc", (build.reduce("k_1"), build.reduce("k_1"), build.reduce("C_in")), strict=True))
    build.contract(share=[found[name] for name in shared], give=[o])
    for name in windows:
        build.unfold({"h": h, "w": w}[name], found[{"h": "p", "w": "q"}[name]])
    return build


def test_terms_are_the_loop_nest_on_letters() -> None:
    build = sl.Build("[C, H]", "[H]", ["C=2", "H=3"], ["k=3"])
    (h,) = build.output
    c, p = build.reduce("C"), build.reduce("k")
    build.contract(share=[c, p])
    operator = build.finish(c, build.unfold(h, p))
    x, w = letters("x", (2, 3)), letters("w", (2, 3))
    wanted = [
        sum(x[c, h + p - 1] * w[c, p] for c in range(2) for p in range(3) if 0 <= h + p - 1 < 3) for h in range(3)
    ]
    assert terms(operator).tolist() == wanted
    assert str(letters("x", (11,))[10]) == "x10"
    assert str(letters("x", (2, 11))[1, 10]) == "x1,10"


@pytest.mark.parametrize("answer", [sl.operators.conv2d(), _conv().state, _conv("wh", "qcp").state.operator()])
def test_a_right_operator_is_right_however_it_was_built(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    check(answer, sl.operators.conv2d(), SIZES)
    assert capsys.readouterr().out == "Right.\n"


@pytest.mark.parametrize(
    ("answer", "right", "said"),
    [
        (..., 3, "Not answered yet."),
        (None, sl.operators.conv2d(), "Not answered yet."),
        (7, sl.operators.conv2d(), "Not yet: expected an operator (what build.finish(…) gives), found int."),
        (_conv("h").state, sl.operators.conv2d(), "Not yet: not an operator yet: the data have shape"),
        (sl.operators.conv1x1(), sl.operators.conv2d(), "Not yet: Y[0, 1, 2, 2] reads X[0, 0, 1, 1] in 0 terms"),
        (_conv(shared="cp").state, sl.operators.conv2d(), "Not yet: it reads the right elements, but the weights"),
        (sl.operators.depthwise(), sl.operators.conv2d(), "Not yet: no value for C"),
        (nas_pte_1(), sl.operators.conv2d(), "Not yet: expected an operator of pGraphs, found one of NAS-PTE."),
        (sl.operators.conv1d(), sl.operators.conv2d(), "Not yet: expected input [1, 2, 4, 5] and output [1, 3, 4, 5],"),
        (3, 4, "Not yet: 3 is not it."),
        (0.1 + 0.2, 0.3, "Right."),
        ([1, 2, 3], [1, 2, 4], "Not yet: at 2 it is 3, expected 4."),
        ([1, 2], [1, 2, 4], "Not yet: expected shape [3], found shape [2]."),
        ("abc", "abc", "Right."),
        ("abc", 3, "Not yet: 'abc' is not it."),
    ],
)
def test_what_a_check_says(answer: Any, right: Any, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(answer, right, SIZES)
    assert capsys.readouterr().out.startswith(said)


def test_operators_that_are_no_pgraphs_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"N": 1, "C_in": 20, "C_out": 24, "H": 4, "W": 5}
    check(nas_pte_1(), nas_pte_1(), sizes)
    check(nas_pte_2(), nas_pte_1(), sizes)
    check(nas_pte_1(), nas_pte_1())
    right, wrong, small = capsys.readouterr().out.splitlines()
    assert right == small == "Right."
    assert wrong.startswith("Not yet: the weights are used in another way (shapes [16, 16, 3, 3], [8, 2, 3, 3]; ")


def test_a_function_of_numpy_is_an_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    build = sl.Build("[N]", "[N]", ["N=5"])
    (i,) = build.output
    rolled = build.finish(build.shift(i))
    check(rolled, lambda x: np.roll(x, -1))
    check(rolled, lambda x: np.roll(x, 1))
    check(rolled, lambda x: x[:3])
    right, wrong, short = capsys.readouterr().out.splitlines()
    assert right == "Right."
    assert wrong.startswith("Not yet: Y[0] is ")
    assert short == "Not yet: expected an output of shape [3], found [5]."


def test_pictures_say_what_they_show() -> None:
    build = sl.Build("[N]", "[N, K]", ["N=3"], ["K=3"])
    picture = Moved(build.finish(build.unfold(*build.output)))
    svg = ElementTree.fromstring(picture._repr_svg_())
    shown = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert shown == ["X [3]", "x0", "x1", "x2", "Y [3\u00d73]", "0", "x0", "x1", "x0", "x1", "x2", "x1", "x2", "0"]
    assert svg.get("aria-label") == str(picture)
    assert "rows are: 0, x0, x1; x0, x1, x2; x1, x2, 0." in str(picture)
    cards = Cards()._repr_html_()
    assert re.findall(r"color-scheme: (\w+)", cards.partition("<div")[0]) == ["light", "dark"]
    assert cards.count("<img") == 8
    for found in re.findall('base64,([^"]+)', cards):
        picture = ElementTree.fromstring(base64.b64decode(found))
        (style,) = picture.findall("{http://www.w3.org/2000/svg}style")
        assert "prefers-color-scheme: dark" in (style.text or ""), "an image has no ground but its own"
    assert "SPLIT: [i, j]: [G, B] <- [B*i + j]: [G*B]" in repr(Cards("SPLIT"))
    with pytest.raises(sl.SynoError, match="moved: expected at most 400 elements, found 8192"):
        Moved(sl.operators.pixel_shuffle(), {"N": 1, "C": 16, "H": 8, "W": 8})


def test_the_tour_s_lab_is_copied_once_and_read(tmp_path: Path) -> None:
    folder = tour_lab(tmp_path / "tour-lab")
    with LabReader(folder) as reader:
        rows = reader.read().rows
    assert len(rows) == 529
    finalist = next(row for row in rows if row.number == 20)
    assert finalist.interval is not None
    assert finalist.interval[0] < rows[0].accuracy < finalist.interval[1], "no difference is shown"
    result = folder / "searches" / "search" / "result.json"
    result.write_text("mine")
    assert tour_lab(folder) == folder
    assert result.read_text() == "mine"
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(sl.SynoError, match=r"expected to copy the tour's lab to .*, found: "):
        tour_lab(tmp_path / "file")


def test_stored_runs_are_read() -> None:
    assert stored("step")["free"]
    with pytest.raises(sl.SynoError, match=r"no stored run none-such\.json"):
        stored("none-such")
