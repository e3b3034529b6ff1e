"""A search with many evaluators, simulated: an event queue over ask and tell, in seconds that nobody waits for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from syno_lab.errors import SearchError
from syno_lab.search.asking import Search

#: The reward of an operator, and the seconds that its evaluation takes.
Evaluate = Callable[[Any], tuple[float, float]]


@dataclass(frozen=True)
class Event:
    """An evaluation that has ended: when, in seconds from the start, which, and with which reward."""

    at_s: float
    number: int
    operator: Any
    reward: float


def simulate(
    search: Search,
    evaluate: Evaluate,
    evaluators: int,
    *,
    trials: int | None = None,
    seconds: float = inf,
    asking_s: float = 0.0,
) -> list[Event]:
    """Run ``search`` with so many evaluators and return what ended, in order of time.

    One process asks and tells, as in a real search: with ``asking_s`` seconds for each question an evaluator that has
    become free waits until those before it have been given something. Evaluations that have ended by then are told
    first; of those that end at one moment the one asked for first.

    Args:
        search: fresh; it is told everything.
        evaluate: rewards from 0 to 1, and seconds of 0 or more.
        evaluators: how many work at a time.
        trials: so many are asked for; None: no limit but the space and ``seconds``.
        seconds: evaluations that would end later do not count.
        asking_s: what a question takes.

    Raises:
        SearchError: for fewer than one evaluator, negative seconds, or neither limit on a space.
    """
    if evaluators < 1:
        raise SearchError(f"evaluators: expected 1 or more, found {evaluators}")
    if asking_s < 0:
        raise SearchError(f"asking_s: expected 0 or more seconds, found {asking_s}")
    if trials is None and seconds == inf:
        raise SearchError("expected trials or seconds to simulate, found neither")
    ended: list[Event] = []
    queue: list[tuple[float, int, Any, float]] = []  # end, number, candidate, reward
    free = evaluators
    now = 0.0  # of the process that asks
    asked = 0
    is_exhausted = False
    while True:
        while queue and queue[0][0] <= now:
            at, number, candidate, reward = heapq.heappop(queue)
            search.tell(candidate, reward)
            ended.append(Event(at, number, candidate.operator, reward))
            free += 1
        if free and not is_exhausted and (trials is None or asked < trials) and now < seconds:
            candidate = search.ask()
            if candidate is None:
                is_exhausted = True
                continue
            now += asking_s
            reward, lasts = evaluate(candidate.operator)
            if lasts < 0:
                raise SearchError(f"evaluate: expected 0 or more seconds, found {lasts}")
            heapq.heappush(queue, (now + lasts, asked, candidate, reward))
            asked += 1
            free -= 1
        elif queue and queue[0][0] <= seconds:
            now = max(now, queue[0][0])
        else:
            for _, _, candidate, _ in queue:
                search.drop(candidate)
            return ended
