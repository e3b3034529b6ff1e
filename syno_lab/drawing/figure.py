"""Figures for papers: PDF, SVG, PNG and TeX, as wide as a column or a page, in a font that the reader chooses.

>>> import syno_lab as sl
>>> sl.operators.conv1d().figure().save("conv1d.pdf", width="column", font="serif")  # doctest: +SKIP

Matplotlib draws all figures, without LaTeX. Text stays text; PDF and SVG embed the letters that they use. A figure
always gives the same file, because no file holds a date.
"""

from __future__ import annotations

import base64
import io
import logging
import re
import textwrap
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from syno_lab import private
from syno_lab.drawing.style import WHITE
from syno_lab.errors import FormatError, SpecError
from syno_lab.inputs import printable, quoted
from syno_lab.scratch import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

#: Widths in inches of a column, and of the text of a page with two columns (of ACM; IEEE has 3.5 and 7.16).
WIDTHS = {"column": 3.33, "page": 7.0}
#: The suffixes for TeX; a document reads such a file with ``\input``.
TEX = ("tex", "tikz", "pgf")
FORMS = ("pdf", "svg", "png", *TEX)
FONTS = ("sans", "serif")
MARGIN = 2.0  # The margin around a drawing in points, for thick borders.
_LEAST, _MOST = 0.5, 40.0  # The least and the largest width, in inches.
_LEAST_POINTS, _MOST_POINTS = 3.0, 40.0
_DPI = 300
#: Matplotlib's settings are global for the process, so this lock lets threads draw one figure at a time.
_settings = threading.RLock()
_LONGEST = 500  # The longest description in a file's head, in characters.
# Finds font families in matplotlib's SVG: names of families are in quotes, generic names are not.
_FAMILY = re.compile(r"'([^']+)'")
_SLANT = re.compile(r"\b(italic|oblique)\b")
_WEIGHT = re.compile(r"(?<![\w.#-])(bold|[1-9]00)(?=\s*(?:;|\s|$))")


class Page(NamedTuple):
    """The settings of a figure.

    Attributes:
        width: the width of the figure, in inches.
        font: ``sans``, ``serif``, or the name of an installed family.
        points: the size of the letters; a wide graph gets smaller letters.
    """

    width: float
    font: str
    points: float

    @property
    def room(self) -> float:
        """The width of the page between its margins, in points."""
        return self.width * 72 - 2 * MARGIN

    def sheet(self, high: float) -> Plot:
        """Return an empty figure as wide as the page; the figure's height is ``high`` points, margins included."""
        from matplotlib.figure import Figure as Plot

        return Plot(figsize=(self.width, high / 72), facecolor=WHITE)


class Figure(ABC):
    """A picture that can be saved for a paper. A notebook shows it as SVG.

    Attributes:
        description: the picture in words, for readers who cannot see it.
    """

    description: str

    def save(self, path: str | Path, *, width: str | float = "column", font: str = "sans", points: float = 8.0) -> Path:
        r"""Write the picture in the format of the suffix; after an error no partial file is left.

        Args:
            path: the path, with the suffix ``.pdf``, ``.svg``, ``.png``, ``.tex``, ``.tikz`` or ``.pgf``. A TeX
                document reads the last three with ``\input``; the file's first lines name the required TeX packages.
            width: ``column`` (3.33 inches), ``page`` (7) or a number of inches: the exact width of a PDF's page.
            font: ``sans``, ``serif`` (like Times), or the name of an installed family. With ``sans`` and ``serif`` TeX
                uses the document's own fonts; TeX files accept no family.
            points: the size of the letters. A graph that would be wider than the page gets smaller letters.

        Returns:
            The path.

        Raises:
            FormatError: the suffix is unknown.
            SpecError: the width, font or size is invalid.
            SynoError: the layout program is missing, or the file cannot be written.
        """
        place = Path(path)
        form = place.suffix.lower().removeprefix(".")
        if form not in FORMS:
            raise FormatError(
                f"expected a name that ends in {', '.join(f'.{suffix}' for suffix in FORMS)}, found {quoted(str(path))}"
            )
        content = self.content(form, width=width, font=font, points=points)
        with private.usual(), replacing(place) as temporary:
            temporary.write_bytes(content)
        return place

    def content(self, form: str, *, width: str | float = "column", font: str = "sans", points: float = 8.0) -> bytes:
        """Return the bytes that :meth:`save` writes; ``form`` is the suffix without its dot.

        Raises FormatError, SpecError, SynoError as :meth:`save`.
        """
        if form not in FORMS:
            raise FormatError(f"expected one of {', '.join(FORMS)} for a figure, found {quoted(form)}")
        page = _page(width, font, points)
        if form in TEX and font not in FONTS:
            raise SpecError(
                f"font: expected {' or '.join(FONTS)} for .{form}, whose fonts are the document's, found {quoted(font)}"
            )
        if form in TEX:
            with style(page._replace(font=f"tex {font}")):
                return (_comment(self.description) + self._tex(page)).encode()
        with style(page):
            return self._file(self._plot(page), form)

    def _repr_svg_(self) -> str:
        return self.content("svg", width="page", points=10.0).decode()

    @abstractmethod
    def _plot(self, page: Page) -> Plot:
        """Draw the figure, ``page.width`` wide. Called within :func:`style`."""

    def _tex(self, page: Page) -> str:
        """Return the figure for a TeX document: as PGF, unless a subclass has a better form."""
        from syno_lab.drawing.figure_tex import pgf

        return pgf(self._plot(page))

    def _file(self, plot: Plot, form: str) -> bytes:
        words = printable(self.description, _LONGEST)
        metadata: dict[str, dict[str, Any]] = {
            "svg": {"Date": None},
            "pdf": {"CreationDate": None, "Subject": words},
            "png": {"Description": words},
        }
        out = io.BytesIO()
        plot.savefig(out, format=form, dpi=_DPI, facecolor=WHITE, metadata=metadata[form])
        if form != "svg":
            return out.getvalue()
        named = f'<svg role="img" aria-label="{escape(printable(self.description), quote=True)}" '
        return _embed_fonts(out.getvalue().decode().replace("<svg ", named, 1)).encode()


