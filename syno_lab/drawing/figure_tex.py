"""TeX files without a TeX program: escaped names, and matplotlib's figures as PGF."""

from __future__ import annotations

import io
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

#: Shrink a text that is wider than its space; only TeX knows the width of its letters.
FIT = r"\def\synofit#1#2{\setbox0\hbox{#2}\ifdim\wd0>#1\relax\resizebox{#1}{!}{\box0}\else\box0\fi}%"

# fmt: off
_SIGNS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedblright{}", "`": r"\textasciigrave{}",
    # A group keeps the character from forming a ligature with the next character.
    "-": "-{}", "'": "'{}", "?": "?{}", "!": "!{}",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}",
    "‘": r"\textquoteleft{}", "’": r"\textquoteright{}", "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}",
    "–": r"\textendash{}", "—": r"\textemdash{}", "…": r"\dots{}",
}
_MATHS = {
    "\u2212": "-", "·": r"\cdot", "×": r"\times", "÷": r"\div", "≤": r"\le", "≥": r"\ge", "→": r"\to", "Σ": r"\Sigma",
    "α": r"\alpha", "∅": r"\emptyset", "⊔": r"\sqcup", "⊓": r"\sqcap", "↻": r"\circlearrowright", "⊞": r"\boxplus",
}
_SIGNS |= {sign: rf"\ensuremath{{{name}}}" for sign, name in _MATHS.items()}
_SIGNS["⇥"] = r"\ensuremath{\rightarrow}\textbar{}"
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}
# fmt: on


def tex_text(text: str) -> str:
    """Return any text as escaped TeX text in pure ASCII; commands in the text are not run.

    A character that plain LaTeX does not have becomes its number, such as ``[U+4E2D]``.
    """
    return "".join(map(_sign, text))


@cache
def _sign(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    if " " <= character <= "~":
        return character
    base, *accents = list(unicodedata.normalize("NFKD", character))
    if len(accents) == 1 and accents[0] in _ACCENTS and base.isascii() and base.isalpha():
        return rf"\{_ACCENTS[accents[0]]}{{{base}}}"
    return " " if character.isspace() else f"[U+{ord(character):04X}]"


def pgf(plot: Plot) -> str:
    """Return a matplotlib figure as a ``pgfpicture``; TeX scales each text to the measured width."""
    width, height = plot.get_size_inches()
    out = io.StringIO()
    out.write("% needs \\usepackage{pgf}\n")
    lines = (
        r"\begingroup",
        r"\makeatletter",
        r"\def\mathdefault#1{#1}",
        FIT.removesuffix("%"),
        r"\begin{pgfpicture}",
        rf"\pgfpathrectangle{{\pgfpointorigin}}{{\pgfqpoint{{{width:.6f}in}}{{{height:.6f}in}}}}",
        r"\pgfusepath{use as bounding box, clip}",
    )
    out.writelines(f"{line}%\n" for line in lines)
    plot.draw(_renderer()(plot, out))
    out.writelines(f"{line}%\n" for line in (r"\end{pgfpicture}", r"\makeatother", r"\endgroup"))
    return out.getvalue()


@cache
def _renderer() -> Any:
    """Return matplotlib's PGF renderer without its LaTeX process for text widths, and with escaped texts."""
    from matplotlib.backend_bases import RendererBase
    from matplotlib.backends.backend_pgf import RendererPgf

    class Renderer(RendererPgf):
        def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> Any:
            return RendererBase.get_text_width_height_descent(self, s, prop, ismath)

        def draw_text(
            self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
        ) -> None:
            text = s
            if not ismath:
                wide = self.get_text_width_height_descent(s, prop, ismath)[0] / self.dpi * 72
                text = rf"\synofit{{{wide:.3f}bp}}{{{tex_text(s)}}}"
            super().draw_text(gc, x, y, text, prop, angle, ismath, mtext)

    return Renderer
