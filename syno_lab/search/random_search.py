"""Random search: descents by weight alone, each operator once. The baseline for other searches."""

from __future__ import annotations

from typing import Any

from syno_lab.search.asking import Search
from syno_lab.search.descent import draw
from syno_lab.search.protocol import Trail


class RandomSearch(Search):
    """Random operators, whatever is told."""

    def _propose(self) -> tuple[Trail, Any] | None:
        return draw(self.root, self.rng, self.facts, self._known, self._should_stop)

    def _expect(self, trail: Trail) -> None:
        pass

    def _learn(self, trail: Trail, reward: float) -> None:
        pass

    def _release(self, trail: Trail) -> None:
        pass
