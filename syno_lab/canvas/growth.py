"""The growth of a micro-DAG: limits of a draft, candidates for its next primitive, and random steps (section 6.1).

A draft has w leaves (tensors that no node uses) and may get r more primitives. The draft can only be completed if r is
large enough. To merge w leaves takes w - 1 broadcasts. A kernel must have an FC, a primitive that reads along H and one
along W, and its output needs C·H·W elements. A step is refused at once if too few primitives are left after it, or if
the least costs exceed the budget. A random step chooses the name of a primitive first and its tensors second. Pairs of
tensors need not be listed, and all names are equally likely.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple, TypeVar

from syno_lab.canvas.kernel import Draft, Node, Substitution, Taken, fresh_in
from syno_lab.canvas.matching import Match, matches
from syno_lab.canvas.primitives import BROADCASTS, FOLDS, PRIMITIVES, Primitive, conditions_of, try_result
from syno_lab.canvas.rules import Room, Rule, pruning
from syno_lab.canvas.shape import Shape, Size, fault_of, solve_for_image, substitute, variable

#: The share of FCs that may also have C channels. Chosen for ResNet-20's kernels: with 0.1, a tenth more kernels keep a
#: dynamic variable. With 0.1, few kernels have an FC of C channels, which is the most common FC.
_SET_CHANNELS = 0.4
#: If dynamic variables are preferred: the share of FCs on a tensor with a dynamic variable, where a draft has such a
#: tensor. The variable between two FCs stays. Chosen on ResNet-20: from 0 to 0.8 the share of kernels that keep a
#: variable rises from 29 to 40 % at the same rate.
_ON_FREE = 0.8
_TRIES = 8  # The number of random pairs of tensors that are tried before all pairs are listed.
#: Primitives that read along an axis of the image if their parameter names the axis.
NEIGHBOURS = ("unfold", "shift", "softmax", *FOLDS)


@dataclass(frozen=True)
class Limit:
    """A limit of a draft, with its name and a sentence that says why a primitive is refused."""

    name: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}"


class OwnLimit(Limit):
    """A rule of the user's own that refuses a primitive."""


WIDTH = Limit("width", "there would be more tensors that no primitive uses than the kernel may have at a time")
MERGES = Limit("merges", "the primitives left could not merge all branches")
NEEDS = Limit("needs", "the primitives left would not be enough for what a kernel must have")
FCS = Limit("FCs", "the kernel would have more FCs than it may have")
IMAGE = Limit("image", "the output would not have C·H·W elements")
BUDGET = Limit("budget", "the kernel would be over the budget even with the least sizes")
PLACES = Limit("places", "the replaced convolutions have no window, or their channels have no common divisor")
SUBSTITUTION = Limit("substitution", "with this size another tensor of the kernel would be illegal")

Verdict = Rule | Limit | None
Item = TypeVar("Item")


class Needs(NamedTuple):
    """The least number of primitives of each kind that a draft still needs.

    ``image`` is 1 where no leaf can be the output, and the needed broadcasts cannot change that: they only merge
    leaves.
    """

    merges: int  # broadcasts that merge leaves, or restore the image where all leaves lack its axes
    fcs: int
    mixing: int  # Primitives that read along H or W.
    others: int  # Required primitives of other names.
    image: int

    @property
    def number(self) -> int:
        """The least number of primitives; a needed FC or fold may also make a leaf the output."""
        return self.merges + max(self.fcs + self.mixing, self.image) + self.others


@lru_cache(maxsize=1 << 14)
def _needs(merges: int, fcs: int, mixing: bool, image: bool, missing: frozenset[str]) -> tuple[Needs, int]:
    """Return the needs and their number, for the missing names; one cache for both is faster than two caches."""
    names = _names_of(missing)
    needs = Needs(
        max(merges, len(names.broadcasts)),
        max(0, fcs, len(names.fc)),
        max(int(mixing), len(names.neighbours)),
        len(names.others),
        int(image and len(names.broadcasts) <= merges),  # a broadcast beyond the merges may use the image as one side
    )
    return needs, needs.number


