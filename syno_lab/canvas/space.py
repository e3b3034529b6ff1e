"""Canvas's kernels as a search space: the number of primitives, the name and the tensors of each, and G.

A random descent draws much as the sampler does (:mod:`syno_lab.canvas.growth`). A primitive takes two steps, its name
and then its tensors, so that only pairs of tensors of a chosen name are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from syno_lab.canvas.fitted import Fitted, fill
from syno_lab.canvas.growth import Growing, candidates_of, inputs_of
from syno_lab.canvas.kernel import MOST_NODES, Draft, Kernel, Node
from syno_lab.canvas.known import KNOWN
from syno_lab.canvas.mixing import pairing_of, parse_wishes, probe, wishes_text
from syno_lab.canvas.places import Budget, obstacle_to, places_of
from syno_lab.canvas.primitives import BROADCASTS
from syno_lab.canvas.rules import LeastCosts, Room
from syno_lab.canvas.sampler import Sampler
from syno_lab.canvas.shape import Size, parse, static_part, variables_of
from syno_lab.common.probe import NO_PROMISE, convolution_probe
from syno_lab.errors import PrimitiveError, SpecError
from syno_lab.inputs import positive, quoted
from syno_lab.models.sites import derived_wants
from syno_lab.protocol import OperatorSpace, SpaceRequest
from syno_lab.search.protocol import Child, State, Step, Taken

#: Kernels of a search have so many primitives at most, unless the request says otherwise.
PRIMITIVES = 12
_RARE = 1e-3  # the chance of a kind that is for where nothing else can be taken


class KernelSpace(OperatorSpace):
    """The kernels that fit the convolutions of a request, each fitted to all of them within its FLOPs.

    Convolutions that no kernel can replace stay. Raises SpecError where all do or no FLOPs are left for a kernel, for
    limits that Canvas does not have, and for a text that is no wish.
    """

    def __init__(self, request: SpaceRequest) -> None:
        for name, given in (("coefficients", request.coefficients), ("occurrences", request.occurrences)):
            if given:
                raise SpecError(f"{name}: expected none, as Canvas has no such limits; found {quoted(given)}")
        unknown = [name for name in request.limits if name != "max_primitives"]
        if unknown:
            raise SpecError(f"limits: expected max_primitives alone, found {', '.join(map(quoted, unknown))}")
        self.places = places_of(request.sites)
        replaced = [site for site in request.sites if obstacle_to(site) is None]
        self._staying = sum(site.flops for site in request.sites) - sum(site.flops for site in replaced)
        if request.spare_flops <= self._staying:
            raise SpecError(
                f"FLOPs: expected more than the {self._staying} of the layers that no kernel can replace, "
                f"found {quoted(request.spare_flops)}"
            )
        self.lower(request.spare_flops)
        self._heaviest = max(self.places, key=lambda place: place.flops / place.layers)
        self._window = max(((place.kh, place.kw) for place in self.places), key=prod)
        self._wishes = derived_wants(replaced) if request.wants is None else parse_wishes(request.wants)
        most = positive(request.limits.get("max_primitives", PRIMITIVES))
        if most is None or most > MOST_NODES:
            found = quoted(request.limits["max_primitives"])
            raise SpecError(f"limits: expected a whole number from 1 to {MOST_NODES} for max_primitives, found {found}")
        self.draws = Sampler(self.places, max_flops=None, primitives=(min(2, most), most))
        self.drawn, self.wished = request.drawn, request.wished

    def __str__(self) -> str:
        most = max(self.draws.lengths)
        return f"kernels of at most {most} primitives for {len(self.places)} convolutions"

    @property
    def wants(self) -> str:
        """What every kernel does, beside the rule of the space that it reads along both axes of the image."""
        return wishes_text(self._wishes)

    def meets_wishes(self, kernel: Kernel) -> bool:
        """Whether a kernel does what is wished (:func:`.pairing_of`)."""
        try:
            return not self._wishes or pairing_of(kernel, self._window).meets(self._wishes)
        except SpecError:  # no whole sizes there
            return False

    def lower(self, spare_flops: int) -> None:
        """See :meth:`.OperatorSpace.lower`: kernels are filled up to so many FLOPs."""
        self.budget = Budget(max_flops=max(1, spare_flops - self._staying))

    def probe(self, operator: Fitted) -> Mapping[str, float]:
        """See :meth:`.Probe.promise`, beside the convolution with the most FLOPs; 0 where the kernel is too large."""
        place = self._heaviest
        try:
            found = probe(operator, place)
        except SpecError:
            found = None
        if found is None:
            return NO_PROMISE
        outputs, inputs, *lengths = found.kernel.shape
        return found.promise(convolution_probe(outputs, inputs, tuple(lengths), (place.kh, place.kw)))

    def root(self, accepts: Callable[[Any], bool]) -> State:
        """The state before the number of primitives is chosen."""
        return KernelState(_Rules(self, accepts), Draft())

    def known(self, root: State) -> Mapping[str, Fitted]:
        """The known kernels that the budget allows, with the first number of groups that does, fitted."""
        assert isinstance(root, KernelState)
        found = {}
        for name, make in KNOWN.items():
            kernel = Kernel(make().nodes, self.draws.normalise)
            if not self.meets_wishes(kernel):
                continue
            for groups in self.draws.groups if "G" in kernel.variables else (1,):
                operator = root.rules.fitted(kernel, groups)
                if operator is not None and _is_reached(root, operator):
                    found[name] = operator
                    break
        return found

    def name_of(self, operator: Fitted) -> str:
        """The kernel's key and its number of groups: within a space these determine all other numbers."""
        return f"{operator.kernel.key} {operator.groups}"


