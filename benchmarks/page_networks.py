"""The parts of ``benchmarks/README.md`` on code generation, tuning, networks and jobs."""

from __future__ import annotations

import statistics
from itertools import pairwise

from page import NONE, Measure, Part, Result, listing, number, single, table, within

from syno_lab.store.pareto import pareto_front

#: The ways of tuning that are compared; the first two are TVM's ``tune_tir``.
WAYS = {
    "defaults": "MetaSchedule's defaults, imports made cheap",
    "as-it-comes": "MetaSchedule's defaults as they come",
    "same-space": "ours, TVM's rules",
    "unfused": "ours, without `fuse-stages`",
    "ours": "ours",
}
#: Seconds a trial, from the design notes of the project, section 7.
WANTED_S = 0.5
WANTED_64_S = 0.4  # with 64 trials: the start of processes is shared by more
#: What the paper reports for its CPU (Figure 9), and what we want against the hand-written convolution.
PAPER = {"operator_1": "2.25", "operator_2": "5.35"}
WANTED_BY_HAND = 1.1
KINDS = ("latency_ms", "best_ms")
#: The tables of ``codegen.json`` that compare two modules.
CODEGEN = {
    "conv2d": "conv2d's pGraph over `nn.Conv2d`, wanted at most 1.1",
    "operator_1": "Operator 1 (K=3, g=8) over `nn.Conv2d`, wanted below 1 at stride 1 from 128 channels on",
    "calls": "Over PyTorch's own call, wanted at most 1.1",
    "compile": "`compile=True` over the same module without",
}
TROUBLES = ("lost", "duplicated", "wrong", "overlapping", "stuck")


def flops(result: Result) -> str:
    """ResNet-34 with other operators in it, beside the paper's ranges."""
    ratios = ("flops_down", "params_down", "layer_flops_down", "layer_params_down")
    found = result["sampled"]
    kinds = ("cheapest", "median")
    sampled = [{**one, "name": f"{kind} sampled: {one['name']}"} for kind in kinds for one in found[kind]]
    paper = [f"{low} to {high}" for low, high in result["paper"].values()]
    rows = [["the paper's best", NONE, NONE, *paper, NONE, NONE]]
    for row in (*result["rows"], *sampled):
        figures = [row["flops"] / 1e9, row["params"] / 1e6, *(row[name] for name in ratios)]
        rows.append([row["name"], *map(number, figures)])
    heading = "operator | GFLOPs | million parameters | FLOPs down | parameters down"
    heading += " | FLOPs down, replaced layers alone | parameters down, replaced layers alone"
    return (
        f"{table(heading, rows)}\n\n"
        f"Of {found['drawn']:,} operators drawn, {found['fit']:,} slide along H and W and join C_in and C_out in a "
        "weight: of these the cheapest and the median by FLOPs."
    )


