"""The parts of ``benchmarks/README.md`` on synthesis, search algorithms and the widgets."""

from __future__ import annotations

import statistics
from typing import Any

from page import NONE, Measure, Part, Result, listing, number, single, table, within

from syno_lab.systems import find_system

PGRAPHS = "syno-lab-operator"
LIMITS = ("strict", "primary", "free")  # strict: in results of former versions
# Distinct operators a CPU-second: the authors' C++ engine and a Python prototype, both measured on two cores, and what
# we want. From the design notes of the project, section 7.
PEERS = {
    "conv-authors-7": (NONE, NONE, None),
    "conv-authors-8": ("2.5 (249 in all)", NONE, 2000),
    "conv-authors-9": ("0.01 cold, 1.6 once its tree is expanded", NONE, 1000),
    "conv-authors-12": ("0.01 or none in minutes", NONE, 500),
    "conv-free-7": ("held 21.3 (2,559 in all), returned 21.3", NONE, 3000),
    "conv-free-8": ("held 14.4, returned 0.05", NONE, 2500),
    "conv-free-9": ("held 19.3, returned 0.025", "155", 2000),
    "conv-free-12": ("0.03", NONE, 1000),
    "readme-8": ("held 38 to 71, returned 6.3 to 67", "155 to 2,513", 2500),
}
#: Numbers of trials at which searches are compared.
SHOWN = ("25", "50", "100", "150")


def _error(found: Result) -> str:
    return str(found["error"]).replace("|", "\\|")


def _drawn(found: Result) -> str:
    return f"{found['distinct']:,}" + (" (all)" if found["exhausted"] else "")


def synthesis(result: Result) -> str:
    """Rates beside the peers'."""

    def ours(found: Result | None) -> list[str]:
        if found is None or "error" in found:
            return [_error(found) if found else "not run", *[""] * 5]
        share = found["repeat_share"]
        return [
            f"**{number(found['distinct_per_cpu_second'])}**",
            _drawn(found),
            number(found["cpu_seconds"]),
            NONE if share is None else f"{100 * share:.2f} % of {found['fingerprinted']:,}",
            f"{found['peak_memory_bytes'] / 2**20:.0f} MiB",
            number(found["fingerprint_cpu_seconds"]),
        ]

    rows = []
    for name, (authors, prototype, wanted) in PEERS.items():
        label = name.replace("-", " ").replace("readme 8", "README spec 8")
        rows.append([label, *ours(result.get(name)), f"{wanted:,}" if wanted else NONE, authors, prototype])
    heading = "spec, limits, at most | distinct a CPU-second | drawn | CPU-seconds | repeats | peak memory"
    return table(f"{heading} | fingerprints, CPU-seconds | wanted | authors' engine | prototype", rows)


def growth(result: Result) -> str:
    """Time for one more operator and memory, by the greatest number of primitives."""
    found = {(row["max_primitives"], row["weight_limits"]): row for row in result["rows"]}

    def cells(row: Result | None) -> list[str]:
        if row is None:
            return [NONE] * 3
        if "error" in row:
            return [_error(row), NONE, NONE]
        return [_drawn(row), number(row["one_more_ms"]), f"{row['peak_memory_bytes'] / 2**20:.0f}"]

    here = [limits for limits in LIMITS if any(limits == one for _, one in found)]
    heading = (f"{limits}: {what}" for limits in here for what in ("drawn", "ms for one more", "MiB"))
    sizes = dict.fromkeys(size for size, _ in found)
    rows = ([str(size), *(cell for one in here for cell in cells(found.get((size, one))))] for size in sizes)
    return table(["at most", *heading], rows)


def budgets(result: Result) -> str:
    """Operators a CPU-second under budgets, where partial pGraphs are pruned and where whole operators are measured."""
    rows = []
    for name, found in result.items():
        if name != "about":
            ratios = [bounds["rate"] / whole["rate"] for whole, bounds in found["pairs"]]
            spread = f"{number(found['ratio'])} ({number(min(ratios))} to {number(max(ratios))})"
            rows.append([name, number(found["whole"]), number(found["bounds"]), spread])
    heading = "limits, at most, budget | whole operators measured | partial pGraphs pruned | ratio (least to most)"
    return table(heading, rows)


