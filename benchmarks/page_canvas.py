"""The part of ``benchmarks/README.md`` about Canvas, from ``results/canvas.json``: a measure for each part of it."""

from __future__ import annotations

from collections.abc import Callable

from page import Measure, Part, Result, number, table
from page_synthesis import half_hours

COMMAND = "python benchmarks/canvas.py --part"


def sampler(result: Result) -> str:
    """Rates, repeats and the use of the budget in each setting."""
    rows = []
    for name, found in result.items():
        if name == "about":
            continue
        used = found["used"]
        cells = [name, number(found["distinct_per_cpu_s"]), f"{found['valid']:.1%}", f"{found['repeats']:.2%}"]
        cells += [f"{found['free']:.1%}"]
        cells += [f"{used['median']:.1%} / {used['least']:.1%}" if used else "–"]
        rows.append(cells)
    heading = "setting | distinct a CPU-second | attempts that are valid | repeats | with a dynamic variable"
    return table(f"{heading} | of the budget these use, median / least", rows)


def solver(result: Result) -> str:
    """The time of the constraint solver for all places of a network."""
    median, worst = result["ms"]["median"], result["ms"]["worst"]
    return (
        f"CPU time to solve one kernel with dynamic variables for the {result['places']} places of ResNet-34, within "
        "half of their FLOPs and of their parameters, of 300 random kernels: "
        f"median {median:.1f} ms, longest {worst:.1f} ms."
    )


def rediscovery(result: Result) -> str:
    """CPU-seconds until known kernels are drawn from small sets of primitives."""
    rows = []
    for name, found in result.items():
        if name == "about":
            continue
        seconds = [one["cpu_s"] for one in found]
        met = [one for one in seconds if one is not None]
        rows.append(
            [
                name.replace("_", " "),
                f"{len(met)} of {len(found)}",
                ", ".join("more than 60" if one is None else f"{one:.2g}" for one in seconds),
                ", ".join(f"{one['kernels']:,}" for one in found),
            ]
        )
    return table("kernel | seeds that drew it | CPU-seconds until then | kernels drawn until then", rows)


def trust(result: Result) -> str:
    """How many kernels agreed, and how often each primitive and each kind of place was met."""
    names = {"values": "torch values", "gradients": "torch gradients", "tvm": "compiled TVM"}
    checks = list(result["checked"])
    none = result["without_digits"]
    kinds = list(dict.fromkeys(kind for found in result["sources"].values() for kind in found))
    rows = [["**kernels**", *(f"**{result['checked'][check]:,}**" for check in checks)]]
    rows += [["that disagree", *(f"{result['failed'][check]:,}" for check in checks)]]
    rows += [["without digits to compare", *(f"{none.get(check, 0):,}" for check in checks)]]
    rows += [[kind, *(f"{result['sources'][check].get(kind, 0):,}" for check in checks)] for kind in kinds]
    rows += [[name, *(f"{met[check]:,}" for check in checks)] for name, met in result["corners"].items()]
    told = (
        "Keys: {kernels} kernels renumbered {times:,} times each, {wrong} times with another key. ".format_map(
            result["renumberings"]
        )
        + "{compared:,} pairs with one key, or with the same primitives and two keys, of {kernels:,} kernels with "
        "{keys:,} keys: networkx says otherwise of {wrong}.".format_map(result["pairs"])
    )
    return f"{table(['', *(names.get(check, check) for check in checks)], rows)}\n\n{told} Seed {result['seed']}."


def modules(result: Result) -> str:
    """How many kernels run, stay finite and learn."""
    of, trained = result["kernels"], result["trained"]

    def share(count: int, of: int) -> str:
        return f"{count:,} of {of:,} ({count / of:.0%})" if of else "–"

    rows = [
        ["built and run at all 18 places", share(result["build_and_run"], of)],
        ["with a gradient for every weight", share(result["all_weights_have_gradients"], of)],
        ["finite over 24 steps", share(result["finite"], trained)],
        ["a loss that falls by 0.1", share(result["falls"], trained)],
        [
            "no FC whose weight has a gradient of zeros in all steps",
            share(result["no_gradient_is_zero"], trained),
        ],
    ]
    return f"{table('ResNet-20, kernels as they are drawn | how many', rows)}\n\nSeed {result['seed']}."


def conv2d(result: Result) -> str:
    """The convolution as a kernel against PyTorch's."""
    low, high = result["quarters"]
    return (
        f"CPU time, forwards and backwards, of the convolution as a kernel over that of `nn.Conv2d`: median "
        f"{result['ratio']:.3f} of {result['pairs']} pairs, half of them {low:.3f} to {high:.3f}."
    )


def narrowed(result: Result) -> str:
    """Finalists against the network of fewer channels that has at least their FLOPs."""
    rows = []
    for row in result["rows"]:
        other = row["against"]["narrowed"]
        difference, low, high = (100 * other["over_seeds"][key] for key in ("difference", "low", "high"))
        rows.append(
            [
                row["name"],
                row["system"],
                f"{row['flops']:,} / {row['params']:,}",
                (
                    f"{row['width']}: {round(row['flops'] / other['flops_ratio']):,} / "
                    f"{round(row['params'] / other['params_ratio']):,}"
                ),
                f"{other['operator_accuracy']:.3f} / {other['accuracy']:.3f}",
                f"{difference:+.1f} ({low:+.1f} to {high:+.1f})",
                str(len(row["seeds"])),
            ]
        )
    heading = "search | finalist | its FLOPs / parameters | width of ResNet-20: FLOPs / parameters | accuracy, both"
    return table(f"{heading} | points | seeds", rows)


def ruled(result: Result) -> str:
    """The search as in the paper: what its rule of early termination saves, and its best kernel."""
    saved, training = result["saved"], result["training"]
    return (
        f"{result['drawn']} kernels drawn by chance for ResNet-20 of width {training['width']}, {result['trained']} of "
        f"them trained to the end: {training['epochs']} epochs of {training['images']:,} images. In {result['orders']} "
        f"drawn orders the rule (θ {result['theta']:g}) saves {saved['median']:.0%} of the epochs in the median (least "
        f"{saved['least']:.0%}; wanted 40 %), and trains the best kernel to the end in {result['kept']} (wanted 8).\n\n"
        + narrowed(result)
    )


def _measure(name: str, title: str, rows: Callable[[Result], str], more: str = "") -> Measure:
    command = f"{COMMAND} {name}{more}"

    def shown(result: Result) -> str:
        return rows(result[name]) if name in result else f"Not run yet: `{command}`."

    return Measure("canvas", command, shown, f"### {title}")


PARTS = (
    Part(
        "canvas",
        _measure("sampler", "Kernels a CPU-second", sampler),
        _measure("solver", "The sizes of a kernel at all places", solver),
        _measure("rediscovery", "Known kernels, drawn by chance", rediscovery),
        _measure("trust", "All forms of random kernels agree", trust),
        _measure("modules", "Random kernels in a network", modules, " --data FOLDER"),
        _measure("conv2d", "The convolution as a kernel", conv2d),
        one_footer=True,
    ),
    Part(
        "canvas-searches",
        Measure(
            "canvas_searches",
            "python benchmarks/half_hours.py --name canvas_searches",
            half_hours,
            "### Searches of half an hour for ResNet-20",
        ),
        Measure(
            "narrowed",
            "python benchmarks/narrowed.py NAME LAB",
            narrowed,
            "### Their finalists against a network of fewer channels",
        ),
        Measure(
            "canvas_rule",
            "python benchmarks/canvas_rule.py LAB",
            ruled,
            "### The search of the paper, and its rule of early termination",
        ),
    ),
)