class Growing:
    """A mutable draft with counts (its width, its FCs, its costs) that decide which primitives may be added."""

    #: The last substitution, and the number of the node that was added after it.
    _latest: tuple[Substitution | None, int] = (None, 0)

    def __init__(self, room: Room, nodes: Sequence[Node] = (), shapes: Sequence[Shape] = Draft().shapes) -> None:
        self.room = room
        self.costs = room.costs
        self.nodes: list[Node] = []
        self.shapes = [shapes[0]]
        self.used = [False]
        self.width = 1
        self.fcs = 0
        self.missing = room.must_have
        self.has_row = self.has_column = False
        self.flops = 0.0 if room.costs is None else float(room.costs.pooling)
        self.params = 0.0
        #: Pairs of tensors for which every broadcast is refused, whatever its name (add, mul, …).
        self.refused: set[tuple[int, int]] = set()
        for node, shape in zip(nodes, shapes[1:], strict=True):
            self.add(node, shape)

    def draft(self) -> Draft:
        """Return an immutable copy as a draft."""
        return Draft._of(tuple(self.nodes), tuple(self.shapes))

    @property
    def last(self) -> Taken:
        """The last step."""
        substitution, number = self._latest
        return Taken(*self.nodes[-1], substitution if number == len(self.nodes) else None)

    @property
    def left(self) -> int:
        """The number of primitives that may still be added."""
        return self.room.primitives - len(self.nodes)

    @property
    def fresh(self) -> int | None:
        """See :attr:`Draft.fresh`."""
        return fresh_in(self.shapes)

    def add(self, node: Node, shape: Shape) -> None:
        """Add a node with a result of this shape."""
        primitive, inputs = node
        for number in inputs:
            if not self.used[number]:
                self.used[number] = True
                self.width -= 1
        self.width += 1
        if self.costs is not None:
            flops, params = self._costs(primitive, inputs)
            self.flops += flops
            self.params += params
        self.fcs += primitive.name == "fc"
        if self.missing:
            self.missing -= {primitive.name}
        row, column = mixed(primitive)
        self.has_row |= row
        self.has_column |= column
        self.nodes.append(node)
        self.shapes.append(shape)
        self.used.append(False)
        self.refused = set()

    def substituted(self, substitution: Substitution) -> Growing | None:
        """Return a copy with a dynamic variable replaced in all shapes; None where a shape becomes illegal."""
        number, by = substitution
        shapes = self._shapes_after(number, by)
        if shapes is None:
            return None
        nodes = [_substituted(node, number, by) if node.primitive.name == "fc" else node for node in self.nodes]
        return Growing(self.room, nodes, shapes)

    def _shapes_after(self, number: int, by: Size) -> list[Shape] | None:
        """Return the shapes after a substitution; None where a shape becomes illegal or a primitive does not apply."""
        shapes = self.shapes
        changed, loses_axis = shapes.copy(), False
        for tensor, shape in enumerate(shapes):
            if shape.free == number:
                changed[tensor] = after = shape.substituted(number, by)
                if after.fault is not None:
                    return None
                loses_axis |= len(after.sizes) != len(shape.sizes)
        for position, node in enumerate(self.nodes, start=1):
            inputs = node.inputs
            if number not in [shapes[tensor].free for tensor in (position, *inputs)]:
                continue
            if not _stays_whole(node.primitive, tuple([shapes[tensor] for tensor in inputs]), number, by):
                return None
            if loses_axis:  # a node's primitive may need the lost axis
                primitive = node.primitive.substituted(number, by)
                result = try_result(primitive, tuple([changed[tensor] for tensor in inputs]))
                if isinstance(result, str):
                    return None
                changed[position] = result
        return changed

    def _can_end_with(self, primitive: Primitive, inputs: tuple[int, ...], shape: Shape) -> bool:
        """Return whether a value of the output's dynamic variable gives C·H·W elements and keeps all shapes legal."""
        size, number = solve_for_image(shape), shape.free
        assert number is not None
        if size is None:
            return False
        after = self._shapes_after(number, size)
        if after is None:
            return False
        result = try_result(primitive.substituted(number, size), tuple([after[tensor] for tensor in inputs]))
        return isinstance(result, Shape)

    def needs(self) -> Needs:
        """Return the least number of primitives of each kind that the draft still needs."""
        best, room = self._best_leaf(()), self.room
        mixing = room.must_mix and not (self.has_row and self.has_column)
        return _needs(self.width - (best > 0), room.fcs[0] - self.fcs, mixing, best == 1, self.missing)[0]

    def _best_leaf(self, inputs: tuple[int, ...]) -> int:
        """Return the largest :func:`_worth` as the output of a leaf that is not among ``inputs``."""
        best = 0
        for number, is_used in enumerate(self.used):
            if not is_used and number not in inputs:
                best = max(best, _worth(self.shapes[number]))
        return best

    def _costs(self, primitive: Primitive, inputs: tuple[int, ...]) -> tuple[float, float]:
        assert self.costs is not None
        return self.costs.of_node(primitive, tuple([self.shapes[number] for number in inputs]))

    def verdict(self, primitive: Primitive, inputs: tuple[int, ...], shape: Shape) -> Verdict:
        """Return the rule or limit that refuses an applicable primitive with a result of this shape, or None."""
        room, used = self.room, self.used
        name = primitive.name
        first = inputs[0]
        width = self.width + 1 - (not used[first])
        if len(inputs) == 2 and inputs[1] != first:
            width -= not used[inputs[1]]
        left = room.primitives - len(self.nodes) - 1
        if width > room.width:
            return WIDTH
        if room.without and str(primitive) in room.without:
            return PLACES
        if width - 1 > left:
            return MERGES
        fcs = self.fcs + (name == "fc")
        if fcs > room.fcs[1]:
            return FCS
        row, column = mixed(primitive)
        best = _worth(shape)
        if best < 2:
            best = max(best, self._best_leaf(inputs))
        mixing = room.must_mix and not ((self.has_row or row) and (self.has_column or column))
        missing = self.missing - {name} if self.missing else self.missing
        needs, number = _needs(width - (best > 0), room.fcs[0] - fcs, mixing, best == 1, missing)
        if number > left:
            return NEEDS if needs.merges + needs.fcs + needs.mixing + needs.others > left else IMAGE
        if left == 0 and shape.free is not None and not self._can_end_with(primitive, inputs, shape):
            return IMAGE
        if self.costs is not None:
            flops, params = self._costs(primitive, inputs)
            if self.flops + flops > self.costs.most_flops or self.params + params > self.costs.most_params:
                return BUDGET
        return pruning(self.nodes, self.shapes, primitive, inputs, room.rules_of)

    # -- drawing ------------------------------------------------------------------------------------------------------

    def kinds(self, fcs: int) -> list[tuple[float, tuple[str, ...]]]:
        """Return groups of primitives for the next step with their probabilities; a group's names are equally likely.

        With r steps left, a group of which n primitives are needed has the probability n/r, equal at every step. The
        rest of the probability is for all names but the FC. The FC comes once more, with probability 0, for drafts to
        which nothing else applies. ``fcs`` is the wanted number of FCs.
        """
        needs, left = self.needs(), self.left
        names, missing = _names_of(self.room.include), _names_of(self.missing)
        kinds = []
        rest = 1.0
        for number, kind in (
            (needs.merges, missing.broadcasts if len(missing.broadcasts) == needs.merges else names.broadcasts),
            (fcs - self.fcs, names.fc),
            (needs.mixing, missing.neighbours if len(missing.neighbours) == needs.mixing else names.neighbours),
            (needs.others, missing.others),
        ):
            if number > 0:
                kinds.append((min(number / left, 1.0), kind))
                rest -= number / left
        if needs.merges + needs.fcs + needs.mixing + needs.others < left:
            kinds.append((max(rest, 0.0), names.but_fc))
        kinds.append((0.0, names.fc))
        return kinds

    def grow(self, rng: random.Random, fcs: int) -> Growing | None:
        """Return the draft with a random primitive; None if no primitive fits. ``fcs`` as for :meth:`kinds`."""
        kinds = self.kinds(fcs)
        point = rng.random()
        for number, (chance, names) in enumerate(kinds):
            point -= chance
            if point < 0:
                grown = self._take_any(names, rng)
                if grown is not None:
                    return grown
                del kinds[number]
                break
        for _, names in reversed(kinds[:-1]):
            grown = self._take_any(names, rng)
            if grown is not None:
                return grown
        return self._take_any(kinds[-1][1], rng) if kinds else None

    def _take_any(self, names: Sequence[str], rng: random.Random) -> Growing | None:
        """Add a primitive with one of these names, each equally likely if it applies; None if no name applies."""
        for name in _shuffled(list(names), rng):
            grown = self._take(name, rng)
            if grown is not None:
                return grown
        return None

    def _take(self, name: str, rng: random.Random) -> Growing | None:
        if name in BROADCASTS:
            return self._take_broadcast(name, rng)
        # A primitive on a tensor that is no leaf adds a leaf.
        only_leaves = self.width >= min(self.room.width, self.left)
        options = [
            (number, primitive, shape)
            for number, of in enumerate(self.shapes)
            if not (only_leaves and self.used[number])
            for primitive, shape in offers(name, of, self.fresh if name == "fc" else None)
        ]
        if name == "fc" and self.room.prefers_free and rng.random() < _ON_FREE:
            options = [option for option in options if self.shapes[option[0]].free is not None] or options
        if name == "fc" and rng.random() >= _SET_CHANNELS:  # else C channels are as likely as a variable
            free = [option for option in options if option[2].free is not None]
            options = free or options
        for number, primitive, shape in _shuffled(options, rng):
            if self.verdict(primitive, (number,), shape) is None:
                self.add(Node(primitive, (number,)), shape)
                return self
        return None

    def _take_broadcast(self, name: str, rng: random.Random) -> Growing | None:
        refused: set[tuple[int, int]] = set()  # pairs that a rule refuses for this name
        for pair in self._pairs(rng):
            lhs, rhs = pair
            options = matches(self.shapes[lhs], self.shapes[rhs])
            start = int(rng.random() * len(options)) if len(options) > 1 else 0
            if pair in self.refused or pair in refused:
                continue
            has_rule = False
            for match in (*options[start:], *options[:start]):
                grown = self.broadcast(name, match, lhs, rhs)
                if isinstance(grown, Growing):
                    return grown
                if grown is not SUBSTITUTION and grown is not IMAGE and grown is not BUDGET:
                    has_rule = isinstance(grown, Rule)
                    break  # all other substitutions would be refused too
            (refused if has_rule else self.refused).add(pair)
        return None

    def broadcast(self, name: str, match: Match, lhs: int, rhs: int) -> Growing | Verdict:
        """Add a broadcast of two tensors and return the draft with it; or return the rule or limit that refuses it."""
        primitive = Primitive(name, match.parameter)
        shape = self.shapes[rhs]  # shape of the result before the substitution
        if match.substitution is None:
            why = self.verdict(primitive, (lhs, rhs), shape)
            if why is None:
                self.add(Node(primitive, (lhs, rhs)), shape)
            return why or self
        # Width, FCs and rules do not depend on sizes, so most refusals need no substitution.
        why = self.verdict(primitive, (lhs, rhs), shape)
        if why is not None and why is not BUDGET and why is not IMAGE:
            return why
        grown = self.substituted(match.substitution)
        if grown is None:
            return SUBSTITUTION
        shapes = grown.shapes[lhs], grown.shapes[rhs]
        if isinstance(try_result(primitive, shapes), str):
            return SUBSTITUTION
        why = grown.verdict(primitive, (lhs, rhs), shapes[1])
        if why is None:
            grown.add(Node(primitive, (lhs, rhs)), shapes[1])
            grown._latest = match.substitution, len(grown.nodes)
        return why or grown

    def _pairs(self, rng: random.Random) -> Iterator[tuple[int, int]]:
        """Yield each ordered pair of tensors whose broadcast keeps few enough leaves, in random order, once or more."""
        number, used = len(self.shapes), self.used
        #: The least number of leaves among the two tensors of a pair.
        merged = self.width + 1 - min(self.room.width, self.left)

        def merges(lhs: int, rhs: int) -> bool:
            return (not used[lhs]) + (lhs != rhs and not used[rhs]) >= merged

        for _ in range(_TRIES):
            pair = divmod(int(rng.random() * number * number), number)
            if merges(*pair):
                yield pair
        yield from _shuffled([(lhs, rhs) for lhs in range(number) for rhs in range(number) if merges(lhs, rhs)], rng)


