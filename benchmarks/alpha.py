"""αNAS's properties and synthesis: soundness against Jacobians, what is solved, evaluations, rates.

``python benchmarks/alpha.py --part sound`` compares the composed mixing of random subgraphs with the exact one, from
whole Jacobians. ``targets``: random chains of 1 to 6 operations on tensors of ResNet-20 and of a small transformer,
drawn by their types first and then by attributes (``--by choice``: any of what is offered); their properties, and
mutated ones, are synthesised by each method: how many are solved, how long the chains are, how many drafts are looked
at (an enumeration at most 20,000), and the CPU time of a synthesis. ``rate``: drafts looked at in a CPU-second, each
with three values and three distances, when all matrices are kept. ``edits``: random mutations of ResNet-20, how many
give a network, and whether each of these runs forward with all the shapes that were inferred. ``guide``: the matrices
of the known operators of each system, and the share of random candidates that meet the wish of a 3x3 convolution,
with and without guidance. Results are in ``benchmarks/results/alpha.json``, part by part.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import RESULTS, about, parser, save, say, typed, use_one_core

from syno_lab.alpha import Draft, Graph, Mutations, Properties, find_blocks, mutate, trace
from syno_lab.alpha.properties import MIXING
from syno_lab.alpha.synthesis import METHODS, offered
from syno_lab.common.pairing import Pairing
from syno_lab.errors import SynoError
from syno_lab.experiments import SearchSettings, Space
from syno_lab.models.registry import BACKBONES
from syno_lab.systems import find_system
from syno_lab.trial import TrialRequest

#: Tensors of ResNet-20's three stages and of a transformer's MLP, two examples each.
SHAPES = ((2, 32, 32, 16), (2, 16, 16, 32), (2, 8, 8, 64), (2, 64, 96))
PGRAPHS, CANVAS = "syno-lab-operator", "syno-lab-canvas"
#: Of a layer whose sizes all differ, so that no axis is taken for another, and that coefficients divide.
SIZES = {"N": 2, "C_in": 32, "C_out": 32, "H": 16, "W": 24}
#: The longest that a space is searched for the guide, in CPU-seconds.
GUIDE_S = 120.0


def main() -> None:
    """Measure one part, or all, and save."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--part", choices=PARTS, help="one part alone")
    arguments.add_argument("--graphs", type=int, default=2000, help="subgraphs that are compared (2000)")
    arguments.add_argument("--targets", type=int, default=1000, help="targets that are synthesised (1000)")
    arguments.add_argument("--enumerated", type=int, default=200, help="of them by enumeration (200)")
    arguments.add_argument("--mutations", type=int, default=1000, help="of ResNet-20 (1000)")
    arguments.add_argument("--candidates", type=int, default=200, help="of each space, for the guide (200)")
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
            name = rng.choice(sorted({choice[0].name for choice in drawn_from}))
            drawn_from = tuple(choice for choice in drawn_from if choice[0].name == name)
        draft = draft.apply(rng.choice(rng.choice(drawn_from)))
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


def edits(given: Any) -> dict[str, Any]:
    """Mutations of ResNet-20: drawn once, as in the paper, and again until one is found."""
    traced = trace(BACKBONES["resnet20"].build(), (3, 32, 32))
    return {
        "once": _mutated(traced, given.mutations, Mutations(attempts=1), given.seed),
        "again": _mutated(traced, given.mutations, Mutations(), given.seed),
    }


