"""Helpers of the course's notebooks: operators on symbols, pictures of moved elements, checks of answers.

An answer is checked by the function that it computes, never by its construction: another pGraph for the same function
is as right as the solution's.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Sequence
from html import escape
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from syno_lab.drawing.style import DARK_GROUND, GREY, INK, WHITE
from syno_lab.errors import SpecError, SynoError
from syno_lab.protocol import Binding, OfPrimitives, Operator, PrimitiveCard
from syno_lab.systems import DEFAULT_NAME, find_card, find_system, format_named, is_operator, operator_of, system_of
from syno_widgets.scripts import joined

Array = np.ndarray[Any, Any]
RIGHT, WRONG, OPEN = "Right", "Not yet", "Not answered yet"
_MOST_CELLS = 400
_HEIGHT, _GAP = 26, 14
#: Hosts with a light or dark theme: JupyterLab, VS Code, Colab. Images follow the element around them. In other hosts,
#: or without these styles (an untrusted notebook), images follow the reader's preference.
_SCHEMES = "".join(
    f":is({', '.join(hosts)}) .syno-cards {{ color-scheme: {scheme}; }}"
    for scheme, hosts in {
        "light": ('[data-jp-theme-light="true"]', ".vscode-light", '[theme="light"]'),
        "dark": ('[data-jp-theme-light="false"]', ".vscode-dark", '[theme="dark"]'),
    }.items()
)


def letters(name: str, shape: Sequence[int]) -> Array:
    """Return an array of symbols: ``x0``, ``x1``, … or ``x01`` for ``x[0, 1]``, with commas for two-digit indices."""
    import sympy

    between = "," if any(number > 10 for number in shape) else ""
    symbols = np.empty(tuple(shape), dtype=object)
    for index in np.ndindex(*shape):
        symbols[index] = sympy.Symbol(name + between.join(map(str, index)))
    return symbols


def terms(operator: Operator, binding: Binding | None = None) -> Array:
    """Return every output element as a formula: run the loop nest on symbols instead of numbers.

    Weights are ``w``; the second and third are ``v`` and ``u``.

    Raises:
        SpecError: the operator's system computes only with numbers, for example because primitives are not linear.
    """
    bound = operator.complete_binding(binding)
    weights = [letters("wvutsr"[i], shape) for i, shape in enumerate(operator.weight_sizes(bound))]
    try:
        return operator.reference(letters("x", operator.input_sizes(bound)), *weights, binding=bound)
    except TypeError:  # a symbol cannot be converted to a number
        system = system_of(operator).title
        raise SpecError(f"terms: expected an operator that is sums of products, found one of {system}") from None


# -- pictures ----------------------------------------------------------------------------------------------------------


class Moved:
    """Input above, output below: each input element has a colour, an output element those of its inputs.

    An output element that sums several elements is striped; an element that reads none is blank.

    Raises:
        SynoError: there are too many elements to see, or :func:`terms` fails.
    """

    def __init__(self, operator: Operator, binding: Binding | None = None) -> None:
        bound = operator.complete_binding(binding)
        self.x = letters("x", operator.input_sizes(bound))
        self.y = terms(operator, bound)
        if self.x.size + self.y.size > _MOST_CELLS:
            raise SynoError(f"moved: expected at most {_MOST_CELLS} elements, found {self.x.size + self.y.size}")
        self._places = {symbol: i for i, symbol in enumerate(self.x.ravel())}
        shapes = [" x ".join(map(str, array.shape)) or "a number" for array in (self.x, self.y)]
        rows = "; ".join(", ".join(map(str, row)) for row in self.y.reshape(-1, self.y.shape[-1] if self.y.ndim else 1))
        self.description = f"Input {shapes[0]}, output {shapes[1]}, whose rows are: {rows}."

    def _repr_svg_(self) -> str:
        top, width, down = self._array("X", self.x, _GAP)
        bottom, other, end = self._array("Y", self.y, down + _GAP)
        width = max(width, other)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{end}" viewBox="0 0 {width} {end}" '
            f'role="img" aria-label="{escape(self.description)}" font-family="sans-serif" font-size="12">'
            f"<title>{escape(self.description)}</title>{top}{bottom}</svg>"
        )

    def __repr__(self) -> str:
        return self.description

    def _array(self, name: str, array: Array, y: int) -> tuple[str, int, int]:
        """Draw one tensor as matrices side by side; return its SVG, its right edge and its lower edge."""
        shape = (1, 1, *array.shape)[-max(2, array.ndim) :]
        rows, columns = shape[-2:]
        matrices = array.reshape(-1, rows, columns)
        cell = max(34, 12 + max(len(str(entry)) for entry in array.ravel()) * 7)
        sizes = "\u00d7".join(map(str, array.shape))
        parts = [f'<text x="4" y="{y + 4}" fill="{GREY}">{name} [{sizes}]</text>']
        y += _GAP
        for number, matrix in enumerate(matrices):
            left = 4 + number * (columns * cell + _GAP)
            for (row, column), entry in np.ndenumerate(matrix):
                parts.append(self._cell(left + column * cell, y + row * _HEIGHT, cell, entry))
        return "".join(parts), 8 + len(matrices) * (columns * cell + _GAP), y + rows * _HEIGHT + 4

    def _cell(self, x: int, y: int, width: int, entry: Any) -> str:
        read = sorted(self._places[s] for s in getattr(entry, "free_symbols", ()) if s in self._places)
        stripes = ""
        for i, place in enumerate(read):
            hue = round(360 * place / len(self._places))
            share = width / len(read)
            stripes += (
                f'<rect x="{x + i * share:.1f}" y="{y}" width="{share:.1f}" height="{_HEIGHT}" '
                f'fill="hsl({hue},70%,{80 - 10 * (place % 2)}%)"/>'
            )
        ink = INK if read else GREY
        return (
            f'{stripes}<rect x="{x}" y="{y}" width="{width}" height="{_HEIGHT}" fill="none" stroke="{GREY}"/>'
            f'<text x="{x + width / 2}" y="{y + _HEIGHT / 2 + 4}" text-anchor="middle" fill="{ink}">'
            f"{escape(str(entry))}</text>"
        )


class Cards:
    """The pictures of primitives side by side, each as an image, so that a saved page shows them without trust.

    Args:
        names: names of primitives, in upper or lower case; none: all primitives of the system.
        system: the title or format of a system.

    Raises:
        SpecError: the system or a primitive is unknown.
    """

    def __init__(self, *names: str, system: str = DEFAULT_NAME) -> None:
        chosen = find_system(format_named(system))
        wanted = names or tuple(chosen.cards() if isinstance(chosen, OfPrimitives) else ())
        self.cards = tuple([find_card((system, name)) for name in wanted])

    def _repr_html_(self) -> str:
        images = "".join(map(_image, self.cards))
        style = "display:flex;flex-wrap:wrap;gap:1em;align-items:end"
        return f'<style>{_SCHEMES}</style><div class="syno-cards" style="{style}">{images}</div>'

    def __repr__(self) -> str:
        return "\n".join(card.line for card in self.cards)


def _image(card: PrimitiveCard) -> str:
    head, rest = card.draw().split(">", 1)
    data = base64.b64encode(f"{head}><style>{_paper()}</style>{rest}".encode()).decode()
    return f'<img alt="{escape(card.words)}" src="data:image/svg+xml;base64,{data}">'


def _paper() -> str:
    """Return the background of an image, which only knows its own colour scheme: see :data:`_SCHEMES`."""
    dark = f"svg {{ background: {DARK_GROUND}; }}\n{joined('operator_graph_dark.css').replace('.syno-dark', 'svg')}"
    return f"svg {{ background: {WHITE}; }}\n@media (prefers-color-scheme: dark) {{\n{dark}}}"


# -- answers -----------------------------------------------------------------------------------------------------------


def check(answer: Any, right: Any, binding: Binding | None = None) -> None:
    """Print whether an answer is right, and if not, one error in it.

    Args:
        answer: an operator of any system, a complete state, a number or an array; ``...`` and None are no answer.
        right: an operator, which must have the answer's fingerprint; a NumPy function of the input and the weights,
            which must agree with the answer's loop nest; or a value.
        binding: the sizes for the comparison of operators; None: small sizes that distinguish operators.
    """
    if answer is ... or answer is None:
        print(f"{OPEN}.")  # noqa: T201 a check talks to the reader of a cell
        return
    wrong = _wrong(answer, right, binding)
    print(f"{WRONG}: {wrong}." if wrong else f"{RIGHT}.")  # noqa: T201


def _wrong(answer: Any, right: Any, binding: Binding | None) -> str | None:
    try:
        answer, right = operator_of(answer) or answer, operator_of(right) or right
        if is_operator(right) or callable(right):
            # A state has a method that returns its operator.
            is_state = not is_operator(answer) and callable(getattr(answer, "operator", None))
            operator = answer.operator() if is_state else answer
            if not is_operator(operator):
                return f"expected an operator (what build.finish(…) gives), found {type(answer).__name__}"
            if is_operator(right):
                return _other_function(operator, right, binding)
            return _other_values(operator, right, binding)
    except SynoError as refused:
        return str(refused)
    return _other_value(answer, right)


def _other_value(answer: Any, right: Any) -> str | None:
    if np.shape(answer) != np.shape(right):
        return f"expected {_of_shape(right)}, found {_of_shape(answer)}"
    actual: Array = np.asarray(answer)
    wanted: Array = np.asarray(right)
    if {actual.dtype.kind, wanted.dtype.kind} <= set("biufc"):
        same = np.isclose(actual, wanted)
    else:
        same = np.asarray(actual == wanted)
    if same.all():
        return None
    if not same.ndim:
        return f"{answer!r} is not it"
    place = tuple(np.argwhere(~same)[0])
    return f"at {', '.join(map(str, place))} it is {actual[place]}, expected {wanted[place]}"


def _of_shape(value: Any) -> str:
    return f"shape {list(np.shape(value))}" if np.shape(value) else "a number"


def _other_function(answer: Operator, right: Operator, binding: Binding | None) -> str | None:
    if answer.format != right.format:  # fingerprints of two systems are never compared
        return f"expected an operator of {system_of(right).title}, found one of {system_of(answer).title}"
    bound = right.complete_binding(binding) if binding is not None else system_of(right).small_binding(right)
    named = {name: bound[name] for name in answer.variables if name in bound}
    shapes = [(op.input_sizes(at), op.output_sizes(at)) for op, at in ((answer, named), (right, bound))]
    if shapes[0] != shapes[1]:
        (found_x, found_y), (x, y) = shapes
        return f"expected input {list(x)} and output {list(y)}, found {list(found_x)} and {list(found_y)}"
    if answer.fingerprint(named) == right.fingerprint(bound):
        return None
    return _difference(answer, named, right, bound)


def _difference(answer: Any, named: Binding, right: Any, bound: Binding) -> str:
    """Describe an output element for which the operators read different inputs, or else their weights."""
    shape = right.output_sizes(bound)
    middle = tuple(n // 2 for n in shape)
    can_say = hasattr(right, "receptive_field")
    for index in dict.fromkeys([middle, (0,) * len(shape), tuple(n - 1 for n in shape)] if can_say else []):
        read_counts, wanted = (op.receptive_field(index, at).counts for op, at in ((answer, named), (right, bound)))
        for input_index in np.argwhere(read_counts != wanted)[:1]:
            reads, should = int(read_counts[tuple(input_index)]), int(wanted[tuple(input_index)])
            y, x = (", ".join(map(str, at)) for at in (index, input_index))
            return f"Y[{y}] reads X[{x}] in {reads} terms, expected {should}"
    sizes = [op.weight_sizes(at) for op, at in ((answer, named), (right, bound))]
    have, want = (", ".join(map(str, map(list, some))) or "none" for some in sizes)
    if have == want and not can_say:
        return f"its weights have the right shapes ({want}), but it is another operator: {answer}"
    reads_right = "it reads the right elements, but " if can_say else ""
    return f"{reads_right}the weights are used in another way (shapes {have}; expected {want})"


def _other_values(answer: Operator, right: Callable[..., Any], binding: Binding | None) -> str | None:
    bound = answer.complete_binding(binding)
    shapes = [answer.input_sizes(bound), *answer.weight_sizes(bound)]
    # Sums of small integers are exact.
    rng = np.random.default_rng(prod(shapes[0]))
    x, *weights = (rng.integers(-9, 10, shape) for shape in shapes)
    actual, wanted = answer.reference(x, *weights, binding=bound), np.asarray(right(x, *weights))
    if actual.shape != wanted.shape:
        return f"expected an output of shape {list(wanted.shape)}, found {list(actual.shape)}"
    for position in np.argwhere(actual != wanted)[:1]:
        index = tuple(position)
        return f"Y[{', '.join(map(str, position))}] is {actual[index]}, expected {wanted[index]}"
    return None


# -- stored runs -------------------------------------------------------------------------------------------------------


def tour_lab(folder: str | Path = "tour-lab") -> Path:
    """Copy the lab of a half-hour search for ResNet-20 on CIFAR-10 into ``folder``, and return the folder.

    ``benchmarks/tour_lab.py`` made the lab. Files that exist in the folder stay unchanged.

    Raises:
        SynoError: the repository is missing, or the folder cannot be written to.
    """
    from syno_lab.commands.lab import notebooks_folder

    source, folder = notebooks_folder() / "tour-lab", Path(folder)
    try:
        for path in sorted(file for file in source.rglob("*") if file.is_file()):
            copy = folder / path.relative_to(source)
            copy = copy.with_suffix("") if copy.suffix == ".gz" else copy
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not copy.exists():
                content = path.read_bytes()
                copy.write_bytes(gzip.decompress(content) if path.suffix == ".gz" else content)
    except OSError as error:
        raise SynoError(f"expected to copy the tour's lab to {folder}, found: {error.strerror or error}") from None
    return folder


def stored(name: str) -> Any:
    """Read the data that a benchmark wrote into ``benchmarks/results``.

    Raises:
        SynoError: the repository is missing, or the benchmark was not run.
    """
    from syno_lab.commands.lab import notebooks_folder

    path = notebooks_folder().parent / "benchmarks" / "results" / f"{name}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SynoError(f"no stored run {path.name}: {error.strerror or error}") from None
