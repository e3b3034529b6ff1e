"""The pictures of an operator for papers: its graph, its loop nest, its equation."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from html import unescape
from typing import TYPE_CHECKING, Literal

from syno_lab.codegen.drawing import Part, coordinate_ids, describe, describe_parts
from syno_lab.codegen.drawing import dot as pgraph_dot
from syno_lab.codegen.drawing_text import BREAK, in_lines
from syno_lab.codegen.equation import equation
from syno_lab.codegen.figure import Figure
from syno_lab.codegen.figure_graph import GraphFigure
from syno_lab.codegen.figure_text import CodeFigure, EquationFigure
from syno_lab.codegen.loops import loops
from syno_lab.codegen.text import expressions, names
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import State
from syno_lab.synthesis.expressions import expression, name, size_latex

if TYPE_CHECKING:
    from syno_lab import protocol

#: What of an operator is drawn.
OF = ("graph", "loops", "equation")
_PRIME = "'"
_LATEX_BREAK = re.compile(r" (?=(?:[-+]|\\bmod) )")
_BRACKETS = (("(", ")"), (r"\lfloor", r"\rfloor"))


def figure(
    graph: State | Operator | protocol.Operator,
    of: Literal["graph", "loops", "equation"] = "graph",
    binding: Binding | None = None,
    *,
    title: str | None = None,
    highlight: Iterable[Part] = (),
    staged: bool = False,
    wrt: str | None = None,
    language: Literal["python", "c"] = "python",
) -> Figure:
    """A picture for a paper: ``operator.figure().save("conv2d.pdf")``.

    Args:
        graph: an operator, or a partial pGraph, which has only a graph; so has an operator of another system.
        of: ``graph``, ``loops`` (the loop nest) or ``equation``.
        binding: as of ``loops`` and ``equation``.
        title: a line above the graph.
        highlight: as of ``dot``.
        staged: as of ``loops`` and ``equation``.
        wrt: as of ``loops`` and ``equation``.
        language: of the loop nest.

    Raises:
        SpecError: for another ``of``, one that ``graph`` does not have, or as ``loops`` and ``equation``.
    """
    if of not in OF:
        raise SpecError(f"of: expected one of {', '.join(OF)}, found {quoted(of)}")
    if of == "graph":
        return _graph(graph, title, highlight)
    if not isinstance(graph, Operator):
        raise SpecError(f"of: expected graph, as only complete pGraphs have more, found {quoted(of)}")
    if of == "loops":
        return CodeFigure(
            loops(graph, binding, language=language, staged=staged, wrt=wrt), language, f"Loop nest. {describe(graph)}"
        )
    found = equation(graph, binding, staged=staged, wrt=wrt)
    return EquationFigure(found.latex, f"Equation: {found}")


def _graph(graph: State | Operator | protocol.Operator, title: str | None, highlight: Iterable[Part]) -> Figure:
    if isinstance(graph, State | Operator):
        marked = tuple(highlight)
        source = pgraph_dot(graph, highlight=marked, title=title)
        maths = _maths(graph)
        return GraphFigure(source, describe(graph), maths, describe_parts(graph), _lines(graph, maths))
    # The first title of a system's picture describes it.
    words = unescape(graph.svg(title=title).partition("<title>")[2].partition("</title>")[0])
    return GraphFigure(graph.dot(title=title, highlight=tuple(highlight)), words)


def _maths(graph: State | Operator) -> dict[str, str]:
    """The expressions and sizes in a pGraph's picture as LaTeX, by their texts in it."""
    leaves = names(graph)
    plain = {leaf: name(text) for leaf, text in leaves.items()}
    # An iterator is named after its size, whose name is LaTeX of its own: i_{C_{out}}, not i_{C\\_out}.
    nice: dict[str, str] = {}
    for leaf, text in leaves.items():
        stem, index = text[0], size_latex(leaf.size)
        primes = next(n for n in itertools.count() if f"{stem}{n * _PRIME}_{{{index}}}" not in nice.values())
        nice[plain[leaf].latex] = f"{stem}{primes * _PRIME}_{{{index}}}"
    wordy = re.compile("|".join(re.escape(text) for text in sorted(nice, key=len, reverse=True)))
    texts, found = expressions(graph), {}
    for coordinate in coordinate_ids(graph).values():
        latex = expression(coordinate, plain).latex
        found[texts[coordinate]] = wordy.sub(lambda one: nice[one[0]], latex)
        found[coordinate.size.pretty] = size_latex(coordinate.size)
    for step in graph.steps:
        if step.parameter is not None:
            found[step.parameter.pretty] = size_latex(step.parameter)
    return found


def _lines(graph: State | Operator, maths: dict[str, str]) -> dict[str, dict[str, str | None]]:
    """By the node of a coordinate, the lines of an expression that needs several: as LaTeX, or None as it is written.

    Terms stand in the same order in both, but brackets of mathematics can stand elsewhere than those of the text.
    """
    texts, found = expressions(graph), dict[str, dict[str, str | None]]()
    for node, coordinate in coordinate_ids(graph).items():
        text = texts[coordinate]
        lines, latex, terms = in_lines(text), maths[text], _LATEX_BREAK.split(maths[text])
        if lines != [text]:
            ends = [0, *itertools.accumulate(len(BREAK.split(line)) for line in lines)]
            parts = [" ".join(terms[start:end]) for start, end in itertools.pairwise(ends)]
            is_whole = " ".join(lines) == text and " ".join(parts) == latex
            is_set = is_whole and all(part.count(a) == part.count(b) for part in parts for a, b in _BRACKETS)
            found[node] = {line: part if is_set else None for line, part in zip(lines, parts, strict=True)}
    return found