def _limits(result: Result) -> list[str]:
    """The limits of weights that a result is about."""
    return [limits for limits in LIMITS if limits in result]


def step(result: Result) -> str:
    """Times of one step by depth."""
    whats = ("number", "first", "all")

    def cells(found: Result, bold: str = "") -> list[str]:
        times = (found[what] for what in whats)
        shown = (f"{bold}{number(one['median_ms'])} / {number(one['p95_ms'])}{bold}" for one in times)
        return [*shown, f"{found['most_candidates']:,}", str(found["states"])]

    rows = []
    for limits in (limits for limits in LIMITS if limits in result):
        rows += [[f"{limits} {found['depth']}", *cells(found)] for found in result[limits]["depths"]]
        rows.append([f"**{limits}, all**", *cells(result[limits]["all"], "**")])
    heading = "limits, depth | number: median / 95th percentile, ms | the first 200 | all | most candidates | states"
    return table(heading, rows)


def spread(result: Result) -> str:
    """How widely draws are spread, and how well seeds agree."""
    form = (
        "{spec} | {draws} | {distinct_roots:.0f} | {most_of_one_root:.0%} | {distinct_weights:.0f} | {kinds_bits:.1f}"
        " | {kinds_divergence:.2f} | {lengths_divergence:.2f} | {roots_in_common:.0%} | {cpu_seconds:.1f}"
    )
    rows = []
    for row in result["rows"]:
        windows = "{median:.1%} ({least:.1%} to {most:.1%})".format_map(row["windows"])
        rows.append(f"{form.format_map(row)} | {windows}")
    return table(
        "spec, at most | draws | multisets of REDUCEs | the most of one | shapes of weights | kinds, bits"
        " | divergence of kinds | of lengths | multisets in common | CPU-seconds | windows in H and W (least to most)",
        rows,
    )


def rediscovery(result: Result) -> str:
    """After how many CPU-seconds a search without training came to each family, and as which operator."""
    families = list(result["found"])
    rows = []
    for row in result["seeds"]:
        first = [row["families"][name] for name in families]
        cells = [NONE if one is None else f"{one['cpu_s']:.0f}, {one['as']}" for one in first]
        rows.append([str(row["seed"]), f"{row['examined']:,}", f"{row['examined_per_cpu_s']:.1f}", *cells])
    heading = f"seed | examined in {result['seconds']:.0f} CPU-seconds | a CPU-second | {' | '.join(families)}"
    return table(heading, rows)


def half_hours(result: Result) -> str:
    """The best discovered operator of each search within each share of the replaced FLOPs, in points of accuracy."""
    rows = []
    for row in result["rows"]:
        cells = []
        for share, one in row["comparisons"].items():
            if one is None:
                cells.append(NONE)
                continue
            difference, low, high = (100 * one["over_seeds"][key] for key in ("difference", "low", "high"))
            cells.append(f"{difference:+.1f} ({low:+.1f} to {high:+.1f}) at {row['best'][share]['replaced_ratio']:.2f}")
        first = next(iter(row["funnel"]["rungs"].values()))["begun"]
        drawn, wished = (row["funnel"]["draws"][key] for key in ("drawn", "wished"))
        rest = f"{row['time']['shares']['rest']:.0%}"
        note = row["note"] or NONE
        systems = [find_system(name).title for name in (row["settings"].get("system") or PGRAPHS).split(",")]
        rows.append(
            [
                " and ".join(systems),
                str(row["settings"]["seed"]),
                row["commit"],
                f"{drawn:,}",
                f"{wished / drawn:.0%}",
                str(first),
            ]
        )
        rows[-1] += [*cells, rest, note]
    shares = " | ".join(f"within {share}" for share in result["rows"][0]["comparisons"])
    return table(
        f"systems | seed | commit | drawn | wished | on the first rung | {shares} | the rest of the time | note", rows
    )