def _shuffled(items: list[Item], rng: random.Random) -> Iterator[Item]:
    """Yield the items in random order; an item is drawn only when it is asked for, and leaves the list."""
    while items:
        index = int(rng.random() * len(items))
        items[index], items[-1] = items[-1], items[index]
        yield items.pop()


class _Names(NamedTuple):
    """Names of primitives by the need that they meet; each name is in one of the first four fields."""

    broadcasts: tuple[str, ...]
    fc: tuple[str, ...]
    neighbours: tuple[str, ...]
    others: tuple[str, ...]
    but_fc: tuple[str, ...]


@lru_cache(maxsize=1 << 12)
def _names_of(names: frozenset[str]) -> _Names:
    but_fc = [name for name in PRIMITIVES if name != "fc"]
    others = [name for name in but_fc if name not in BROADCASTS and name not in NEIGHBOURS]
    kinds = (BROADCASTS, ("fc",), NEIGHBOURS, others, but_fc)
    return _Names(*[tuple([name for name in kind if name in names]) for kind in kinds])


@lru_cache(maxsize=1 << 16)
def _substituted(node: Node, number: int, by: Size) -> Node:
    return Node(node.primitive.substituted(number, by), node.inputs)


@lru_cache(maxsize=1 << 16)
def _stays_whole(primitive: Primitive, shapes: tuple[Shape, ...], number: int, by: Size) -> bool:
    """Return whether the sizes of :func:`conditions_of` a primitive stay whole after a substitution."""
    return all(fault_of(substitute(size, number, by)) is None for size in conditions_of(primitive, shapes))


