"""Drafts and kernels of Canvas: micro-DAGs as values (Canvas, sections 3, 4 and 6).

Tensor 0 is the input, and tensor i is the result of node i - 1. The inputs of a node have smaller numbers than its
result, so the nodes are in topological order and a cycle cannot exist. A kernel maps [batch, C, H, W] to [batch, C, H,
W]; every tensor has the batch as its first axis, which no primitive changes.
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
from syno_lab.common.size import bound_size
from syno_lab.errors import PrimitiveError, SpecError
from syno_lab.inputs import quoted
from syno_lab.protocol import FLOAT32_BYTES, Binding

#: The limit of nodes of one draft; the paper's kernels have up to 12.
MOST_NODES = 64


class Node(NamedTuple):
    """A primitive with the numbers of its input tensors; a broadcast has LHS first."""

    primitive: Primitive
    inputs: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.primitive}({', '.join(f't{number}' for number in self.inputs)})"


class Substitution(NamedTuple):
    """A dynamic variable and the size that replaces it in the whole draft."""

    number: int
    by: Size

    def __str__(self) -> str:
        return f"x{self.number} := {self.by.pretty}"


class Taken(NamedTuple):
    """A step that adds a primitive on some tensors to a draft, after an optional substitution in the whole draft."""

    primitive: Primitive
    inputs: tuple[int, ...]
    substitution: Substitution | None = None

    def __str__(self) -> str:
        text = str(Node(self.primitive, self.inputs))
        return text if self.substitution is None else f"{text} with {self.substitution}"


def _normal(node: Node) -> Node:
    """Return the node; the channels of an FC are in a unique form, so that equal nodes compare equal."""
    if node.primitive.name != "fc":
        return node
    try:
        return Node(Primitive("fc", str(parse(node.primitive.parameter))), node.inputs)
    except SpecError:
        return node  # try_result reports the error


def _try(node: Node, shapes: tuple[Shape, ...]) -> Shape | str:
    if len(shapes) > MOST_NODES:
        return f"expected at most {MOST_NODES} nodes, found more"
    if not all(isinstance(number, int) and 0 <= number < len(shapes) for number in node.inputs):
        numbers = ", ".join(map(quoted, node.inputs[:3]))
        return f"expected tensors that come before the node, 0 to {len(shapes) - 1}, found {numbers}"
    return try_result(node.primitive, tuple([shapes[number] for number in node.inputs]))


def fresh_in(shapes: Sequence[Shape]) -> int | None:
    """Return the smallest number of an unused dynamic variable; None where all variables are in use."""
    used = {shape.free for shape in shapes}
    return next((number for number in range(MOST_VARIABLES) if number not in used), None)


@dataclass(frozen=True)
class Draft:
    """An immutable micro-DAG under construction; each change returns a new draft.

    Attributes:
        nodes: the nodes in topological order.
        shapes: the shapes of the tensors: the input's, then the shape of each node's result.

    Raises PrimitiveError for a node whose input is a later tensor or whose primitive does not apply, with the reason.
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
        """Make a draft of nodes with known shapes, without checks, because a sampler makes many drafts."""
        draft = object.__new__(cls)
        object.__setattr__(draft, "nodes", nodes)
        object.__setattr__(draft, "shapes", shapes)
        return draft

    def refusal(self, primitive: Primitive, inputs: tuple[int, ...]) -> str | None:
        """Return in one line why a primitive does not apply to these tensors; None where it applies."""
        result = _try(_normal(Node(primitive, inputs)), self.shapes)
        return result if isinstance(result, str) else None

    def apply(
        self,
        step: Taken | Primitive | str,
        inputs: int | tuple[int, ...] | None = None,
        substitution: Substitution | None = None,
    ) -> Draft:
        """Return the draft with one more node, after ``substitution`` if it is passed.

        Args:
            step: a step or a candidate with its inputs and substitution, or a primitive, also as text: ``"unfold
                H,W"``. For a broadcast, :func:`syno_lab.canvas.matching.broadcast` is simpler.
            inputs: the numbers of the input tensors; None: the last tensor.
            substitution: a substitution in the whole draft before the step.

        Raises PrimitiveError with the reason where the primitive or the substitution does not apply.
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
        """Return the draft with the size ``by`` for the dynamic variable ``x{number}`` in all shapes (section 6.2).

        Raises PrimitiveError where a size becomes illegal, or a primitive no longer applies.
        """
        title = Substitution(number, by)
        if number not in self.variables:
            used = ", ".join(f"x{used}" for used in self.variables) or "none"
            raise PrimitiveError(f"{title}: expected a dynamic variable of the draft ({used}), found x{number}")
        if any(used == number for used, _ in variables_of(by)):
            raise PrimitiveError(f"{title}: expected a size without x{number}")
        fault = fault_of(by)
        if fault is not None:
            raise PrimitiveError(f"{title}: {fault}")
        nodes = tuple([Node(node.primitive.substituted(number, by), node.inputs) for node in self.nodes])
        try:
            return Draft(nodes)
        except PrimitiveError as error:
            raise PrimitiveError(f"{title}: {error}") from None

    @property
    def lines(self) -> tuple[str, ...]:
        """For each tensor, the primitive that computes it and its shape, as text."""
        sources = ("input", *self.nodes)
        return tuple([f"t{number} = {sources[number]}: {shape}" for number, shape in enumerate(self.shapes)])

    @property
    def leaves(self) -> tuple[int, ...]:
        """The tensors that no node uses; the number of leaves is the width of the draft."""
        used = {number for node in self.nodes for number in node.inputs}
        return tuple([number for number in range(len(self.shapes)) if number not in used])

    @property
    def variables(self) -> tuple[int, ...]:
        """The numbers of the dynamic variables in use."""
        return tuple(sorted({shape.free for shape in self.shapes if shape.free is not None}))

    @property
    def fresh(self) -> int | None:
        """The smallest number of an unused dynamic variable; None where all variables are in use."""
        return fresh_in(self.shapes)

    @property
    def is_complete(self) -> bool:
        """Whether the draft can be finished: :meth:`kernel` returns a kernel."""
        return self.why_incomplete is None

    @property
    def why_incomplete(self) -> str | None:
        """The reason why the draft is no kernel; None for a complete draft."""
        result = self._finished()
        return result if isinstance(result, str) else None

    def _finished(self) -> Draft | str:
        """Return the draft with the output's dynamic variable solved for C·H·W elements, or the reason of a failure."""
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
        """Return the finished kernel; a dynamic variable in the output is solved for C·H·W elements first.

        Raises PrimitiveError where the draft has several leaves, or its leaf cannot have the shape [C, H, W].
        """
        result = self._finished()
        if isinstance(result, str):
            raise PrimitiveError(result)
        return Kernel._of(result, normalise)


