"""The rows of nodes in a pGraph's picture; a step changes the rows as little as possible.

The layout program starts anew for each picture, so a node can move from left to right after a step. The *rows* of a
picture are lists of nodes from left to right. The rows after a step depend only on the picture and on the rows before
the step; the first picture has the output alone. Equal lists of steps give equal rows. A node is in the lowest row that
is above all its lower neighbours, so its row never changes. A reduction is one row below the first node that uses it.
The order minimises the crossings of lines, plus a twentieth of the pairs of nodes that have swapped. The method follows
Sugiyama, Tagawa and Toda (1981). Sweeps over the rows sort nodes by means; then single nodes move to their cheapest
position. The layout program receives the rows and chooses the distances and the curves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

#: The cost of two nodes that swap their order, in crossings, chosen from 0.1, 0.05, 0.04, 0.03, 0.02. The value 0.05
#: moves the fewest nodes and adds no crossings to the known operators and the tests' 20 large operators.
CHANGES_SIDES = 0.05
#: The numbers of sweeps, of final orders in which single nodes are moved, and of rounds of these moves.
_SWEEPS, _IMPROVED, _ROUNDS = 12, 2, 2
_PORTS = 64  # no tensor has as many dimensions


class Joint(NamedTuple):
    """A line of the picture; the port of an end is the number of the tensor's dimension there, or 0."""

    upper: str
    upper_port: int
    lower: str
    lower_port: int


class Growth(NamedTuple):
    """A picture after one step: its nodes in order of creation, and its lines."""

    nodes: tuple[str, ...]
    joints: tuple[Joint, ...]


class Passing(NamedTuple):
    """The point where a line passes through a row. Like a node, the point has a position in the row."""

    joint: Joint
    row: int


Rows = tuple[tuple[str | Passing, ...], ...]


@lru_cache(maxsize=256)
def steady_rows(steps: tuple[Growth, ...]) -> Rows:
    """Return the rows of the last picture, the lowest row first. A row has nodes and passing lines from left to right.

    ``steps`` has at least one picture: first the picture of the output alone, then one for each step.
    """
    before = steady_rows(steps[:-1]) if len(steps) > 1 else ()
    return _Rows(steps[-1], {name: at for row in before for at, name in enumerate(row)}).best()


def heights(growth: Growth) -> dict[str, int]:
    """Return the row of each node; 0 is the lowest."""
    below: dict[str, list[str]] = {name: [] for name in growth.nodes}
    above: dict[str, list[str]] = {name: [] for name in growth.nodes}
    for joint in growth.joints:
        below[joint.upper].append(joint.lower)
        above[joint.lower].append(joint.upper)
    rows: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in rows:
            rows[name] = 1 + max(map(height, below[name]), default=-1)
        return rows[name]

    for name in growth.nodes:
        height(name)
    for name in growth.nodes:
        if not below[name] and name != "y":  # a REDUCE has nothing below it
            for coordinate in above[name]:
                used = [rows[upper] for upper in above[coordinate]]
                rows[coordinate] = max(min(used, default=0) - 1, rows[coordinate])
                rows[name] = rows[coordinate] - 1
    if "x" in rows:
        rows["x"] = max(rows.values())
    return rows


class _Rows:
    """Computes the rows of one picture.

    Nodes are numbered. A line has an extra node in each row that it passes. A place is an index in a row. The position
    of a line's end is its node's place times 64, plus the number of the tensor's dimension.
    """

    def __init__(self, growth: Growth, before: Mapping[str | Passing, int]) -> None:
        height = heights(growth)
        self.names: list[str | Passing] = []
        self.rows: list[list[int]] = [[] for _ in range(max(height.values()) + 1)]
        # For each node: upper neighbours, as (number, port of neighbour, port of node); lower neighbours.
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
        _, order = min(self._tried(), key=lambda one: one[0])
        return tuple(tuple(self.names[node] for node in row) for row in order)

    def _tried(self) -> Iterator[tuple[float, list[list[int]]]]:
        """Yield orders with their costs, from up to three first orders: old, by creation, and by reverse creation."""
        tried = set()

        def improved(order: list[list[int]]) -> Iterator[tuple[float, list[list[int]]]]:
            key = tuple(map(tuple, order))
            if key not in tried:  # sweeps from several initial orders can end in equal orders
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
            same = 0  # consecutive sweeps without a change; after two, no later sweep would change an order
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
        """Return the mean position of the other ends of a node's lines; None for no lines."""
        if not ends:
            return None
        return sum(self.place[node] + port / _PORTS for node, port, _ in ends) / len(ends)

    def _as_before(self) -> list[list[int]]:
        """Return the old order, with each new node before the first node whose lines end further right on average."""
        order: list[list[int]] = []
        for row in self.rows:
            old = [(at, node) for node in row if (at := self.old[node]) is not None]
            now = [node for _, node in sorted(old)]
            for node in row:
                if self.old[node] is None:
                    here = self._mean(self.below[node])
                    means = [self._mean(self.below[other]) for other in now]
                    right = (
                        at for at, mean in enumerate(means) if here is not None and mean is not None and mean > here
                    )
                    now.insert(next(right, len(now)), node)
            self._put(now)
            order.append(now)
        return order

    def _sweep(self, order: list[list[int]], *, up: bool) -> bool:
        """Sort each row by the mean positions of the nodes' lines to the row before; nodes without lines do not move.

        Returns whether a row has changed.
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
        """Move each node to its cheapest position in its row; return the cost and the order."""
        order = [list(row) for row in order]
        rows = range(len(order))
        at_rest = {at for at in rows if len(order[at]) < 2}  # the rows to skip until a neighbouring row changes
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
            other_nodes = [item for item in row if item != node]
            sums = [0.0]
            for other in other_nodes:
                sums.append(sums[-1] + costs[other, node])
            least = min(sums) + 1e-9
            if least < sums[at]:
                best = min((to for to, cost in enumerate(sums) if cost <= least), key=lambda to: abs(to - at))
                other_nodes.insert(best, node)
                row[:] = other_nodes
                has_changed = True
        self._put(row)
        return has_changed

    def _costs(self, row: list[int]) -> dict[tuple[int, int], float]:
        """Return for each pair of nodes the cost of the first node on the left minus its cost on the right."""
        ends = [
            [[self.place[node] * _PORTS + port for node, port, _ in side[one]] for side in (self.above, self.below)]
            for one in row
        ]
        costs: dict[tuple[int, int], float] = {}
        for at, node in enumerate(row):
            for to in range(at):
                other = row[to]
                more = 0.0
                for ends_here, ends_there in zip(ends[at], ends[to], strict=True):
                    for a in ends_here:
                        for b in ends_there:
                            more += (a > b) - (a < b)
                was, other_was = self.old[node], self.old[other]
                if was is not None and other_was is not None:
                    more += CHANGES_SIDES if was > other_was else -CHANGES_SIDES
                costs[node, other], costs[other, node] = more, -more
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
            cost += CHANGES_SIDES * sum(1 for at, position in enumerate(old) for other in old[:at] if other > position)
        return cost
