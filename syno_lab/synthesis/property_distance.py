"""Property distance: a lower bound of the steps to the input with all wishes met.

The bound is never below the shape distance (:mod:`syno_lab.synthesis.distance`). A wish can cost extra steps: an UNFOLD
with a summed window, or a further REDUCE. One step may serve several wishes, and an UNFOLD that
eliminates a coordinate anyway counts once. :mod:`syno_lab.synthesis.wishes` counts the steps; this module applies the
count to states and explains it (αNAS, section 4: a distance to a property).

Limits of a space can make a wish impossible. An output element reads several positions of an axis only through REDUCEs.
An output element reads at most as many positions as its REDUCEs have together. To read all positions of an axis with a
primary variable, a REDUCE must have a primary variable. If no REDUCE may have the axis's own variables, an UNFOLD or a
SPLIT must join a sum with the axis, because other primitives make coordinates of one iterator each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations_with_replacement
from operator import or_
from typing import NamedTuple

from syno_lab.common.size import Size
from syno_lab.common.wants import RANK, Wish, wants_text
from syno_lab.effort import Effort, Stop
from syno_lab.errors import SpecError
from syno_lab.inputs import count_of
from syno_lab.ir.coordinate import reduce_coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.distance import budgets_left, distance, lacking_primaries, look, reduces_left
from syno_lab.synthesis.reach import FLAG_BITS, NEVER, STRIDED, Shape, pack
from syno_lab.synthesis.rules import Rule
from syno_lab.synthesis.space import reduce_sizes
from syno_lab.synthesis.wishes import Plan, Wishes, wishes_of


@dataclass(frozen=True)
class Served:
    """How one wish is met on a shortest way.

    Attributes:
        wish: the text of the wish, such as ``H>=m``.
        by: ``held`` (a data coordinate already meets the wish), ``window`` (an UNFOLD must bring it), ``reduce`` (a
            further REDUCE must bring it), or ``never``.
        sizes: the sizes of the data coordinates that become the axis.
    """

    wish: str
    by: str
    sizes: tuple[Size, ...] = ()

    def __str__(self) -> str:
        sizes = ", ".join(size.pretty for size in self.sizes)
        match self.by:
            case "held":
                return f"{self.wish}: {sizes} brings it."
            case "window":
                return f"{self.wish}: {sizes} does not have it yet; an UNFOLD with a summed window must bring it."
            case "reduce":
                return f"{self.wish}: a REDUCE that is still to come must bring it{f', of {sizes}' if sizes else ''}."
        return f"{self.wish}: nothing that is left can bring it any more."


@dataclass(frozen=True)
class PropertyExplanation:
    """The property distance with its derivation.

    Attributes:
        steps: the property distance; None if no operator that meets the wishes can be reached.
        shape: the shape distance; None if the input is out of reach.
        served: how each wish is met.
    """

    steps: int | None
    shape: int | None
    served: tuple[Served, ...]

    def words(self) -> list[str]:
        """Explain in sentences: one for each wish, then the sum; no sentences without wishes."""
        if not self.served:
            return []
        lines = [str(served) for served in self.served]
        if self.steps is None:
            return [*lines, "What is wished cannot be reached any more."]
        more = self.steps - (self.shape or 0)
        counted = f"{more} more than the shapes need" if more else "no more than the shapes need"
        return [*lines, f"Property distance {self.steps}: at least so many steps, {counted}."]

    def __str__(self) -> str:
        return "\n".join(self.words())


def property_distance(state: State, effort: Effort | None = None) -> int | None:
    """Compute :attr:`.State.property_distance`; errors are those of :func:`.distance.explain_distance`."""
    far = distance(state, effort=effort)
    return far if far is None else _wished(_Query.of(state), far)


def explain_property_distance(
    state: State, *, effort: Effort | None = None, should_stop: Stop | None = None
) -> PropertyExplanation:
    """Compute :meth:`.State.explain_property_distance`."""
    far = distance(state, effort=effort, should_stop=should_stop)
    spec, wishes = state.spec, wishes_of(state.spec)
    if wishes is None:
        return PropertyExplanation(far, far, ())
    query = _Query.of(state)
    steps = None if far is None else _wished(query, far)
    if steps is None:
        lost = lost_wishes(state)
        # If each wish alone can be met, only all wishes together are impossible.
        lines = [Served(_text(spec, wish), "never") for wish in lost or spec.wants]
        return PropertyExplanation(None, far, tuple(lines))
    plan, items = query.plan(wishes)
    coming = Counter(items) - Counter(query.items)
    lines = []
    for wish in spec.wants:
        text = _text(spec, wish)
        group = next((places for places, axes in plan.groups if wish.axis in axes), ())
        sizes = tuple(items[place][0] for place in group) or (spec.input_shape[wish.axis],)
        later = tuple(items[place][0] for place in group if items[place] in coming)
        if wishes.unmet(wish.axis, reduce(or_, (items[place][1] for place in group), 0)):
            lines.append(Served(text, "reduce") if plan.missing else Served(text, "window", sizes))
        else:
            lines.append(Served(text, "reduce", later) if later else Served(text, "held", sizes))
    return PropertyExplanation(steps, far, tuple(lines))


def lost_wishes(state: State) -> tuple[Wish, ...]:
    """Return the wishes that no operator from this state can meet, each checked alone."""
    return tuple([wish for wish in state.spec.wants if _with_wants(state, (wish,)) is None])


def _in_the_way(state: State, limit: int) -> tuple[Wish, ...]:
    """Return each wish whose removal lets all other wishes be met within the limit of steps."""
    wishes = []
    for wish in state.spec.wants:
        steps = _with_wants(state, tuple(other for other in state.spec.wants if other != wish))
        if steps is not None and steps <= limit:
            wishes.append(wish)
    return tuple(wishes)


def _with_wants(state: State, wants: tuple[Wish, ...]) -> int | None:
    """Return a lower bound of the steps with these wishes in place of the spec's; None if they cannot be met."""
    return _wished(_Query.of(replace(state, spec=replace(state.spec, wants=wants))), 0)


