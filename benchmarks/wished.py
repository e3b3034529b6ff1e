"""Descents of a search that reach the wanted input: how many meet the wish, and what one costs.

``python benchmarks/wished.py`` draws random descents on the specs of ResNet-20's convolutions, of the conv spec and of
GPT's projections, with and without the bound of the property distance and with and without the weights of moves,
each from a cold start, and counts what meets the wish before anything is filtered. Then a search without training runs
from nothing on each, and its operators that are accepted and probed are counted. It prints JSON and writes it to
``benchmarks/results/wished.json``. Times are CPU-seconds of one core.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from common import about, parser, save, say, typed, use_one_core

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.common.probe import beside_convolution
from syno_lab.common.wants import parse_wants
from syno_lab.errors import SynoError
from syno_lab.experiments import SearchSettings, Space
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.pgraphs.of_network import NetworkSpace, name_of
from syno_lab.pgraphs.probe import probe
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.protocol import SpaceRequest
from syno_lab.search import EliteSearch, examine
from syno_lab.search.descent import Facts, descend
from syno_lab.synthesis.graph import Graph
from syno_lab.synthesis.paths import Builder
from syno_lab.synthesis.wishes import Wishes
from syno_lab.trial import TrialRequest

STEPS = 10
SHARE = 0.4  # of the replaced layers' FLOPs
IMAGES, TEXT = "C_in>=m, H>=m, W>=m", "C_in>=m"


def main() -> None:
    """Four ways for each spec."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--descents", type=int, default=200, help="for each way and seed (200)")
    arguments.add_argument("--seeds", type=int, default=3, help="how many (3)")
    arguments.add_argument("--seconds", type=float, default=60.0, help="of each search without training (60)")
    arguments.add_argument("--data", required=True, help="a folder with CIFAR's images")
    arguments.add_argument("--text", required=True, help="a text file, for GPT")
    arguments.add_argument("--only", help="one of resnet20, conv, gpt_tiny")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    rows: dict[str, Any] = {}
    for name, make in SPECS.items():
        if chosen.only not in (None, name):
            continue
        spec = make()
        seeds = range(chosen.seed, chosen.seed + chosen.seeds)
        rows[name] = {}
        for is_bound in (False, True):
            for is_weighted in (False, True):
                runs = [_run(spec, chosen.descents, seed, is_bound, is_weighted) for seed in seeds]
                way = f"bound {'yes' if is_bound else 'no'}, weights {'yes' if is_weighted else 'no'}"
                rows[name][way] = row = _together(runs)
                say(f"{name}: {way}: {row}")
        data = {"resnet20": chosen.data, "gpt_tiny": chosen.text}
        searched = [_examined(name, chosen.seconds, seed, data) for seed in seeds]
        rows[name]["search"] = searched
        say(f"{name}: {[round(one['examined_per_cpu_s'], 1) for one in searched]} accepted and probed a CPU-second")
        command = typed().replace(chosen.data, "FOLDER").replace(chosen.text, "TEXT")
        save("wished", {"steps": STEPS, "share": SHARE, "rows": rows, "about": about(command, core)})


def _run(spec: Spec, number: int, seed: int, is_bound: bool, is_weighted: bool) -> dict[str, Any]:
    plain = replace(spec, wants=())
    # Operators are looked at before anything is filtered by the wish.
    builder = Builder(Graph(plain))
    rng, facts = random.Random(seed), Facts()
    reached = within = met = 0
    begun = time.process_time()
    looking = 0.0
    with _way(is_bound, is_weighted):
        root = synthesis_space(spec, countable_nodes=0)
        for _ in range(number):
            steps = descend(root, rng, facts)
            if steps is None:
                continue
            reached += 1
            facts.ended.add(steps[-1].state.key)
            start = time.process_time()
            operator = builder.operator(steps[-1].state.path)
            if operator is not None:
                within += 1
                met += operator.meets(spec.wants)
            looking += time.process_time() - start
    return {
        "descents": number,
        "reached": reached,
        "operators": within,
        "met": met,
        "cpu_s": time.process_time() - begun - looking,
    }


