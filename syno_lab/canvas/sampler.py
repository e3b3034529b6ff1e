"""Random kernels for the convolutions of a network, within a budget (Canvas, sections 4 and 6)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from syno_lab.canvas.fitted import Fitted, fill
from syno_lab.canvas.growth import Growing
from syno_lab.canvas.kernel import MOST_NODES, Kernel
from syno_lab.canvas.places import Budget, Place, group_choices_of, places_of
from syno_lab.canvas.primitives import PRIMITIVES
from syno_lab.canvas.rules import LeastCosts, Room, rules_without
from syno_lab.effort import Effort
from syno_lab.errors import PrimitiveError, SpecError
from syno_lab.inputs import positive, quoted

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.effort import Stop
    from syno_lab.models.layers import Example
    from syno_lab.models.sites import Site

#: If kernels have at least this number of primitives, 5,000 draws repeat few. Chosen from 5 and 6 for ResNet-20.
_MANY = 5
#: The number of primitives that an attempt removes at a dead end, and the limit of removals in an attempt.
_BACK, _RETURNS = 2, 3
#: The least number of FCs that is drawn, if allowed: a kernel with one FC has no dynamic variable to solve.
_AIM = 2
#: If kernels with dynamic variables are preferred: the share of other kernels that is dropped. Chosen for ResNet-20,
#: where then more than half of the kernels keep a dynamic variable.
_NOTHING_TO_FILL = 0.45
NOTHING_TO_FILL = "nothing to fill: no dynamic variable is left"
NO_GROUPS = "groups: expected channels with a common divisor from 2 up, found none"
DEAD_END = "dead end: nothing can be added"


class Try(NamedTuple):
    """The result of one attempt: a fitted kernel, or the reason of the failure in a few words."""

    fitted: Fitted | None
    why: str


class Sampler:
    """Draws kernels that fit all places of a network and a budget.

    Each attempt draws the number of primitives, the limit of leaves and the wanted number of FCs. The attempt then
    grows a micro-DAG (:mod:`syno_lab.canvas.growth`) and fills its sizes (:mod:`syno_lab.canvas.filling`).

    Args:
        places: the convolutions that one kernel replaces, as places or as sites of a network; sites that no kernel can
            replace stay unchanged. A network stands for its dense convolutions larger than 1 x 1.
        example: for a network, the shape [C, H, W] of one image, or a tensor (:func:`syno_lab.models.layers.survey`).
        max_flops, max_params: the budget, as shares of these convolutions' costs; None: no limit.
        min_flops, min_params: the least costs of a kernel, as shares of the convolutions' costs.
        primitives: the least and the largest number of primitives, without input and output.
        width: the largest number of leaves at a time (tensors that no node uses yet).
        fcs: the least and the largest number of FCs.
        groups: the number of groups; None: drawn from the common divisors of the channels.
        include: names of the allowed primitives; None: all.
        must_have: names of the required primitives, each at least once. Kernels with all required primitives are then
            drawn much more often.
        must_mix: whether a kernel must read neighbours along both axes of the image.
        prefers_free: whether kernels with dynamic variables, which can use up the budget, are drawn more often.
        normalise: whether results of FCs are normalised (:class:`.Kernel`); the cost includes the normalisation.
        without_rules: names of the rules (:data:`.RULES`) that prune nothing.
        seed: the seed of the draws; equal seeds draw equal kernels.

    Raises SpecError in one line for a wrong number or name.
    """

    def __init__(
        self,
        places: Sequence[Place | Site] | nn.Module,
        *,
        example: Example | None = None,
        max_flops: float | None = 0.5,
        max_params: float | None = None,
        min_flops: float | None = None,
        min_params: float | None = None,
        primitives: tuple[int, int] = (3, 12),
        width: int = 8,
        fcs: tuple[int, int] = (1, 4),
        groups: int | None = None,
        include: Collection[str] | None = None,
        must_have: Collection[str] = (),
        must_mix: bool = True,
        prefers_free: bool = True,
        normalise: bool = True,
        without_rules: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        sources = _given(places, example)
        self.sites = tuple([place for place in sources if not isinstance(place, Place)])
        self.places = places_of(sources)
        self.budget = Budget.of_shares(
            self.places, max_flops=max_flops, max_params=max_params, min_flops=min_flops, min_params=min_params
        )
        self.groups = _groups(self.places, groups)
        self._least = {number: LeastCosts(self.places, self.budget, number) for number in self.groups or (1,)}
        self.primitives = _span("primitives", primitives)
        self.fcs = _span("fcs", fcs)
        if positive(width) is None or width > MOST_NODES:
            raise SpecError(f"width: expected a whole number from 1 to {MOST_NODES}, found {quoted(width)}")
        allowed = frozenset(PRIMITIVES) if include is None else _names("include", include, PRIMITIVES)
        needed = _names("must_have", must_have, allowed)
        if len(needed) > self.primitives[1]:
            raise SpecError(f"must_have: expected at most {self.primitives[1]} names, found {len(needed)}")
        self.lengths = {
            length: _length_weight(length, len(allowed)) for length in range(self.primitives[0], self.primitives[1] + 1)
        }
        has_windows = any(place.kh > 1 or place.kw > 1 for place in self.places)
        without = [f"unfold {axes}" for axes in ("H", "W", "H,W")] if not has_windows else []
        without += [] if self.groups else ["group G"]
        least = LeastCosts(self.places, self.budget, *(self.groups or (1,)))
        self.widest = Room(
            self.primitives[1],
            int(width),
            self.fcs,
            allowed,
            needed,
            frozenset(without),
            must_mix,
            prefers_free,
            least,
            rules_without(without_rules),
        )
        self._rooms: dict[tuple[int, int, int], Room] = {}
        self.prefers_free = prefers_free
        self.normalise = normalise
        self._rng = random.Random(seed)  # noqa: S311 - draws, no secrets
        #: The results of the attempts: the number of kernels, and the number of failures for each reason.
        self.outcomes: Counter[str] = Counter()

    def replace(self, net: nn.Module, operator: Fitted) -> nn.Module:
        """Return a copy of a network with the operator in all layers that it fits, each with its own weights.

        Raises SpecError for a sampler without a network, and for an operator that fits no layer.
        """
        from syno_lab.canvas.system import CANVAS
        from syno_lab.copies import copied

        if not self.sites:
            raise SpecError("expected a sampler of a network, found a sampler of places: use Sampler(net, example=…)")
        return CANVAS.placement(operator, self.sites, "shape").apply(copied(net))

    def attempt(self) -> Try:
        """Grow and fill one kernel; with a small budget most attempts fail."""
        rng = self._rng
        groups = rng.choice(self.groups) if self.groups else 1
        length = rng.choices(tuple(self.lengths), tuple(self.lengths.values()))[0]
        result = self._attempt(
            self._room(length, rng.randint(1, self.widest.width), groups), rng.randint(*self.fcs_of(length)), groups
        )
        self.outcomes["kernel" if result.fitted is not None else result.why.partition(":")[0]] += 1
        return result

    def fcs_of(self, length: int) -> tuple[int, int]:
        """Return the least and the largest number of FCs to draw for a kernel with ``length`` primitives.

        If more than half of the primitives were FCs, there would be few different kernels, and draws would repeat them.
        """
        most = max(self.fcs[0], min(self.fcs[1], (length + 1) // 2))
        return min(max(self.fcs[0], _AIM), most), most

    def _room(self, length: int, width: int, groups: int) -> Room:
        room = self._rooms.get((length, width, groups))
        if room is None:
            room = replace(self.widest, primitives=length, width=width, costs=self._least[groups])
            self._rooms[length, width, groups] = room
        return room

    def _attempt(self, room: Room, fcs: int, groups: int) -> Try:
        growing, returns = Growing(room), 0
        while growing.left:
            grown = growing.grow(self._rng, fcs)
            if grown is None:
                returns += 1
                if returns > _RETURNS or len(growing.nodes) < _BACK:
                    return Try(None, DEAD_END)
                grown = Growing(room, growing.nodes[:-_BACK], growing.shapes[:-_BACK])  # earlier substitutions stay
            growing = grown
        try:
            kernel = growing.draft().kernel(normalise=self.normalise)
        except PrimitiveError as error:
            return Try(None, f"output: {error}")
        if not kernel.free and self.prefers_free and self._rng.random() < _NOTHING_TO_FILL:
            return Try(None, NOTHING_TO_FILL)
        return self.fit(kernel, groups)

    def fit(self, kernel: Kernel, groups: int | None = None) -> Try:
        """Return the kernel with values for every layer, within the budget; or in one line why none fit.

        ``groups`` is the number of groups (G); None: the sampler draws it.
        """
        if "G" not in kernel.variables:
            groups = 1
        elif groups is None:
            if not self.groups:
                return Try(None, NO_GROUPS)
            groups = self._rng.choice(self.groups)
        fitted = fill(kernel, self.places, self.budget, groups)
        return Try(None, fitted) if isinstance(fitted, str) else Try(fitted, "")

    def sample(self, *, seconds: float = 60, should_stop: Stop | None = None) -> Fitted:
        """Draw one kernel within ``seconds`` of computing; ``should_stop`` is called often.

        Raises OverTimeError with the main reasons where no attempt succeeds in time; StoppedError on a request to stop.
        """
        effort = Effort(seconds, should_stop)
        while True:
            fitted = self.attempt().fitted
            if fitted is not None:
                return fitted
            often = ", ".join(f"{why} ({number})" for why, number in self.outcomes.most_common(3))
            effort.look(f"drawing a kernel; attempts so far: {often}")

    def samples(self, *, seconds: float = 60, should_stop: Stop | None = None) -> Iterator[Fitted]:
        """Yield kernels without end, no two of them isomorphic; ``seconds`` bounds the time for each kernel."""
        known: set[str] = set()
        while True:
            effort = Effort(seconds, should_stop)
            fitted = self.sample(seconds=seconds, should_stop=should_stop)
            while fitted.kernel.key in known:
                effort.look(f"drawing a kernel that is not among the {len(known)} drawn before")
                fitted = self.sample(seconds=seconds, should_stop=should_stop)
            known.add(fitted.kernel.key)
            yield fitted


def _given(places: Any, example: Example | None) -> Sequence[Place | Site]:
    """Return the sites of a network; return places or sites unchanged."""
    if not hasattr(places, "named_modules"):  # not a network (a check without torch)
        if example is not None:
            raise SpecError("example: expected no example for places, which have their sizes, found one")
        return places
    if example is None:
        raise SpecError("example: expected the shape [C, H, W] of an image beside a network, found none")
    from syno_lab.models.layers import survey

    return survey(places, example).select()


def _length_weight(length: int, types: int) -> float:
    """Return the relative probability of drawing a number of primitives: 1 if there are many kernels with this number.

    In d draws from k kernels about d²/2k repeat, so draws in proportion to √k repeat equally often at each length. The
    estimate of k for n primitives of t types is tⁿ.
    """
    return min(1.0, (types**length / len(PRIMITIVES) ** _MANY) ** 0.5)


def _groups(places: Sequence[Place], groups: int | None) -> tuple[int, ...]:
    choices = group_choices_of(places)
    if groups is None:
        return choices
    if groups not in choices:
        raise SpecError(
            "groups: expected a common divisor of the channels, "
            f"{', '.join(map(str, choices)) or 'but there is none'}; found {quoted(groups)}"
        )
    return (groups,)


def _span(name: str, span: tuple[int, int]) -> tuple[int, int]:
    try:
        numbers = [0 if _is_zero(number) else positive(number) for number in span]
    except TypeError:
        numbers = []
    if len(numbers) == 2:
        least, most = numbers
        if least is not None and most is not None and least <= most <= MOST_NODES:
            return least, most
    raise SpecError(
        f"{name}: expected the fewest and the most, whole numbers from 0 to {MOST_NODES}, found {quoted(span)}"
    )


def _is_zero(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and value == 0


def _names(field: str, names: Collection[str], known: Collection[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise SpecError(f"{field}: expected a list of names, found the text {quoted(names)}")
    unknown = [name for name in names if name not in known]
    if unknown or (field == "include" and not names):
        wrong = ", ".join(map(quoted, unknown)) or "none"
        listed = ", ".join([name for name in PRIMITIVES if name in known])
        raise SpecError(f"{field}: expected primitives among {listed}, found {wrong}")
    return frozenset(names)