def _page(width: str | float, font: str, points: float) -> Page:
    inches = WIDTHS.get(width) if isinstance(width, str) else width
    if isinstance(inches, bool) or not isinstance(inches, int | float) or not _LEAST <= inches <= _MOST:
        raise SpecError(
            f"width: expected {', '.join(WIDTHS)} or {_LEAST:g} to {_MOST:g} inches, found {quoted(str(width))}"
        )
    if isinstance(points, bool) or not _LEAST_POINTS <= points <= _MOST_POINTS:
        raise SpecError(
            f"points: expected {_LEAST_POINTS:g} to {_MOST_POINTS:g} for letters, found {quoted(str(points))}"
        )
    if font not in FONTS and _font_file((font, "normal", "normal")) is None:
        raise SpecError(f"font: expected {', '.join(FONTS)} or a family that is installed here, found {quoted(font)}")
    return Page(float(inches), font, float(points))


def _comment(text: str) -> str:
    """Return a text as a one-line TeX comment; a long text is cut and ends in three dots."""
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return "% " + re.sub(r"\s+", " ", printable(short, _LONGEST)) + "\n"


@contextmanager
def style(page: Page) -> Iterator[None]:
    """Set matplotlib's options for ``page`` within the block: fonts, thin lines, plain names and reproducible files."""
    import matplotlib as mpl

    is_serif = page.font.endswith("serif")
    # TeX's own fonts cannot be measured without TeX. Text that is wider than in DejaVu is scaled to its space.
    faces = ["DejaVu Serif" if is_serif else "DejaVu Sans"]
    if not page.font.startswith("tex "):
        faces = ["STIXGeneral" if is_serif else "DejaVu Sans" if page.font == "sans" else page.font, "DejaVu Sans"]
    family = "serif" if is_serif else "sans-serif"
    options: dict[str, Any] = {
        "font.family": [family],
        f"font.{family}": faces,
        "font.monospace": ["DejaVu Sans Mono"],
        "font.size": page.points,
        "mathtext.fontset": "stix" if is_serif else "dejavusans",
        "text.parse_math": False,  # Two dollar signs in a name are no formula.
        "text.hinting": "none",  # With hinting, letters are up to half a PNG pixel wider than measured.
        "svg.fonttype": "none",
        "svg.hashsalt": "syno-lab",
        "pdf.fonttype": 42,  # TrueType, because journals refuse Type 3, the default
        "pgf.rcfonts": False,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "hatch.linewidth": 0.6,
    }
    # fontTools warns about the dates in DejaVu's files whenever it embeds their letters.
    log = logging.getLogger("fontTools.ttLib.tables._h_e_a_d")
    with _settings, mpl.rc_context(options):  # type: ignore[arg-type]  # one key is made of two words
        before = log.level
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(before)


# -- long labels and legends -----------------------------------------------------------------------------------------

_LETTER = 0.58  # The width of a letter, in font sizes.
_SMALL = 0.85  # The size of a legend's letters, in font sizes.
_LARGE = 1e4


