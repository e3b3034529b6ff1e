"""Drafts and kernels of Canvas: micro-DAGs as values (Canvas, sections 3, 4 and 6).

Tensors are numbered: 0 is the input, i the result of node i - 1. A node names tensors that come before it, so the order
of the nodes is a topological one and no cycle can be written. A kernel maps [batch, C, H, W] to [batch, C, H, W]; the
batch stands in front of every tensor and takes part in nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import NamedTuple

from syno_lab.canvas.primitives import (
    BROADCASTS,
    COMMUTATIVE,
    Cost,
    Primitive,
    conditions_of,
    flops_of,
    parts_of,
    try_result,
    weight_of,
)
from syno_lab.canvas.shape import (
    IMAGE,
    INPUT,
    MOST_VARIABLES,
    SYMBOLS,
    Shape,
    Size,
    fault_of,
    parse,
    solve_for_image,
    static_part,
    variables_of,
)
from syno_lab.common.canonical import Vertex, least_form
from syno_lab.errors import PrimitiveError, SpecError
from syno_lab.inputs import positive, quoted
from syno_lab.protocol import FLOAT32_BYTES, Binding

#: Nodes of one draft: the paper's kernels have up to 12.
MOST_NODES = 64


class Node(NamedTuple):
    """A primitive on tensors, by their numbers; a broadcast has LHS first."""

    primitive: Primitive
    inputs: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.primitive}({', '.join(f't{number}' for number in self.inputs)})"


class Substitution(NamedTuple):
    """A dynamic variable and the size that takes its place everywhere."""

    number: int
    by: Size

    def __str__(self) -> str:
        return f"x{self.number} := {self.by.pretty}"


class Taken(NamedTuple):
    """A step of a draft's growth: a primitive on tensors, and what is substituted in the whole draft before it."""

    primitive: Primitive
    inputs: tuple[int, ...]
    substitution: Substitution | None = None

    def __str__(self) -> str:
        said = str(Node(self.primitive, self.inputs))
        return said if self.substitution is None else f"{said} with {self.substitution}"


def _normal(node: Node) -> Node:
    """The node with an FC's channels in the one way to write them, so that equal nodes compare equal."""
    if node.primitive.name != "fc":
        return node
    try:
        return Node(Primitive("fc", str(parse(node.primitive.parameter))), node.inputs)
    except SpecError:
        return node  # try_result says why


def _try(node: Node, shapes: tuple[Shape, ...]) -> Shape | str:
    if len(shapes) > MOST_NODES:
        return f"expected at most {MOST_NODES} nodes, found more"
    if not all(isinstance(number, int) and 0 <= number < len(shapes) for number in node.inputs):
        found = ", ".join(map(quoted, node.inputs[:3]))
        return f"expected tensors that come before the node, 0 to {len(shapes) - 1}, found {found}"
    return try_result(node.primitive, tuple([shapes[number] for number in node.inputs]))


def fresh_in(shapes: Sequence[Shape]) -> int | None:
    """The smallest number of a dynamic variable that none of these has; None where all are in use."""
    used = {shape.free for shape in shapes}
    return next((number for number in range(MOST_VARIABLES) if number not in used), None)


