"""Canvas's kernels as a search space: choices of the number of primitives, their names and tensors, and of G.

A random descent draws kernels nearly as the sampler does (:mod:`syno_lab.canvas.growth`). Each primitive takes two
steps, one for its name and one for its tensors, so that pairs of tensors are evaluated for one name only.
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

#: The default limit of primitives of a kernel in a search.
PRIMITIVES = 12
_RARE = 1e-3  # the least probability of a kind of primitives, for drafts to which no other kind applies


class KernelSpace(OperatorSpace):
    """The kernels that fit all convolutions of a request, with their variables solved within the request's FLOPs.

    Convolutions that no kernel can replace stay in the network. Raises SpecError where all convolutions stay or no
    FLOPs are left for a kernel, for limits that Canvas does not have, and for a text without valid wishes.
    """

    def __init__(self, request: SpaceRequest) -> None:
        for name, limits in (("coefficients", request.coefficients), ("occurrences", request.occurrences)):
            if limits:
                raise SpecError(f"{name}: expected none, as Canvas has no such limits; found {quoted(limits)}")
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
            text = quoted(request.limits["max_primitives"])
            raise SpecError(f"limits: expected a whole number from 1 to {MOST_NODES} for max_primitives, found {text}")
        self.draws = Sampler(self.places, max_flops=None, primitives=(min(2, most), most))
        self.drawn, self.wished = request.drawn, request.wished

    def __str__(self) -> str:
        most = max(self.draws.lengths)
        return f"kernels of at most {most} primitives for {len(self.places)} convolutions"

    @property
    def wants(self) -> str:
        """The wishes that each kernel meets; the space also requires that kernels read along each axis of the image."""
        return wishes_text(self._wishes)

    def meets_wishes(self, kernel: Kernel) -> bool:
        """Return whether a kernel meets the wishes (:func:`.pairing_of`)."""
        try:
            return not self._wishes or pairing_of(kernel, self._window).meets(self._wishes)
        except SpecError:  # the sizes are not whole
            return False

    def lower(self, spare_flops: int) -> None:
        """Make the new FLOPs the budget of kernels; see :meth:`.OperatorSpace.lower`."""
        self.budget = Budget(max_flops=max(1, spare_flops - self._staying))

    def probe(self, operator: Fitted) -> Mapping[str, float]:
        """Return :meth:`.Probe.promise` against the convolution of most FLOPs; 0 for a kernel that is too large."""
        place = self._heaviest
        try:
            probed = probe(operator, place)
        except SpecError:
            probed = None
        if probed is None:
            return NO_PROMISE
        outputs, inputs, *lengths = probed.kernel.shape
        return probed.promise(convolution_probe(outputs, inputs, tuple(lengths), (place.kh, place.kw)))

    def root(self, accepts: Callable[[Any], bool]) -> State:
        """Return the state before the choice of the number of primitives."""
        return KernelState(_Rules(self, accepts), Draft())

    def known(self, root: State) -> Mapping[str, Fitted]:
        """Return the known kernels within the budget, fitted with the first number of groups that fits."""
        assert isinstance(root, KernelState)
        fitted = {}
        for name, make in KNOWN.items():
            kernel = Kernel(make().nodes, self.draws.normalise)
            if not self.meets_wishes(kernel):
                continue
            for groups in self.draws.groups if "G" in kernel.variables else (1,):
                operator = root.rules.fitted(kernel, groups)
                if operator is not None and _is_reached(root, operator):
                    fitted[name] = operator
                    break
        return fitted

    def name_of(self, operator: Fitted) -> str:
        """Return the kernel's key and number of groups; within one space they determine the values of all variables."""
        return f"{operator.kernel.key} {operator.groups}"


@dataclass(frozen=True, eq=False)
class _Rules:
    space: KernelSpace
    accepts: Callable[[Any], bool]

    def fitted(self, kernel: Kernel, groups: int) -> Fitted | None:
        """Return the kernel with its variables as large as the budget allows; None if no values fit."""
        operator = fill(kernel, self.space.places, self.space.budget, groups)
        return operator if isinstance(operator, Fitted) and self.accepts(operator) else None

    @cached_property
    def widest(self) -> Room:
        """The limits for the longest kernels, with the budget of the space."""
        draws = self.space.draws
        return replace(draws.widest, costs=LeastCosts(self.space.places, self.space.budget, *(draws.groups or (1,))))