def tvm(result: Result) -> str:
    """Tuned latencies: conv2d's pGraph over the TE written by hand, then conv2d over operators, layer by layer."""

    def by_hand(row: Result, kind: str) -> str:
        pairs = [pair for pair in row["pairs"] if all("latency_ms" in one for one in pair.values())]
        ratios = sorted(pair["pgraph"][kind] / pair["te"][kind] for pair in pairs)
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        return f"**{statistics.median(ratios):.2f}** ({each})" if ratios else NONE

    size = "{channels} channels, {height} x {height}"
    hand = table(
        "conv2d's pGraph over TE by hand | ratio of medians | ratio of the least | wanted, at most",
        (
            [size.format_map(row), *(by_hand(row, kind) for kind in KINDS), str(WANTED_BY_HAND)]
            for row in result["by_hand"]
        ),
    )
    widths = list(dict.fromkeys(row["channels"] for row in result["layers"]))
    found = {(row["operator"], row["channels"]): row for row in result["layers"]}
    rows = []
    for name in dict.fromkeys(name for name, _ in found):
        cells, ratios = [], {kind: list[float]() for kind in KINDS}
        for width in widths:
            base, row = found["conv2d", width], found[name, width]
            pair = []
            for kind in KINDS:
                ours, theirs = _median_latency(row, kind), _median_latency(base, kind)
                ratio = None if ours is None or theirs is None else theirs / ours
                ratios[kind] += [] if ratio is None else [ratio]
                pair.append(NONE if ratio is None else f"{ratio:.2f}")
            cells.append(f"{' / '.join(pair)} ({base['flops'] / row['flops']:.2f})")
        means = [f"{statistics.geometric_mean(one):.2f}" if one else NONE for one in ratios.values()]
        there = len(ratios["best_ms"])
        note = "" if there == len(widths) else f", of {there} layers"
        rows.append([name, *cells, f"**{' / '.join(means)}**{note}", PAPER.get(name.partition(",")[0], NONE)])
    header = ["operator", *(f"{width} channels" for width in widths), "geometric mean", "paper"]
    return f"{hand}\n\n{table(header, rows)}\n\n{_seconds_a_trial(result)}"


def _seconds_a_trial(result: Result) -> str:
    """The median over the seeds for conv2d and Operator 1 on each layer, the start of processes counted."""
    by_hand = [
        (f"{row['channels']}x{row['height']}", [pair["pgraph"] for pair in row["pairs"]]) for row in result["by_hand"]
    ]
    layers: dict[str, list[tuple[str, list[Result]]]] = {"conv2d": by_hand}
    for row in result["layers"]:
        if row["operator"].startswith(("conv2d", "operator_")):
            layers.setdefault(row["operator"], []).append((f"{row['channels']}x{row['height']}", row["runs"]))
    rows = []
    for name, found in layers.items():
        each = {
            shape: statistics.median(run["seconds"] / run["trials"] for run in runs if "seconds" in run)
            for shape, runs in found
            if any("seconds" in run for run in runs)
        }
        words = ", ".join(f"{seconds:.2f} ({shape})" for shape, seconds in each.items())
        rows.append([name, f"**{statistics.median(each.values()):.2f}**", words])
    return table("operator | seconds a trial, median of the layers | of each layer", rows)


def _median_latency(row: Result, kind: str) -> float | None:
    """The median over a row's tunings of their winners' times: the median or the least of single calls in turns.

    Results of before were not timed in turns: their times are those of 12 measurements of the tuning itself.
    """
    name = {"latency_ms": "median", "best_ms": "least"}[kind]
    found = [run["beside_ms"][name] if "beside_ms" in run else run[kind] for run in row["runs"] if kind in run]
    return statistics.median(found) if found else None


def tuning_rules(result: Result) -> str:
    """What each schedule rule buys: the winners beside each other."""
    form = "{space} | **{beside_ms[least]:.3f}** | {beside_ms[median]:.3f}"
    times = [row["beside_ms"]["least"] for row in result["rows"]]
    steps = ["", *(f"{before / after:.2f}" for before, after in pairwise(times))]
    rows = []
    for row, step, least in zip(result["rows"], steps, times, strict=True):
        found = ", ".join(f"{one:.2f}" for one in row["best_ms"])
        rows.append([form.format_map(row), step, f"{times[0] / least:.0f}", found])
    heading = "rules | winner, ms, least | median | times faster than the row above | than no rule"
    return table(f"{heading} | found by each seed's search, ms", rows)


