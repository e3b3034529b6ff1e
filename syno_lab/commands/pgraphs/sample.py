"""``syno-lab sample``: draw operators for a spec, and measure the rate."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syno_lab.commands.canvas.sample import Kernels, sample_kernels
from syno_lab.commands.operands import OutOption, operator_lines
from syno_lab.commands.output import STANDARD_OUTPUT, Reporter, check_json, say, write_json, write_text
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
from syno_lab.effort import peak_bytes, resident_bytes
from syno_lab.errors import StoppedError, SynoError
from syno_lab.inputs import quoted
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.ir.operator import Operator
    from syno_lab.ir.spec import Spec

Report = Callable[[str, float, str], None]

DEFAULT_COUNT = 10
LISTED = 20  # the number of listed operators if only --seconds limits the draws
#: The default of --fingerprints-of. A share of repeats needs at least LEAST_FINGERPRINTED operators, if they exist.
FINGERPRINTED = 20_000
LEAST_FINGERPRINTED = 5_000
#: The options for pGraphs only.
PGRAPHS_OWN = ("spec", "weight_limits", "spread", "fingerprints", "fingerprints_of", "save")
_REPORT_PERIOD_S = 0.1
_QUIET_S = 1.0  # Seconds until the message that no operator was found yet.
_COURSE_PARTS = 32  # The limit of entries in the course of a run; twice as many while it runs.


@dataclass(frozen=True)
class Moment:
    """The progress of a run: seconds and CPU-seconds since its start, operators drawn, resident bytes (0: unknown)."""

    seconds: float
    cpu_seconds: float
    distinct: int
    memory_bytes: int


@dataclass(frozen=True)
class Drawn:
    """The result of sampling: the first operators, each pGraph once; all operators if a count was set.

    ``distinct``: the number of drawn operators; ``cpu_seconds``: the CPU time until the last operator; ``exhausted``:
    whether no more operators were found; ``trials``: the number of random walks; ``course``: time and memory.
    """

    operators: list[Operator]
    distinct: int
    cpu_seconds: float
    exhausted: bool
    seed: int
    trials: int
    course: list[Moment]


def command(
    *,
    spec: Annotated[str, typer.Option(metavar=NAMES, help="What to synthesise.")] = "conv",
    max_primitives: Annotated[int | None, typer.Option(min=1, help="The most steps of one operator.")] = None,
    weight_limits: WeightLimitsOption = None,
    wants: WantsOption = None,
    count: Annotated[
        int | None, typer.Option(min=1, help=f"Stop after so many operators. [{DEFAULT_COUNT} without --seconds]")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many seconds.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed draws the same operators.")] = None,
    spread: Annotated[
        bool, typer.Option(help="Few operators from one place; else neighbourhoods are listed: faster, and alike.")
    ] = True,
    fingerprints: Annotated[
        bool, typer.Option(help="Count operators that compute the same function, after the timed part.")
    ] = True,
    fingerprints_of: Annotated[
        int, typer.Option(min=LEAST_FINGERPRINTED, metavar="N", help="Take fingerprints only of the first N operators.")
    ] = FINGERPRINTED,
    save: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help=f"Write the first {FINGERPRINTED:,} to a file for `syno-lab replay`."),
    ] = None,
    out: OutOption = None,
    system: SystemOption = "pgraphs",
    kernels: Kernels,
) -> None:
    """Draw random canonical operators, each pGraph once; with --system canvas, kernels for a network's convolutions.

    The rate is the number of operators with distinct fingerprints a CPU-second. Equal fingerprints count as repeats if
    they are equal on a larger binding too. The JSON holds the figures and the listed operators: all with --count, else
    the first 20.
    """
    _check_belongs(system, {**locals(), **vars(kernels)})
    if count is None and seconds is None:
        count = DEFAULT_COUNT
    if is_canvas(system):
        sample_kernels(kernels, max_primitives, wants, count, seconds, seed, LISTED, out)
        return
    if save is not None:
        _check_save(save)
    parsed, own_seed = load_spec(
        spec, max_primitives=max_primitives, weight_limits=weight_limits, wants=wants_option(wants)
    )
    keep = max(LISTED, fingerprints_of if fingerprints else 0, FINGERPRINTED if save is not None else 0)
    with Reporter() as report, operator_lines(out) as write:
        own_seed = own_seed if seed is None else seed
        drawn = draw(parsed, own_seed, count, seconds, report, keep, spread=spread, each=write)
        peak = peak_bytes()  # the peak memory of sampling alone
        listed = drawn.operators if count is not None else drawn.operators[:LISTED]
        start = time.process_time()
        named = drawn.operators[:fingerprints_of] if fingerprints else []
        names = _fingerprints(named, report)
        repeat_share = _repeat_share(named, names, report)
        fingerprint_cpu_seconds = time.process_time() - start
        if save is not None:
            _save(save, parsed, drawn, spread)
    entries = [_entry(operator, name) for operator, name in itertools.zip_longest(listed, names[: len(listed)])]
    for entry in entries:
        say(_line(entry))
    distinct = drawn.distinct
    figures = {
        "spec": spec,
        "max_primitives": parsed.limits.max_primitives,
        "weight_limits": parsed.weight_limits,
        "wants": wants_text(parsed.wants, parsed.input_shape, parsed.output_shape),
        "spread": spread,
        "seed": drawn.seed,
        "distinct": distinct,
        "cpu_seconds": drawn.cpu_seconds,
        "distinct_per_cpu_second": distinct * (1 - (repeat_share or 0.0)) / max(drawn.cpu_seconds, 1e-9),
        "repeat_share": repeat_share,
        "fingerprinted": len(names),
        "fingerprint_cpu_seconds": fingerprint_cpu_seconds,
        "peak_memory_bytes": peak,
        "exhausted": drawn.exhausted,
        "walks": drawn.trials,
        "course": drawn.course,
    }
    say(_summary(figures))
    write_json(figures | {"operators": entries})


def draw(
    spec: Spec,
    seed: int | None,
    count: int | None,
    seconds: float | None,
    report: Report,
    keep: int = FINGERPRINTED,
    *,
    spread: bool = True,
    each: Callable[[Operator], None] = lambda operator: None,
) -> Drawn:
    """Draw until ``count`` operators are drawn, ``seconds`` of wall time have passed, or no more operators are found.

    ``each`` is called with every operator. Without ``count`` only the first ``keep`` operators are stored, to limit the
    memory of a long run.

    Raises:
        SpecError: the spec has no operator within its budgets.
        SynoError: the time limit passes before the first operator, or there is too little memory.
    """
    from syno_lab.synthesis.sampler import Sampler

    start, cpu_start = time.monotonic(), time.process_time()
    last_report = 0.0

    def is_over() -> bool:
        now = time.monotonic() - start
        if not drawn and now > _QUIET_S:
            report("sample", min(now / (seconds or math.inf), 0.99), f"no operator after {sampler.trials} walks")
        return seconds is not None and now >= seconds

    sampler = Sampler.from_spec(spec, seed=seed, spread=spread)
    operators: list[Operator] = []
    drawn = 0
    course = _Course()
    exhausted = False
    try:
        for operator in itertools.islice(sampler.samples(should_stop=is_over), count):
            drawn += 1
            each(operator)
            if count is not None or len(operators) < keep:
                operators.append(operator)
            now = time.monotonic()
            if now - last_report >= _REPORT_PERIOD_S or drawn == count:
                last_report = now
                done = drawn / count if count else (now - start) / (seconds or 1.0)
                report("sample", min(done, 1.0), f"{drawn} operators after {sampler.trials} walks")
                course.add(Moment(now - start, time.process_time() - cpu_start, drawn, resident_bytes()))
            if is_over():
                break
        else:
            exhausted = count is None or drawn < count
    except StoppedError as error:
        raise SynoError(
            f"expected an operator within {seconds:g} seconds, found none: {error}; raise --seconds, or narrow the spec"
        ) from None
    cpu_seconds = time.process_time() - cpu_start
    course.add(Moment(time.monotonic() - start, cpu_seconds, drawn, resident_bytes()), last=True)
    return Drawn(
        operators, drawn, cpu_seconds, exhausted and not is_over(), sampler.seed, sampler.trials, course.moments
    )


class _Course:
    """The progress of a run at regular intervals: when there are too many entries, every second entry is dropped."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._period = 0.0

    def add(self, moment: Moment, last: bool = False) -> None:
        if self.moments and not last and moment.seconds - self.moments[-1].seconds < self._period:
            return
        self.moments.append(moment)
        if len(self.moments) >= 2 * _COURSE_PARTS:
            del self.moments[0::2]
            self._period = 2 * max(self._period, _REPORT_PERIOD_S)