def _mutated(traced: Graph, number: int, rules: Mutations, seed: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    network = find_blocks(traced)
    rng, times = random.Random(seed), []
    found = errors = shapes = 0
    kinds: Counter[str] = Counter()
    for _ in range(number):
        begun = time.process_time()
        try:
            edit = mutate(network, rng, rules)
        except Exception as error:  # noqa: BLE001 - none may raise: it is counted, and said
            errors += 1
            say(f"a mutation raised {error!r}")
            continue
        times.append(time.process_time() - begun)
        if edit is None:
            continue
        found += 1
        kinds[type(edit).__name__] += 1
        graph = edit.apply(network).graph
        module: Any = graph.to_torch(traced).eval()
        tensors, cpu = [torch.zeros(shape) for shape in graph.inputs], torch.device("cpu")
        with torch.no_grad():
            for step in module._steps:
                tensors.append(step.what.run(module, [tensors[number] for number in step.inputs], 1, cpu))
        shapes += [tuple(tensor.shape) for tensor in tensors] == list(graph.shapes)
    return {
        "mutations": number,
        "found": found,
        "raised": errors,
        "run_with_their_shapes": shapes,
        "kinds": dict(kinds),
        "ms": {"median": 1000 * statistics.median(times), "mean": 1000 * statistics.fmean(times)},
    }


def guide(given: Any) -> dict[str, Any]:
    """The same question to all three systems: does it read along H and W, and mix channels?"""
    known = {}
    for name in (PGRAPHS, CANVAS):
        system = find_system(name)
        for key, make in system.known.items():
            operator = make()
            try:
                found = system.mixing(operator, operator.complete_binding(SIZES))
            except SynoError:
                continue
            known[f"{system.title} {key}"] = {"marks": ["".join(row) for row in found.marks], "meets": _meets(found)}
    spaces = [_share_of(name, given.candidates, given.seed) for name in (PGRAPHS, CANVAS)]
    return {"wish": "C_in>=m, H>=m, W>=m", "known": known, "spaces": [*spaces, _share_of_chains(given)]}


def _meets(found: Pairing) -> bool:
    """Whether some output axis is paired with channels, rows and columns by at least m; axes N, C, H, W."""
    return all(any(row[axis] in "ma" for row in found.marks) for axis in (1, 2, 3))


def _share_of(name: str, number: int, seed: int) -> dict[str, Any]:
    """Random search in the space of ResNet-20's convolutions, with the wish and without."""
    system = find_system(name)
    shares: dict[str, Any] = {"system": system.title}
    for wants in (None, "derived"):
        settings = SearchSettings(
            training=TrialRequest(backbone="resnet20", data="digits", resolution=32),
            method="random",
            system=name,
            trials=number,
            max_replaced_ratio=0.4,
            weight_limits="primary",
            wants=wants,
            limits={"max_primitives": 10},
            seed=seed,
            seeds=(),
        )
        space = Space(settings)
        search, met, asked = space.search(settings), 0, 0
        begun = time.process_time()
        while asked < number and time.process_time() - begun < GUIDE_S:
            candidate = search.ask()
            if candidate is None:
                break
            asked += 1
            operator = candidate.operator
            met += _meets(system.mixing(operator, operator.complete_binding(SIZES)))
            search.tell(candidate, 0.5)
        counts = space.counts
        shares["guided" if wants else "unguided"] = {
            "asked": asked,
            "met": met,
            "drawn": counts["drawn"],
            "wished": counts["wished"],
            "cpu_s": time.process_time() - begun,
        }
        say(f"{system.title}, wants {wants}: {shares['guided' if wants else 'unguided']}")
    return shares


def _share_of_chains(given: Any) -> dict[str, Any]:
    """Chains of αNAS that keep the shape of a tensor of ResNet-20: random ones, and those synthesised for the wish."""
    rng, shape = random.Random(given.seed), SHAPES[0]
    shapeless = Properties(shape=shape)
    wanted = Properties.of_wishes("C>=m, H>=m, W>=m", shape)
    found: dict[str, Any] = {"system": "αNAS"}
    for way, asked, method in (("unguided", shapeless, "random"), ("guided", wanted, "progressive")):
        begun = time.process_time()
        made = [METHODS[method](Draft(asked, shape), rng, None).draft for _ in range(given.candidates)]
        cpu_s = time.process_time() - begun
        drafts = [draft for draft in made if draft is not None]
        met = sum(wanted.satisfied_by(draft.graph()) for draft in drafts)
        found[way] = {"asked": len(drafts), "met": met, "drawn": given.candidates, "wished": met, "cpu_s": cpu_s}
    return found


PARTS = {"sound": sound, "targets": targets, "rate": rate, "edits": edits, "guide": guide}

if __name__ == "__main__":
    main()