def tuning_cost(result: Result) -> str:
    """A row for each operator, layer and way: medians over the seeds, with the range."""
    layers: dict[tuple[str, str], dict[str, list[Result]]] = {}
    for cell in result["cells"]:
        operator, shape, _, way = cell["cell"]
        layers.setdefault((operator, shape), {}).setdefault(way, []).append(cell)
    beside = {tuple(one["of"]): one["least_ms"] for one in result["beside"]}
    rows = []
    for (operator, shape), ways in layers.items():
        least = beside.get((operator, shape), {})
        winners = {way: [ms for name, ms in least.items() if name.rpartition(" ")[0] == way] for way in ways}
        base = winners.get("defaults")
        for way in (name for name in WAYS if name in ways):
            errors = sum("error" in one for one in ways[way])
            tried = [one for one in ways[way] if one.get("trials")]
            trials = sorted({one["trials"] for one in tried})
            times = statistics.median(base) / statistics.median(winners[way]) if base and winners[way] else None
            rows.append(
                [
                    f"{operator}, {_layer(shape)}",
                    WAYS[way],
                    f"{len(ways[way]) - errors}" + (f" ({errors} failed)" if errors else ""),
                    " to ".join(str(one) for one in dict.fromkeys(trials[:1] + trials[-1:])) or NONE,
                    *(_spread([one[cost] / one["trials"] for one in tried], ".2f") for cost in ("seconds", "cpu_s")),
                    str(sum(one["failed"] for one in tried)),
                    _spread(winners[way], ".3f"),
                    NONE if times is None else f"{times:.2f}",
                ]
            )
    heading = f"operator, layer | tuning | seeds | trials | seconds a trial (wanted: under {WANTED_S})"
    heading += " | CPU-seconds a trial | candidates that failed | winner, ms | times as fast as the defaults'"
    return table(heading, rows)