@lru_cache(maxsize=1 << 12)
def mixed(primitive: Primitive) -> tuple[bool, bool]:
    """Return whether a primitive reads along H, and whether along W."""
    if primitive.name not in NEIGHBOURS:
        return False, False
    axes = [part[0] if primitive.name == "shift" else part for part in primitive.parameter.split(",")]
    return "H" in axes, "W" in axes


@lru_cache(maxsize=1 << 14)
def _worth(shape: Shape) -> int:
    """Return 2 for a leaf that can be the output, 1 for a leaf with H and W or a dynamic variable, else 0."""
    if solve_for_image(shape) is not None:
        return 2
    return int(shape.free is not None or (shape["H"] is not None and shape["W"] is not None))


@lru_cache(maxsize=1 << 16)
def offers(name: str, shape: Shape, fresh: int | None) -> tuple[tuple[Primitive, Shape], ...]:
    """Return the primitives of a name (with one input) that apply to a tensor, and the shapes of their results.

    The channels of an FC are C, or the unused dynamic variable ``fresh``; None means that all variables are in use.
    """
    kind = PRIMITIVES[name]
    parameters: Sequence[str] = kind.offers(shape)
    if name == "fc":
        parameters = ("C",) if fresh is None else ("C", str(variable(fresh)))
    results = []
    for parameter in parameters:
        primitive = Primitive(name, parameter)
        result = try_result(primitive, (shape,))
        if isinstance(result, Shape):
            results.append((primitive, result))
    return tuple(results)