@dataclass(frozen=True)
class Kernel:
    """A finished micro-DAG: a template from [C, H, W] to [C, H, W]; the output is its last tensor, reshaped.

    A binding has numbers for C, H, W and each other variable in use: G, KH, KW and the dynamic variables.

    Attributes:
        nodes: the nodes in topological order.
        normalise: whether a batch normalisation follows each FC whose result has an axis of the image. ReLU follows the
            normalisation if another FC comes later (section 7).

    Raises PrimitiveError where a primitive does not apply, or the micro-DAG is not finished: see :class:`Draft`.
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
        """Make the kernel of a finished draft without a dynamic variable in its output; nothing is checked."""
        kernel = object.__new__(cls)
        object.__setattr__(kernel, "nodes", draft.nodes)
        object.__setattr__(kernel, "normalise", normalise)
        object.__setattr__(kernel, "draft", draft)
        return kernel

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the tensors: the input's, then the shape of each node's result."""
        return self.draft.shapes

    @cached_property
    def conditions(self) -> tuple[Size, ...]:
        """Every size that must be a whole number: sizes of tensors, of FCs' groups and of broadcasts' repeats."""
        sizes = dict.fromkeys(size for shape in self.shapes for size in shape.sizes)
        for node, shapes in self._applied:
            sizes |= dict.fromkeys(conditions_of(node.primitive, shapes))
        return tuple(sizes)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The variables of a binding: C, H, W and all other variables in use."""
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
        """For each normalised result of an FC, by tensor number, whether a ReLU follows."""
        if not self.normalise:
            return {}
        before_fc: set[int] = set()  # tensors from which an FC is computed
        relu_by_number = {}
        for number in range(len(self.nodes), 0, -1):
            node, shape = self.nodes[number - 1], self.shapes[number]
            is_fc = node.primitive.name == "fc"
            if is_fc and (shape["H"] is not None or shape["W"] is not None):
                relu_by_number[number] = number in before_fc
            if is_fc or number in before_fc:
                before_fc |= set(node.inputs)
        return relu_by_number

    @cached_property
    def weights(self) -> tuple[tuple[Size, ...], ...]:
        """The weights of each FC in the order of nodes: ``[groups, outputs of a group, inputs of a group]``.

        After the weight of an FC with a normalised result come scale and offset, ``[channels]`` each.
        """
        shapes_of_weights: list[tuple[Size, ...]] = []
        for number, (node, shapes) in enumerate(self._applied, start=1):
            weight = weight_of(node.primitive, shapes[0])
            if weight is not None:
                shapes_of_weights.append(weight)
                if number in self.normalised:
                    shapes_of_weights += [(weight[0] * weight[1],)] * 2
        return tuple(shapes_of_weights)

    @cached_property
    def weight_places(self) -> dict[int, int]:
        """The index of each FC's weight among :attr:`weights`, by the number of the FC's result."""
        fcs = [number for number, node in enumerate(self.nodes, start=1) if node.primitive.name == "fc"]
        return dict(zip(fcs, [index for index, weight in enumerate(self.weights) if len(weight) == 3], strict=True))

    @cached_property
    def flops_costs(self) -> tuple[Cost, ...]:
        """The FLOPs of each node for one example, then of each normalisation: 2 for each element, with ReLU 3."""
        costs = [flops_of(node.primitive, shapes) for node, shapes in self._applied]
        costs += [Cost(2 + has_relu, self.shapes[number].volume) for number, has_relu in self.normalised.items()]
        return tuple(costs)

    @property
    def _applied(self) -> list[tuple[Node, tuple[Shape, ...]]]:
        return [(node, tuple([self.shapes[number] for number in node.inputs])) for node in self.nodes]

    def complete_binding(self, binding: Binding) -> dict[str, int]:
        """Return the binding's values of :attr:`variables` after a check of all sizes.

        Raises SpecError where a number is missing or not positive and whole, a window is even, or a size is not whole.
        """
        bound: dict[str, int] = {}
        for name in self.variables:
            number = bound_size(binding.get(name), name)
            if name in ("KH", "KW") and number % 2 == 0:
                raise SpecError(f"expected an odd number for {name}, found {number}: a window has a middle")
            bound[name] = number
        for size in self.conditions:
            size.at(bound)
        return bound

    def weight_sizes(self, binding: Binding) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the weights for a binding."""
        bound = self.complete_binding(binding)
        return tuple([tuple([size.at(bound) for size in weight]) for weight in self.weights])

    def params(self, binding: Binding) -> int:
        """Return the number of weight elements."""
        return sum(map(prod, self.weight_sizes(binding)))

    def flops(self, binding: Binding) -> int:
        """Return the FLOPs for one example, 2 for each multiply-add."""
        bound = self.complete_binding(binding)
        return sum(cost.number * cost.size.at(bound) for cost in self.flops_costs if cost.number)

    def memory(self, binding: Binding) -> int:
        """Return the float32 bytes for one example: weights, and the peak of the tensors when nodes run in order.

        A tensor is kept until its last use; a grouped tensor is a view and needs no memory of its own.
        """
        bound = self.complete_binding(binding)
        owner = [0]  # for each tensor: the tensor whose memory it uses
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
        """32 hexadecimal digits that are equal only for isomorphic kernels: see :func:`key_of`."""
        return key_of(self.draft, self.normalise)

    def __str__(self) -> str:
        return "\n".join(self.draft.lines)