def tuning_seconds(result: Result) -> str:
    """Seconds a trial of our tunings: a row for each operator, a column for each layer with the median of its seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for cell in result["cells"]:
        operator, shape, _, _ = cell["cell"]
        found.setdefault(operator, {}).setdefault(shape, []).append(cell["seconds"] / cell["trials"])
    layers = list(next(iter(found.values())))
    rows = []
    for operator, cells in found.items():
        medians = [statistics.median(cells[shape]) for shape in layers]
        rows.append([operator, f"**{statistics.median(medians):.2f}**", *(f"{one:.2f}" for one in medians)])
    heading = ["operator", f"seconds a trial, median of the layers (wanted: under {WANTED_64_S})", *map(_layer, layers)]
    return table(heading, rows)


def fused_stages(result: Result) -> str:
    """A row for each operator and layer: the winners without and with ``fuse-stages``, medians over the seeds."""
    rows = []
    for one in result["beside"]:
        operator, shape = one["of"]
        found: dict[str, list[float]] = {}
        for name, least_ms in one["least_ms"].items():
            found.setdefault(name.rpartition(" ")[0], []).append(1e3 * least_ms)
        unfused, fused = found["unfused"], found["ours"]
        times = statistics.median(unfused) / statistics.median(fused)
        cells = [_spread(unfused, ".1f"), _spread(fused, ".1f"), f"**{times:.2f}**"]
        rows.append([f"{operator}, {_layer(shape)}", *cells])
    return table("operator, layer | unfused, us | in the default space, us | times as fast", rows)


def long_tuning(result: Result) -> str:
    """One long tuning in one row; the picture is above."""
    course = result["course"]
    tenth = [look for look in course if look["trial"] <= result["trials"] / 10] or course[:1]
    last = [look for look in course if look["trial"] >= 0.9 * result["trials"]] or course[-1:]
    pace = [
        (part[-1]["seconds"] - part[0]["seconds"]) / max(part[-1]["trial"] - part[0]["trial"], 1)
        for part in (tenth, last)
    ]
    row = [
        f"{result['operator']}, {_layer(result['shape'])}",
        f"{result['trials']:,} ({result['failed']} failed)",
        f"**{result['seconds'] / result['trials']:.2f}**",
        " / ".join(f"{one:.2f}" for one in pace),
        f"{max(look['memory_bytes'] for look in course) / 2**20:,.0f}",
        f"{result['files_bytes'] / 2**20:.1f}",
        f"{result['best_ms']:.3f}",
    ]
    heading = "operator, layer | trials | seconds a trial | of the first tenth / the last | most memory, MiB"
    return table(f"{heading} | records, MiB | winner, ms", [row])


def _layer(shape: str) -> str:
    return shape.replace("x", " channels, height ")


def _spread(values: list[float], form: str) -> str:
    """The median, and in brackets the least and the greatest."""
    if not values:
        return NONE
    return f"**{statistics.median(values):{form}}** ({min(values):{form}} to {max(values):{form}})"


def against_pytorch(result: Result) -> str:
    """A row for each way of running the operator."""
    timings = result["comparison"]["timings"]
    base = next(one["median_ms"] for one in timings if one["way"] == "eager")
    alone = {way: one["least_ms"] for way, one in result["single"].items() if way in ("eager", "tvm")}
    tuned = "TVM, {preset}, {tuning[trials]} trials in {tuning[seconds]:.0f} s".format_map(result)
    words = {"eager": "PyTorch eager", "compile": "torch.compile"}
    rows = []
    for one in timings:
        way, samples = one["way"], "{median_ms:.3f} ({low_ms:.3f} to {high_ms:.3f})".format_map(one)
        calls = f"{alone[way]:.3f} | **{alone['eager'] / alone[way]:.2f}**" if way in alone else f"{NONE} | {NONE}"
        rows.append([words.get(way, tuned), samples, f"**{base / one['median_ms']:.2f}**", calls])
    heading = "way | samples, ms, median (quartiles) | times as fast as eager (wanted: 1 or more)"
    return table(f"{heading} | single calls, ms, least | times as fast", rows)


def network(result: Result) -> str:
    """For each backbone and number of threads: all networks, PyTorch's call, and each convolution against the peak."""
    found = []
    for run in result["rows"]:
        first, *_ = run["networks"]
        eager = "{latency_ms:.2f} | {best_ms:.2f}".format_map(run["eager"])
        rows = [["PyTorch eager, convolutions", NONE, eager, NONE, NONE, NONE, NONE, NONE]]
        for row in run["networks"]:
            down, faster = first["flops"] / row["flops"], first["latency_ms"] / row["latency_ms"]
            places = " in {} of {}".format(*row["places"]) if row["places"] else ""
            tuned = f"{row['functions'] - row['failed']} of {row['functions']}, {row['trials']} trials"
            times = f"{row['latency_ms']:.2f} | {row['best_ms']:.2f}"
            alone = NONE if row.get("functions_ms") is None else f"{row['functions_ms']:.2f}"
            shown = [alone, f"{down:.2f}", f"**{faster:.2f}**", f"{faster / down:.2f}"]
            rows.append([f"{row['name']}{places}", tuned, times, *shown, f"{row['error']:.1e}"])
        heading = "network | functions tuned | ms, median | ms, least | ms, its functions alone | FLOPs down"
        conv = [
            [
                row["name"],
                str(row["calls"]),
                f"{row['latency_ms']:.3f}",
                number(row["gflops"]),
                f"{row['share_of_peak']:.0%}",
            ]
            for row in run["convolutions"]
        ]
        words = f"{run['total']} trials a network at most, {run['rounds']} rounds in turn, on {run['where']}"
        found += [
            f"**{run['backbone']}**, threads: {run['threads']}; {words}. {run['note']}".strip(),
            table(f"{heading} | times as fast | of its FLOPs' ratio | error against torch", rows),
        ]
        if not conv:
            continue
        found += [
            f"Its convolutions, beside the processor's float32 peak as measured: {run['peak_gflops']:.0f} GFLOP/s",
            table("function | calls | ms a call | GFLOP/s | of the peak", conv),
        ]
    return "\n\n".join(found)