@dataclass(frozen=True)
class Draft:
    """A micro-DAG in the making; each change gives a new one.

    Attributes:
        nodes: in topological order.
        shapes: of the tensors: the input's, then that of each node's result.

    Raises PrimitiveError for a node that names a later tensor, or whose primitive does not apply: which and why.
    """

    nodes: tuple[Node, ...] = ()
    shapes: tuple[Shape, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shapes: tuple[Shape, ...] = (INPUT,)
        nodes = tuple(map(_normal, self.nodes))
        for number, node in enumerate(nodes):
            shape = _try(node, shapes)
            if isinstance(shape, str):
                raise PrimitiveError(f"node {number}: {shape}")
            shapes = (*shapes, shape)
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "shapes", shapes)

    @classmethod
    def _of(cls, nodes: tuple[Node, ...], shapes: tuple[Shape, ...]) -> Draft:
        """The draft of nodes whose shapes are known: a sampler makes many."""
        draft = object.__new__(cls)
        object.__setattr__(draft, "nodes", nodes)
        object.__setattr__(draft, "shapes", shapes)
        return draft

    def refusal(self, primitive: Primitive, inputs: tuple[int, ...]) -> str | None:
        """Why a primitive does not apply to these tensors, in one line; None where it does."""
        found = _try(_normal(Node(primitive, inputs)), self.shapes)
        return found if isinstance(found, str) else None

    def apply(
        self,
        step: Taken | Primitive | str,
        inputs: int | tuple[int, ...] | None = None,
        substitution: Substitution | None = None,
    ) -> Draft:
        """The draft with one more node, after a substitution where one is given.

        Args:
            step: a step or a candidate, which brings its inputs and its substitution, or a primitive, also as text:
                ``"unfold H,W"``. A broadcast is easier by :func:`syno_lab.canvas.matching.broadcast`.
            inputs: the numbers of its tensors; None: the last tensor.
            substitution: made in the whole draft first.

        Raises PrimitiveError where the primitive or the substitution does not apply, with the reason.
        """
        if isinstance(step, str):
            name, _, parameter = step.partition(" ")
            primitive = Primitive(name, parameter)
        elif isinstance(step, Primitive):
            primitive = step
        else:
            primitive, inputs, substitution = step.primitive, step.inputs, step.substitution
        if not isinstance(inputs, tuple):
            inputs = (len(self.nodes) if inputs is None else inputs,)
        before = self if substitution is None else self.substitute(*substitution)
        node = _normal(Node(primitive, inputs))
        shape = _try(node, before.shapes)
        if isinstance(shape, str):
            raise PrimitiveError(f"node {len(self.nodes)}: {shape}")
        return Draft._of((*before.nodes, node), (*before.shapes, shape))

    def substitute(self, number: int, by: Size) -> Draft:
        """The draft with ``by`` in the place of the dynamic variable ``x{number}`` in all shapes (section 6.2).

        Raises PrimitiveError where a size is no legal one afterwards, or a primitive does not apply any more.
        """
        said = Substitution(number, by)
        if number not in self.variables:
            used = ", ".join(f"x{used}" for used in self.variables) or "none"
            raise PrimitiveError(f"{said}: expected a dynamic variable of the draft ({used}), found x{number}")
        if any(used == number for used, _ in variables_of(by)):
            raise PrimitiveError(f"{said}: expected a size without x{number}")
        fault = fault_of(by)
        if fault is not None:
            raise PrimitiveError(f"{said}: {fault}")
        nodes = tuple([Node(node.primitive.substituted(number, by), node.inputs) for node in self.nodes])
        try:
            return Draft(nodes)
        except PrimitiveError as error:
            raise PrimitiveError(f"{said}: {error}") from None

    @property
    def lines(self) -> tuple[str, ...]:
        """What each tensor is made by, and its shape, as text."""
        made = ("input", *self.nodes)
        return tuple([f"t{number} = {made[number]}: {shape}" for number, shape in enumerate(self.shapes)])

    @property
    def leaves(self) -> tuple[int, ...]:
        """The tensors that no node uses; their number is the width of the draft."""
        used = {number for node in self.nodes for number in node.inputs}
        return tuple([number for number in range(len(self.shapes)) if number not in used])

    @property
    def variables(self) -> tuple[int, ...]:
        """The numbers of the dynamic variables in use."""
        return tuple(sorted({shape.free for shape in self.shapes if shape.free is not None}))

    @property
    def fresh(self) -> int | None:
        """The smallest number of a dynamic variable that no tensor has; None where all are in use."""
        return fresh_in(self.shapes)

    @property
    def is_complete(self) -> bool:
        """Whether :meth:`kernel` gives a kernel."""
        return self.why_incomplete is None

    @property
    def why_incomplete(self) -> str | None:
        """What a kernel needs that the draft lacks; None where :meth:`kernel` gives one."""
        found = self._finished()
        return found if isinstance(found, str) else None

    def _finished(self) -> Draft | str:
        """The draft with a dynamic variable in its output solved for C·H·W elements, or why it is no kernel."""
        leaves, last = self.leaves, self.shapes[-1]
        if len(leaves) > 1:
            return f"expected one tensor that no node uses, found {', '.join(f't{number}' for number in leaves)}"
        size = solve_for_image(last)
        if size is None:
            return f"expected an output of {IMAGE.pretty} elements, found {last}"
        if last.free is None:
            return self
        try:
            return self.substitute(last.free, size)
        except PrimitiveError as error:
            return str(error)

    def kernel(self, *, normalise: bool = False) -> Kernel:
        """The finished kernel; a dynamic variable in its output is solved for C·H·W elements first.

        Raises PrimitiveError where the draft has several leaves, or its leaf cannot be [C, H, W].
        """
        found = self._finished()
        if isinstance(found, str):
            raise PrimitiveError(found)
        return Kernel._of(found, normalise)


