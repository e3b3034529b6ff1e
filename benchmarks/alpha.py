"""αNAS's properties and synthesis: soundness against Jacobians, what is solved, evaluations, rates.

``python benchmarks/alpha.py --part sound`` compares the composed mixing of random subgraphs with the exact one, from
whole Jacobians. ``targets``: random chains of 1 to 6 operations on tensors of ResNet-20 and of a small transformer,
drawn by their types first and then by attributes (``--by choice``: any of what is offered); their properties, and
mutated ones, are synthesised by each method: how many are solved, how long the chains are, how many drafts are looked
at (an enumeration at most 20,000), and the CPU time of a synthesis. ``rate``: drafts looked at in a CPU-second, each
with three values and three distances, when all matrices are kept. Results are in ``benchmarks/results/alpha.json``,
part by part.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from common import RESULTS, about, parser, save, say, typed, use_one_core

from syno_lab.alpha import Draft, Properties
from syno_lab.alpha.properties import MIXING
from syno_lab.alpha.synthesis import METHODS, offered

#: Tensors of ResNet-20's three stages and of a transformer's MLP, two examples each.
SHAPES = ((2, 32, 32, 16), (2, 16, 16, 32), (2, 8, 8, 64), (2, 64, 96))


def main() -> None:
    """Measure one part, or all, and save."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--part", choices=PARTS, help="one part alone")
    arguments.add_argument("--graphs", type=int, default=2000, help="subgraphs that are compared (2000)")
    arguments.add_argument("--targets", type=int, default=1000, help="targets that are synthesised (1000)")
    arguments.add_argument("--enumerated", type=int, default=200, help="of them by enumeration (200)")
    arguments.add_argument(
        "--by",
        choices=("type", "choice"),
        default="type",
        help="what targets draw first: a type, or any choice",
    )
    given = arguments.parse_args()
    core = use_one_core(given.core)
    file = RESULTS / "alpha.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in [given.part] if given.part else PARTS:
        found[name] = {"about": about(typed(), core), **PARTS[name](given)}
        say(f"{name}: {found[name]}")
        save("alpha", found)


def sound(given: Any) -> dict[str, Any]:
    """How often the composed mixing is at most the exact one, and equal to it, over pairs of an input and an output."""
    import torch

    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from alpha_jacobians import exact, random_graph

    rng = random.Random(given.seed)
    torch.set_num_threads(1)
    rows = []
    for _ in range(given.graphs):
        graph = random_graph(rng)
        for mine, whole in zip(MIXING.infer(graph), exact(graph, rng.randrange(1 << 30)), strict=True):
            rows += list(zip(mine, whole, strict=True))
    return {
        "graphs": given.graphs,
        "pairs": len(rows),
        "at_most": sum(one <= other for one, other in rows),
        "equal": sum(one == other for one, other in rows),
    }


def targets(given: Any) -> dict[str, Any]:
    """Each method on the same targets, from empty tables of choices."""
    rng = random.Random(given.seed)
    drawn = [_chain(rng, rng.choice(SHAPES), rng.randint(1, 6), given.by) for _ in range(given.targets)]
    own = [(draft.input_shape, Properties.of(draft.graph())) for draft in drawn]
    sets = {"original": own, "mutated": [(shape, one.relax(rng)) for shape, one in own]}
    found: dict[str, Any] = {}
    for name, chosen in sets.items():
        found[name] = {}
        for method in ("greedy", "progressive", "enumerative"):
            offered.cache_clear()
            number = given.enumerated if method == "enumerative" else given.targets
            found[name][method] = _solved(method, chosen[:number], given.enumerated)
            say(f"{name} {method}: {found[name][method]}")
        few = found[name]["enumerative"]["evaluations"]
        for method in ("greedy", "progressive"):
            found[name][method]["times_fewer_evaluations"] = few / found[name][method]["evaluations_of_enumerated"]
    return found


def _chain(rng: random.Random, shape: tuple[int, ...], length: int, by: str = "type") -> Draft:
    draft = Draft(Properties(), shape)
    for _ in range(length):
        drawn_from = offered(draft.shape)
        if by == "type":
            name = rng.choice(sorted({choice.representative.name for choice in drawn_from}))
            drawn_from = tuple(choice for choice in drawn_from if choice.representative.name == name)
        draft = draft.apply(rng.choice(rng.choice(drawn_from).operations))
    return draft


def _solved(method: str, chosen: list[tuple[tuple[int, ...], Properties]], enumerated: int) -> dict[str, Any]:
    answers, times, lengths, within, above = [], [], [], 0, 0
    for number, (shape, wanted) in enumerate(chosen):
        start = Draft(wanted, shape)
        begun = time.process_time()
        answer = METHODS[method](start, random.Random(number), None)
        times.append(time.process_time() - begun)
        answers.append(answer)
        if answer.draft is not None:
            assert wanted.satisfied_by(answer.draft.graph())
            lengths.append(len(answer.draft.chain))
            within += lengths[-1] <= (wanted.length or 0) + 2
            above += lengths[-1] > start.distance
    evaluations = [answer.evaluations for answer in answers]
    return {
        "targets": len(chosen),
        "solved": len(lengths) / len(chosen),
        "within_original_plus_2": within / len(chosen),
        "longer_than_the_distance": above,
        "operations": statistics.fmean(lengths),
        "evaluations": statistics.fmean(evaluations),
        "evaluations_of_enumerated": statistics.fmean(evaluations[:enumerated]),
        "ms": {"median": 1000 * statistics.median(times), "mean": 1000 * statistics.fmean(times)},
    }


def rate(given: Any) -> dict[str, Any]:
    """Drafts looked at in a CPU-second by greedy synthesis and by enumeration, the second time."""
    rng = random.Random(given.seed)
    drawn = [_chain(rng, SHAPES[1], 4) for _ in range(100)]
    starts = [Draft(Properties.of(draft.graph()), SHAPES[1]) for draft in drawn]
    found = {}
    for method, chosen in (("greedy", starts), ("enumerative", starts[:10])):
        for _ in range(2):
            begun = time.process_time()
            looked = sum(METHODS[method](start, random.Random(0), None).evaluations for start in chosen)
            cpu_s = time.process_time() - begun
        found[method] = looked / cpu_s
    return {"drafts_per_cpu_s": found}


PARTS = {"sound": sound, "targets": targets, "rate": rate}

if __name__ == "__main__":
    main()