def shares(result: Result) -> str:
    """Of each network equal shares and the scheduler's half, a row for each pair of tunings; then the medians."""
    form = "{seed} | {equal[latency_ms]:.2f} | {gradient[latency_ms]:.2f} | {ratio:.2f}"
    middle = "median | {equal[median]:.2f} | {gradient[median]:.2f} | **{ratio[median]:.2f}**"
    heading = "network | seed | ms, equal shares | ms, half the trials by the scheduler | ratio, wanted at most 1"
    rows = []
    for run in result["runs"]:
        found = [*map(form.format_map, run["rows"]), middle.format_map(run)]
        rows += [f"{run['settings']['backbone']} | {one}" for one in found]
    return table(heading, rows)


def tuned_front(result: Result) -> str:
    """Accuracy and tuned latency of the network as it is and with each operator, the fastest first."""
    if "tuning" not in result:
        return "Accuracies are there; not tuned yet: `python benchmarks/tuned_front.py LAB --part latency`."
    first, settings, tuning = result["baseline"], result["settings"], result["tuning"]
    every = [first, *result["operators"]]
    best = pareto_front(every, maximise=["accuracy"], minimise=["latency_ms"])
    rows = []
    for place in sorted(range(len(every)), key=lambda place: every[place]["latency_ms"]):
        row = every[place]
        cells = [
            row.get("name", "**the network as it is**"),
            f"{row.get('flops_ratio', 1):.2f}",
            f"{row['accuracy']:.3f}",
        ]
        if row is first:
            cells.append(NONE)
        else:
            points = (100 * row["over_seeds"][name] for name in ("difference", "low", "high"))
            cells.append("{:+.1f} ({:+.1f} to {:+.1f})".format(*points))
        cells += [f"{row['latency_ms']:.3f} / {row['best_ms']:.3f}", f"{first['latency_ms'] / row['latency_ms']:.2f}"]
        rows.append(
            [*cells, f"{row['functions'] - len(row['failed'])} of {row['functions']}", "yes" if place in best else ""]
        )
    heading = "operator | FLOPs of the network | accuracy | points against the network | ms, median / least"
    told = (
        f"{settings['backbone']}, {settings['epochs']} epochs, {len(settings['seeds'])} seeds; {tuning['trials']} "
        f"trials a function on average, {tuning['threads']} thread, {tuning['rounds']} rounds in turn, on "
        f"{tuning['where']}."
    )
    return table(f"{heading} | times as fast | functions tuned | on the front", rows) + f"\n\n{told}"


def streaming(result: Result) -> str:
    """A row for each number of images and way; an epoch that ends between two samples has no peak."""
    rows = []
    for one in result["rows"]:
        peak = number(one["peak_mib"]) if one["peak_mib"] > 0 else NONE
        rows.append("{images:,} | {how} | ".format_map(one) + peak + " | {images_per_cpu_s:,}".format_map(one))
    return table("images | how | peak above the start, MiB | images a CPU-second", rows)


def int8(result: Result) -> str:
    """INT8 beside float32: milliseconds of each layer, then test accuracies, the mean and those of each seed."""
    layers = []
    for one in result["layers"]:
        label, times = f"{one['of'][0]}, {_layer(one['of'][1])}", "{float_ms:.3f} | {int8_ms:.3f}".format_map(one)
        layers.append([label, times, f"**{one['float_ms'] / one['int8_ms']:.2f}**", f"{100 * one['error']:.1f} %"])
    rows = []
    for name in dict.fromkeys(one["of"][0] for one in result["accuracy"]):
        found = [one for one in result["accuracy"] if one["of"][0] == name]
        kinds = [[one[kind] for one in found] for kind in ("float32", "int8")]
        cells = [f"**{statistics.mean(one):.3f}** ({', '.join(f'{x:.3f}' for x in one)})" for one in kinds]
        change = statistics.mean(kinds[1]) - statistics.mean(kinds[0])
        rows.append([name, *cells, f"{100 * change:+.1f} points"])
    speed = table("operator, layer | float32, ms | INT8, ms | times as fast | error of INT8's output", layers)
    return f"{speed}\n\n{table('operator | accuracy in float32 | accuracy in INT8 | change', rows)}"


