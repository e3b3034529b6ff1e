"""How a tree search values a step that it may take: functions of plain numbers, passed in as ``select``.

Letters as in the papers: ``N`` visits of the parent, ``n`` visits of the step, ``Q`` its value, ``A`` the value of its
actions wherever they were taken (all moves as first, AMAF), ``m`` how often they were. Values are scaled so that the
worst reward told so far is 0 and the best is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, sqrt

from syno_lab.errors import SearchError


@dataclass(frozen=True)
class Choice:
    """The counts and values of a step.

    Attributes:
        visits: n, the searches through it from here; those outstanding, and those that found nothing, are counted.
        parent_visits: N, those of its parent, likewise.
        mean: Q in [0, 1], the mean reward of the state it leads to; outstanding and fruitless searches count as 0.
        best: the best reward below it, in [0, 1].
        action_visits: m.
        action_mean: A in [0, 1].
    """

    visits: int
    parent_visits: int
    mean: float
    best: float
    action_visits: int
    action_mean: float


Select = Callable[[Choice], float]


def uct(exploration: float = 0.1, best_share: float = 0.3) -> Select:
    """``Q + c*sqrt(ln N / n)``, infinite for n = 0 (Kocsis and Szepesvári, Bandit based Monte-Carlo planning, 2006).

    Args:
        exploration: c.
        best_share: w in ``(1 - w)*mean + w*best``, what stands for Q: search is for one best operator, not for a mean
            (Schadd and others, Single-player Monte-Carlo tree search, 2008, add a variance for the same reason).

    Raises:
        SearchError: for a negative exploration, or a share outside [0, 1].
    """
    return _score(exploration, best_share, 0.0)


def rave(exploration: float = 0.1, best_share: float = 0.3, equivalence: float = 20.0) -> Select:
    """``(1 - b)*Q + b*A + c*sqrt(ln N / n)`` with ``b = sqrt(k / (3*n + k))``, or 0 where m = 0.

    Gelly and Silver, Monte-Carlo tree search and rapid action value estimation in computer Go, 2011, section 4.3, with
    the hand-selected schedule; k, the equivalence, is the number of visits at which Q and A weigh the same.

    Raises:
        SearchError: for a negative exploration, a share outside [0, 1], or an equivalence that is not positive.
    """
    if not equivalence > 0:
        raise SearchError(f"equivalence: expected a positive number of visits, found {equivalence}")
    return _score(exploration, best_share, equivalence)


def _score(exploration: float, best_share: float, equivalence: float) -> Select:
    if not exploration >= 0:
        raise SearchError(f"exploration: expected 0 or more, found {exploration}")
    if not 0 <= best_share <= 1:
        raise SearchError(f"best_share: expected a share from 0 to 1, found {best_share}")

    def score(choice: Choice) -> float:
        if not choice.visits:
            return inf
        value = (1 - best_share) * choice.mean + best_share * choice.best
        if equivalence and choice.action_visits:
            share = sqrt(equivalence / (3 * choice.visits + equivalence))
            value = (1 - share) * value + share * choice.action_mean
        return value + exploration * sqrt(log(max(1, choice.parent_visits)) / choice.visits)

    return score