@dataclass(frozen=True)
class Kernel:
    """A finished micro-DAG: one template from [C, H, W] to [C, H, W]; its last tensor, as a view, is the output.

    A binding gives a number to C, H, W and to each other variable in use: G, KH, KW and the dynamic ones.

    Attributes:
        nodes: in topological order.
        normalise: whether the result of each FC that has an axis of the image goes through a batch normalisation, and
            through ReLU where another FC comes after it (section 7).

    Raises PrimitiveError where a node does not apply, or the nodes are not finished: see :class:`Draft`.
    """

    nodes: tuple[Node, ...]
    normalise: bool = False
    draft: Draft = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        draft = Draft(self.nodes)
        why = draft.why_incomplete
        if why is not None:
            raise PrimitiveError(why)
        if draft.shapes[-1].free is not None:
            raise PrimitiveError(f"expected an output of {IMAGE.pretty} elements, found {draft.shapes[-1]}")
        object.__setattr__(self, "nodes", draft.nodes)
        object.__setattr__(self, "draft", draft)

    @classmethod
    def _of(cls, draft: Draft, normalise: bool) -> Kernel:
        """The kernel of a draft that is finished and has no dynamic variable in its output; nothing is checked."""
        kernel = object.__new__(cls)
        object.__setattr__(kernel, "nodes", draft.nodes)
        object.__setattr__(kernel, "normalise", normalise)
        object.__setattr__(kernel, "draft", draft)
        return kernel

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of the tensors: the input's, then that of each node's result."""
        return self.draft.shapes

    @cached_property
    def conditions(self) -> tuple[Size, ...]:
        """Every size that must be a whole number: those of tensors, of FCs' groups and of broadcasts' repeats."""
        found = dict.fromkeys(size for shape in self.shapes for size in shape.sizes)
        for node, shapes in self._applied:
            found |= dict.fromkeys(conditions_of(node.primitive, shapes))
        return tuple(found)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The variables of a binding: C, H, W and what else is in use."""
        used = {
            name for size in self.conditions for name, power in zip(SYMBOLS.names, size.exponents, strict=True) if power
        }
        return tuple([name for name in SYMBOLS.names if name in used])

    @property
    def free(self) -> tuple[str, ...]:
        """The dynamic variables, whose numbers a network's budget determines."""
        return tuple([name for name in self.variables if name.startswith("x")])

    @cached_property
    def normalised(self) -> dict[int, bool]:
        """The FCs' results that are normalised, by their numbers, and whether ReLU follows."""
        if not self.normalise:
            return {}
        before_fc: set[int] = set()  # tensors that an FC comes after
        found = {}
        for number in range(len(self.nodes), 0, -1):
            node, shape = self.nodes[number - 1], self.shapes[number]
            is_fc = node.primitive.name == "fc"
            if is_fc and (shape["H"] is not None or shape["W"] is not None):
                found[number] = number in before_fc
            if is_fc or number in before_fc:
                before_fc |= set(node.inputs)
        return found

    @cached_property
    def weights(self) -> tuple[tuple[Size, ...], ...]:
        """Of each FC in the order of nodes: ``[groups, outputs of a group, inputs of a group]``.

        Where its result is normalised, scale and offset follow, ``[channels]`` each.
        """
        found: list[tuple[Size, ...]] = []
        for number, (node, shapes) in enumerate(self._applied, start=1):
            weight = weight_of(node.primitive, shapes[0])
            if weight is not None:
                found.append(weight)
                if number in self.normalised:
                    found += [(weight[0] * weight[1],)] * 2
        return tuple(found)

    @cached_property
    def weight_places(self) -> dict[int, int]:
        """Where the weight of each FC, by the number of its result, stands among :attr:`weights`."""
        fcs = [number for number, node in enumerate(self.nodes, start=1) if node.primitive.name == "fc"]
        return dict(zip(fcs, [place for place, weight in enumerate(self.weights) if len(weight) == 3], strict=True))

    @cached_property
    def flops_costs(self) -> tuple[Cost, ...]:
        """Of each node for one example; then those of normalisations: 2 for each element, and 1 where ReLU follows."""
        found = [flops_of(node.primitive, shapes) for node, shapes in self._applied]
        found += [Cost(2 + has_relu, self.shapes[number].volume) for number, has_relu in self.normalised.items()]
        return tuple(found)

    @property
    def _applied(self) -> list[tuple[Node, tuple[Shape, ...]]]:
        return [(node, tuple([self.shapes[number] for number in node.inputs])) for node in self.nodes]

    def complete_binding(self, binding: Binding) -> dict[str, int]:
        """The binding's numbers for :attr:`variables`, all sizes checked.

        Raises SpecError where a number is missing or no positive whole one, a window is even, or a size is not whole.
        """
        bound: dict[str, int] = {}
        for name in self.variables:
            number = positive(binding.get(name))
            if number is None:
                raise SpecError(f"expected a whole number from 1 up for {name}, found {quoted(binding.get(name))}")
            if name in ("KH", "KW") and number % 2 == 0:
                raise SpecError(f"expected an odd number for {name}, found {number}: a window has a middle")
            bound[name] = number
        for size in self.conditions:
            size.at(bound)
        return bound

    def weight_sizes(self, binding: Binding) -> tuple[tuple[int, ...], ...]:
        """The sizes of the weights for a binding."""
        bound = self.complete_binding(binding)
        return tuple([tuple([size.at(bound) for size in weight]) for weight in self.weights])

    def params(self, binding: Binding) -> int:
        """The number of weight elements."""
        return sum(map(prod, self.weight_sizes(binding)))

    def flops(self, binding: Binding) -> int:
        """FLOPs for one example, 2 for each multiply-add."""
        bound = self.complete_binding(binding)
        return sum(cost.number * cost.size.at(bound) for cost in self.flops_costs if cost.number)

    def memory(self, binding: Binding) -> int:
        """Bytes in float32 for one example: the weights, and the most that tensors need at once in the order of nodes.

        A tensor is kept until its last use; a grouped one is a view and needs nothing of its own.
        """
        bound = self.complete_binding(binding)
        owner = [0]  # of the elements of each tensor
        for number, node in enumerate(self.nodes, start=1):
            owner.append(owner[node.inputs[0]] if node.primitive.name == "group" else number)
        last = {owner[number]: step for step, node in enumerate(self.nodes) for number in node.inputs}
        last[owner[-1]] = len(self.nodes)  # the output stays
        elements = {number: self.shapes[number].volume.at(bound) for number in last}
        steps = range(max(1, len(self.nodes)))
        most = max(sum(elements[n] for n in last if n <= step + 1 and last[n] >= step) for step in steps)
        return FLOAT32_BYTES * (most + self.params(bound))

    @cached_property
    def key(self) -> str:
        """32 hexadecimal digits, equal for isomorphic kernels alone: see :func:`key_of`."""
        return key_of(self.draft, self.normalise)

    def __str__(self) -> str:
        return "\n".join(self.draft.lines)


