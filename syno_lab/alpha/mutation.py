"""How wanted properties are mutated (αNAS, section 5): the rules are data, what they do is in each property.

All but the depth only become weaker, so the subgraph that they were inferred from still satisfies them, and there is
always an answer. The paper and its published code differ; both are presets.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted


@dataclass(frozen=True)
class Relax:
    """How likely each property is mutated.

    Attributes:
        shape: the probability that the shape of an output is no longer asked for.
        mixing: the probability that a pairing is no longer asked for; each entry of a matrix draws alone, or with
            ``whole`` each matrix.
        depth: the probability that a depth changes, upwards as often as downwards; it never falls below 0.
        most: the largest change of a depth.
        whole: whether a matrix loses all its pairings or none.
        geometric: a depth changes by one more with the probability ``depth`` each time, up to ``most``; otherwise by
            1 to ``most``, each as likely.

    Raises:
        SpecError: for a probability outside 0 to 1, and a change that is no integer of 1 or more.
    """

    shape: float = 0.5
    mixing: float = 0.5
    depth: float = 0.5
    most: int = 2
    whole: bool = False
    geometric: bool = False

    def __post_init__(self) -> None:
        for name in ("shape", "mixing", "depth"):
            found = getattr(self, name)
            if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 1:
                raise SpecError(f"Relax: {name}: expected a probability from 0 to 1, found {quoted(found)}")
        if positive(self.most) is None:
            raise SpecError(f"Relax: most: expected an integer of 1 or more, found {quoted(self.most)}")

    def change_of_depth(self, rng: random.Random) -> int:
        """By how much one depth changes."""
        if self.geometric:
            steps = 0
            while steps < self.most and rng.random() < self.depth:
                steps += 1
        else:
            steps = rng.randint(1, self.most) if rng.random() < self.depth else 0
        return steps if rng.random() < 0.5 else -steps


#: The presets: section 5 of the paper, and what the published code does in the published runs.
RELAXATIONS = {
    "paper": Relax(),
    "code": Relax(shape=0.0, whole=True, geometric=True),
}