def renderer_of(plot: Plot) -> Any:
    """Return the renderer that measures the texts of a figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = plot.canvas if isinstance(plot.canvas, FigureCanvasAgg) else FigureCanvasAgg(plot)
    return canvas.get_renderer()


def fit_labels(plot: Plot) -> None:
    """Wrap the labels of axes and colour bars into lines that are no longer than the figure.

    Large numbers are written with k, M and so on, because matplotlib's power of ten would overlap an axis's label.
    """
    import matplotlib as mpl
    from matplotlib.ticker import EngFormatter

    width, height = plot.get_size_inches()
    letter = _LETTER * mpl.rcParams["font.size"] / 72
    for axes in plot.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "linear" and max(map(abs, axis.get_view_interval())) >= _LARGE:
                axis.set_major_formatter(EngFormatter(sep=""))
        for label, length in ((axes.xaxis.label, 0.75 * width), (axes.yaxis.label, 0.8 * height)):
            lines = textwrap.wrap(label.get_text(), max(8, int(length / letter)))
            label.set_text("\n".join(lines))


def legend_above(plot: Plot, handles: Sequence[Any]) -> None:
    """Draw a legend above the axes, where it hides nothing, with as many columns as fit."""
    import matplotlib as mpl

    renderer = renderer_of(plot)
    letters = int(
        (plot.get_figwidth() * 72 - 3 * mpl.rcParams["font.size"]) / (_LETTER * _SMALL * mpl.rcParams["font.size"])
    )
    for columns in range(len(handles), 0, -1):
        legend = plot.legend(
            handles=list(handles),
            labels=["\n".join(textwrap.wrap(str(handle.get_label()), letters)) for handle in handles],
            loc="outside upper center",
            ncols=columns,
            fontsize=_SMALL * mpl.rcParams["font.size"],
            frameon=False,
            borderpad=0.1,
            handlelength=1.0,
            handletextpad=0.4,
            columnspacing=1.2,
        )
        plot.draw_without_rendering()
        if columns == 1 or legend.get_window_extent(renderer).width <= plot.bbox.width:
            return
        legend.remove()


# -- the letters of an SVG ---------------------------------------------------------------------------------------------


def _embed_fonts(svg: str) -> str:
    """Embed the letters that a matplotlib SVG uses as fonts in the SVG's style sheet; texts stay texts."""
    used: dict[tuple[str, str, str], set[str]] = {}
    for element in ElementTree.fromstring(svg).iter():  # noqa: S314 - written by matplotlib just now
        look, text = element.get("style", ""), (element.text or "").strip()
        families = _FAMILY.findall(look)
        if not text or not families:
            continue
        slant, weight = _SLANT.search(look), _WEIGHT.search(look)
        missing = set(text)
        for family in families:  # the first family that has a letter draws it
            face = (family, slant[1] if slant else "normal", weight[1] if weight else "normal")
            found = missing & _letters_of(face)
            missing -= found
            if found:
                used.setdefault(face, set()).update(found)
    rules = "".join(
        f"@font-face {{font-family: '{family}'; font-style: {slant}; font-weight: {weight}; "
        f"src: url(data:font/woff;base64,{_subset(_font_file((family, slant, weight)), ''.join(sorted(letters)))})}}\n"
        for (family, slant, weight), letters in sorted(used.items())
    )
    return svg.replace('<style type="text/css">', f'<style type="text/css">\n{rules}', 1)


def _font_file(face: tuple[str, str, str]) -> str | None:
    from matplotlib.font_manager import FontProperties, findfont

    family, slant, weight = face
    style: Any = slant  # normal, italic or oblique
    properties = FontProperties(family=[family], style=style, weight=int(weight) if weight.isdecimal() else weight)
    try:
        return str(findfont(properties, fallback_to_default=False))
    except ValueError:
        return None


@lru_cache(maxsize=32)
def _letters_of(face: tuple[str, str, str]) -> frozenset[str]:
    from fontTools.ttLib import TTFont

    path = _font_file(face)
    if path is None:
        return frozenset()
    with TTFont(path, fontNumber=0, lazy=True) as font:
        return frozenset(map(chr, font.getBestCmap() or ()))


@lru_cache(maxsize=128)
def _subset(path: str | None, letters: str) -> str:
    """Return the given letters of a font as WOFF in base64; the same letters always give the same bytes."""
    from fontTools import subset

    assert path is not None
    options = subset.Options(
        layout_features=[], hinting=False, name_IDs=[], notdef_outline=True, flavor="woff", recalc_timestamp=False
    )
    options.font_number = 0
    options.drop_tables += ["FFTM", "GDEF", "GPOS", "GSUB", "MATH"]
    font = subset.load_font(path, options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(text=letters)
    subsetter.subset(font)
    out = io.BytesIO()
    subset.save_font(font, out, options)
    return base64.b64encode(out.getvalue()).decode()