# -- the key -----------------------------------------------------------------------------------------------------------


def key_of(draft: Draft, normalise: bool = False) -> str:
    """Return the canonical key: equal if and only if two micro-DAGs are isomorphic (Canvas, section 6.1).

    Two drafts are isomorphic if they differ only in the order of nodes, the numbering of dynamic variables, and the
    order of the sides of commutative broadcasts. Sides are only exchanged if their shapes are equal. The paper's hash
    is approximate, and does not distinguish a - b from b - a. The lab's key is a hash of a canonical form, 32
    hexadecimal digits, and a normalising kernel has a different key.
    """
    form = f"{least_form(_vertices(draft))!r}{' normalised' if normalise else ''}"
    return blake2b(form.encode(), digest_size=16).hexdigest()


def _without_number(size: Size) -> str:
    """Return the size as text; each of the dynamic variables x0 to x7 becomes x."""
    return f"{static_part(size)}{'*x' if variables_of(size) else ''}"


def _vertices(draft: Draft) -> list[Vertex]:
    shapes = draft.shapes
    places = {number: len(shapes) + index for index, number in enumerate(draft.variables)}
    vertices = [Vertex((0, "input"), ())]
    for node in draft.nodes:
        name, parameter = node.primitive
        inputs, symmetric, label = node.inputs, False, parameter
        if name == "fc":
            size = parse(parameter)
            label = _without_number(size)
            inputs = (*inputs, *(places[number] for number, _ in variables_of(size)))
        elif name in BROADCASTS:
            lhs, rhs = (shapes[number] for number in inputs)
            parts = parts_of(parameter, lhs, rhs)
            # The shapes determine the other slots: if the two sides have equally many elements, nothing repeats.
            label = "" if parts.repeats.is_one else _without_number(parts.prefix)
            symmetric = name in COMMUTATIVE and lhs is rhs
        depth = 1 + max(vertices[number].label[0] for number in node.inputs)
        vertices.append(Vertex((depth, f"{name} {label}"), inputs, symmetric))
    vertices += [Vertex((-1, "variable"), ()) for _ in places]
    return vertices