@dataclass(frozen=True, eq=False)
class _Rules:
    space: KernelSpace
    accepts: Callable[[Any], bool]

    def fitted(self, kernel: Kernel, groups: int) -> Fitted | None:
        """The kernel filled up to the budget, where it fits."""
        found = fill(kernel, self.space.places, self.space.budget, groups)
        return found if isinstance(found, Fitted) and self.accepts(found) else None

    @cached_property
    def widest(self) -> Room:
        """The room of the longest kernels, with the budget of the space."""
        draws = self.space.draws
        return replace(draws.widest, costs=LeastCosts(self.space.places, self.space.budget, *(draws.groups or (1,))))


@dataclass(frozen=True, eq=False)
class KernelState:
    """A draft with what it may become."""

    rules: _Rules  # of the space
    draft: Draft
    room: Room | None = None  # None before the number of primitives is chosen
    name: str = ""  # of the primitive whose tensors are chosen next; empty before
    groups: int = 0  # the number for G; 0 before it is chosen

    @cached_property
    def key(self) -> Hashable:
        """The kernel's key and G for a complete state; else the draft as it is, and what is chosen.

        The rules are not in it: keys tell states of one root apart, which all have the same ``accepts`` and budget.
        """
        if self.is_complete:
            assert self._kernel is not None
            return self._kernel.key, self.groups
        return self.draft.nodes, None if self.room is None else self.room.primitives, self.name

    @property
    def is_complete(self) -> bool:
        """Whether all primitives and, where the kernel has it, G are chosen."""
        return self.groups > 0

    @cached_property
    def _kernel(self) -> Kernel | None:
        try:
            return self.draft.kernel(normalise=self.rules.space.draws.normalise)
        except PrimitiveError:
            return None

    @cached_property
    def growing(self) -> Growing:
        """The draft with the counts of its growth."""
        assert self.room is not None
        return Growing(self.room, self.draft.nodes, self.draft.shapes)

    def children(self) -> Sequence[Child]:
        """Numbers of primitives at the root; then names, and tensors of each name; at last the numbers for G."""
        if self.is_complete:
            return ()
        draws = self.rules.space.draws
        if self.room is None:
            return [
                _choice(weight, f"{length} primitives", replace(self, room=room))
                for length, weight in draws.lengths.items()
                for room in (replace(self.rules.widest, primitives=length),)
            ]
        if self.name:
            return [_Tensors(self, inputs) for inputs in inputs_of(self.name, self.draft)]
        growing = self.growing
        if growing.left:
            weights: dict[str, float] = {}
            for chance, names in growing.kinds(sum(draws.fcs_of(self.room.primitives)) // 2):
                for name in names:
                    weights[name] = weights.get(name, 0.0) + max(chance, _RARE) / len(names)
            return [_choice(weight, name, replace(self, name=name)) for name, weight in weights.items()]
        if self._kernel is None:
            return ()
        if "G" not in self._kernel.variables:
            return [_choice(1.0, "finished", replace(self, groups=1))]
        return [_choice(1.0, f"G={groups}", replace(self, groups=groups)) for groups in draws.groups]

    def operator(self) -> Fitted | None:
        """The kernel fitted to all places; None where it misses a wish or is over the budget."""
        space = self.rules.space
        space.drawn(self.key)
        assert self._kernel is not None
        if not space.meets_wishes(self._kernel):
            return None
        space.wished(self.key)
        return self.rules.fitted(self._kernel, self.groups)

    def traits(self) -> Mapping[str, int]:
        """See :func:`traits_of`."""
        return {} if self._kernel is None else traits_of(self._kernel)

    def towards(self, operator: Any) -> Sequence[Step]:
        """The steps that may lead to a kernel, primitive by primitive in its own order."""
        if not isinstance(operator, Fitted) or self.is_complete:
            return ()
        nodes = operator.kernel.nodes
        if self.room is not None and self.room.primitives != len(nodes):
            return ()
        if self.name:
            found = _Tensors(self, nodes[len(self.draft.nodes)].inputs).steps()
            return [step for step in found if may_become(_state(step).draft, nodes)]
        steps = [step for child in self.children() for step in child.steps()]
        return [step for step in steps if _state(step)._is_choice_of(operator)]

    def _is_choice_of(self, operator: Fitted) -> bool:
        """Whether what was chosen last, a number of primitives, a name or G, is what a kernel has."""
        nodes = operator.kernel.nodes
        if self.is_complete:
            return self.key == (operator.kernel.key, operator.groups)
        if self.name:
            return self.name == nodes[len(self.draft.nodes)].primitive.name
        return self.room is not None and self.room.primitives == len(nodes)


def _is_reached(root: KernelState, operator: Fitted) -> bool:
    states = [root]
    while states:
        states = [_state(step) for state in states for step in state.towards(operator)]
        if any(state.is_complete for state in states):
            return True
    return False


def _state(step: Step) -> KernelState:
    assert isinstance(step.state, KernelState)
    return step.state


def _choice(weight: float, name: str, state: KernelState) -> Taken:
    """A number of primitives, a name, or a number for G: a step that adds no primitive."""
    return Taken(Step(name, (name,) if state.name else (), state, steps=0), weight)


@dataclass(frozen=True)
class _Tensors:
    """The tensors of the primitive whose name is chosen: its parameters and substitutions are the steps."""

    before: KernelState
    inputs: tuple[int, ...]
    weight = 1.0

    def steps(self) -> Sequence[Step]:
        """One for each primitive that may be taken on these tensors."""
        before = self.before
        return [
            Step(str(one), (str(one.primitive),), replace(before, draft=before.draft.apply(one.taken), name=""))
            for one in candidates_of(before.growing, before.name, self.inputs)
            if one.may_be_taken
        ]


def may_become(draft: Draft, nodes: Sequence[Node]) -> bool:
    """Whether a draft becomes the first of these nodes when sizes take the place of its dynamic variables."""
    sizes: dict[int, Size] = {}
    for mine, other in zip(draft.nodes, nodes, strict=False):
        if mine.inputs != other.inputs or mine.primitive.name != other.primitive.name:
            return False
        if mine.primitive.name != "fc":
            if mine.primitive.parameter != other.primitive.parameter:
                return False
            continue
        channels, wanted = parse(mine.primitive.parameter), parse(other.primitive.parameter)
        free = variables_of(channels)
        if not free:
            if channels != wanted:
                return False
            continue
        ((number, _),) = free
        if sizes.setdefault(number, wanted / static_part(channels)) != wanted / static_part(channels):
            return False
    return True


def traits_of(kernel: Kernel) -> dict[str, int]:
    """How often each primitive is there, the depth, the dynamic variables left, the blends, and 1 where G is in use."""
    found = Counter(node.primitive.name for node in kernel.nodes)
    depth = [0]
    for node in kernel.nodes:
        depth.append(1 + max(depth[tensor] for tensor in node.inputs))
    found["depth"] = depth[-1]
    found["free variables"] = len(kernel.free)
    found["blends"] = sum(found[name] for name in BROADCASTS)
    found["grouped"] = int("G" in kernel.variables)
    return dict(found)
