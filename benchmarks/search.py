"""The methods of a search at equal trials, where the best is known.

``python benchmarks/search.py`` enumerates the conv-authors spec (at most 7 primitives), runs every method on every
surrogate of ``surrogates.py`` and on the trainings of ``record_trials.py`` with 20 seeds, and times the search itself
on a space that cannot be enumerated. It prints JSON, writes ``benchmarks/results/search.json`` and draws
``benchmarks/results/search.svg``. ``--part`` measures one of the three anew and keeps the others; ``--draw`` draws the
stored result.

Regret is the best reward of the space minus the best so far. A surrogate's best is 1; recorded rewards are those of a
rung (``--rung``, the last one recorded), and the space is that of the recorded operators, whose best is the best of
them.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import sys
import time
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import plots
from common import (
    RESULTS,
    about,
    last_rung,
    parser,
    recorded_rewards,
    recorded_traits,
    save,
    say,
    steps_taken,
    typed,
    use_one_core,
)
from recorded import recorded_space
from scipy.stats import t as student
from surrogates import SURROGATES, standardised, uniform

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import (
    EstimateSearch,
    MonteCarloTreeSearch,
    RandomSearch,
    RegularizedEvolution,
    Search,
    rave,
)
from syno_lab.search.bayesian import Settings
from syno_lab.search.mcts import RAVE
from syno_lab.synthesis.sampler import Sampler

SIZE, LIMITS = 7, "primary"
OVERHEAD_SIZE, OVERHEAD_LIMITS = 9, "primary"
AT = (1, 100, 500)  # a half hour asks some five hundred
EVERY = 10  # trials between the points of a curve
SHOWN = (25, 50, 100, 150)
COLOURS = {
    "estimate": "#1b6ca8",
    "mcts": "#8a5fb0",
    "tree with estimate": "#b08a2e",
    "random": "#c8553d",
    "evolution": "#3a7d44",
    "uniform": "#888888",
}

Make = Callable[..., Search]

#: The methods; the first is what the others are compared with.
SEARCHES: dict[str, Make] = {
    "estimate": EstimateSearch,
    "mcts": MonteCarloTreeSearch,
    "random": RandomSearch,
    "evolution": RegularizedEvolution,
}
#: Methods with a part taken away or added, by ``--ablate``.
ABLATED: dict[str, Make] = {
    "mcts with RAVE": lambda root, rng: MonteCarloTreeSearch(root, rng, policy=rave(), settings=RAVE),
    "estimate, drawn by chance alone": lambda root, rng: EstimateSearch(
        root, rng, settings=Settings(strays=16, near=0)
    ),
}


def regrets(rewards: list[float], best: float = 1.0) -> list[float]:
    """Regret after each trial."""
    return (best - np.maximum.accumulate(rewards)).tolist()


def told(search: Search, reward: Callable[[Any], float], trials: int) -> list[float]:
    """The rewards that a search was told, one by one."""
    found = []
    for _ in range(trials):
        candidate = search.ask()
        assert candidate is not None
        found.append(reward(candidate.operator))
        search.tell(candidate, found[-1])
    return found


def interval(values: np.ndarray) -> list[float]:
    """The 95 % interval of a mean, by Student's t over the seeds: mean, low, high."""
    mean = float(values.mean())
    half = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / sqrt(len(values)))
    return [mean, mean - half, mean + half]