def _together(runs: list[dict[str, Any]]) -> dict[str, Any]:
    total = {name: sum(run[name] for run in runs) for name in runs[0]}
    per_descent = [run["cpu_s"] / run["descents"] for run in runs]
    return total | {
        "met_of_operators": total["met"] / max(1, total["operators"]),
        "met_of_operators_by_seed": [run["met"] / max(1, run["operators"]) for run in runs],
        "cpu_ms_a_descent": 1000 * statistics.median(per_descent),
        "met_per_cpu_s": total["met"] / total["cpu_s"],
    }


@contextmanager
def _way(is_bound: bool, is_weighted: bool) -> Iterator[None]:
    """The search with the bound or without, and with the weights of moves or without."""
    with (
        patch.object(Graph, "WINDOW", Graph.WINDOW if is_weighted else 1.0),
        patch.object(Graph, "BARE_WINDOW", Graph.BARE_WINDOW if is_weighted else 1.0),
        patch.object(Graph, "JOIN", Graph.JOIN if is_weighted else 1.0),
        patch.object(Graph, "LONG_WAY", Graph.LONG_WAY if is_weighted else 1.0),
        patch.object(Graph, "NO_WINDOW", Graph.NO_WINDOW if is_weighted else 1.0),
    ):
        if is_bound:
            yield
        else:
            with (
                patch.object(Wishes, "steps", lambda *_, least=0, **__: least),
                patch.object(Wishes, "unmet", lambda *_: 0),
            ):
                yield


def _examined(name: str, seconds: float, seed: int, data: dict[str, str]) -> dict[str, Any]:
    """How many operators a search without training accepts and probes, from nothing."""
    begun = time.process_time()
    number = 0
    rng = random.Random(seed)
    if name == "conv":
        spec = _conv()
        root = synthesis_space(spec, accepts=_first_of_its_name())
        limit = spec.limits.max_flops
        search = EliteSearch(root, rng, cost=lambda operator: min(1.0, operator.flops() / limit) if limit else 1.0)
        score = _score
    else:
        settings = SearchSettings(
            training=TrialRequest(backbone=name, data=data[name]),
            method="elites",
            minutes=seconds / 60,
            max_replaced_ratio=SHARE,
            max_traffic_ratio=4.0,
            weight_limits="primary",
            wants="derived",
            limits={"max_primitives": STEPS},
            seeds=(),
            untrained=True,
        )
        space = Space(settings)
        search, score = EliteSearch(space.root, rng, cost=space.share), space.score
    for _ in examine(search, score, lambda: time.process_time() - begun >= seconds):
        number += 1
    return {"examined": number, "cpu_s": seconds, "examined_per_cpu_s": number / seconds}


def _first_of_its_name() -> Callable[[Operator], bool]:
    first: dict[str, Operator] = {}
    return lambda operator: first.setdefault(name_of(operator), operator) == operator


def _score(operator: Operator) -> float:
    """The promise beside a convolution; 0, as in a search, where the kernel is too large to be computed."""
    try:
        found = probe(operator)
    except SynoError:
        return 0.0
    return min(1.0, max(0.0, found.score(beside_convolution(found)[1])))


def _of_backbone(name: str, wants: str) -> Spec:
    from syno_lab.models import backbone

    known = backbone(name)
    sites = known.survey().select(known.selection)
    spare = int(SHARE * sum(site.flops for site in sites))
    limits = {"max_primitives": STEPS}
    return NetworkSpace(SpaceRequest(sites, "pool", spare, None, {}, limits, "primary", wants)).spec


def _conv() -> Spec:
    spec, _ = load_spec("conv", max_primitives=STEPS)
    return replace(spec, wants=parse_wants(IMAGES, spec.input_shape, spec.output_shape, spec.symbols))


SPECS = {
    "resnet20": lambda: _of_backbone("resnet20", IMAGES),
    "conv": _conv,
    "gpt_tiny": lambda: _of_backbone("gpt_tiny", TEXT),
}


if __name__ == "__main__":
    main()