def codegen(result: Result) -> str:
    """Generated torch modules over PyTorch's own layers and calls, and the best plans over the naive ones."""

    def cell(row: Result | None) -> str:
        if row is None:
            return NONE
        ours, peer = (row[f"{who}_peak_bytes"] / 2**20 for who in ("ours", "peer"))
        return f"**{row['ratio']:.2f}** ({ours:.1f} / {peer:.1f})"

    plans = [row for row in result["rows"] if row["table"] == "plans"]
    found = {(row["table"], row["name"], row["threads"], row.get("batch")): row for row in result["rows"]}
    settings = sorted({(row["threads"], row["batch"]) for row in result["rows"] if row["table"] != "plans"})
    header = ["ratio of times (peak memory: ours / peer's, MiB)"]
    header += [f"{threads} thread{'s' * (threads > 1)}, batch {batch}" for threads, batch in settings]
    made = []
    for kind, title in CODEGEN.items():
        names = dict.fromkeys(name for of, name, _, _ in found if of == kind)
        rows = [[name, *(cell(found.get((kind, name, *one))) for one in settings)] for name in names]
        made.append((title, " | ".join(header), rows))
    heading = "threads | operators | time: geometric mean | worst | FLOPs: mean | peak memory: mean | worst"
    lines = []
    for threads in sorted({row["threads"] for row in plans}):
        some = [row for row in plans if row["threads"] == threads]
        times = [row["ratio"] for row in some]
        work = [row["best_flops"] / row["naive_flops"] for row in some]
        memory = [row["ours_peak_bytes"] / row["peer_peak_bytes"] for row in some]
        mean = statistics.geometric_mean
        figures = (mean(times), max(times), mean(work), mean(memory), max(memory))
        lines.append([str(threads), str(len(some)), *(f"{figure:.2f}" for figure in figures)])
    made.append(("The plan with the fewest FLOPs over the naive one, where they differ", heading, lines))
    return "\n\n".join(f"### {title}\n\n{table(heading, rows)}" for title, heading, rows in made if rows)


def chaos(result: Result) -> str:
    """What was lost when processes were killed."""
    result = {**result, "whom": ", ".join(f"{count} of the {role}" for role, count in sorted(result["killed"].items()))}
    form = "{processes left} | {recovery_s[p50]:.1f} / {recovery_s[p95]:.1f}"
    row = [
        "{kills} | {whom}".format_map(result),
        *(str(len(result[name])) for name in TROUBLES),
        form.format_map(result),
    ]
    end = "processes left | whole again after, s: median / 95th percentile"
    return table(["kills | whom", *TROUBLES, end], [row])


def workers(result: Result) -> str:
    """What the executor takes beside sleeping trainings, then what was lost when processes were killed."""
    form = "{workers} | {clusters} | {trainings} of {seconds:g} s | {wall_s:.1f} | {overhead:.1%} | {more_s:.2f}"
    heading = "workers | clusters | trainings | wall time, s | overhead, wanted under 2 % | more, s a training"
    times = table(heading, map(form.format_map, result["rows"]))
    lines = []
    for row in result["kills"]:
        whom = ", ".join(f"{count} of {role}" for role, count in sorted(row["killed"].items()))
        counts = [str(len(row[what])) for what in ("lost", "wrong", "overlapping")]
        counts.append(str(len(row["left"])) if row["clusters"] > 1 else NONE)  # looked for by the other's settings
        steps = "{twice:,} of {steps:,} | {recovery_s[p50]:.1f} / {recovery_s[p95]:.1f}".format_map(row)
        lines.append(["{workers} | {clusters} | {kills}".format_map(row), whom, *counts, steps])
    heading = "workers | clusters | kills | whom | lost | wrong | overlapping | processes left | steps done twice"
    return f"{times}\n\n{table(f'{heading} | all at work after, s: median / 95th percentile', lines)}"