def compare(surrogates: list[str], trials: int, seeds: int, first_seed: int, ablate: bool) -> dict[str, Any]:
    """Every search on every surrogate."""
    spec, _ = load_spec("conv-authors", max_primitives=SIZE, weight_limits=LIMITS)
    operators = list(Sampler.from_spec(spec).enumerate())
    say(f"{len(operators):,} operators")
    table = standardised(operators)
    index = {operator: i for i, operator in enumerate(operators)}
    # One graph for all: the searches share no more than what it has looked at. It is counted, so that chance draws all
    # operators alike: random search is as strong as it can be.
    root = synthesis_space(spec, countable_nodes=60_000)
    searches = SEARCHES | (ABLATED if ablate else {})
    found: dict[str, Any] = {}
    for name in surrogates:
        curves: dict[str, list[list[float]]] = {search: [] for search in (*searches, "uniform")}
        for seed in range(first_seed, first_seed + seeds):
            rewards = SURROGATES[name](table, np.random.default_rng(seed))
            for label, make in searches.items():
                search = make(root, random.Random(seed))
                curves[label].append(regrets(told(search, lambda o, r=rewards: float(r[index[o]]), trials)))
            curves["uniform"].append(regrets(uniform(rewards, trials, random.Random(seed))))
            say(f"{name}, seed {seed}: {time.process_time():.0f} CPU-seconds so far")
        found[name] = summary({label: np.array(runs) for label, runs in curves.items()})
    return {
        "operators": len(operators),
        "features": table.shape[1],
        "trials": trials,
        "seeds": seeds,
        "surrogates": found,
    }