def wish_verdicts(state: State) -> Callable[[Step], Rule | None]:
    """Return a function that judges a step from ``state`` by the wishes, without applying the step.

    The function returns None in two cases: the step may lead to an operator that meets the wishes within the remaining
    steps, or the shapes alone rule out the step.
    """
    spec, wishes = state.spec, wishes_of(state.spec)
    if wishes is None:
        return lambda step: None
    before = _Query.of(state)
    limit = spec.limits.max_primitives - len(state.steps) - 1
    known: dict[tuple[object, ...], Rule | None] = {}

    def after(step: Step) -> Rule | None:
        gone = step.given if step.primitive == "SHARE" else step.operands
        key = (step.primitive, step.parameter, *gone)
        if key not in known:
            query = before.after(step, wishes)
            steps = _wished(query, 0)
            known[key] = None if steps is not None and steps <= limit else _as_rule(state, step, steps, limit)
        return known[key]

    return after


def _as_rule(state: State, step: Step, steps: int | None, limit: int) -> Rule | None:
    """Return the verdict on a step after which a wish cannot be met; None if the shapes already rule out the step."""
    far = distance(state.apply(step))
    if far is None or far > limit:
        return None
    spec = state.spec
    named = (lost_wishes(state.apply(step)) if steps is None else _in_the_way(state.apply(step), limit)) or spec.wants
    within = "" if steps is None else f" with {count_of(limit, 'step')} left"
    wished = ", ".join(_text(spec, wish) for wish in named)
    reason = f"It cannot {_words(spec, named)} any more{within}."
    return Rule("wish", "operators without what is wished", f"operators with {wished}", reason, "7.1", "wish", _always)


def _always(state: State, step: Step) -> bool:
    return True


def _words(spec: Spec, wishes: tuple[Wish, ...]) -> str:
    """Describe the wishes in words: ``read H and W``, ``read all of C_in``, ``pair H with W``."""
    by_verb: dict[str, list[str]] = {}
    for wish in wishes:
        axis = str(spec.input_shape[wish.axis])
        if wish.least == "o" and wish.output is not None:
            by_verb.setdefault("pair", []).append(f"{axis} with {spec.output_shape[wish.output]}")
        else:
            by_verb.setdefault("read all of" if wish.least == "a" else "read", []).append(axis)
    return " or ".join(f"{verb} {' and '.join(dict.fromkeys(names))}" for verb, names in by_verb.items())


def _text(spec: Spec, wish: Wish) -> str:
    return wish.text(spec.input_shape, spec.output_shape)


