"""The parts of ``benchmarks/README.md`` about αNAS, from ``results/alpha.json`` and ``results/evolution.json``."""

from __future__ import annotations

from collections.abc import Callable

from page import NONE, Measure, Part, Result, number, table, within


def sound(result: Result) -> str:
    """Composed mixing against the exact one."""
    return (
        f"Of {result['pairs']:,} pairs of an input and an output of {result['graphs']:,} random subgraphs the composed "
        f"matrix is at most the exact one in {result['at_most']:,}, and equal to it in {result['equal']:,}."
    )


def targets(result: Result) -> str:
    """Each method on the same targets."""
    rows = []
    for name in ("original", "mutated"):
        for method, found in result[name].items():
            fewer = found.get("times_fewer_evaluations")
            rows.append(
                [
                    f"{method}, {name}",
                    f"{found['targets']:,}",
                    f"{found['solved']:.1%}",
                    number(found["operations"]),
                    number(found["evaluations"]),
                    NONE if fewer is None else f"{fewer:.0f} times fewer",
                    f"{found['ms']['median']:.1f}",
                ]
            )
    heading = "method, properties | targets | solved | operations | evaluations | than enumeration"
    return table(f"{heading} | ms, median", rows)


def rate(result: Result) -> str:
    """Drafts looked at."""
    found = result["drafts_per_cpu_s"]
    return (
        f"Drafts looked at in a CPU-second, three values and three distances each: {number(found['greedy'])} by greedy "
        f"synthesis, {number(found['enumerative'])} by enumeration."
    )


def edits(result: Result) -> str:
    """Mutations of ResNet-20."""
    rows = [
        [
            {"once": "drawn once, as in the paper", "again": "drawn until one is found, 16 times at most"}[way],
            f"{found['mutations']:,}",
            f"{found['found']:,} ({found['found'] / found['mutations']:.1%})",
            f"{found['run_with_their_shapes']:,}",
            f"{found['raised']:,}",
            f"{found['ms']['median']:.1f} / {found['ms']['mean']:.1f}",
        ]
        for way, found in result.items()
        if way != "about"
    ]
    heading = "mutations of ResNet-20 | drawn | with a network | that runs with all inferred shapes | that raised"
    return table(f"{heading} | ms, median / mean", rows)


def guide(result: Result) -> str:
    """The wish in the three systems' spaces, and the matrices of the known operators."""

    def share(met: int, of: int) -> str:
        return f"{met / of:.1%} of {of:,}" if of else NONE

    spaces = [
        [
            one["system"],
            share(one["unguided"]["met"], one["unguided"]["asked"]),
            share(one["guided"]["wished"], one["guided"]["drawn"]),
            share(one["guided"]["met"], one["guided"]["asked"]),
        ]
        for one in result["spaces"]
    ]
    known = [[name, " ".join(one["marks"]), "yes" if one["meets"] else "no"] for name, one in result["known"].items()]
    above = table("system | without guidance | with it, before the filter | with it", spaces)
    below = table("known operator | N, C, H, W of the output by those of the input | meets the wish", known)
    return f"Share of random candidates that meet `{result['wish']}`:\n\n{above}\n\n{below}"


def searches(result: Result) -> str:
    """Evolutions and their rivals."""
    found = result["searches"]
    rows = []
    for one in found["rows"]:
        half = one.get("half")
        points = NONE
        if half:
            values = [100 * half["over_seeds"][key] for key in ("difference", "low", "high")]
            points = f"{within(*values, '+.1f')} at {half['params_ratio']:.2f} of the parameters"
        cells = [one["backbone"], str(one["seed"]), one["mutations"], str(len(one["trials"]))]
        cells += [f"{one['hypervolume']:.4f}", f"{one['overhead_share']:.1%}", f"{one['search_s'] / 60:.1f}", points]
        rows.append(cells)
    heading = "network | seed | mutations | trainings | hypervolume | overhead | minutes"
    return table(f"{heading} | best with at most half of the parameters, points", rows)


def locality(result: Result) -> str:
    """Children by properties and by chance."""
    found = result["locality"]
    rows = [
        [
            name,
            str(len(found[name]["accuracies"])),
            f"{found[name]['median']:.3f}",
            f"{found[name]['kept']:.0%}",
            number(found[name]["operations"]),
        ]
        for name in ("progressive", "random")
    ]
    shown = table("children | number | median accuracy | at least 90 % of the parent's | operations, mean", rows)
    values = [100 * found["difference"][key] for key in ("difference", "low", "high")]
    size = f" at {found['resolution']} x {found['resolution']}" if found["resolution"] else ""
    return (
        f"{shown}\n\nTwo epochs of CIFAR-10's images{size}; children of at most {found['most_flops']} times their "
        f"parent's FLOPs. Parent {found['parent']:.3f}; difference of the medians {within(*values, '+.1f')} points."
    )


def _measure(file: str, script: str, name: str, title: str, rows: Callable[[Result], str]) -> Measure:
    command = f"python benchmarks/{script} --part {name}"

    def shown(result: Result) -> str:
        return rows(result) if name in result else f"Not run yet: `{command}`."

    return Measure(file, command, shown, f"### {title}")


def _of(name: str, rows: Callable[[Result], str]) -> Callable[[Result], str]:
    return lambda result: rows(result[name])


PARTS = (
    Part(
        "alpha",
        _measure("alpha", "alpha.py", "sound", "Properties are sound", _of("sound", sound)),
        _measure("alpha", "alpha.py", "targets", "Random targets", _of("targets", targets)),
        _measure("alpha", "alpha.py", "rate", "Evaluations", _of("rate", rate)),
        _measure("alpha", "alpha.py", "edits", "Mutations", _of("edits", edits)),
        _measure("alpha", "alpha.py", "guide", "The guide", _of("guide", guide)),
        one_footer=True,
    ),
    Part(
        "evolution",
        _measure("evolution", "evolution.py LABS --data CIFAR", "searches", "Evolution and its rivals", searches),
        _measure("evolution", "evolution.py LABS --data CIFAR", "locality", "Locality of mutations", locality),
        one_footer=True,
    ),
)
