"""Pictures and texts that explain the shape distance by its reshape groups (Syno, section 7.1)."""

from __future__ import annotations

from syno_lab.drawing.render import accessible_svg
from syno_lab.drawing.style import COORDINATE, FONT, INK, INPUT, LINE, WHITE, Look, dot_text, primitive_look
from syno_lab.inputs import count_of
from syno_lab.synthesis.distance import Explanation, Group


def explanation_words(explanation: Explanation) -> list[str]:
    """Explain the shape distance in sentences: one sentence for each term of the sum, and the sum last."""
    if explanation.steps is None:
        return ["The input cannot be reached within the budgets that are left."]
    sentences = [f"REDUCE {size.pretty} comes first: 1 step." for size in explanation.reduces]
    sentences += [_group_words(group) for group in explanation.groups if group.reshapes or group.eliminate is not None]
    if explanation.eliminations:
        sentences.append(
            f"What is eliminated takes at least {count_of(explanation.eliminations, 'step')} of CONTRACTION, UNFOLD or "
            "EXPAND; one CONTRACTION can take all of it."
        )
    done_count = sum(not group.reshapes and group.eliminate is None for group in explanation.groups)
    if done_count:
        sentences.append(f"{count_of(done_count, 'coordinate')} of the right size already: 0 steps.")
    return [*sentences, f"Shape distance {explanation.steps}: at least so many steps are needed."]


def groups_svg(explanation: Explanation) -> str:
    """Draw a distance's reshape groups: data coordinates below, input axes on top, eliminated coordinates at the side.

    Raises SynoError when the layout program is not installed.
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


_GROUP = Look("ellipse", WHITE, LINE)


def _group_words(group: Group) -> str:
    have, want = ", ".join(size.pretty for size in group.have), ", ".join(size.pretty for size in group.want)
    if not group.want:
        return f"{have} has no place in the input and is eliminated."
    eliminated = "" if group.eliminate is None else f", and {group.eliminate.pretty} is eliminated"
    if not group.reshapes:
        return f"{have} is the input's {want}{eliminated}: 0 steps."
    sum_words = f"{len(group.want)} + {int(group.eliminate is not None)} + {len(group.have)} - 2"
    counted = count_of(group.reshapes, "MERGE or SPLIT", "MERGEs or SPLITs")
    return f"{have} must become {want}{eliminated}: {sum_words} = {counted}."
