"""How search quality and speed go with 1 to 1,000 evaluators: simulated, from recorded or surrogate rewards.

``python benchmarks/scale.py --recorded benchmarks/results/search_resnet20.json`` simulates on the trials of a recorded
search, with the seconds that its trainings took. Without a record the rewards are those of a surrogate
(``interaction`` of ``surrogates.py``) over the conv-authors spec (at most 7 primitives), and training times are
log-normal with a median of 30 s and a deviation of 0.5 of their logarithm. Each question takes ``--asking`` seconds of
the one process that asks. It prints JSON, writes ``benchmarks/results/scale.json`` and draws
``benchmarks/results/scale.svg``.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plots
from common import (
    about,
    parser,
    recorded_rewards,
    recorded_seconds,
    recorded_traits,
    save,
    say,
    steps_taken,
    typed,
    use_one_core,
)
from recorded import recorded_space
from search import interval
from simulate import simulate
from surrogates import SURROGATES, standardised

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import EstimateSearch, RandomSearch, Search
from syno_lab.synthesis.sampler import Sampler

EVALUATORS = (1, 3, 10, 30, 100, 300, 1000)
SEARCHES: dict[str, Callable[[Any, random.Random], Search]] = {"estimate": EstimateSearch, "random": RandomSearch}
MEDIAN_S, DEVIATION = 30.0, 0.5
COLOURS = {"estimate": "#1b6ca8", "random": "#c8553d"}

#: Trials that have ended after which the regret is stated besides, since after all of them little may be left of it.
EARLY = 25

#: From a seed: the root of the space, what an operator gives and in how many seconds, and the best reward there is.
World = Callable[[int], tuple[Any, Callable[[Any], tuple[float, float]], float]]


def recorded(path: Path) -> tuple[World, dict[str, Any]]:
    """The world of a recorded search: its space, and what each operator gave; the best of them has regret 0."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    trials = stored.get("recorded") or []
    if len(trials) < 10:
        sys.exit(f"--recorded: expected a search's result with 10 or more trials, found {len(trials)} in {path}")
    seconds = recorded_seconds(stored)
    known = {steps: (reward, seconds[steps]) for steps, reward in recorded_rewards(stored).items()}
    root = recorded_space(steps_taken(stored), recorded_traits(stored))
    best = max(reward for reward, _ in known.values())
    return lambda seed: (root, known.__getitem__, best), {"rewards": path.name, "operators": len(known)}


def surrogate() -> tuple[World, dict[str, Any]]:
    """The world of a surrogate, drawn anew for each seed."""
    spec, _ = load_spec("conv-authors", max_primitives=7)
    operators = list(Sampler.from_spec(spec).enumerate())
    table = standardised(operators)
    index = {operator: i for i, operator in enumerate(operators)}
    root = synthesis_space(spec, countable_nodes=60_000)

    def world(seed: int) -> tuple[Any, Callable[[Any], tuple[float, float]], float]:
        rng = np.random.default_rng(seed)
        rewards = SURROGATES["interaction"](table, rng)
        seconds = MEDIAN_S * np.exp(DEVIATION * rng.standard_normal(len(operators)))
        evaluate = lambda operator: (float(rewards[index[operator]]), float(seconds[index[operator]]))  # noqa: E731
        return root, evaluate, float(rewards.max())

    about_it = {"rewards": "surrogate interaction", "operators": len(operators), "median_s": MEDIAN_S}
    return world, about_it | {"deviation_of_log": DEVIATION}


def scale(world: World, trials: int, seeds: range, asking_s: float) -> list[dict[str, Any]]:
    """For each search and number of evaluators: how long so many trials take, and the regret that is left."""
    rows = []
    for label, make in SEARCHES.items():
        for evaluators in EVALUATORS:
            lasted, regrets, early, busy = [], [], [], []
            for seed in seeds:
                root, evaluate, best = world(seed)
                spent = [0.0]

                def evaluated(
                    operator: Any, evaluate: Any = evaluate, spent: list[float] = spent
                ) -> tuple[float, float]:
                    reward, seconds = evaluate(operator)
                    spent[0] += seconds
                    return reward, seconds

                events = simulate(
                    make(root, random.Random(seed)), evaluated, evaluators, trials=trials, asking_s=asking_s
                )
                lasted.append(events[-1].at_s)
                rewards = [event.reward for event in events]  # as they came in
                regrets.append(best - max(rewards))
                early.append(best - max(rewards[:EARLY]))
                busy.append(spent[0] / (evaluators * events[-1].at_s))
            row = {
                "search": label,
                "evaluators": evaluators,
                "trials": trials,
                "hours": interval(np.array(lasted) / 3600),
                "regret": interval(np.array(regrets)),
                f"regret_{EARLY}": interval(np.array(early)),
                "busy_share": float(np.mean(busy)),
            }
            rows.append(row)
            say(f"{label}, {evaluators} evaluators: {np.mean(lasted) / 3600:.3f} h, regret {np.mean(early):.4f}")
    for row in rows:
        alone = next(r for r in rows if r["search"] == row["search"] and r["evaluators"] == 1)
        row["speedup"] = alone["hours"][0] / row["hours"][0]
    return rows


def draw(rows: list[dict[str, Any]]) -> None:
    """Speed-up, and the regret after the first trials that ended, by the number of evaluators."""
    plt = plots.start("scale")
    figure, (speed, quality) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", facecolor="white")
    for label, colour in COLOURS.items():
        mine = [row for row in rows if row["search"] == label]
        if not mine:
            continue
        at = [row["evaluators"] for row in mine]
        speed.plot(at, [row["speedup"] for row in mine], "o-", color=colour, label=label)
        regrets = np.array([row[f"regret_{EARLY}"] for row in mine])
        quality.plot(at, regrets[:, 0], "o-", color=colour, label=label)
        quality.fill_between(at, regrets[:, 1], regrets[:, 2], color=colour, alpha=0.15, linewidth=0)
    speed.plot(EVALUATORS, EVALUATORS, "--", color="#888888", label="as many times as fast")
    speed.set_yscale("log")
    speed.set_ylabel("times as fast as one evaluator")
    quality.set_ylabel(f"regret after {EARLY} trials, 95 % band")
    for axes in (speed, quality):
        axes.set_xscale("log")
        axes.set_xlabel("evaluators")
    plots.finish(plt, figure, "scale", (speed, quality), (speed, quality))


def main() -> None:
    """Simulate and draw."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--recorded", type=Path, help="the JSON of a `syno-lab search` (a surrogate)")
    arguments.add_argument("--trials", type=int, default=200, help="of each search (200; of a record, half of it)")
    arguments.add_argument("--seeds", type=int, default=10, help="from --seed on (10)")
    arguments.add_argument("--asking", type=float, default=0.1, help="seconds that a question takes (0.1)")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    world, found = surrogate() if chosen.recorded is None else recorded(chosen.recorded)
    trials = min(chosen.trials, found["operators"] // 2)
    rows = scale(world, trials, range(chosen.seed, chosen.seed + chosen.seeds), chosen.asking)
    save(
        "scale",
        {"about": about(typed(), core), **found, "asking_s": chosen.asking, "seeds": chosen.seeds, "rows": rows},
    )
    draw(rows)


if __name__ == "__main__":
    main()