def recorded(trials: int, seeds: int, first_seed: int, ablate: bool, rung: str | None) -> dict[str, Any]:
    """Every search on the recorded trainings."""
    stored = json.loads((RESULTS / "recorded_trials.json").read_text(encoding="utf-8"))
    known = recorded_rewards(stored, rung)
    rewards = np.array(list(known.values()))
    root = recorded_space(steps_taken(stored), recorded_traits(stored))
    best = float(rewards.max())
    searches = SEARCHES | (ABLATED if ablate else {})
    scores = {tuple(one["steps"]): one["probe"]["score"] for one in stored["recorded"] if one.get("probe")}
    if ablate and len(scores) == len(known):
        searches["estimate with the probe"] = lambda root, rng: EstimateSearch(root, rng, prior=scores.__getitem__)
    curves: dict[str, list[list[float]]] = {search: [] for search in (*searches, "uniform")}
    trials = min(trials, len(known) // 2)
    for seed in range(first_seed, first_seed + seeds):
        for label, make in searches.items():
            curves[label].append(regrets(told(make(root, random.Random(seed)), known.__getitem__, trials), best))
        curves["uniform"].append(regrets(uniform(rewards, trials, random.Random(seed)), best))
        say(f"recorded, seed {seed}: {time.process_time():.0f} CPU-seconds so far")
    return {
        "operators": len(known),
        "rung": rung or last_rung(stored),
        "best": best,
        "median": float(np.median(rewards)),
        "trials": trials,
        "seeds": seeds,
        **summary({label: np.array(runs) for label, runs in curves.items()}),
    }


def summary(curves: dict[str, np.ndarray]) -> dict[str, Any]:
    """Mean regrets with bands, and the first search less the others, paired by seed."""
    first_label = next(iter(curves))
    first = curves[first_label]
    trials = first.shape[1]
    points = [i for i in range(1, trials + 1) if i == 1 or i % EVERY == 0 or i in SHOWN]
    result: dict[str, Any] = {"points": points, "first": first_label, "searches": {}}
    for label, runs in curves.items():
        entry: dict[str, Any] = {
            "curve": [[round(v, 4) for v in interval(runs[:, i - 1])] for i in points],
            "found_best": float((runs[:, -1] < 1e-12).mean()),
            "mean_over_trials": interval(runs.mean(axis=1)),
        }
        if label != first_label:
            entry["first_less_this"] = {
                "at": {str(i): interval(first[:, i - 1] - runs[:, i - 1]) for i in SHOWN if i <= trials},
                "at_the_end": interval(first[:, -1] - runs[:, -1]),
                "over_trials": interval(first.mean(axis=1) - runs.mean(axis=1)),
            }
        result["searches"][label] = entry
    return result


def overhead(seed: int) -> dict[str, Any]:
    """Milliseconds that a search takes for a trial, from a cold start on a space that is too large to enumerate."""
    rows = []
    for label in SEARCHES:
        spec, _ = load_spec("conv-authors", max_primitives=OVERHEAD_SIZE, weight_limits=OVERHEAD_LIMITS)
        gc.collect()
        search = SEARCHES[label](synthesis_space(spec), random.Random(seed))
        chance = random.Random(seed)
        spent = []
        for number in range(max(AT) + 50):
            start = time.process_time()
            candidate = search.ask()
            assert candidate is not None
            search.tell(candidate, chance.random())
            spent.append(1e3 * (time.process_time() - start))
            if (number + 1) % 100 == 0:
                say(f"{label}: {number + 1:,} trials, {sum(spent) / 1e3:.0f} CPU-seconds")
        row: dict[str, Any] = {"search": label, "mean_ms": sum(spent) / len(spent), "longest_ms": max(spent)}
        for at in AT:
            near = spent[:1] if at == 1 else spent[at - 50 : at + 50]
            row[f"at_{at}"] = {"mean_ms": sum(near) / len(near), "median_ms": float(np.median(near))}
        row["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        rows.append(row)
        say(f"  {row}")
        del search
    return {"max_primitives": OVERHEAD_SIZE, "weight_limits": OVERHEAD_LIMITS, "rows": rows}


def draw(result: dict[str, Any]) -> None:
    """Regret curves with bands, one panel for each surrogate and one for the recorded trainings."""
    plt = plots.start("search")
    shown = dict(result.get("regret", {}).get("surrogates", {}))
    if "recorded" in result:
        shown["recorded trainings"] = result["recorded"]
    figure, panels = plt.subplots(
        1, len(shown), figsize=(3.6 * len(shown), 3.6), layout="constrained", facecolor="white", squeeze=False
    )
    for axes, (name, found) in zip(panels[0], shown.items(), strict=True):
        for label, colour in COLOURS.items():
            if label not in found["searches"]:
                continue
            curve = np.array(found["searches"][label]["curve"])
            axes.plot(found["points"], curve[:, 0], color=colour, label=label)
            axes.fill_between(found["points"], curve[:, 1], curve[:, 2], color=colour, alpha=0.15, linewidth=0)
        axes.set_title(name, fontsize=11)
        axes.set_xlabel("trials")
        # Accuracies are on a scale of their own.
        axes.set_ylim(bottom=0, top=None if name == "recorded trainings" else 0.6)
    panels[0][0].set_ylabel("regret: mean of the seeds, 95 % band")
    plots.finish(plt, figure, "search", panels[0], panels[0][-1:])


def main() -> None:
    """Measure and draw."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--trials", type=int, default=max(SHOWN), help="of each search (150)")
    arguments.add_argument("--seeds", type=int, default=20, help="from --seed on (20)")
    arguments.add_argument("--surrogates", nargs="+", choices=list(SURROGATES), default=list(SURROGATES), help="(all)")
    arguments.add_argument("--part", choices=["regret", "recorded", "overhead", "all"], default="all")
    arguments.add_argument("--ablate", action="store_true", help="methods with a part taken away or added, too")
    arguments.add_argument("--rung", help="whose recorded rewards are used (the last one's)")
    arguments.add_argument("--draw", action="store_true", help="draw the stored result, measure nothing")
    chosen = arguments.parse_args()
    path = RESULTS / "search.json"
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if chosen.draw:
        if not stored:
            sys.exit(f"--draw: expected a result at {path}; measure first")
        draw(stored)
        return
    core = use_one_core(chosen.core)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "regret": lambda: compare(chosen.surrogates, chosen.trials, chosen.seeds, chosen.seed, chosen.ablate),
        "recorded": lambda: recorded(chosen.trials, chosen.seeds, chosen.seed, chosen.ablate, chosen.rung),
        "overhead": lambda: overhead(chosen.seed),
    }
    for part, measure in parts.items():
        if chosen.part in (part, "all"):
            found = measure() | {"about": about(typed(), core)}
            # Read again: another part may have been measured meanwhile.
            stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            if part == "regret" and stored.get(part, {}).get("operators") == found["operators"]:
                # Surrogates measured by another run on the same space are kept.
                others = stored[part]["surrogates"]
                found["surrogates"] = {
                    n: (others | found["surrogates"])[n] for n in SURROGATES if n in others | found["surrogates"]
                }
            stored[part] = found
            save("search", {name: stored[name] for name in parts if name in stored})
            draw(stored)


if __name__ == "__main__":
    main()
