"""The result of a search in rungs, for people."""

from __future__ import annotations

from typing import Any

from syno_lab.commands.output import say, say_table


def say_rungs(result: dict[str, Any], json: str | None) -> None:
    """Print the plan, the funnel, the finals and where the time went; with ``json`` on standard output, nothing."""
    baseline, funnel, shares = result["baseline"], result["funnel"], result["time"]["shares"]
    say_table(
        [
            {
                "part": part["name"],
                "planned": part["trainings"] or "",
                "seconds each": f"{part['each_s']:.1f}" if part["trainings"] else "",
                "minutes of a worker": f"{part['seconds'] / 60:.1f}",
                "share of the time": f"{shares.get(SHARES_OF.get(part['name'], part['name']), 0.0):.1%}",
            }
            for part in result["plan"]["parts"]
        ],
        json,
    )
    say(f"the rest of the time (store, jobs, estimate, idle workers): {shares['rest']:.1%}", json)
    draws = funnel["draws"]
    say_table(
        [
            *(
                {"funnel": name, "operators": draws[name], "failed": "", "seconds": ""}
                for name in ("wished", "affordable", "probed")
            ),
            *(
                {
                    "funnel": name,
                    "operators": int(found["trained"]),
                    "failed": int(found["failed"]),
                    "seconds": f"{found['seconds']:.0f}",
                }
                for name, found in funnel["rungs"].items()
            ),
        ],
        json,
    )
    if baseline["accuracy"] is not None:
        say(
            f"baseline: {baseline['accuracy']:.4f} ({len(baseline['accuracies'])} seeds), {baseline['flops']:,} FLOPs, "
            f"{baseline['params']:,} parameters",
            json,
        )
    for name, one in result["comparisons"].items():
        interval = one["over_seeds"] or one["interval"]
        best = result["best"].get(name)
        which = "best known" if best is None else f"trial {best['number']}, best within {name} of the replaced FLOPs"
        at = "" if best is None else f" at {best['replaced_ratio']:.3f} of them"
        say(
            f"{which}{at}: {one['operator']:.4f}, {one['measure']} {interval['difference']:+.4f} against the baseline, "
            f"{interval['confidence']:.0%} interval {interval['low']:+.4f} to {interval['high']:+.4f} "
            f"({len(one['seeds'])} seeds): {one['verdict']}",
            json,
        )
    for name, reason in result["not_compared"].items():
        say(f"{name}: not compared: {reason}", json)
    say(f"{result['trials']} trials; {result['end']}; {result['verdict']}", json)


#: The names of parts of the plan in the shares of the time.
SHARES_OF = {"finals": "final"}