def store(result: Result) -> str:
    """The store with many trials, and Optuna's with what it can be filled with in the time."""
    form = "{trials:,} | {write_in_memory_ms:.3g} | {open_s:.3f} ({open_cpu_s:.3f}) | {list_s:.3f} ({list_cpu_s:.3f})"
    form += " | {front_s:.3f} ({front_cpu_s:.3f}) | {mib:.1f}"
    rows = (
        [label, form.format_map(result[name])] for name, label in (("ours", "ours"), ("optuna", "Optuna's, SQLite"))
    )
    heading = "store | trials | one trial written, ms | opened, s | all listed, s | front of them, s | MiB"
    return table(heading, rows)


def search(result: Result) -> str:
    """One search for a network, in words."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(result["states"].items()))
    seeds = ", ".join(f"{value:.3f}" for value in result["baseline"]["accuracies"])
    lines = [
        f"- {result['trials']} operators evaluated ({states}: a training may take twice the baseline's time)",
        f"- {result['trials_per_hour']:.0f} an hour; overhead {result['overhead_share']:.1%} of the trainings' time",
        f"- baseline: accuracy {result['baseline']['accuracy']:.3f} (seeds: {seeds})",
    ]
    shares = {
        "half": "a half of its FLOPs",
        "quarter": "a quarter of its FLOPs",
        "replaced_0.4": "0.4 of the replaced layers' FLOPs",
        "replaced_0.25": "0.25 of the replaced layers' FLOPs",
    }
    wanted = {name: f"best within {share}" for name, share in shares.items() if name in result["best"]}
    if known := result.get("known"):
        best = max(known, key=lambda one: one["accuracy"])
        wanted["known"] = f"best of {len(known)} known operators, {best['known']}"
    told = (
        "{measure} {operator:.3f} (baseline {baseline:.3f}) at {flops_ratio:.3f} of the FLOPs, {params_ratio:.3f} of "
        "the parameters; difference {interval[difference]:+.3f}, 95 % interval {interval[low]:+.3f} to "
        "{interval[high]:+.3f}"
    )
    for name, which in wanted.items():
        found = result["comparisons"].get(name)
        lines.append(f"- {which}: {told.format_map({'measure': 'accuracy', **_all_seeds(found)}) if found else 'none'}")
    if result.get("note"):
        lines.append(f"- {result['note']}")
    return "\n".join(lines)


def _all_seeds(found: Result) -> Result:
    """A comparison with the interval over seeds and images, where it has one."""
    return {**found, "interval": found.get("over_seeds") or found["interval"]}


def foreign(result: Result) -> str:
    """Searches for networks that are not ours: what was trained, and the best operator beside the network as it is."""
    lines = []
    for row in result["rows"]:
        found = row.get("search")
        if found is None:
            continue
        (name, best), *_ = found["best"].items() or [("", None)]
        compared = found["comparisons"].get(name)
        trials = f"{found['trials']} ({found['discovered']}, {found['with_windows']} with windows)"
        accuracy = difference = NONE
        if best is not None and compared is not None:
            accuracy = f"{compared['baseline']:.3f} to {compared['operator']:.3f}"
            difference = within(*(compared["interval"][end] for end in ("difference", "low", "high")), "+.3f")
        costs = NONE if compared is None else "{flops_ratio:.2f} / {params_ratio:.2f}".format_map(compared)
        layers = f"{row['replaced']} of {row['layers']} ({row['share_of_flops']:.0%})"
        took = f"{found['wall_s']:.0f} ({found['cpu_s']:.0f})"
        lines.append([f"{row['network']} ({row['package']})", layers, trials, costs, accuracy, difference, took])
    heading = (
        "network | layers replaced (of the FLOPs) | operators trained (discovered) | FLOPs / parameters of the whole "
    )
    heading += "with the best | accuracy as it is, and with it | difference, 95 % interval | seconds (CPU)"
    return table(heading, lines)


def traffic(result: Result) -> str:
    """How well memory traffic orders the trainings' times, and what a limit on it would have cut of the trials."""
    by = {what: within(found["rho"], found["low"], found["high"]) for what, found in result["time_by"].items()}
    form = "{limit:g} | {slow_cut} of {slow} | {fine_cut} of {fine} | {best}"
    slow, words = result["slow"], {True: "yes", False: "no"}
    rows = (form.format_map({**found, "slow": slow, "best": words[found["best_is_cut"]]}) for found in result["limits"])
    limits = table("limit of traffic | slow trials cut | other trials cut | the most accurate is cut", rows)
    return (
        f"{result['trials']} trials that a filter at {result['filter']:g} had let through, {result['slow']} of them "
        f"slow (above {result['allowed_s']:.0f} s). Rank correlation with the time of a whole training: memory traffic "
        f"{by['traffic']}, FLOPs {by['flops_ratio']}.\n\n{limits}"
    )


