"""Fronts, the paper's figures and curves for papers: nothing is cut or lies on another, all words are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from figures import check_pdf_fonts, check_room, compile_tex, latex, pdf_inches, pdf_texts, svg_texts
from reproduction.paper import PaperFigure, figure_5, figure_6, figure_8, figure_9, figure_10, table_2
from reproduction.paper.drawing import PaperPicture

from syno_lab.drawing.figure import WIDTHS, Figure, Page
from syno_lab.drawing.figure_tex import tex_text
from syno_lab.reports import FrontFigure, find_axis
from syno_lab.reports.axes import relative
from syno_lab.reports.fronts import Front, Placed
from syno_lab.tuning.curves import CurvesFigure, latency_curves

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
HOSTILE = r"a_b & 100% $x$ \input{z} {}"
SYSTEMS = (("pGraphs", "circle"), ("Canvas", "diamond"), ("NAS-PTE", "triangle"), ("αNAS", "square"))
PAPER: dict[str, Callable[[], PaperFigure]] = {
    "5": figure_5,
    "6": figure_6,
    "8": figure_8,
    "9": lambda: figure_9(RESULTS / "tvm.json"),
    "10": figure_10,
    "t2": table_2,
}


def front(rng: Random, trials: int, *, systems: int = 1, axes: tuple[str, ...] = ("flops", "accuracy")) -> Front:
    """A front of so many trials by chance; trial 1 is on it, and its name means something to TeX and matplotlib."""
    points = []
    for number in range(trials):
        cost = 0.0 if number == 1 else rng.random()
        accuracy = 0.3 + 0.5 * cost**0.3 - 0.2 * rng.random()
        title, mark = SYSTEMS[number % systems]
        points.append(
            Placed(
                f"search:s#{number}",
                "baseline" if number == 0 else f"trial {number}",
                number == 0,
                (1e6 * (1 + 9 * cost), accuracy, rng.random())[: len(axes)],
                HOSTILE if number == 1 else "",
                (None, (accuracy - 0.02, accuracy + 0.02)) if number % 9 == 4 and len(axes) == 2 else (),
                title,
                mark,
            )
        )
    best, found = -1.0, []
    for place in sorted(range(trials), key=lambda place: points[place].values):
        if points[place].values[1] > best:
            best = points[place].values[1]
            found.append(place)
    shown = tuple(relative(find_axis(name)) for name in axes)
    return Front(shown, True, tuple(points), 0, tuple(found), (1.0,) * len(axes), 0.5, ((1, 0.2), (trials, 0.5)))


def curves() -> Figure:
    runs = [[(1, 8.0), (2, 4.0), (9, 4.0)], [(2, 6.0), (7, 5.0)]]
    return CurvesFigure(latency_curves({"conv2d": runs, HOSTILE: [[(1, 3.0), (8, 2.0)]]}))


@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize("font", ["sans", "serif"])
def test_nothing_is_cut_and_nothing_lies_on_another(rng: Random, width: str, font: str) -> None:
    page = Page(WIDTHS[width], font, 8.0)
    for shown in (
        front(rng, 14),
        front(rng, 60, systems=4),
        front(rng, 30, axes=("latency_ms@cpu", "accuracy", "params")),
    ):
        # With more points than these, a name may find no free place near its own.
        check_room(FrontFigure(shown), page)
    for made in PAPER.values():
        check_room(PaperPicture(made()), page)
    check_room(curves(), page)


def test_a_front_names_its_points_axes_and_systems() -> None:
    shown = front(Random(5), 8, systems=4)  # with place for all names
    made = FrontFigure(shown, title="A search")
    names = [shown.points[place].name for place in shown.front]
    assert any(HOSTILE in name for name in names)
    words = {"FLOPs over the baseline's", "baseline", "on the front", *shown.systems}
    drawn = svg_texts(made.content("svg", width="page"))
    assert words <= set(drawn)
    for name in names:
        assert any(text == name or (text.endswith("…") and name.startswith(text[:-1])) for text in drawn), name
    content = made.content("pdf", width=5)
    assert pdf_inches(content)[0] == pytest.approx(5, abs=1e-3)
    check_pdf_fonts(content)
    assert {"baseline", "on the front", "Canvas", "NAS-PTE"} <= set(pdf_texts(content))
    pgf = made.content("pgf").decode()
    for name in names:
        assert tex_text(name if len(name) <= 28 else name[:27] + "…") in pgf
    assert [line for line in pgf.splitlines() if r"\input" in line and not line.startswith("%")] == []
    assert 'aria-label="A search' in made._repr_svg_()


def test_what_the_paper_states_is_in_every_form(tmp_path: Path) -> None:
    """The hatched bars and the marks of the paper's numbers are named in each file."""
    for name, make in PAPER.items():
        shown = make()
        for form in ("pdf", "svg", "tex"):
            content = shown.save(tmp_path / f"{name}.{form}", width="page", font="serif").read_bytes()
            read = {"pdf": pdf_texts, "svg": svg_texts, "tex": lambda text: text.decode().splitlines()}[form](content)
            assert "the paper" in " ".join(read)
            assert len(content) < 300_000, "TeX takes a minute for a surface of a million dots"
            if form == "pdf":
                assert pdf_inches(content)[0] == pytest.approx(7, abs=1e-3)
                check_pdf_fonts(content)
    cells = svg_texts((tmp_path / "t2.svg").read_bytes())
    assert {"1.0000", "0.1818", "0.0008"} <= set(cells)


def test_curves_have_their_names_and_last_values() -> None:
    made = curves()
    assert made.description.startswith("Best latency over the trials of tunings. conv2d: 4.5 ms after 9 trials; a_b")
    assert {"conv2d", HOSTILE, "trials", "milliseconds"} <= set(svg_texts(made.content("svg")))


@latex
def test_latex_sets_every_figure(tmp_path: Path, rng: Random) -> None:
    """With Debian's texlive; no line is too wide, and every name is set as it is."""
    made: dict[str, Figure] = {
        "front": FrontFigure(front(rng, 8)),
        "systems": FrontFigure(front(rng, 60, systems=4)),
        "three": FrontFigure(front(rng, 30, axes=("latency_ms@cpu", "accuracy", "params"))),
        "curves": curves(),
        **{f"paper{name}": PaperPicture(make()) for name, make in PAPER.items()},
    }
    pieces = {
        f"{name}-{width}.pgf": one.content("pgf", width=width, font=font).decode()
        for name, one in made.items()
        for width, font in (("column", "sans"), ("page", "serif"))
    }
    read = compile_tex(tmp_path, pieces)
    assert read.count("the paper, Table 2") == 2
    assert read.count("milliseconds") == 2
    assert read.count(r"\input{z}") >= 2