class Candidate(NamedTuple):
    """A step that a draft could take next (:class:`.Taken`), with its verdict and the shape of its result."""

    primitive: Primitive
    inputs: tuple[int, ...]
    substitution: Substitution | None
    verdict: Verdict
    shape: Shape

    @property
    def may_be_taken(self) -> bool:
        """Whether nothing refuses the step."""
        return self.verdict is None

    @property
    def taken(self) -> Taken:
        """The step without its verdict."""
        return Taken(*self[:3])

    def __str__(self) -> str:
        return str(self.taken)


def candidates(draft: Draft, room: Room, *, look: Callable[[], None] = lambda: None) -> Iterator[Candidate]:
    """Yield every primitive on every tensor, and every broadcast of every ordered pair with each of its substitutions.

    ``look`` is called for each tensor and pair; an exception of ``look`` stops an iteration that takes too long.
    """
    growing = Growing(room, draft.nodes, draft.shapes)
    for name in PRIMITIVES:
        if name in room.include:
            for inputs in inputs_of(name, draft):
                look()
                yield from candidates_of(growing, name, inputs)


def inputs_of(name: str, draft: Draft) -> Iterator[tuple[int, ...]]:
    """Return the inputs for primitives of a name: each tensor of a draft, or each ordered pair of tensors."""
    return product(range(len(draft.shapes)), repeat=PRIMITIVES[name].arity)


def candidates_of(growing: Growing, name: str, inputs: tuple[int, ...]) -> Iterator[Candidate]:
    """Yield the primitives of a name on these tensors, with each parameter and each substitution."""
    if name in BROADCASTS:
        for match in matches(growing.shapes[inputs[0]], growing.shapes[inputs[1]]):
            yield _broadcast(growing, name, match, *inputs)
    else:
        for primitive, shape in offers(name, growing.shapes[inputs[0]], growing.fresh if name == "fc" else None):
            yield Candidate(primitive, inputs, None, growing.verdict(primitive, inputs, shape), shape)


def _broadcast(growing: Growing, name: str, match: Match, lhs: int, rhs: int) -> Candidate:
    copy = Growing(growing.room, growing.nodes, growing.shapes)
    grown = copy.broadcast(name, match, lhs, rhs)
    primitive = Primitive(name, match.parameter)
    if isinstance(grown, Growing):
        return Candidate(primitive, (lhs, rhs), match.substitution, None, grown.shapes[-1])
    return Candidate(primitive, (lhs, rhs), match.substitution, grown, growing.shapes[rhs])