@dataclass(frozen=True, eq=False)
class KernelState:
    """A draft with its limits and the choices so far."""

    rules: _Rules  # the space, and the callback that accepts operators
    draft: Draft
    room: Room | None = None  # The limits; None until the number of primitives is chosen.
    name: str = ""  # The name of the primitive whose tensors are chosen next, or empty.
    groups: int = 0  # The number for G; 0 until it is chosen.

    @cached_property
    def key(self) -> Hashable:
        """The kernel's key and G for a complete state; otherwise the draft and the choices so far.

        The key does not contain the rules: states of one root are compared, and have equal ``accepts`` and budgets.
        """
        if self.is_complete:
            assert self._kernel is not None
            return self._kernel.key, self.groups
        return self.draft.nodes, None if self.room is None else self.room.primitives, self.name

    @property
    def is_complete(self) -> bool:
        """Whether all primitives are chosen, and G where the kernel has it."""
        return self.groups > 0

    @cached_property
    def _kernel(self) -> Kernel | None:
        try:
            return self.draft.kernel(normalise=self.rules.space.draws.normalise)
        except PrimitiveError:
            return None

    @cached_property
    def growing(self) -> Growing:
        """The draft with its counts of primitives and costs."""
        assert self.room is not None
        return Growing(self.room, self.draft.nodes, self.draft.shapes)

    def children(self) -> Sequence[Child]:
        """List choices: numbers of primitives at the root, then names and tensors in turn, at last numbers for G."""
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
        """Return the kernel fitted to all places; None where it misses a wish or exceeds the budget."""
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
        """Return the steps that may lead to a kernel, primitive by primitive in the kernel's order."""
        if not isinstance(operator, Fitted) or self.is_complete:
            return ()
        nodes = operator.kernel.nodes
        if self.room is not None and self.room.primitives != len(nodes):
            return ()
        if self.name:
            options = _Tensors(self, nodes[len(self.draft.nodes)].inputs).steps()
            return [step for step in options if may_become(_state(step).draft, nodes)]
        steps = [step for child in self.children() for step in child.steps()]
        return [step for step in steps if _state(step)._is_choice_of(operator)]

    def _is_choice_of(self, operator: Fitted) -> bool:
        """Return whether the operator has this state's last choice: a number of primitives, a primitive's name or G."""
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
    """Return a step that adds no primitive, but chooses the number of primitives, a name, or the number for G."""
    return Taken(Step(name, (name,) if state.name else (), state, steps=0), weight)


@dataclass(frozen=True)
class _Tensors:
    """The tensors of the primitive whose name is chosen; each parameter and substitution is a step."""

    before: KernelState
    inputs: tuple[int, ...]
    weight = 1.0

    def steps(self) -> Sequence[Step]:
        """Return a step for each allowed primitive on these tensors."""
        before = self.before
        return [
            Step(str(c), (str(c.primitive),), replace(before, draft=before.draft.apply(c.taken), name=""))
            for c in candidates_of(before.growing, before.name, self.inputs)
            if c.may_be_taken
        ]


def may_become(draft: Draft, nodes: Sequence[Node]) -> bool:
    """Return whether substitutions can make the draft equal to the first nodes of ``nodes``."""
    sizes: dict[int, Size] = {}
    for node, other in zip(draft.nodes, nodes, strict=False):
        if node.inputs != other.inputs or node.primitive.name != other.primitive.name:
            return False
        if node.primitive.name != "fc":
            if node.primitive.parameter != other.primitive.parameter:
                return False
            continue
        channels, wanted = parse(node.primitive.parameter), parse(other.primitive.parameter)
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
    """Count each primitive, the depth, the dynamic variables and the blends; "grouped" is 1 for a kernel with G."""
    counts = Counter(node.primitive.name for node in kernel.nodes)
    depth = [0]
    for node in kernel.nodes:
        depth.append(1 + max(depth[tensor] for tensor in node.inputs))
    counts["depth"] = depth[-1]
    counts["free variables"] = len(kernel.free)
    counts["blends"] = sum(counts[name] for name in BROADCASTS)
    counts["grouped"] = int("G" in kernel.variables)
    return dict(counts)
