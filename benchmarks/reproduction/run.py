"""Run the parts of a reproduction in a folder; what is done is never done again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reproduction import ablations, layers, networks, trainings
from reproduction.items import Work, read_object
from reproduction.scale import (
    PARTS,
    Options,
    Plan,
    Scale,
    check_parts,
    plan_of,
    scale_for,
)
from syno_lab import private
from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import quoted
from syno_lab.processes.alone import alone
from syno_lab.training.files import write_whole
from syno_lab.trial.machine import machine_name
from syno_lab.version import __version__

if TYPE_CHECKING:
    from syno_lab.ir.spec import Spec

FORMAT, VERSION = "syno-lab-reproduction", 1
PLAN_FILE, PARTS_FOLDER, WORK_FOLDER = "reproduction.json", "parts", "work"
_LOCK = "reproduction.lock"
Report = Callable[[str, float, str], None]


@dataclass(frozen=True)
class Reproduction:
    """A reproduction in its folder: its options, its scale, and seconds of one batch on the images here."""

    folder: Path
    options: Options
    scale: Scale
    step_s: float

    def plan(self, parts: Sequence[str] = PARTS) -> Plan:
        """The plan of these parts, those that are done among them."""
        return plan_of(self.options, self.scale, self.step_s, check_parts(parts))

    def file(self, part: str) -> Path:
        """Where the result of a part is, or will be."""
        return self.folder / PARTS_FOLDER / f"{part}.json"

    def result(self, part: str) -> dict[str, Any] | None:
        """The result of a part; None where it has not ended. Raises FormatError for a damaged file."""
        return read_object(self.file(part))

    @property
    def done(self) -> tuple[str, ...]:
        """The parts that have ended."""
        return tuple(part for part in PARTS if self.file(part).is_file())


def prepare(folder: Path, options: Options, report: Report = lambda stage, fraction, message: None) -> Reproduction:
    """The reproduction of a folder, with the scale that it began with; a new one measures a batch first.

    Raises:
        SpecError: the folder has a reproduction with other options; one line with both.
        DataError, TrainingError: the images cannot be trained on.
        FormatError: the folder's file is damaged.
    """
    private.folder(folder)
    file = folder / PLAN_FILE
    known = read_object(file)
    if known is not None:
        return _known(folder, known, options)
    report("plan", 0.0, "a few batches, to see how long one takes")
    request = trainings.image_request(options, scale_for(options, 1.0))
    step_s = trainings.step_seconds(request, folder / WORK_FOLDER / "plan")
    report("plan", 1.0, f"{step_s:.3f} s for a batch on the images")
    scale = scale_for(options, step_s)
    plain = {"format": FORMAT, "version": VERSION, "options": options, "scale": scale, "step_s": step_s}
    about = {"machine": machine_name(), "syno_lab": __version__, "begun": _now()}
    write_whole(file, msgspec.json.format(msgspec.json.encode(plain | about), indent=1))
    return Reproduction(folder, options, scale, step_s)


def opened(folder: Path) -> Reproduction:
    """The reproduction in a folder. Raises SpecError where there is none, FormatError where its file is damaged."""
    known = read_object(folder / PLAN_FILE)
    if known is None:
        raise SpecError(
            f"expected a reproduction in {folder}, found none; `python benchmarks/reproduce.py --out FOLDER` makes one"
        )
    return _known(folder, known, None)


def _known(folder: Path, known: dict[str, Any], options: Options | None) -> Reproduction:
    file = folder / PLAN_FILE
    if (known.get("format"), known.get("version")) != (FORMAT, VERSION):
        raise SpecError(f"{file}: expected {FORMAT} version {VERSION}, found {quoted(known.get('format'))}")
    try:
        earlier = msgspec.convert(known.get("options"), Options)
        scale = msgspec.convert(known.get("scale"), Scale)
        step_s = msgspec.convert(known.get("step_s"), float)
    except msgspec.ValidationError as error:
        raise SpecError(f"{file}: expected the options and the scale of a reproduction: {error}") from None
    if options is not None and options != earlier:
        pairs = zip(msgspec.structs.asdict(earlier).items(), msgspec.structs.asdict(options).values(), strict=True)
        differ = [f"{name} {quoted(was)}, found {quoted(now)}" for (name, was), now in pairs if was != now]
        raise SpecError(
            f"{folder} has a reproduction with {'; '.join(differ)}: choose another --out, or the same options"
        )
    return Reproduction(folder, earlier, scale, step_s)


def reproduce(
    found: Reproduction,
    spec: Spec,
    *,
    parts: Sequence[str] = PARTS,
    report: Report = lambda stage, fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[str, ...]:
    """Run the parts that have not ended, each with those that it needs before it; return the names of those that ran.

    The result of a part is stored as it ends, and within a part that of each tuning and training: after Ctrl-C or a
    kill, the same call goes on. ``spec`` is what the ablations synthesise.

    Raises:
        SpecError: for an unknown part.
        Stopped: ``should_stop`` returned True.
        SynoError: another process runs this reproduction, or a part cannot be done; one line.
    """
    wanted = check_parts(parts)
    needed = check_parts([one for part in wanted for one in (*NEEDS.get(part, ()), part)])
    busy = f"the reproduction in {found.folder} is already running ({{who}}): wait for it, or choose another --out"
    ran = []
    with alone(found.folder / _LOCK, busy):
        for part in needed:
            if found.file(part).is_file():
                continue
            work = Work(
                found.folder / WORK_FOLDER / part,
                lambda fraction, message, part=part: report(part, fraction, message),  # type: ignore[misc]
                should_stop,
            )
            result = _run(part, found, spec, work)
            work.check()
            about = {"machine": machine_name(), "ended": _now(), "syno_lab": __version__}
            took = {"seconds": round(work.seconds, 1)}
            content = msgspec.json.format(msgspec.json.encode({"about": about | took, **result}), indent=1)
            write_whole(found.file(part), content)
            report(part, 1.0, "done")
            ran.append(part)
    return tuple(ran)


#: What a part reads of the results of others.
NEEDS = {"text": ("text-search",), "accuracy": ("search",), "networks": ("search", "accuracy")}


def _run(part: str, found: Reproduction, spec: Spec, work: Work) -> dict[str, Any]:
    options, scale = found.options, found.scale

    def earlier(name: str) -> dict[str, Any]:
        result = found.result(name)
        if result is None:
            raise SynoError(f"{part}: expected the part {name} to have ended, found no {found.file(name)}")
        return result

    match part:
        case "table-2":
            return ablations.rates(spec, options, scale, work)
        case "distance":
            return ablations.distance(spec, options, scale, work)
        case "layers":
            return layers.layers(options, scale, work)
        case "text-search":
            return trainings.text_search(options, scale, work)
        case "text":
            return trainings.text(options, scale, work, earlier("text-search"))
        case "search":
            return trainings.search(options, scale, work, found.step_s)
        case "accuracy":
            return trainings.accuracy(options, scale, work, earlier("search"))
        case _:
            made: dict[str, Any] = networks.networks(options, scale, work, earlier("accuracy"), earlier("search"))
            return made


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