def _check_belongs(system: str, values: Mapping[str, Any]) -> None:
    """Raise an error for an option of the other system that is set."""
    kernels = inspect.signature(Kernels).parameters
    wrong, other = (PGRAPHS_OWN, "pgraphs") if is_canvas(system) else (kernels, "canvas")
    defaults = {**inspect.signature(command).parameters, **kernels}
    for name in wrong:
        if values[name] != defaults[name].default:
            raise SynoError(f"--{name.replace('_', '-')}: expected --system {other} beside it, found {quoted(system)}")


def _check_save(path: Path) -> None:
    """Check, before the work begins, that the file of the record can be written, as :func:`check_json` does."""
    try:
        check_json("./-" if str(path) == STANDARD_OUTPUT else str(path))
    except SynoError:
        raise SynoError(
            f"--save: expected a file in a folder that can be written to, found {quoted(str(path))}"
        ) from None


def _save(path: Path, spec: Spec, drawn: Drawn, spread: bool) -> None:
    from syno_lab.synthesis.record import record_search, to_text

    saved = drawn.operators[:FINGERPRINTED]
    is_complete = drawn.exhausted and len(saved) == drawn.distinct
    write_text(path, to_text(record_search(spec, drawn.seed, saved, exhausted=is_complete, spread=spread)))


