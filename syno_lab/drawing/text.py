"""The texts of pictures: typeset as mathematics, each with a fixed width, so that a text fits its box.

The layout program uses the widths of Helvetica, but a browser may use another font. Each text states its width, the
browser fits the text to this width, and no text leaves its box. Names get subscripts: ``i_H`` is i with the subscript
H, and ``r_k_1__2``, the second of its name, has a prime. A product sign is a dot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape, unescape

#: The font that the layout measures, then its replacements in browsers: first those with the same letter widths.
FAMILY = "Helvetica,Arial,'Liberation Sans','Nimbus Sans',sans-serif"
_SMALL = 0.72  # the size of a subscript, relative to its base
_DROP = 0.22
#: The limits of letters in a line of a box, of letters in a line that cannot be broken, and of lines in a box.
_LINE, _LONGEST, _LINES = 44, 60, 3
#: Where an expression may be broken into lines.
BREAK = re.compile(r" (?=[-+%*] )")
_TEXT = re.compile(r'<text ([^>]*?)font-family="[^"]*"([^>]*)>([^<]*)</text>')
_NAME = re.compile(r"(?<!\w)[A-Za-z]_\w*[A-Za-z0-9]")  # one letter before _: fold_avg is no mathematics
_SIZE = re.compile(r'font-size="([\d.]+)"')
_START = re.compile(r'text-anchor="start" x="(-?[\d.]+)"')
# Thousandths of the font size, from space to ~ (Adobe's metrics of Helvetica); other letters are as wide as a digit.
# fmt: off
_PLAIN = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
)
_BOLD = (
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278,
    556, 722, 611, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584,
    556, 333, 556, 611, 556, 611, 556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556,
    333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584,
)
# fmt: on
_SIGNS = {"·": 278, "′": 187, "²": 333, "³": 333, "×": 584}
_OTHER = 556


def width_of(text: str, points: float, *, is_bold: bool = False) -> float:
    """Return the width of a text in Helvetica, in points."""
    widths = _BOLD if is_bold else _PLAIN
    letters = (widths[ord(letter) - 32] if " " <= letter <= "~" else _SIGNS.get(letter, _OTHER) for letter in text)
    return sum(letters) * points / 1000


#: A map from a name to its base, its subscript, and its number of primes.
Names = Mapping[str, tuple[str, str, int]]


def parts_of(text: str, names: Names = {}) -> list[tuple[str, int]]:  # noqa: B006 - it is only read
    """Split a text into parts, each with its level: 0 on the line, 1 a subscript, 2 a subscript of a subscript.

    For a name that is not in ``names``, the subscript is the text after an underscore: ``C_in``, ``k_1``.
    """
    parts: list[tuple[str, int]] = []
    end = 0
    for name in _NAME.finditer(text):
        parts.append((text[end : name.start()], 0))
        if name[0] in names:
            stem, index, primes = names[name[0]]
            parts.append((stem, 0))
            parts += [(part, level + 1) for part, level in parts_of(index)]
            parts.append(("′" * primes, 0))
        else:
            stem, *rest = name[0].split("_")
            parts += [(part, min(level, 2)) for level, part in enumerate([stem, *filter(None, rest)])]
        end = name.end()
    joined: list[tuple[str, int]] = []
    for part, level in (*parts, (text[end:], 0)):
        if joined and joined[-1][1] == level:
            joined[-1] = (joined[-1][0] + part, level)
        elif part:
            joined.append((part, level))
    return joined


def in_lines(text: str) -> list[str]:
    """Wrap an expression into lines for a box, before operators; leave out the middle if there are too many lines.

    The title of the node has the full expression.
    """
    parts = BREAK.split(text)
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) <= _LINE:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 2], f"{lines[_LINES - 2]} …", lines[-1]]
    return [line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}" for line in lines]


def set_texts(svg: str, names: Names) -> str:
    """Typeset the texts of an SVG of the layout program."""
    return _TEXT.sub(lambda match: _set(match[1], match[2], unescape(match[3]), names), svg)


def _set(before: str, behind: str, text: str, names: Names) -> str:
    size = _SIZE.search(before + behind)
    points = float(size[1]) if size else 14.0
    is_bold = "bold" in before + behind
    parts = parts_of(text.replace("*", "·"), names)
    room = width_of(text, points, is_bold=is_bold)
    width = sum(width_of(part, points * _SMALL**level, is_bold=is_bold) for part, level in parts)
    # Subscripts make a text narrower than its space, so the text is centred in the space.
    before = _START.sub(lambda at: f'text-anchor="start" x="{float(at[1]) + (room - width) / 2:.2f}"', before)
    inside, now = "", 0.0
    for part, level in parts:
        drop = points * sum(_DROP * _SMALL**above for above in range(level))
        if level == 0 and now == 0:
            inside += escape(part)
        else:
            small = f' font-size="{points * _SMALL**level:.2f}"' if level else ""
            inside += f'<tspan dy="{drop - now:.2f}"{small}>{escape(part)}</tspan>'
        now = drop
    fitted = f' textLength="{width:.2f}" lengthAdjust="spacingAndGlyphs"' if text.strip() else ""
    # If the typeset text differs from the plain text, the SVG has the plain text too.
    if "".join(part for part, _ in parts) != text:
        fitted += f' data-text="{escape(text)}"'
    return f'<text {before}font-family="{FAMILY}"{behind}{fitted}>{inside}</text>'
