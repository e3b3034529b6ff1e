"""``syno-lab ablate``: measure the paper's two ablations again, and compare with its figures (Syno, section 9.4)."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from syno_lab.commands.output import Reporter, say, say_table, write_json
from syno_lab.commands.pgraphs.specs import NAMES, WeightLimitsOption, load_spec
from syno_lab.errors import SynoError
from syno_lab.inputs import quoted
from syno_lab.ir.spec import Spec
from syno_lab.version import __version__
from syno_lab.versioned import JSON

SMALLEST = 2  # the first column of Table 2
DRAW = (
    "a primitive evenly among those with a step in the space, then one of its steps evenly; no rules for 'canonical', "
    "canonical steps alone for 'distance'"
)
DRAW_STEPS = "a step evenly among all legal ones; pGraphs with one that the space refuses count as not canonical"


#: The ablations.
Ablation = Literal["canonical", "distance"]


#: The sets from which a random step can be drawn uniformly.
Evenly = Literal["primitives", "steps"]


@dataclass(frozen=True)
class _Walks:
    """The settings of both ablations."""

    spec: Spec
    trials: int
    seed: int
    seconds: float | None
    report: Callable[[str, float, str], None]

    def clock(self) -> Callable[[], bool] | None:
        """Start the time limit of a run, if any; return a function that returns whether the limit has passed."""
        end = None if self.seconds is None else time.monotonic() + self.seconds
        return None if end is None else lambda: time.monotonic() >= end


def command(
    ablation: Annotated[
        Ablation,
        typer.Argument(
            metavar="canonical|distance",
            help="canonical: the share of canonical pGraphs by size (Table 2), drawn without the rules. "
            "distance: trials that end at an operator, with and without the shape distance.",
        ),
    ],
    spec: Annotated[str, typer.Option(metavar=NAMES, help="What to synthesise.")] = "conv",
    max_primitives: Annotated[
        str,
        typer.Option(metavar="N|A..B", help=f"Sizes of pGraphs, N for {SMALLEST}..N; for distance the last counts."),
    ] = "8",
    weight_limits: WeightLimitsOption = None,
    trials: Annotated[int, typer.Option(min=1, help="Random walks; for distance in each of the two runs.")] = 1000,
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after so many seconds; for distance in each of the two runs.")
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="canonical: count operators alone, not all partial pGraphs.")
    ] = False,
    evenly: Annotated[
        Evenly,
        typer.Option(
            help="canonical: draw a primitive evenly and then one of its steps in the space, or one of all legal "
            "steps, where what the space refuses counts as not canonical."
        ),
    ] = "primitives",
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed draws the same walks.")] = None,
) -> None:
    """Measure the effect of canonicalization and of the shape distance, as section 9.4 of the paper does.

    Shares are printed with 95 % Wilson intervals, beside the paper's figures.
    """
    sizes = parse_sizes(max_primitives)
    if complete and ablation == "distance":
        raise SynoError("--complete: only for `syno-lab ablate canonical`; every trial of distance ends at an operator")
    if evenly == "steps" and ablation == "distance":
        raise SynoError("--evenly: only for `syno-lab ablate canonical`; trials of distance take canonical steps alone")
    parsed, own_seed = load_spec(spec, max_primitives=sizes[-1], weight_limits=weight_limits)
    chosen = seed if seed is not None else own_seed
    if chosen is None:
        chosen = random.SystemRandom().randrange(1 << 32)
    head = {
        "ablation": ablation,
        "spec": spec,
        "weight_limits": parsed.weight_limits,
        "seed": chosen,
        "syno_lab": __version__,
        "draw": DRAW if evenly == "primitives" else DRAW_STEPS,
    }
    with Reporter() as report:
        walks = _Walks(parsed, trials, chosen, seconds, report)
        if ablation == "canonical":
            figures, table, summary = _canonical(walks, sizes, complete, evenly)
        else:
            figures, table, summary = _distance(walks, sizes)
    say_table(table)
    for line in summary:
        say(line)
    write_json(head | figures)


def parse_sizes(text: str) -> list[int]:
    """Parse ``"6"`` as 2 to 6, ``"3..5"`` as 3 to 5. Raises SynoError for any other text."""
    match = re.fullmatch(r"(?:(\d{1,2})\.\.)?(\d{1,2})", text.strip(), re.ASCII)
    if match:
        last = int(match[2])
        first = min(SMALLEST, last) if match[1] is None else int(match[1])
        if 1 <= first <= last:
            return list(range(first, last + 1))
    raise SynoError(f"--max-primitives: expected a size such as 8, or sizes such as 2..8, found {quoted(text)}")


def _share(hits: int, total: int) -> dict[str, float | None]:
    """Return a share with its 95 % interval."""
    from syno_lab.synthesis.ablation import wilson

    low, high = wilson(hits, total)
    return {"share": hits / total if total else None, "low": low, "high": high}


#: An ablation's data for JSON, the rows of the ablation's table, and the lines below the table.
_Result = tuple[dict[str, JSON], list[dict[str, JSON]], list[str]]


def _canonical(walks: _Walks, sizes: list[int], complete: bool, evenly: Evenly) -> _Result:
    from syno_lab.synthesis import ablation as engine

    rates = engine.canonical_rates(
        walks.spec,
        sizes,
        trials=walks.trials,
        seed=walks.seed,
        complete=complete,
        evenly=evenly,
        report=walks.report,
        should_stop=walks.clock(),
    )
    rows: list[dict[str, JSON]] = [
        {
            "size": row.size,
            "pgraphs": row.pgraphs,
            "canonical": row.canonical,
            **_share(row.canonical, row.pgraphs),
            "paper": engine.paper_rate(row.size),
            "distinct": row.distinct,
            "fingerprints": row.fingerprints,
            "fingerprints_per_pgraph": (
                None if row.fingerprints is None or not row.pgraphs else row.fingerprints / row.pgraphs
            ),
            "seconds": row.seconds,
        }
        for row in rates.rows
    ]
    drawn, canonical = sum(row.pgraphs for row in rates.rows), sum(row.canonical for row in rates.rows)
    figures: dict[str, JSON] = {
        "what": "complete operators" if complete else "partial pGraphs",
        "trials": rates.trials,
        "seconds": rates.seconds,
        "rows": rows,
        "all": {"pgraphs": drawn, "canonical": canonical, **_share(canonical, drawn)},
        "rejected_by": rates.rejected_by,
        "paper": {
            "source": f"{engine.PAPER} and Table 2 (its last column, 8 or more, is 0)",
            "pgraphs": engine.PAPER_SAMPLES,
            "canonical": engine.PAPER_CANONICAL,
            "share": engine.PAPER_CANONICAL / engine.PAPER_SAMPLES,
            "says_not": "the spec, how steps were drawn, and whether samples were complete",
        },
    }
    table = [{head: row[name] for name, head in _COLUMNS.items()} for row in rows]
    summary = (
        f"{canonical:,} canonical of {drawn:,} {figures['what']} in {rates.seconds:.1f} s, seed {walks.seed}; "
        f"the paper: {engine.PAPER_CANONICAL} of {engine.PAPER_SAMPLES:,} ({engine.PAPER})"
    )
    return figures, table, [summary]


#: The columns of the table: their JSON keys and their headings.
_COLUMNS = {
    "size": "size",
    "canonical": "canonical",
    "pgraphs": "drawn",
    "share": "share",
    "low": "95 % from",
    "high": "to",
    "paper": "the paper",
    "distinct": "distinct",
    "fingerprints": "fingerprints",
    "seconds": "seconds",
}


def _distance(walks: _Walks, sizes: list[int]) -> _Result:
    from syno_lab.synthesis import ablation as engine

    runs: list[dict[str, Any]] = []
    for guided in (True, False):
        walked = engine.distance_trials(
            walks.spec,
            guided=guided,
            trials=walks.trials,
            seed=walks.seed,
            report=walks.report,
            should_stop=walks.clock(),
        )
        paper = engine.PAPER_TRIALS[guided]
        runs.append(
            {
                "distance": "with" if guided else "without",
                "trials": walked.trials,
                "valid": walked.valid,
                **_share(walked.valid, walked.trials),
                "first": walked.first,
                "distinct": walked.distinct,
                "seconds": walked.seconds,
                "paper": {"trials": paper.trials, "distinct": paper.distinct, "seconds": paper.seconds},
            }
        )
    figures: dict[str, JSON] = {
        "max_primitives": sizes[-1],
        "rows": runs,
        "paper": {"source": engine.PAPER, "machine": "192 virtual cores", "says_not": "the spec and the size limit"},
    }
    table = [
        {name: value for name, value in run.items() if name != "paper"}
        | {"paper: trials": run["paper"]["trials"], "paper: distinct": run["paper"]["distinct"]}
        for run in runs
    ]
    summary = [
        f"{run['trials'] / run['valid']:,.0f} trials for one operator {run['distance']} the distance"
        if run["valid"]
        else f"no operator in {run['trials']:,} trials {run['distance']} the distance: fewer than one in "
        f"{1 / run['high']:,.0f} at 95 %"
        for run in runs
    ]
    summary.append(f"seed {walks.seed}; the paper's figures are of {engine.PAPER}, on 192 virtual cores")
    return figures, table, summary
