"""What tests of figures for papers have in common: what a reader of the files finds in them."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import subprocess
import zlib
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fontTools.ttLib import TTFont

from syno_lab.drawing.figure import Figure, Page, style

_PROGRAMS = ("pdflatex", "pdftotext")
_MISSING = [name for name in _PROGRAMS if shutil.which(name) is None]
#: CI has no LaTeX: these tests run where a developer asks for them.
latex = pytest.mark.skipif(
    os.environ.get("SYNO_LAB_LONG") != "1" or bool(_MISSING),
    reason="needs SYNO_LAB_LONG=1 and LaTeX (Debian: texlive-latex-recommended, texlive-pictures, poppler-utils); "
    f"missing programs: {', '.join(_MISSING) or 'none'}",
)
_SHOWN = re.compile(rb"\[(?:[^][()]|\((?:[^()\\]|\\.)*\))*\]\s+TJ|\((?:[^()\\]|\\.)*\)\s+Tj", re.DOTALL)
_STRINGS = re.compile(rb"\(((?:[^()\\]|\\.)*)\)", re.DOTALL)
_PACKAGES = r"\usepackage{tikz,amssymb,amsmath,listings,pgf,graphicx}"


def pdf_inches(content: bytes) -> tuple[float, float]:
    """Width and height of the page of a PDF."""
    ((width, height),) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", content)
    return float(width) / 72, float(height) / 72


def pdf_texts(content: bytes) -> list[str]:
    """The strings that a PDF shows, in the order in which it draws them; only of Latin-1 is each letter certain."""
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL):
        try:
            drawn = zlib.decompress(stream)
        except zlib.error:
            continue
        if b" Tf" not in drawn:
            continue
        for shown in _SHOWN.findall(drawn):
            pieces = (re.sub(rb"\\(.)", rb"\1", piece) for piece in _STRINGS.findall(shown))
            letters = b"".join(pieces)  # of one byte, or of two
            found.append(letters.decode("utf-16-be" if b"\0" in letters else "latin-1", errors="replace"))
    return found


def check_pdf_fonts(content: bytes) -> None:
    """All letters are embedded outlines of TrueType: neither pictures of letters nor fonts that a reader must have."""
    assert b"/Type3" not in content
    assert 0 < content.count(b"/Type /FontDescriptor") == content.count(b"/FontFile2 ")


def svg_texts(content: bytes) -> list[str]:
    """The texts of an SVG."""
    root = ElementTree.fromstring(content)
    return ["".join(one.itertext()).strip() for one in root.iter("{http://www.w3.org/2000/svg}text")]


def svg_letters(content: bytes) -> dict[str, set[str]]:
    """The letters that are embedded in an SVG, by family."""
    found: dict[str, set[str]] = {}
    faces = re.findall(rb"font-family: '([^']+)';[^}]*base64,([^)]+)\)", content)
    for family, data in faces:
        font = TTFont(io.BytesIO(base64.b64decode(data)))
        found.setdefault(family.decode(), set()).update(map(chr, font.getBestCmap()))
    return found


def boxes(figure: Figure, page: Page) -> tuple[Any, list[tuple[str, Any]]]:
    """The figure as matplotlib has it, and the box of each text that is seen, in dots."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    with style(page):
        plot = figure._plot(page)
        plot.set_dpi(300)  # as a PNG has
        canvas = FigureCanvasAgg(plot)
        canvas.draw()
        # The label of a tick that lies outside the axes is there, and is not drawn.
        undrawn = {
            label
            for axes in plot.axes
            for axis in (axes.xaxis, axes.yaxis)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
            if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
            for label in (tick.label1, tick.label2)
        }
        shown = [one for one in plot.findobj(Text) if one.get_visible() and one.get_text().strip()]
        shown = [one for one in shown if one not in undrawn]
        # Without the line from a name to its point.
        return plot, [(one.get_text(), Text.get_window_extent(one, canvas.get_renderer())) for one in shown]


def check_room(figure: Figure, page: Page) -> None:
    """No text is cut by the edge of the figure or lies on another; a dot is left for rounding."""
    plot, texts = boxes(figure, page)
    for text, box in texts:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= plot.bbox.width + 1, text
        assert box.y1 <= plot.bbox.height + 1, text
    for (text, box), (other, its) in combinations(texts, 2):
        across = min(box.x1, its.x1) - max(box.x0, its.x0)
        high = min(box.y1, its.y1) - max(box.y0, its.y0)
        assert min(across, high) <= 1, (text, other)


def compile_tex(folder: Path, pieces: dict[str, str]) -> str:
    """Set pieces of TeX with pdflatex, and return the text of the result; no line is too wide for the page."""
    body = []
    for name, piece in pieces.items():
        (folder / name).write_text(piece)
        body.append(rf"\noindent\input{{{name}}}\par\bigskip")
    (folder / "all.tex").write_text(
        rf"\documentclass{{article}}\usepackage[paperwidth=8.5in,paperheight=60in,margin=0.5in]{{geometry}}{_PACKAGES}"
        "\n\\begin{document}\n" + "\n".join(body) + "\n\\end{document}\n"
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"],
        cwd=folder,
        capture_output=True,
        timeout=300,
        check=False,
    )
    log = done.stdout.decode(errors="replace")
    assert done.returncode == 0, log[-3000:]
    assert "Overfull \\hbox" not in log, log
    read = subprocess.run(["pdftotext", "-layout", "all.pdf", "-"], cwd=folder, capture_output=True, check=True)
    return read.stdout.decode()