class _Query(NamedTuple):
    """The facts about a state that the count of steps needs: the state's coordinates and the remaining budgets."""

    spec: Spec
    items: list[tuple[Size, int]]  # size and bits (demands, STRIDED) of each data coordinate
    used: Counter[str]
    reduces: int | None  # remaining REDUCEs; None after another primitive

    @classmethod
    def of(cls, state: State) -> _Query:
        wishes = wishes_of(state.spec)
        free = [c for c in state.data if c not in state.fixed]
        items = [(c.size, (wishes.has(c) if wishes else 0) | (STRIDED if look(c)[0] else 0)) for c in free]
        return cls(state.spec, items, Counter(step.primitive for step in state.steps), reduces_left(state))

    def after(self, step: Step, wishes: Wishes) -> _Query:
        """Return the query for the state after one more legal step."""
        gone = step.given if step.primitive == "SHARE" else step.operands
        items, brought = list(self.items), 0
        for c in gone:
            has = wishes.has(c)
            brought |= has
            items.remove((c.size, has | (STRIDED if look(c)[0] else 0)))
        reduces = None
        if step.primitive == "REDUCE":
            assert step.parameter is not None
            items.append((step.parameter, wishes.has(reduce_coordinate(0, step.parameter))))
            reduces = None if self.reduces is None else self.reduces - 1
        elif step.primitive != "SHARE":
            sizes = PRIMITIVES[step.primitive].result_sizes(tuple([c.size for c in gone]), step.parameter)
            flag = STRIDED if step.primitive == "STRIDE" else 0
            items += [(size, brought | flag) for size in sizes]
        return _Query(self.spec, items, self.used + Counter((step.primitive,)), reduces)

    def ways(self, wishes: Wishes) -> Iterator[tuple[list[tuple[Size, int]], int]]:
        """Yield coordinates with the REDUCEs that the input needs, and the number of further REDUCEs allowed."""
        if self.reduces is None:
            yield self.items, 0
            return
        lacking = lacking_primaries(self.spec, [size.exponents for size, _ in self.items])
        number = sum(lacking)
        if number > self.reduces:
            return
        sizes = [size for size in reduce_sizes(self.spec) if size.has_primary]
        for chosen in combinations_with_replacement(sizes, number):
            if all(sum(size.exponents[i] for size in chosen) >= n for i, n in enumerate(lacking)):
                more = [(size, wishes.has(reduce_coordinate(0, size))) for size in chosen]
                yield [*self.items, *more], self.reduces - number

    def budgets(self) -> tuple[int, int, int]:
        budgets = budgets_left(self.spec, self.used)
        return budgets.contractions, budgets.unfolds, budgets.expands

    def plan(self, wishes: Wishes) -> tuple[Plan, list[tuple[Size, int]]]:
        """Return a plan for a shortest way, and the coordinates that its indices refer to."""
        plans = []
        for number, (items, spare) in enumerate(self.ways(wishes)):
            items = sorted(items, key=_packed)
            steps, plan = wishes.plan(_shape(items), *self.budgets(), spare)
            plans.append((steps + len(items) - len(self.items), number, plan, items))
        _, _, plan, items = min(plans, key=lambda p: p[:2])
        return plan, items


def _packed(item: tuple[Size, int]) -> int:
    return pack(item[0]) << FLAG_BITS | item[1]


def _shape(items: list[tuple[Size, int]]) -> Shape:
    return tuple(sorted(map(_packed, items)))


def _wished(query: _Query, least: int) -> int | None:
    """Return a lower bound of the steps; None if the wishes cannot be met."""
    wishes = wishes_of(query.spec)
    if wishes is None:
        return least
    fewest = NEVER
    for items, spare in query.ways(wishes):
        more = len(items) - len(query.items)
        fewest = min(fewest, more + wishes.steps(_shape(items), NEVER - 1, *query.budgets(), spare=spare))
    return None if fewest >= NEVER else max(fewest, least)


def check_wants(spec: Spec, *, effort: Effort | None = None) -> None:
    """Refuse wishes that no operator of the space can meet; ignore spaces whose input is out of reach.

    Raises SpecError with one line that names the wish and the reason, and EffortError as :func:`.property_distance`.
    """
    for wish in spec.wants:
        obstacle = _obstacle(spec, wish)
        if obstacle is not None:
            raise SpecError(f"wants {_text(spec, wish)}: no operator of this space can have it: {obstacle}")
    root, most = State.root(spec), spec.limits.max_primitives
    shape = distance(root, effort=effort) if spec.wants else None
    if shape is None or shape > most:
        return
    least = property_distance(root, effort=effort)
    if least is None or least > most:
        takes = f"it takes at least {least} steps, found max_primitives {most}"
        why = "no steps bring it" if least is None else takes
        text = wants_text(spec.wants, spec.input_shape, spec.output_shape)
        raise SpecError(f"wants {text}: no operator of this space can have it: {why}; raise a limit, or wish less")


def _obstacle(spec: Spec, wish: Wish) -> str | None:
    if RANK[wish.least] < RANK["m"]:
        return None
    limits, size = spec.limits, spec.input_shape[wish.axis]
    if not limits.max_reduces:
        return "more than one position is read only by a REDUCE, and max_reduces is 0"
    if not reduce_sizes(spec):
        return "more than one position is read only by a REDUCE, and no variable has a limit of 1 or more"
    names = [name for name, power in zip(spec.symbols.primary, size.primary_exponents, strict=True) if power]
    if wish.least == "a" and names and not any(spec.occurrence_limits[name] != 0 for name in spec.symbols.primary):
        return f"all of {size} is read only by a REDUCE with a primary variable, and none has a limit of 1 or more"
    is_summed = any(spec.occurrence_limits[name] != 0 for name in names) or not names
    if limits.max_unfolds == 0 and limits.max_splits == 0 and not is_summed:
        return (
            f"no REDUCE may have {' or '.join(names)}, and without UNFOLD and SPLIT (max_unfolds and max_splits are 0) "
            "nothing else is summed along it"
        )
    return None