def compositions(result: Result) -> str:
    """Random networks: how many agree in each way, and what was said of the others."""
    kinds = ("equal", "refused", "torch", "fault")
    rows = [[way, *(str(counts[kind]) for kind in kinds)] for way, counts in result["ways"].items()]
    whole = [f"all of {result['count']} networks", *(str(result["whole"][kind]) for kind in kinds)]
    found = [table("what | equal | refused | wrong in torch without the lab too | differ or raise", [*rows, whole])]
    found += [f"- {one['times']} times: {one['line']}" for one in result["refusals"]]
    found += [f"- {one['seed']}: `{one['plan']}`: {one['found']}" for one in result["faults"]]
    return "\n".join([found[0], "", *found[1:]]) if found[1:] else found[0]


STARTS = listing(
    "the job's process | CPU-seconds beside the training | of a trial from this long on at most 2 %, s",
    "started by itself | {ways[alone][beside_training_s]:.2f} | {ways[alone][least_trial_s]:.0f}",
)
PARTS = (
    single("flops", flops),
    single("tvm", tvm, script="tvm_tuning.py"),
    single("tuning-rules", tuning_rules),
    single("tuning-cost", tuning_cost),
    single("tuning-seconds", tuning_seconds, script="tuning_cost.py --name tuning_seconds"),
    single("fused-stages", fused_stages, script="tuning_cost.py --name fused_stages"),
    single("long-tuning", long_tuning, "![Seconds, memory and records of a long tuning](results/long_tuning.svg)"),
    single("against-pytorch", against_pytorch),
    single("network", network),
    single("task-scheduler", shares),
    single("tuned-front", tuned_front, script="tuned_front.py LAB"),
    single("foreign", foreign),
    single("streaming", streaming),
    single("int8", int8),
    single("codegen", codegen),
    single("compositions", compositions),
    Part(
        "jobs",
        Measure("chaos", "python benchmarks/chaos.py", chaos, "### Killed at random"),
        Measure("workers", "python benchmarks/workers.py", workers, "### Workers of one machine and of two"),
        Measure("starts", "python benchmarks/starts.py", STARTS, "### Beside a training"),
        Measure("store", "python benchmarks/store.py", store, "### The store (in brackets: CPU-seconds)"),
    ),
    Part(
        "search-gpt-tiny",
        Measure("search_gpt_tiny", "syno-lab search --backbone gpt_tiny; then stored_evidence.py search", search),
    ),
    Part(
        "search-resnet20",
        Measure("search_resnet20", "syno-lab search --minutes 30", search),
        Measure("search_resnet20_ten_minutes", "syno-lab search --minutes 10", search),
        Measure("traffic", "python benchmarks/traffic.py LAB", traffic, "### Memory traffic and time"),
    ),
)