def _fingerprints(operators: list[Operator], report: Report) -> list[str | None]:
    """Return each operator's fingerprint with its binding; None for an operator with too many terms."""
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


def _repeat_share(operators: list[Operator], names: list[str | None], report: Report) -> float | None:
    """Return the share of operators that compute an earlier operator's function; None if a fingerprint is missing."""
    from syno_lab.ir.fingerprint import confirmed_repeats

    if not names or None in names:
        return None
    report("compare", 1.0, "repeats on a larger binding")
    return confirmed_repeats(operators, names) / len(names)


def _entry(operator: Operator, name: str | None) -> dict[str, JSON]:
    bound = operator.complete_binding() if operator.spec.bindings else None
    fingerprint, _, on = (name or "").partition(" on ")
    return {
        "shape": str(operator),
        "flops": None if bound is None else operator.flops(bound),
        "params": None if bound is None else operator.params(bound),
        "fingerprint": fingerprint or None,
        "fingerprint_binding": on or None,
        "operator": json.loads(operator.to_json()),
    }


def _line(entry: dict[str, Any]) -> str:
    words = [entry["shape"]]
    if entry["flops"] is not None:
        words += [f"{entry['flops']:,} FLOPs", f"{entry['params']:,} parameters"]
    return "; ".join(words + [entry["fingerprint"]] * (entry["fingerprint"] is not None))


def _summary(figures: dict[str, Any]) -> str:
    repeats = ""
    if figures["repeat_share"] is not None:
        of = "them" if figures["fingerprinted"] == figures["distinct"] else f"the first {figures['fingerprinted']}"
        repeats = f", {100 * figures['repeat_share']:.2f} % of {of} repeats"
    end = "; no more were found" if figures["exhausted"] else ""
    return (
        f"{figures['distinct']} operators in {figures['cpu_seconds']:.2f} CPU-seconds{repeats}: "
        f"{figures['distinct_per_cpu_second']:.1f} distinct a CPU-second, "
        f"{figures['peak_memory_bytes'] / 2**20:.0f} MiB at most, seed {figures['seed']}{end}"
    )