def validation(result: Result) -> str:
    """How well rungs, probe and yardsticks rank operators, beside the ceiling of the truth's own repeatability."""
    rows = [
        [
            one["predictor"],
            NONE if one["spearman"] is None else f"{one['spearman']:.2f}",
            NONE if one["low"] is None else f"{one['low']:.2f} to {one['high']:.2f}",
            NONE if one["above"] is None else f"{one['above']:.0%}",
            {True: "yes", False: "no", None: NONE}[one["is_used"]],
        ]
        for one in result["agreements"]
    ]
    ceiling = result["ceiling"]
    costs = "; ".join(
        f"{rung['name']}: {rung['seeds']} training{'s' * (rung['seeds'] > 1)} of {rung['cpu_s']:.1f} CPU-seconds"
        for rung in result["rungs"]
    )
    words = (
        f"{result['backbone']}, {result['data']}: {result['counted']} operators, the full recipe on "
        f"{len(result['seeds'])} seeds, {result['full_cpu_s']:.0f} CPU-seconds a training. {costs}. "
    )
    if ceiling["most"] is not None:
        words += (
            f"Ceiling {ceiling['most']:.2f}: two seeds of the full recipe agree by {ceiling['between_seeds']:.2f}, and "
            f"their mean has the reliability {ceiling['reliability']:.2f}."
        )
    heading = "ranked by | Spearman | 95 % interval | above FLOPs and parameters, of resamples | used"
    return f"{table(heading, rows)}\n\n{words} {_sentence(result['note'])}".strip()


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}." if note else ""


def wished(result: Result) -> str:
    """Descents with and without bound and weights, and the rate of a search without training."""
    rows = []
    for spec, ways in result["rows"].items():
        for way, row in ways.items():
            if way == "search":
                rates = [one["examined_per_cpu_s"] for one in row]
                found = f"{statistics.median(rates):.1f} accepted and probed a CPU-second"
                rows.append([spec, "search without training", NONE, NONE, NONE, NONE, found])
                continue
            met = f"{row['met']} ({row['met_of_operators']:.0%})"
            cells = [str(row["descents"]), str(row["reached"]), met, f"{row['cpu_ms_a_descent']:.0f}"]
            rows.append([spec, way, *cells, f"{row['met_per_cpu_s']:.2f} met a CPU-second"])
    return table("spec | way | descents | reach the input | meet the wish | CPU-ms a descent | rate", rows)


def stepper(result: Result) -> str:
    """Milliseconds to the picture and to the whole answer by depth, and in the browser where that was measured."""

    def line(name: str, pair: tuple[Any, ...], bold: str = "**", times: tuple[str, ...] = ("picture", "whole")) -> None:
        found = [one.get(f"{time}_ms") for one in pair for time in times]
        cells = (NONE if one is None else f"{one['median']:.1f} / {one['p95']:.1f}" for one in found)
        rows.append([name, *(f"{bold}{cell}{bold}" for cell in cells), " / ".join(str(one["steps"]) for one in pair)])

    rows: list[list[str]] = []
    here = _limits(result)
    for pair in zip(*(result[limits]["depths"] for limits in here), strict=True):
        line(str(pair[0]["depth"]), pair, "")
    line("**all**", tuple(result[limits]["all"] for limits in here))
    if "browser" in result:
        name = "**in JupyterLab, click to frame**, load {:.1f} to {:.1f}".format(*result["load"])
        line(name, tuple(result["browser"][limits]["all"] for limits in here), times=("graph", "list"))
    header = (f"{limits}: {what}, ms" for limits in here for what in ("picture", "whole answer"))
    return table(["depth", *header, "clicks"], rows)


def stepper_canvas(result: Result) -> str:
    """Milliseconds from a click in Canvas's stepper to the frames with the graph and with the list."""
    low, high = sorted(result["load"])
    times = (result["all"][name] for name in ("graph_ms", "list_ms"))
    cells = [f"{one['median']:.1f} / {one['p95']:.1f} / {one['worst']:.1f}" for one in times]
    heading = "in JupyterLab, click to frame | graph, ms: median / 95th percentile / worst | list, ms | clicks | load"
    loads = f"{low:.1f} to {high:.1f}"
    return table(heading, [["**Canvas**", *cells, str(result["all"]["steps"]), loads]])


def stepper_first(result: Result) -> str:
    """How long the first picture takes in a fresh kernel."""
    low, high = sorted(result["load"])
    row = "{median_s:.2f} | {longest_s:.2f} | {runs}".format_map(result)
    return table("seconds, median | longest | fresh kernels | load", [f"{row} | {low:.1f} to {high:.1f}"])


