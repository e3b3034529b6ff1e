"""``syno-lab sample``: draw operators for a spec, and measure how fast they come."""

from __future__ import annotations

import itertools
import json as json_text
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syno_lab.commands.output import JsonTarget, Reporter, check_json, say, write_json
from syno_lab.commands.specs import load_spec
from syno_lab.errors import SpecError, SynoError

if TYPE_CHECKING:
    from syno_lab.ir.operator import Operator
    from syno_lab.ir.spec import Spec

DEFAULT_COUNT = 10
LISTED = 20  # operators that are listed when only --seconds bounds their number


class WeightLimits(StrEnum):
    """Whether the limits of occurrences bind the weights' dimensions too."""

    FREE = "free"
    STRICT = "strict"


@dataclass(frozen=True)
class Drawn:
    """What sampling gave: each pGraph once, CPU-seconds, and whether no more were found."""

    operators: list[Operator]
    cpu_seconds: float
    exhausted: bool
    seed: int
    trials: int


def command(
    spec: Annotated[str, typer.Option(metavar="conv|readme|FILE", help="What to synthesise.")] = "conv",
    max_primitives: Annotated[int | None, typer.Option(min=1, help="The most steps of one operator.")] = None,
    weight_limits: Annotated[
        WeightLimits | None, typer.Option(help="Whether occurrence limits bind the dimensions of weights too.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, help=f"Stop after so many operators. [{DEFAULT_COUNT} without --seconds]"),
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many seconds.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed draws the same operators.")] = None,
    fingerprints: Annotated[bool, typer.Option(help="Tell equal functions apart, after the clock has stopped.")] = True,
    json: JsonTarget = None,
) -> None:
    """Draw random canonical operators, each pGraph once.

    The rate is that of operators a CPU-second, times one minus the share of those whose fingerprint an earlier one has.
    The JSON holds the figures and the operators that are listed: all with --count, else the first 20.
    """
    check_json(json)
    parsed, own_seed = load_spec(
        spec, max_primitives=max_primitives, weight_limits=None if weight_limits is None else weight_limits.value
    )
    if count is None and seconds is None:
        count = DEFAULT_COUNT
    with Reporter() as report:
        drawn = draw(parsed, own_seed if seed is None else seed, count, seconds, report)
        peak = _peak_memory_bytes()
        listed = drawn.operators if count is not None else drawn.operators[:LISTED]
        start = time.process_time()
        names = _fingerprints(drawn.operators, report) if fingerprints else []
        fingerprint_cpu_seconds = time.process_time() - start
    entries = [_entry(operator, name) for operator, name in itertools.zip_longest(listed, names[: len(listed)])]
    for entry in entries:
        say(_line(entry), json)
    repeat_share = _repeat_share(names)
    distinct = len(drawn.operators)
    figures = {
        "spec": spec,
        "max_primitives": parsed.limits.max_primitives,
        "weight_limits": parsed.weight_limits,
        "seed": drawn.seed,
        "distinct": distinct,
        "cpu_seconds": drawn.cpu_seconds,
        "distinct_per_cpu_second": distinct * (1 - (repeat_share or 0.0)) / max(drawn.cpu_seconds, 1e-9),
        "repeat_share": repeat_share,
        "fingerprint_cpu_seconds": fingerprint_cpu_seconds,
        "peak_memory_bytes": peak,
        "exhausted": drawn.exhausted,
        "walks": drawn.trials,
    }
    say(_summary(figures), json)
    write_json(figures | {"operators": entries}, json)


def draw(
    spec: Spec, seed: int | None, count: int | None, seconds: float | None, report: Callable[[str, float, str], None]
) -> Drawn:
    """Draw until ``count`` operators, ``seconds`` of wall time, or no more are found.

    Raises:
        SpecError: when the spec has no operator within its budgets.
        SynoError: when the time is over before the first one.
    """
    from syno_lab.synthesis.sampler import Sampler

    start, cpu_start = time.monotonic(), time.process_time()

    def is_over() -> bool:
        return seconds is not None and time.monotonic() - start >= seconds

    sampler = Sampler.from_spec(spec, seed=seed)
    operators: list[Operator] = []
    exhausted = False
    try:
        for operator in itertools.islice(sampler.samples(should_stop=is_over), count):
            operators.append(operator)
            done = len(operators) / count if count else (time.monotonic() - start) / (seconds or 1.0)
            report("sample", min(done, 1.0), f"{len(operators)} operators after {sampler.trials} walks")
            if is_over():
                break
        else:
            exhausted = count is None or len(operators) < count
    except SynoError as error:
        if not is_over() or isinstance(error, SpecError):
            raise
        raise SynoError(f"expected an operator within {seconds:g} seconds, found none; raise --seconds") from None
    cpu_seconds = time.process_time() - cpu_start
    return Drawn(operators, cpu_seconds, exhausted and not is_over(), sampler.seed, sampler.trials)


def _fingerprints(operators: list[Operator], report: Callable[[str, float, str], None]) -> list[str | None]:
    """Each operator's fingerprint with the binding it was taken on; None where that has too many terms."""
    from syno_lab.ir.fingerprint import distinct_key

    names: list[str | None] = []
    for operator in operators:
        try:
            binding, name = distinct_key(operator)
        except SynoError:
            names.append(None)
        else:
            names.append(f"{name} on {', '.join(f'{variable}={number}' for variable, number in binding)}")
        report("compare", len(names) / len(operators), f"{len(names)} of {len(operators)} fingerprints")
    return names


def _repeat_share(names: list[str | None]) -> float | None:
    """The share of operators whose fingerprint an earlier one has; None where one has no fingerprint."""
    if not names or None in names:
        return None
    return 1 - len(set(names)) / len(names)


def _entry(operator: Operator, name: str | None) -> dict[str, Any]:
    bound = operator.complete_binding() if operator.spec.bindings else None
    fingerprint, _, on = (name or "").partition(" on ")
    return {
        "shape": str(operator),
        "flops": None if bound is None else operator.flops(bound),
        "params": None if bound is None else operator.params(bound),
        "fingerprint": fingerprint or None,
        "fingerprint_binding": on or None,
        "operator": json_text.loads(operator.to_json()),
    }


def _line(entry: dict[str, Any]) -> str:
    words = [entry["shape"]]
    if entry["flops"] is not None:
        words += [f"{entry['flops']:,} FLOPs", f"{entry['params']:,} parameters"]
    return "; ".join(words + [entry["fingerprint"]] * (entry["fingerprint"] is not None))


def _summary(figures: dict[str, Any]) -> str:
    repeats = "" if figures["repeat_share"] is None else f", {100 * figures['repeat_share']:.2f} % of them repeats"
    end = "; no more were found" if figures["exhausted"] else ""
    return (
        f"{figures['distinct']} operators in {figures['cpu_seconds']:.2f} CPU-seconds{repeats}: "
        f"{figures['distinct_per_cpu_second']:.1f} distinct a CPU-second, "
        f"{figures['peak_memory_bytes'] / 2**20:.0f} MiB at most, seed {figures['seed']}{end}"
    )


def _peak_memory_bytes() -> int:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
