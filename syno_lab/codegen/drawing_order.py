"""Where the nodes of a pGraph's picture stand, so that a step changes the picture as little as possible.

The layout program begins anew for each picture, and what stood on the left can stand on the right after a step. Here
the *rows* of a picture (which nodes stand in which, and in which order) follow from those of the picture one step
before, back to the output alone: the same steps always give the same rows, whichever way a reader came. A node stands
in the lowest row above all that is below it, so its row never changes; a reduction stands right below where it is first
used. Within the rows the order is looked for that has the fewest crossings of lines plus a twentieth of the pairs of
nodes that have changed sides (Sugiyama, Tagawa and Toda 1981: rows, sweeps of means; then each node by itself is put
where it costs least). The layout program is told the rows and still says how far apart all is and which way lines take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

#: What a pair of nodes that changes sides costs, in crossings. Of 0.1, 0.05, 0.04, 0.03 and 0.02 this one keeps most in
#: place of those with which the known operators and the 20 large ones of the tests have no more crossings than without.
CHANGES_SIDES = 0.05
#: Sweeps of means; the orders after the last ones are improved node by node, so often.
_SWEEPS, _IMPROVED, _ROUNDS = 12, 2, 2
_PORTS = 64  # a tensor has fewer dimensions


class Joint(NamedTuple):
    """A line of the picture, with the dimension of a tensor at which it ends, else 0."""

    upper: str
    upper_port: int
    lower: str
    lower_port: int


class Growth(NamedTuple):
    """A picture at one step: its nodes in the order in which they came into being, and its lines."""

    nodes: tuple[str, ...]
    joints: tuple[Joint, ...]


class Passing(NamedTuple):
    """Where a line passes through a row, which stays as nodes do."""

    joint: Joint
    row: int


Rows = tuple[tuple[str | Passing, ...], ...]


@lru_cache(maxsize=256)
def steady_rows(steps: tuple[Growth, ...]) -> Rows:
    """The rows of the last of these pictures, the lowest first, each from left to right, with the lines that pass.

    ``steps`` are the pictures from that of the output alone on, one for each step; at least one.
    """
    before = steady_rows(steps[:-1]) if len(steps) > 1 else ()
    return _Rows(steps[-1], {name: at for row in before for at, name in enumerate(row)}).best()


def heights(growth: Growth) -> dict[str, int]:
    """The row of each node, 0 the lowest."""
    below: dict[str, list[str]] = {name: [] for name in growth.nodes}
    above: dict[str, list[str]] = {name: [] for name in growth.nodes}
    for joint in growth.joints:
        below[joint.upper].append(joint.lower)
        above[joint.lower].append(joint.upper)
    found: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in found:
            found[name] = 1 + max(map(height, below[name]), default=-1)
        return found[name]

    for name in growth.nodes:
        height(name)
    for name in growth.nodes:
        if not below[name] and name != "y":  # a REDUCE has nothing below it
            for coordinate in above[name]:
                used = [found[upper] for upper in above[coordinate]]
                found[coordinate] = max(min(used, default=0) - 1, found[coordinate])
                found[name] = found[coordinate] - 1
    if "x" in found:
        found["x"] = max(found.values())
    return found


class _Rows:
    """The rows of one picture under way.

    Nodes are numbered; a line through several rows has a node of its own in each that it passes. A place is a row's
    index; where a line ends is its node's place times 64, plus the dimension of a tensor.
    """

    def __init__(self, growth: Growth, before: Mapping[str | Passing, int]) -> None:
        height = heights(growth)
        self.names: list[str | Passing] = []
        self.rows: list[list[int]] = [[] for _ in range(max(height.values()) + 1)]
        # For each node the nodes above it: their number, the port there, and the own one; and those below.
        self.above: list[list[tuple[int, int, int]]] = []
        self.below: list[list[tuple[int, int, int]]] = []
        numbers = {name: self._node(name, height[name]) for name in growth.nodes}
        for joint in growth.joints:
            upper, port = numbers[joint.upper], joint.upper_port
            for row in range(height[joint.upper] - 1, height[joint.lower], -1):
                passed = self._node(Passing(joint, row), row)
                self._join(upper, port, passed, 0)
                upper, port = passed, 0
            self._join(upper, port, numbers[joint.lower], joint.lower_port)
        self.old = [before.get(name) for name in self.names]
        self.place = [0] * len(self.names)

    def _node(self, name: str | Passing, row: int) -> int:
        self.names.append(name)
        self.above.append([])
        self.below.append([])
        self.rows[row].append(len(self.names) - 1)
        return len(self.names) - 1

    def _join(self, upper: int, upper_port: int, lower: int, lower_port: int) -> None:
        self.below[upper].append((lower, lower_port, upper_port))
        self.above[lower].append((upper, upper_port, lower_port))

    def best(self) -> Rows:
        _, found = min(self._tried(), key=lambda one: one[0])
        return tuple(tuple(self.names[node] for node in row) for row in found)

    def _tried(self) -> Iterator[tuple[float, list[list[int]]]]:
        """Orders with what they cost, from several first ones: the old, that of creation, and its mirror image."""
        tried = set()

        def improved(order: list[list[int]]) -> Iterator[tuple[float, list[list[int]]]]:
            key = tuple(map(tuple, order))
            if key not in tried:  # sweeps from several first orders end in the same one
                tried.add(key)
                place = list(self.place)
                yield self._improved(order)
                self.place = place

        firsts: list[Callable[[], list[list[int]]]] = [lambda: [list(row) for row in self.rows]]
        firsts.append(lambda: [row[::-1] for row in self.rows])
        if any(at is not None for at in self.old):
            firsts.insert(0, self._as_before)
        for first in firsts:
            order = first()
            for row in order:
                self._put(row)
            yield from improved(order)
            same = 0  # sweeps in a row that have changed nothing: after two of them none will
            for sweep in range(_SWEEPS):
                same = 0 if self._sweep(order, up=sweep % 2 == 0) or not sweep else same + 1
                if sweep >= _SWEEPS - _IMPROVED or same == 2:
                    yield from improved(order)
                if same == 2:
                    break

    def _put(self, row: list[int]) -> None:
        for at, node in enumerate(row):
            self.place[node] = at

    def _mean(self, ends: Sequence[tuple[int, int, int]]) -> float | None:
        """Where lines end, on average; None for no lines."""
        if not ends:
            return None
        return sum(self.place[node] + port / _PORTS for node, port, _ in ends) / len(ends)

    def _as_before(self) -> list[list[int]]:
        """The old nodes as they stood, each new one before the first whose lines lead further to the right."""
        order: list[list[int]] = []
        for row in self.rows:
            known = [(at, node) for node in row if (at := self.old[node]) is not None]
            now = [node for _, node in sorted(known)]
            for node in row:
                if self.old[node] is None:
                    here = self._mean(self.below[node])
                    means = [self._mean(self.below[one]) for one in now]
                    right = (
                        at for at, mean in enumerate(means) if here is not None and mean is not None and mean > here
                    )
                    now.insert(next(right, len(now)), node)
            self._put(now)
            order.append(now)
        return order

    def _sweep(self, order: list[list[int]], *, up: bool) -> bool:
        """Order each row by the means of its lines to the row before it; what has none keeps its place.

        Whether anything has changed.
        """
        has_changed = False
        for row in order[1:] if up else order[-2::-1]:
            means = {node: self._mean(self.below[node] if up else self.above[node]) for node in row}
            moved = iter(sorted((node for node in row if means[node] is not None), key=lambda node: means[node] or 0))
            now = [node if means[node] is None else next(moved) for node in row]
            has_changed |= now != row
            row[:] = now
            self._put(row)
        return has_changed

    def _improved(self, order: list[list[int]]) -> tuple[float, list[list[int]]]:
        """The order with each node moved to where it costs least in its row, and what that costs."""
        order = [list(row) for row in order]
        rows = range(len(order))
        at_rest = {at for at in rows if len(order[at]) < 2}  # nothing moves there before something moves beside it
        for _ in range(_ROUNDS):
            for at in (*rows, *reversed(rows)):
                if at in at_rest:
                    continue
                if self._improve(order[at]):
                    at_rest -= {near for near in (at - 1, at + 1) if 0 <= near < len(order) and len(order[near]) > 1}
                else:
                    at_rest.add(at)
            if len(at_rest) == len(order):
                break
        return self._cost(order), order

    def _improve(self, row: list[int]) -> bool:
        costs = self._costs(row)
        has_changed = False
        for node in list(row):
            at = row.index(node)
            others = [one for one in row if one != node]
            sums = [0.0]
            for one in others:
                sums.append(sums[-1] + costs[one, node])
            least = min(sums) + 1e-9
            if least < sums[at]:
                best = min((to for to, cost in enumerate(sums) if cost <= least), key=lambda to: abs(to - at))
                others.insert(best, node)
                row[:] = others
                has_changed = True
        self._put(row)
        return has_changed

    def _costs(self, row: list[int]) -> dict[tuple[int, int], float]:
        """For each pair of nodes what it costs more to have the first on the left than to have it on the right."""
        ends = [
            [[self.place[node] * _PORTS + port for node, port, _ in side[one]] for side in (self.above, self.below)]
            for one in row
        ]
        costs: dict[tuple[int, int], float] = {}
        for at, one in enumerate(row):
            for to in range(at):
                other = row[to]
                more = 0.0
                for mine, its in zip(ends[at], ends[to], strict=True):
                    for a in mine:
                        for b in its:
                            more += (a > b) - (a < b)
                was, its_was = self.old[one], self.old[other]
                if was is not None and its_was is not None:
                    more += CHANGES_SIDES if was > its_was else -CHANGES_SIDES
                costs[one, other], costs[other, one] = more, -more
        return costs

    def _cost(self, order: list[list[int]]) -> float:
        cost = 0.0
        for row in order:
            lines = sorted(
                (self.place[node] * _PORTS + own, self.place[upper] * _PORTS + port)
                for node in row
                for upper, port, own in self.above[node]
            )
            for at, (low, high) in enumerate(lines):
                cost += sum(1 for other_low, other_high in lines[:at] if other_low < low and other_high > high)
            old = [was for node in row if (was := self.old[node]) is not None]
            cost += CHANGES_SIDES * sum(1 for at, one in enumerate(old) for other in old[:at] if other > one)
        return cost
