"""Small pictures as SVG, without the layout program and without matplotlib."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from syno_lab.drawing.style import GREY
from syno_lab.inputs import printable


def safe(text: str) -> str:
    """Escape any text for SVG and HTML, within quotation marks too."""
    return escape(printable(text), quote=True)


def text(x: float, y: float, words: str, size: int = 11, anchor: str = "start", *, turned: bool = False) -> str:
    """Return an SVG text element; ``turned`` text runs from bottom to top."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    look = f'font-size="{size}" text-anchor="{anchor}" fill="{GREY}"{turn}'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{safe(words)}</text>'


def titled(width: str, height: str, box: str, words: str, parts: Iterable[str]) -> str:
    """Return an SVG of ``parts`` with the viewBox ``box``, and with ``words`` as its title and screen reader name."""
    title = escape(words, quote=True)
    size = f'width="{width}" height="{height}" viewBox="{box}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">\n<title>{title}</title>'
    return "\n".join([head, *parts, "</svg>\n"])


def picture(width: int, height: int, words: str, parts: Iterable[str], look: str = "") -> str:
    """Return an SVG with the elements ``parts``; ``words`` describe the picture for screen readers."""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{safe(words)}"'
    return f'{head} font-family="sans-serif"{look}>{"".join(parts)}</svg>'