# -- the key -----------------------------------------------------------------------------------------------------------


def key_of(draft: Draft, normalise: bool = False) -> str:
    """The canonical key: equal if and only if two micro-DAGs are isomorphic (Canvas, section 6.1).

    Two drafts are isomorphic when one becomes the other by another order of nodes, other numbers of dynamic variables,
    and an exchange of sides where a broadcast commutes and both have one shape. The paper's hash is approximate: it
    takes a - b and b - a for the same. This one is a hash of a canonical form, 32 hexadecimal digits, and another for a
    kernel that normalises.
    """
    form = f"{least_form(_vertices(draft))!r}{' normalised' if normalise else ''}"
    return blake2b(form.encode(), digest_size=16).hexdigest()


def _without_number(size: Size) -> str:
    """The size with its dynamic variable, whichever it is, as x."""
    return f"{static_part(size)}{'*x' if variables_of(size) else ''}"


def _vertices(draft: Draft) -> list[Vertex]:
    shapes = draft.shapes
    places = {number: len(shapes) + place for place, number in enumerate(draft.variables)}
    vertices = [Vertex((0, "input"), ())]
    for node in draft.nodes:
        name, parameter = node.primitive
        inputs, symmetric, said = node.inputs, False, parameter
        if name == "fc":
            size = parse(parameter)
            said = _without_number(size)
            inputs = (*inputs, *(places[number] for number, _ in variables_of(size)))
        elif name in BROADCASTS:
            lhs, rhs = (shapes[number] for number in inputs)
            parts = parts_of(parameter, lhs, rhs)
            # The shapes tell the rest: with as many elements on both sides nothing repeats, whatever the slots are.
            said = "" if parts.repeats.is_one else _without_number(parts.prefix)
            symmetric = name in COMMUTATIVE and lhs is rhs
        depth = 1 + max(vertices[number].label[0] for number in node.inputs)
        vertices.append(Vertex((depth, f"{name} {said}"), inputs, symmetric))
    vertices += [Vertex((-1, "variable"), ()) for _ in places]
    return vertices
