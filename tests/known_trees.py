"""Searches whose rewards are known, in a lab: a real tree and real trials, and no training."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from syno_lab.experiments.watching import Board, search_folder
from syno_lab.ir.spec import Spec
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.reports.searched import Searched
from syno_lab.search import MonteCarloTreeSearch
from syno_lab.store import Store


def small_spec() -> Spec:
    """A small space that has dead ends."""
    sizes = ["N=1", "C_in=4", "C_out=4", "H=8"]
    return Spec.parse("[N, C_in, H]", "[N, C_out, H]", sizes, ["k_1=3"], fixed_io_pairs=[(0, 0)], max_primitives=5)


class KnownSearch:
    """A Monte Carlo tree search in a lab, a step at a time."""

    def __init__(self, store: Store, folder: Path, name: str) -> None:
        self._log = store.search(name, {"training": {"backbone": "resnet20"}})
        self._board = Board(search_folder(folder, name))
        self._rewards = random.Random(3)
        # Not counted, so that it has dead ends.
        self.search = MonteCarloTreeSearch(synthesis_space(small_spec(), countable_nodes=0), random.Random(5))

    def go_on(self, trials: int) -> None:
        """So many more operators, then the files."""
        for _ in range(trials):
            candidate = self.search.ask()
            if candidate is None:
                break
            text = candidate.operator.to_json()
            number = self._log.add(f"fp{candidate.number}", text, candidate.taken, 1000, 10)
            reward = self._rewards.random()
            self._log.record(number, {"state": "finished", "accuracy": reward, "wall_s": 1.0})
            self.search.tell(candidate, reward)
        self._board.show(Searched(phase="search"), ("phase",), self.search, now=True)


@contextmanager
def known_search(folder: Path, trials: int, name: str = "mine") -> Iterator[KnownSearch]:
    """A search that has come so far; the lab is let go at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with Store.open(folder) as store:
        found = KnownSearch(store, folder, name)
        found.go_on(trials)
        yield found
