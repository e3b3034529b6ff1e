"""``syno-lab enumerate``: list every canonical operator of a spec up to a size, once, smaller operators first."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from syno_lab.commands.operands import OutOption, operator_lines
from syno_lab.commands.output import Reporter, say, say_table, write_json
from syno_lab.commands.pgraphs.specs import (
    NAMES,
    SystemOption,
    WantsOption,
    WeightLimitsOption,
    is_canvas,
    load_spec,
    wants_option,
)
from syno_lab.common.wants import wants_text
from syno_lab.effort import Effort
from syno_lab.errors import StoppedError, SynoError


def command(
    spec: Annotated[str, typer.Option(metavar=NAMES, help="What to synthesise.")] = "conv",
    max_primitives: Annotated[int, typer.Option(min=1, help="The most steps of one operator.")] = 5,
    weight_limits: WeightLimitsOption = None,
    wants: WantsOption = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many operators.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many seconds.")] = None,
    out: OutOption = None,
    system: SystemOption = "pgraphs",
) -> None:
    """List every canonical operator of a spec up to a size, each once, smaller operators first, and count them.

    Their number grows by a factor of four to eight with each step, so begin small. An interrupted command keeps the
    lines that it has written.
    """
    from syno_lab.synthesis.sampler import Sampler

    if is_canvas(system):
        raise SynoError(
            "--system: expected pgraphs, found canvas, which has no enumeration: its kernels are made for one network; "
            "draw kernels by `syno-lab sample --system canvas`"
        )
    parsed, _ = load_spec(spec, max_primitives=max_primitives, weight_limits=weight_limits, wants=wants_option(wants))
    start = time.monotonic()
    by_steps: dict[int, int] = {}
    is_whole = True
    with Reporter() as report, operator_lines(out) as write:
        number_found = 0
        stage = "count"

        def is_over() -> bool:
            if not number_found:
                report(stage, 0.0, "how many there are, where that is quick" if stage == "count" else "no operator yet")
            return seconds is not None and time.monotonic() - start >= seconds

        sampler = Sampler.from_spec(parsed, seed=0, effort=Effort(should_stop=is_over))
        try:
            expected = sampler.counted
            known = f" of at most {expected:,}" if expected is not None else ""
            report("count", 1.0, f"at most {expected:,}" if known else "too many to count beforehand")
            stage = "list"
            for operator in sampler.enumerate():
                if number_found == count:
                    is_whole = False
                    break
                number_found += 1
                steps = len(operator.steps)
                by_steps[steps] = by_steps.get(steps, 0) + 1
                write(operator)
                goal = min(filter(None, (expected, count)), default=0)
                report("list", number_found / max(goal, number_found + 1), f"{number_found:,}{known}; {steps} steps")
        except StoppedError as error:
            if not number_found:
                raise SynoError(
                    f"expected an operator within {seconds:g} seconds, found none: {error}; raise --seconds, or narrow "
                    "the spec"
                ) from None
            is_whole = False
        report("list", 1.0, f"{number_found:,} operators")
    say_table([{"steps": steps, "operators": number} for steps, number in by_steps.items()])
    say(f"{number_found:,} operators of at most {max_primitives} steps" + ("" if is_whole else ", and there are more"))
    write_json(
        {
            "spec": spec,
            "max_primitives": max_primitives,
            "weight_limits": parsed.weight_limits,
            "wants": wants_text(parsed.wants, parsed.input_shape, parsed.output_shape),
            "count": number_found,
            "is_whole": is_whole,
            "by_steps": by_steps,
            "seconds": time.monotonic() - start,
        }
    )