def runs_view(result: Result) -> str:
    """What a reader does with many trials on the front costs the page and the kernel."""
    frames = result["lasso_frames"]
    in_frames = "frames {median_ms:.0f} / {p95_ms:.0f} ms".format_map(frames) if "p95_ms" in frames else ""
    heading = "{trials:,} trials, {on_front} on the front | CPU ms | median / 95th percentile"
    rows = (
        f"a move of the mouse while a lasso is drawn | {{lasso_move_cpu_ms:.1f}} | {in_frames}",
        "a move of the mouse from point to point | {pointing_cpu_ms:.1f} | ",
        f"another front from the kernel | {{update_cpu_ms:.1f}} | {result['bytes_sent'] / 1e3:.0f} kB sent",
        "the table sorted by another column | {sort_cpu_ms:.1f} | ",
        "the page opened | {page_cpu_ms:.0f} | ",
        "the store read, in the kernel | {read_cpu_ms:.0f} | ",
        "the view made, in the kernel | {construct_cpu_ms:.0f} | ",
    )
    return table(heading.format_map(result), (row.format_map(result) for row in rows))


def bias(result: Result) -> str:
    """Walks beside uniform draws, by number of steps."""

    def times(row: Result) -> str:
        ratio = NONE if row["most_to_least"] is None else f"{row['most_to_least']:.1f}"
        return f"{ratio} ({row['most']:,} / {row['least']:,})"

    walks, uniform, operators = result["walks"], result["uniform"], result["operators"]
    form = "{steps} | {operators:,} | {share_of_space:.1%} | {share_of_draws:.1%} | {never_drawn:,}"
    pairs = zip(walks["by_steps"], uniform["by_steps"], strict=True)
    rows = (f"{form.format_map(ours)} | {times(ours)} | {times(theirs)}" for ours, theirs in pairs)
    heading = "steps | operators | of the space | of the walks | never drawn by walks"
    heading += " | most to least often: walks (times) | uniform draws"
    never = walks["never_drawn"]
    return (
        f"{table(heading, rows)}\n\n"
        f"Of {operators:,} operators {walks['draws']:,} walks never drew {never:,} ({never / operators:.0%}); as many "
        f"uniform draws left out {uniform['never_drawn']:,}. The total variation from uniform is "
        f"{walks['total_variation']:.2f} for walks, and {uniform['total_variation']:.2f} for uniform draws by chance."
    )


def trust(result: Result) -> str:
    """How many operators agreed, and how often each corner was met."""

    def sampled(sources: dict[str, int]) -> str:
        drawn = [count for name, count in sources.items() if name != "built at random"]
        return f"{sum(drawn):,} over {len(drawn)} specs"

    checks = list(result["checked"])
    names = {"values": "torch values", "gradients": "torch gradients", "tvm": "compiled TVM"}
    rows = [["**operators**", *(f"**{result['checked'][check]:,}**" for check in checks)]]
    rows += [["that disagree", *(f"{result['failed'][check]:,}" for check in checks)]]
    rows += [["from the sampler", *(sampled(result["sources"][check]) for check in checks)]]
    rows += [[name, *(f"{met[check]:,}" for check in checks)] for name, met in result["corners"].items()]
    return table(["", *(names[check] for check in checks)], rows)


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.2%}"


def _shares(row: Result) -> str:
    return f"{_share(row['share'])} ({_share(row['low'])} to {_share(row['high'])})"


def canonical(result: Result) -> str:
    """How many partial pGraphs are canonical, by their primitives."""
    form = "{size} | {canonical:,} of {pgraphs:,}"
    rows = ([form.format_map(row), _shares(row), _share(row["paper"])] for row in result["rows"])
    return table("primitives | canonical | share (95 % interval) | the paper", rows)


def distance(result: Result) -> str:
    """How many walks reach the input, with and without shape distance."""
    form = "{distance} | {trials:,} | {valid:,} ({distinct:,} different)"
    paper = "{paper[distinct]:,} different of {paper[trials]:,}"
    rows = ([form.format_map(row), _shares(row), paper.format_map(row)] for row in result["rows"])
    return table("shape distance | walks | that reach the input | share (95 % interval) | the paper", rows)


