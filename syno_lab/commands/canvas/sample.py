"""``syno-lab sample --system canvas``: draw kernels for the convolutions of a network."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno_lab.commands.operands import operator_lines
from syno_lab.commands.output import Reporter, say, write_json
from syno_lab.commands.pgraphs.specs import wants_option
from syno_lab.errors import OverTimeError, SpecError, StoppedError, SynoError
from syno_lab.inputs import integer, quoted
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.canvas import Sampler
    from syno_lab.canvas.fitted import Fitted

_REPORT_PERIOD_S = 0.1
#: The default of the largest number of primitives of a kernel.
MOST_PRIMITIVES = 12


@dataclass(frozen=True)
class Kernels:
    """The options of the command for Canvas; a share is a share of the costs of the replaced convolutions."""

    min_primitives: Annotated[int, typer.Option(min=1, help="Of Canvas: the fewest primitives of a kernel.")] = 3
    backbone: Annotated[
        str, typer.Option(help="Of Canvas: the network whose convolutions a kernel replaces (`syno-lab backbone`).")
    ] = "resnet20"
    resolution: Annotated[int | None, typer.Option(min=1, help="Of Canvas: height and width of its images.")] = None
    flops: Annotated[float, typer.Option(help="Of Canvas: the most FLOPs, a share of the replaced convolutions'.")] = (
        0.5
    )
    params: Annotated[float | None, typer.Option(help="Of Canvas: the most parameters, likewise.")] = None
    width: Annotated[int, typer.Option(help="Of Canvas: the most tensors at a time that nothing uses.")] = 8
    fcs: Annotated[str, typer.Option(metavar="LEAST-MOST", help="Of Canvas: how many FCs a kernel has.")] = "1-4"
    groups: Annotated[int | None, typer.Option(help="Of Canvas: the number G. [default: drawn]")] = None
    include: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Of Canvas: the primitives to use. [default: all]")
    ] = None


def sample_kernels(
    options: Kernels,
    max_primitives: int | None,
    wants: str | None,
    count: int | None,
    seconds: float | None,
    seed: int | None,
    listed: int,
    out: Path | None,
) -> None:
    """Draw kernels of which no two are isomorphic, and print their costs and the rate of drawing.

    Without ``count``, only the first ``listed`` kernels are printed. Raises SpecError for an invalid option or a
    network without convolutions; SynoError if the time limit passes before the first kernel.
    """
    from syno_lab.canvas.mixing import pairing_of, parse_wishes, wishes_text

    least = min(options.min_primitives, max_primitives or options.min_primitives)
    primitives = (least, max_primitives or MOST_PRIMITIVES)
    sampler = _sampler(options, primitives, seed or 0)
    wishes = parse_wishes(wants_option(wants))
    window = max(((place.kh, place.kw) for place in sampler.places), key=math.prod)
    flops = sum(place.flops for place in sampler.places)
    params = sum(place.params for place in sampler.places)
    start, start_cpu = time.monotonic(), time.process_time()
    listed_kernels: list[Fitted] = []
    last_report = -math.inf
    distinct = drawn = 0

    def is_over() -> bool:
        nonlocal last_report
        now = time.monotonic() - start
        if now - last_report >= _REPORT_PERIOD_S:
            last_report = now
            done = max(distinct / count if count else 0.0, now / seconds if seconds else 0.0)
            report("sample", min(done, 1.0), f"{distinct} kernels after {sampler.outcomes.total()} attempts")
        return seconds is not None and now >= seconds

    with Reporter() as report, operator_lines(out) as write:
        try:
            for operator in sampler.samples(seconds=math.inf if seconds else 60, should_stop=is_over):
                drawn += 1
                if pairing_of(operator.kernel, window).meets(wishes):
                    distinct += 1
                    write(operator)
                    if count is not None or distinct <= listed:
                        listed_kernels.append(operator)
                if distinct == count or is_over():
                    break
        except (StoppedError, OverTimeError) as error:
            if not distinct:
                raise SynoError(
                    f"expected a kernel within {seconds or 60:g} seconds, found none: {error}; raise --seconds or a "
                    "budget, or ask for less"
                ) from None
        report("sample", 1.0, f"{distinct} kernels")
    cpu_s = time.process_time() - start_cpu
    attempts = sampler.outcomes.total()
    entries = [_entry(operator, flops, params) for operator in listed_kernels]
    for entry in entries:
        say(
            f"{entry['shape']}; {entry['flops']:,} FLOPs ({entry['flops_ratio']:.3f}), {entry['params']:,} parameters "
            f"({entry['params_ratio']:.3f})"
        )
    say(
        f"{distinct} kernels for {len(sampler.places)} convolutions of {options.backbone} in {cpu_s:.2f} CPU-seconds: "
        f"{distinct / max(cpu_s, 1e-9):.1f} distinct a CPU-second, {sampler.outcomes['kernel'] / attempts:.1%} of "
        f"{attempts:,} attempts valid, seed {seed or 0}"
    )
    figures = {
        **{name: value for name, value in vars(options).items() if name != "min_primitives"},
        "primitives": primitives,
        "system": "syno-lab-canvas",
        "wants": wishes_text(wishes),
        "seed": seed or 0,
        "places": len(sampler.places),
        "replaced": {"flops": flops, "params": params},
        "distinct": distinct,
        "drawn": drawn,
        "attempts": attempts,
        "outcomes": dict(sampler.outcomes.most_common()),
        "cpu_seconds": cpu_s,
        "distinct_per_cpu_second": distinct / max(cpu_s, 1e-9),
    }
    write_json(figures | {"operators": entries})


def _sampler(options: Kernels, primitives: tuple[int, int], seed: int) -> Sampler:
    from syno_lab.canvas import Sampler
    from syno_lab.models.registry import backbone

    chosen = backbone(options.backbone)
    if chosen.domain != "images":
        raise SpecError(f"--backbone: expected a network for images, found {options.backbone}, one for {chosen.domain}")
    return Sampler(
        chosen.survey(size=options.resolution).select(chosen.selection),
        max_flops=options.flops,
        max_params=options.params,
        primitives=primitives,
        width=options.width,
        fcs=_span(options.fcs),
        groups=options.groups,
        include=None if options.include is None else [name.strip() for name in options.include.split(",")],
        seed=seed,
    )


def _span(text: str) -> tuple[int, int]:
    """Parse ``1-4`` or ``2`` as a lower and an upper bound."""
    least, dash, most = text.partition("-")
    numbers = integer(least.strip()), integer(most.strip() if dash else least.strip())
    if numbers[0] is None or numbers[1] is None:
        raise SpecError(f"--fcs: expected the fewest and the most, such as 1-4, found {quoted(text)}")
    return numbers[0], numbers[1]


def _entry(operator: Fitted, flops: int, params: int) -> dict[str, JSON]:
    """Return a kernel with the sum of its costs in all layers that it replaces."""
    spent = operator.spent
    return {
        "shape": str(operator),
        "flops": spent.flops,
        "params": spent.params,
        "flops_ratio": spent.flops / flops,
        "params_ratio": spent.params / params,
        "operator": json.loads(operator.to_json()),
    }
