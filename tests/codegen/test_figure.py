"""pGraphs, loop nests and equations for papers: what a reader of each file finds is what the operator has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from figures import (
    boxes,
    check_pdf_fonts,
    check_room,
    compile_tex,
    latex,
    pdf_inches,
    pdf_texts,
    svg_letters,
    svg_texts,
)
from hypothesis import example, given
from hypothesis import strategies as st

from syno_lab import operators
from syno_lab.canvas.known import KNOWN as KERNELS
from syno_lab.codegen.drawing import coordinate_ids, drawn
from syno_lab.codegen.figure_operator import OF, _maths, figure
from syno_lab.codegen.text import expressions
from syno_lab.drawing.figure import FORMS, WIDTHS, Page
from syno_lab.drawing.figure_graph import GraphFigure, laid_out
from syno_lab.drawing.figure_tex import tex_text
from syno_lab.drawing.text import in_lines
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.ir.state import State
from tests.strategies import random_operator

HOSTILE = r"\input{/etc/passwd} 100% & #1 $x_2$ ^~ <b> „Größe“ 中 \end{tikzpicture}"


@pytest.fixture(scope="module")
def conv2d() -> Operator:
    return operators.conv2d()


def hostile() -> Operator:
    """An operator with names that mean something to TeX, Python and C."""
    build = Build("[_, input_def_, for__2]", "[_, end_, for__2]", ["_", "input_def_", "end_", "for__2"], [])
    reduced = build.reduce("input_def_")
    build.contract([reduced], [build.output[1]])
    return build.state.operator()


# -- sizes, letters, equal files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", OF)
def test_a_pdf_is_as_wide_as_asked(conv2d: Operator, of: Any) -> None:
    made = conv2d.figure(of)
    for width, inches in (("column", 3.33), ("page", 7.0), (2.5, 2.5)):
        content = made.content("pdf", width=width, font="serif")
        assert pdf_inches(content)[0] == pytest.approx(inches, abs=1e-3)
        check_pdf_fonts(content)
    assert WIDTHS == {"column": 3.33, "page": 7.0}


def test_the_labels_are_texts(conv2d: Operator) -> None:
    """Primitives, tensors and loops can be searched in PDF and SVG, and the SVG holds the letters that it needs."""
    steps = [step.primitive for step in conv2d.steps]
    for form, read in (("pdf", pdf_texts), ("svg", svg_texts)):
        texts = read(conv2d.figure().content(form))
        for primitive in ("REDUCE", "UNFOLD"):
            assert sum(primitive in text for text in texts) == steps.count(primitive)
        assert sum("SHARE" in text for text in texts) == 3
        assert {"X", "Y", "W1", "input", "output", "weight", "give"} <= set(texts)
        code = re.sub(r"\s+", "", "".join(read(conv2d.figure("loops").content(form, width="page"))))
        assert re.sub(r"\s+", "", conv2d.loops()) == code
    for font in ("sans", "serif"):
        content = conv2d.figure("equation").content("svg", font=font)
        written = set("".join("".join(svg_texts(content)).split()))
        assert written <= set().union(*svg_letters(content).values())
        assert {"Y", "∑", "≤"} <= written
        faces = svg_letters(content).keys()  # large signs are of families of their own, such as DejaVu Sans Display
        assert ("STIXGeneral" if font == "serif" else "DejaVu Sans") in faces
        assert all(face.startswith("STIX" if font == "serif" else "DejaVu Sans") for face in faces)


def test_equal_figures_give_equal_bytes(conv2d: Operator, tmp_path: Path) -> None:
    """In another process, in which hashes of texts are others, too: no file has a date or an order by chance."""
    code = "import sys, syno_lab as sl\nfor f in sys.argv[1:]: sl.operators.conv2d().figure().save(f)"
    forms = ("pdf", "svg", "png", "tex")
    names = [str(tmp_path / f"x.{form}") for form in forms]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "99"}
    done = subprocess.run([sys.executable, "-c", code, *names], env=environment, capture_output=True, check=True)
    assert done.stderr == b""
    for name, form in zip(names, forms, strict=True):
        assert Path(name).read_bytes() == conv2d.figure().content(form), form


# -- nothing cut, nothing on another ----------------------------------------------------------------------------------


@pytest.mark.parametrize("font", ["sans", "serif"])
def test_texts_stay_in_their_boxes(font: str, rng: Random) -> None:
    for operator in (operators.operator_1(), random_operator(rng)[0], KERNELS["involution"]()):
        made = figure(operator)
        assert isinstance(made, GraphFigure)
        page = Page(3.33, font, 8.0)
        plot, texts = boxes(made, page)
        width, _, parts = laid_out(made._source)
        axes = plot.axes[0]
        outlines = [part.box for part in parts if part.box is not None]
        inside = 0
        for text, box in texts:
            (x0, y0), (x1, y1) = axes.transData.inverted().transform([(box.x0, box.y0), (box.x1, box.y1)])
            assert -1 <= x0 < x1 <= width + 1, text
            middle = ((x0 + x1) / 2, (y0 + y1) / 2)
            for x, y, wide, high in outlines:
                if abs(middle[0] - x) < wide / 2 and abs(middle[1] - y) < high / 2:
                    inside += 1
                    assert x - wide / 2 <= x0, text
                    assert x1 <= x + wide / 2, text
        # Only labels of edges stand outside.
        edges = sum(len(part.words) for part in parts if part.box is None)
        assert inside >= len(texts) - edges
        assert inside >= len(operator.steps if isinstance(operator, Operator) else ())


@pytest.mark.parametrize("width", ["column", "page"])
def test_lines_have_room(width: str) -> None:
    operator = operators.operator_1()
    for font in ("sans", "serif"):
        page = Page(WIDTHS[width], font, 8.0)
        for staged in (False, True):
            check_room(operator.figure("equation", staged=staged), page)
        check_room(operator.figure("loops", {"N": 1, "C_in": 64, "C_out": 64, "H": 9, "W": 9}, staged=True), page)
        check_room(operator.figure("loops", language="c", wrt="X"), page)


def test_letters_are_as_large_as_asked_where_there_is_room() -> None:
    small = operators.conv1x1().figure("equation")
    for points in (6.0, 9.0):
        _, texts = boxes(small, Page(7.0, "sans", points))
        plot, _ = boxes(small, Page(7.0, "sans", points))
        assert {one.get_fontsize() for one in plot.texts} == {points}
        assert len(texts) == 1
    plot, _ = boxes(operators.operator_1().figure("equation"), Page(1.5, "sans", 9.0))
    assert plot.texts[0].get_fontsize() < 9


# -- TeX ---------------------------------------------------------------------------------------------------------------


def test_every_coordinate_stands_in_the_tikz(rng: Random) -> None:
    for operator in (operators.conv2d(), operators.operator_1(), hostile(), random_operator(rng)[0]):
        tikz = operator.figure().content("tikz").decode()
        texts, maths = expressions(operator), _maths(operator)
        for name, coordinate in coordinate_ids(operator).items():
            (block,) = re.findall(rf"  % {name}: (.*?) \({name}\) at ", tikz, re.DOTALL)
            assert block.startswith(f"coordinate {texts[coordinate]} of size {coordinate.size.pretty}")
            labels = re.findall(r"\\synosize (.*?)\}\}\};", block)[:-1]
            if len(labels) == 1:
                assert labels == [f"${maths[texts[coordinate]]}$"] or "…" in in_lines(texts[coordinate])[0]
            else:  # lines are mathematics together, or as they are written
                assert labels == [tex_text(line) for line in in_lines(texts[coordinate])] or (
                    maths[texts[coordinate]] == " ".join(label.strip("$") for label in labels)
                    and all(re.fullmatch(r"\$.*\$", label) for label in labels)
                )
            assert rf"\synosize : ${maths[coordinate.size.pretty]}$}}" in block
        for name in drawn(operator).titles:
            assert tikz.count(f"({name}) at ") == 1
        assert tikz.isascii() == all(map(str.isascii, drawn(operator).titles.values()))
        assert tikz.count("{") == tikz.count("}")
        # What is different in words is different as mathematics.
        assert len({maths[texts[one]] for one in coordinate_ids(operator).values()}) == len(set(texts.values()))


def test_lines_of_a_long_expression_are_set_alike() -> None:
    """As mathematics where every bracket ends in its line, else all of them as they are written."""
    build = Build("[H]", "[H]", ["H"], ["k"])
    at = build.output[0]
    for _ in range(3):
        at = build.unfold(at, build.reduce("k"))
    build.shift(at)
    tikz = build.state.operator().figure().content("tikz").decode()
    assert (
        r"$i_{H} + r_{k} - \left\lfloor k / 2 \right\rfloor + r'_{k} - \left\lfloor k / 2 \right\rfloor + r''_{k}$"
        in tikz
    )
    assert r"$- \left\lfloor k / 2 \right\rfloor$" in tikz
    for line in ("(i_H + r_k - k//2 + r_k__2 - k//2 + r_k__3", "- k//2 + 1) % H"):
        assert rf"\synosize {tex_text(line)}}}" in tikz


def test_coordinates_are_set_as_mathematics(conv2d: Operator) -> None:
    maths = _maths(conv2d)
    assert maths["i_H + r_k_1 - k_1//2"] == r"i_{H} + r_{k_{1}} - \left\lfloor k_{1} / 2 \right\rfloor"
    assert maths["i_W + r_k_1__2 - k_1//2"] == r"i_{W} + r'_{k_{1}} - \left\lfloor k_{1} / 2 \right\rfloor"
    assert maths["i_C_out"] == "i_{C_{out}}"
    assert _maths(operators.operator_1())["C_out/(g·s)"] == r"C_{out}/(g \, s)"


_SAFE = re.compile(
    r"(?:[^\\{}$&#^_~%\x00-\x1f\x7f-\U0010ffff]"  # a character that is itself
    r"|\\[{}$&#%_]|[-'?!]\{\}"  # an escaped one; a sign that joins no other
    r"|\\(?:text[a-z]+|dots|ss|[aA][eE]|[oOlL])\{\}"  # the name of a sign
    r"|\\ensuremath\{(?:-|\\[a-zA-Z]+)\}"
    r"|\\[`'^~=.\"urHvc]\{[A-Za-z]\})*"  # a letter with an accent
)


@given(st.text())
@example("Σ")
def test_any_text_is_text_for_tex(text: str) -> None:
    assert _SAFE.fullmatch(tex_text(text)), tex_text(text)


def test_texts_keep_their_meaning_in_tex() -> None:
    assert tex_text("a_b 50% {x}") == r"a\_b 50\% \{x\}"
    assert tex_text("é ü ç Å") == r"\'{e} \"{u} \c{c} \r{A}"
    assert tex_text("中 a--b") == "[U+4E2D] a-{}-{}b"
    tikz = operators.conv1d().figure(title=HOSTILE).content("tex").decode()
    assert tex_text(HOSTILE) in tikz
    assert tikz.count(r"\input") == 0
    assert tikz.count(r"\end{tikzpicture}") == 1


@latex
def test_latex_sets_every_kind(tmp_path: Path, conv2d: Operator) -> None:
    """With Debian's texlive: all letters of the labels are found in what it sets, and no line is too wide."""
    pieces = {}
    for number, operator in enumerate((conv2d, operators.operator_1(), hostile())):
        for of in OF:
            for font in ("sans", "serif"):
                made = operator.figure(of, **({"title": HOSTILE} if of == "graph" else {}))
                pieces[f"{of}{number}{font}.tex"] = made.content("tex", font=font).decode()
    pieces["staged.tex"] = operators.operator_1().figure("equation", staged=True).content("tex").decode()
    pieces["c.tex"] = conv2d.figure("loops", language="c").content("tex", width="page").decode()
    pieces["kernel.tex"] = figure(KERNELS["involution"]()).content("tex").decode()
    read = compile_tex(tmp_path, pieces)
    assert read.count("REDUCE") == 2 * (3 + 5 + 1)
    assert read.count("root:") == 0
    assert "for r_k_1__2 in range(k_1):" in read
    assert read.count("/etc/passwd") == 6


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be(conv2d: Operator, tmp_path: Path) -> None:
    made = conv2d.figure()
    old = tmp_path / "old.pdf"
    old.write_text("old")
    refused: list[tuple[type[SynoError], str, str, dict[str, Any]]] = [
        (FormatError, r"expected a name that ends in \.pdf, .*, found '.*x\.docx'", "x.docx", {}),
        (FormatError, "expected a name that ends in", "pdf", {}),
        (SpecError, "width: expected column, page or 0.5 to 40 inches, found '0'", "old.pdf", {"width": 0}),
        (
            SpecError,
            "width: expected column, page or 0.5 to 40 inches, found 'nan'",
            "old.pdf",
            {"width": float("nan")},
        ),
        (SpecError, "width: expected column, page or .*, found 'wide'", "old.pdf", {"width": "wide"}),
        (SpecError, "points: expected 3 to 40 for letters, found '100'", "old.pdf", {"points": 100}),
        (
            SpecError,
            "font: expected sans, serif or a family that is installed here, found 'No'",
            "old.pdf",
            {"font": "No"},
        ),
        (SpecError, "font: expected sans or serif for .tex", "x.tex", {"font": "DejaVu Sans Mono"}),
        (SynoError, "expected to write .*; choose another place", "old.pdf/x.pdf", {}),
    ]
    for kind, message, name, options in refused:
        with pytest.raises(kind, match=message):
            made.save(tmp_path / name, **options)
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(SynoError, match=r"expected to write .*folder\.svg, found: Is a directory"):
        made.save(tmp_path / "folder.svg")
    assert old.read_text() == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder.svg", "old.pdf"]
    with pytest.raises(FormatError, match=r"expected one of pdf, svg, .* found 'gif'"):
        made.content("gif")
    with pytest.raises(SpecError, match="of: expected one of graph, loops, equation, found 'x'"):
        conv2d.figure("x")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="of: expected graph, as only complete pGraphs have more, found 'loops'"):
        figure(KERNELS["involution"](), "loops")


def test_a_file_is_written_whole_in_each_form(conv2d: Operator, tmp_path: Path) -> None:
    heads = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}
    for form in FORMS:
        path = conv2d.figure().save(str(tmp_path / f"X.{form.upper()}"), font="serif")
        assert path.read_bytes().startswith(heads.get(form, b"% Complete pGraph"))
    assert len(list(tmp_path.iterdir())) == len(FORMS)


def test_a_notebook_shows_a_partial_pgraph(conv2d: Operator) -> None:
    state = State.root(conv2d.spec)
    shown = state.figure()._repr_svg_()
    assert 'aria-label="Partial pGraph from data [N, C_out, H, W]' in shown
    assert {"data", "so far"} <= set(svg_texts(shown.encode()))