def scale(result: Result) -> str:
    """Hours, speed-up and regret by the number of evaluators."""
    form = "{search} | {evaluators:,} | {hours[0]:.3g} | {speedup:.1f} | {busy_share:.0%}"
    rows = (
        [form.format_map(row), within(*row["regret_25"], form=".4f"), within(*row["regret"], form=".4f")]
        for row in result["rows"]
    )
    heading = "search | evaluators | hours | times as fast | evaluators busy | regret after 25 trials | after all"
    return table(heading, rows)


def regret(result: Result) -> str:
    """Regrets by case and search at some numbers of trials, and the case's first search less the other, by seed.

    A difference whose interval excludes 0 is bold: below 0 the first search is ahead.
    """

    def less_at(entry: Result, at: str) -> str:
        less = entry.get("first_less_this", {}).get("at", {}).get(at)
        if less is None:
            return NONE
        text = within(*less, ".3f")
        return f"**{text}**" if less[1] > 0 or less[2] < 0 else text

    cases = dict(result.get("regret", {}).get("surrogates", {}))
    if "recorded" in result:
        cases["recorded trainings"] = result["recorded"]
    rows = []
    for case, found in cases.items():
        curve_at = {str(point): place for place, point in enumerate(found["points"])}
        for search, entry in found["searches"].items():
            regrets = (within(*entry["curve"][curve_at[at]], ".3f") if at in curve_at else NONE for at in SHOWN)
            rows.append([case, search, *regrets, *(less_at(entry, at) for at in SHOWN)])
    header = [
        "rewards",
        "search",
        *(f"regret at {at}" for at in SHOWN),
        *(f"the first less this at {at}" for at in SHOWN),
    ]
    return table(header, rows)


COMPLETING = listing(
    "seeds | operators | median, CPU-s | longest, CPU-s | its own limit, CPU-s",
    "{seeds} | {operators} | {median_s:.2g} | {worst_s:.2g} | {limit_s:.2g}",
)
MEMORY = listing(
    "steps in the stepper | heap of JupyterLab's page, MiB | DOM nodes",
    "{steps} | {heap_mib:.1f} | {nodes:,}",
    "memory",
)
CANONICAL_TITLE = "### Partial pGraphs drawn without rules: how many are canonical"
COMPLETE_TITLE = "### The same for those that reach the input"
DISTANCE_TITLE = "### Random walks by canonical steps, with and without shape distance"
REGRET_PLOT = "![Regret by trials, 95 % bands](results/search.svg)"
SCALE_PLOT = "![Speed and regret by evaluators](results/scale.svg)"
PARTS = (
    single("synthesis", synthesis),
    single("growth", growth, "![Time for one more operator and peak memory by size](results/growth.svg)"),
    single("budgets", budgets),
    single("spread", spread),
    single("rediscovery", rediscovery),
    single("half-hours", half_hours),
    Part(
        "validation",
        Measure("validation", "syno-lab search --validate-proxy; then stored_evidence.py validation", validation),
    ),
    single("wished", wished),
    single("step", step),
    single("bias", bias),
    single("trust", trust),
    single("stepper", stepper, script="stepper.py --browser"),
    single("completing", COMPLETING),
    single("stepper-canvas", stepper_canvas, script="stepper_browser.py --canvas"),
    single("stepper-first", stepper_first, script="stepper_browser.py --first"),
    single("stepper-memory", MEMORY, script="stepper_browser.py"),
    single("runs-view", runs_view),
    Part(
        "ablations",
        Measure("ablate-canonical", "syno-lab ablate canonical", canonical, CANONICAL_TITLE),
        Measure("ablate-complete", "syno-lab ablate canonical --complete", canonical, COMPLETE_TITLE),
        Measure("ablate-distance", "syno-lab ablate distance", distance, DISTANCE_TITLE),
    ),
    Part(
        "search",
        Measure("search", "python benchmarks/search.py", regret, REGRET_PLOT),
        Measure("scale", "python benchmarks/scale.py", scale, SCALE_PLOT),
        one_footer=True,
    ),
)
