"""The shape distance as pictures: the reshape groups that it counts, and its course (Syno, section 7.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from syno_lab.codegen.drawing_render import accessible_svg
from syno_lab.codegen.drawing_style import COORDINATE, FONT, INK, INPUT, LINE, Look, dot_text, primitive_look
from syno_lab.inputs import count_of
from syno_lab.synthesis.distance import Explanation, Group

_ACROSS = 26  # a step in the course
_HIGH = 54  # of the course between its lines
_MARGIN = 22  # room for a number above the highest place, and beside the first and the last
_BAND, _GAP, _NAMES = 56, 8, 52  # of several courses: the height of each, above and below it, and beside it its name


def explanation_words(explanation: Explanation) -> list[str]:
    """The explanation in sentences, one for each thing that is counted, the sum last."""
    if explanation.steps is None:
        return ["The input cannot be reached within the budgets that are left."]
    found = [f"REDUCE {size.pretty} comes first: 1 step." for size in explanation.reduces]
    found += [_group_words(group) for group in explanation.groups if group.reshapes or group.eliminate is not None]
    if explanation.eliminations:
        found.append(
            f"What is eliminated takes at least {count_of(explanation.eliminations, 'step')} of CONTRACTION, UNFOLD or "
            "EXPAND; one CONTRACTION can take all of it."
        )
    done = sum(not group.reshapes and group.eliminate is None for group in explanation.groups)
    if done:
        found.append(f"{count_of(done, 'coordinate')} of the right size already: 0 steps.")
    return [*found, f"Shape distance {explanation.steps}: at least so many steps are needed."]


def groups_svg(explanation: Explanation) -> str:
    """The reshape groups: data coordinates at the bottom, the input's axes on top, what is eliminated beside them.

    Raises:
        SynoError: when the layout program is not installed.
    """
    lines: list[str] = []
    titles: dict[str, str] = {}

    def box(name: str, text: str, look: Look, words: str, more: str = "") -> None:
        lines.append(
            f'{name} [id="{name}", label={dot_text(text)}, shape={look.shape}, fillcolor="{look.fill}", '
            f'color="{look.border}"{more}]'
        )
        titles[name] = words

    reduces = list(explanation.reduces)
    for number, group in enumerate(explanation.groups):
        middle = f"g{number}"
        count = count_of(group.reshapes, "MERGE or SPLIT", "MERGEs or SPLITs") if group.reshapes else "as it is"
        box(middle, count if group.want else "goes", _GROUP, _group_words(group))
        for place, size in enumerate(group.have):
            name = f"g{number}d{place}"
            is_new = size in reduces
            if is_new:
                reduces.remove(size)
                box(f"{name}r", f"{primitive_look('REDUCE').sign} REDUCE", primitive_look("REDUCE"), "a REDUCE first")
                lines.append(f"{name} -> {name}r")
            box(name, size.pretty, COORDINATE, f"data coordinate of size {size.pretty}")
            lines.append(f"{middle} -> {name}")
        for place, size in enumerate(group.want):
            name = f"g{number}i{place}"
            box(name, size.pretty, INPUT._replace(shape="box"), f"input axis of size {size.pretty}")
            lines.append(f"{name} -> {middle}")
        if group.eliminate is not None:
            name = f"g{number}e"
            text = f"{primitive_look('EXPAND').sign} {group.eliminate.pretty}"
            words = f"{group.eliminate.pretty} is eliminated"
            box(name, text, primitive_look("EXPAND"), words, ', style="filled,dashed"')
            lines.append(f"{name} -> {middle}")
    head = [
        "digraph groups {",
        f'graph [bgcolor="transparent", nodesep=0.15, ranksep=0.22, fontname="{FONT}"]',
        f'node [fontname="{FONT}", fontsize=11, fontcolor="{INK}", style=filled, margin="0.1,0.04", height=0.25]',
        f'edge [color="{LINE}", arrowhead=none]',
    ]
    source = "\n".join([*head, *("  " + line for line in lines), "}"]) + "\n"
    return accessible_svg(source, "Reshape groups. " + " ".join(explanation_words(explanation)), titles)


def course_svg(
    distances: Sequence[float | None],
    here: int,
    first: int = 0,
    wished: Sequence[float | None] | None = None,
    *,
    name: str = "Shape distance",
) -> str:
    """A distance over the steps, in the colour of the text around it; the property distance as a second line.

    Args:
        distances: at each place of the line, or of a part of it; None where the input is out of reach.
        here: the place that is shown, counted from the first of them.
        first: how many places of the line are before the first of them.
        wished: the property distance at the same places; None: nothing is wished. Its line has squares and long dashes,
            and a number where it is not the shape distance.
        name: of the distance.
    """
    most = max([1, *(far for far in (*distances, *(wished or ())) if far is not None)])
    width, height = 2 * _MARGIN + _ACROSS * max(1, len(distances) - 1), 2 * _MARGIN + _HIGH

    def at(place: int, line: Sequence[float | None]) -> tuple[float, float] | None:
        far = line[place]
        return None if far is None else (_MARGIN + _ACROSS * place, _MARGIN + _HIGH * (1 - far / most))

    part = f" from place {first} on" if first else ""
    words = f"{name} over the steps{part}: {_said(distances)}; shown is place {first + here}."
    if wished is not None:
        words += f" Property distance: {_said(wished)}."
    parts = [
        f'<path d="M{_MARGIN} {height - _MARGIN}H{width - _MARGIN}" stroke="{LINE}" stroke-width="1" fill="none"/>'
    ]
    for place, far in enumerate(wished or ()):
        point = at(place, wished or ())
        before = at(place - 1, wished or ()) if place else None
        if point is not None and before is not None:
            parts.append(
                f'<path d="M{before[0]:.1f} {before[1]:.1f}L{point[0]:.1f} {point[1]:.1f}" stroke="currentColor" '
                'stroke-width="1" fill="none" stroke-dasharray="7 2"/>'
            )
        x, y = point or (_MARGIN + _ACROSS * place, height - _MARGIN)
        name = "out of reach" if far is None else str(far)
        number = "" if far == distances[place] else "?" if far is None else str(far)
        parts.append(
            f"<g><title>place {first + place}: property distance {name}</title>"
            f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="none" stroke="currentColor"/>'
            f'<text x="{x:.1f}" y="{y - 7:.1f}" font-size="10" text-anchor="middle" fill="currentColor">{number}</text>'
            "</g>"
        )
    for place in range(len(distances) - 1):
        one, other = at(place, distances), at(place + 1, distances)
        if one is not None and other is not None:
            ahead = ' stroke-dasharray="3 3"' if place >= here else ""
            parts.append(
                f'<path d="M{one[0]:.1f} {one[1]:.1f}L{other[0]:.1f} {other[1]:.1f}" stroke="currentColor" '
                f'stroke-width="1.5" fill="none"{ahead}/>'
            )
    for place, far in enumerate(distances):
        x = _MARGIN + _ACROSS * place
        point = at(place, distances)
        name = "?" if far is None else f"{far:g}"
        y = height - _MARGIN if point is None else point[1]
        size, fill = (5, "currentColor") if place == here else (3, "none")
        parts.append(
            f"<g><title>place {first + place}: "
            f"{'out of reach' if far is None else f'distance {far}'}</title>"
            f'<ellipse cx="{x}" cy="{y:.1f}" rx="{size}" ry="{size}" fill="{fill}" stroke="currentColor"/>'
            f'<text x="{x}" y="{y - 7:.1f}" font-size="10" text-anchor="middle" fill="currentColor">{name}</text></g>'
        )
    return _picture(width, height, words, parts)


def courses_svg(lines: Mapping[str, Sequence[float | None]], here: int, first: int = 0) -> str:
    """Several distances over the same steps, one line above the other, in the colour of the text around them.

    Args:
        lines: by the name of the distance, its value at each place; None where nothing leads to 0.
        here: the place that is shown, counted from the first of them.
        first: how many places of the history are before the first of them.
    """
    places = max(map(len, lines.values()), default=0)
    width = 2 * _MARGIN + _NAMES + _ACROSS * max(1, places - 1)
    height = 2 * _MARGIN + _BAND * len(lines)
    part = f" from place {first} on" if first else ""
    words = f"Distances over the steps{part}; shown is place {first + here}."
    parts = []
    for number, (name, line) in enumerate(lines.items()):
        words += f" {name}: {_said(line)}."
        floor, most = _MARGIN + _BAND * (number + 1) - _GAP, max([1, *(far for far in line if far is not None)])
        ys = [floor if far is None else floor - (_BAND - 2 * _GAP) * far / most for far in line]
        xs = [_MARGIN + _NAMES + _ACROSS * place for place in range(len(line))]
        parts.append(
            f'<text x="{_MARGIN}" y="{floor}" font-size="11" fill="currentColor">{escape(name)}</text>'
            f'<path d="M{_MARGIN + _NAMES} {floor}H{width - _MARGIN}" stroke="{LINE}" stroke-width="1" fill="none"/>'
        )
        for place in range(len(line) - 1):
            if line[place] is not None and line[place + 1] is not None:
                ahead = ' stroke-dasharray="3 3"' if place >= here else ""
                parts.append(
                    f'<path d="M{xs[place]} {ys[place]:.1f}L{xs[place + 1]} {ys[place + 1]:.1f}" '
                    f'stroke="currentColor" stroke-width="1.5" fill="none"{ahead}/>'
                )
        for place, far in enumerate(line):
            size, fill = (5, "currentColor") if place == here else (3, "none")
            shown, said = ("?", "out of reach") if far is None else (f"{far:.3g}", f"distance {far:g}")
            parts.append(
                f"<g><title>place {first + place}: {escape(name)}, {said}</title>"
                f'<ellipse cx="{xs[place]}" cy="{ys[place]:.1f}" rx="{size}" ry="{size}" fill="{fill}" '
                'stroke="currentColor"/>'
                f'<text x="{xs[place]}" y="{ys[place] - 7:.1f}" font-size="10" text-anchor="middle" '
                f'fill="currentColor">{shown}</text></g>'
            )
    return _picture(width, height, words, parts)


def _picture(width: int, height: int, words: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(words, quote=True)}">\n<title>{escape(words)}</title>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


_GROUP = Look("ellipse", "#ffffff", LINE)


def _said(distances: Sequence[float | None]) -> str:
    return ", ".join("out of reach" if far is None else f"{far:g}" for far in distances)


def _group_words(group: Group) -> str:
    have, want = ", ".join(size.pretty for size in group.have), ", ".join(size.pretty for size in group.want)
    if not group.want:
        return f"{have} has no place in the input and is eliminated."
    gone = "" if group.eliminate is None else f", and {group.eliminate.pretty} is eliminated"
    if not group.reshapes:
        return f"{have} is the input's {want}{gone}: 0 steps."
    sum_words = f"{len(group.want)} + {int(group.eliminate is not None)} + {len(group.have)} - 2"
    counted = count_of(group.reshapes, "MERGE or SPLIT", "MERGEs or SPLITs")
    return f"{have} must become {want}{gone}: {sum_words} = {counted}."
