"""Is a proxy worth its trust? Train operators on each rung and with the full recipe, and compare the rankings.

The operators are drawn at random from the space of a search: they meet its wish and its limits, and no proxy chose
them, because what a proxy has chosen says little about it. Operators that are rejected as slow on the first rung are
replaced by others, as in a search. Everything is measured on held-out training images.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from syno_lab import private
from syno_lab.errors import FormatError, SearchError
from syno_lab.experiments.agreement import LEAST, Agreement, Ceiling, agreements, ceiling
from syno_lab.experiments.finals import final_seeds
from syno_lab.experiments.loop import PATIENCE_S
from syno_lab.experiments.runner import LocalRunner, Report, Runner, Stopped, train_all
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.space import Space
from syno_lab.inputs import read_bytes
from syno_lab.models.rungs import Measure, Rung
from syno_lab.protocol import Operator
from syno_lab.systems import read_operator
from syno_lab.training.files import write_whole
from syno_lab.trial import TrialOutcome, TrialRequest, TrialWorkers, rung_request, rungs_of
from syno_lab.trial.machine import one_machine
from syno_lab.trial.request import Plain
from syno_lab.trial.rungs import reward_of
from syno_lab.trial.workers import LOG_FILE
from syno_lab.versioned import read_versioned

FORMAT, VERSION = "syno-lab-validation", 1
FOLDER, RESULT_FILE, DRAWN_FILE = "validations", "result.json", "drawn.json"
#: Operators and seeds of the full recipe that a validation has unless told otherwise.
OPERATORS, SEEDS = 30, 2
#: Drawn operators, as a multiple of those wanted, after which a validation ends: almost all were slow, or failed.
MOST_DRAWN = 4
#: The name of the probe among those that :attr:`Validation.used` may have.
PROBE = "probe"
_NOT_USED = "is not used: its validation ranks no better than FLOPs or parameters"
_MEASURES: tuple[Measure, ...] = ("loss", "training loss", "accuracy")
_MOST_BYTES = 1 << 26


class ValidatedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a validation.

    Attributes:
        operator: its JSON.
        flops, params: of the network with it.
        probe: the score of :meth:`.OperatorSpace.probe`; None where the system has none.
        rungs: by the rung's name its reward by each measure, the mean over the rung's seeds.
        truth: the accuracy (of a text exp(-loss)) with the full recipe, for each seed.
        reason: why it does not count, in one line; empty for one that does.
    """

    operator: str
    flops: int
    params: int
    probe: float | None = None
    rungs: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    truth: list[float] = msgspec.field(default_factory=list)
    reason: str = ""


class ValidatedRung(msgspec.Struct, frozen=True, kw_only=True):
    """A rung as it was validated: what it ranks by, its trainings an operator, and the CPU seconds of each."""

    name: str
    measure: Measure
    seeds: int
    cpu_s: float


class Validation(Plain, frozen=True, kw_only=True):
    """The result of a validation.

    Attributes:
        backbone, data, system: what it was made for.
        training: the full recipe, as a :class:`.TrialRequest` without an operator.
        agreements: of each rung by each measure (``40 steps: loss``), of the probe, and of the yardsticks: FLOPs and
            parameters. The predictors named in ``used`` may choose operators.
        ceiling: what the repeatability of the full recipe allows.
        used, unused: the names of rungs (and ``probe``) that may choose operators, and of those that may not: they
            agree with the truth no better than FLOPs or parameters alone.
        operators: all that were trained, those that do not count among them.
        counted: how many count. ``drawn``: how many were drawn for them, with the ``states`` of the others.
    """

    format: str = FORMAT
    version: int = VERSION
    backbone: str
    data: str
    system: str
    training: dict[str, Any]
    seeds: list[int]
    rungs: list[ValidatedRung]
    agreements: list[Agreement]
    ceiling: Ceiling
    used: list[str]
    unused: list[str]
    operators: list[ValidatedOperator]
    counted: int
    drawn: int
    states: dict[str, int]
    machine: str
    full_cpu_s: float
    cpu_s: float
    wall_s: float


def validation_folder(lab: Path, name: str) -> Path:
    """The folder with the files of the validation ``name``, in the lab folder ``lab``."""
    return lab / FOLDER / name


def read_validation(path: Path) -> Validation:
    """Read the result of a validation. Raises FormatError for another file, and OSError as reading does."""
    return read_versioned(
        read_bytes(path, _MOST_BYTES), Validation, what=str(path), name=FORMAT, version=VERSION, most=_MOST_BYTES
    )


def validations_in(lab: Path) -> list[Validation]:
    """All validations of a lab that have a result, the newest last; damaged files are left out."""
    found = []
    for path in sorted(Path(lab).glob(f"{FOLDER}/*/{RESULT_FILE}"), key=lambda path: path.stat().st_mtime):
        try:
            found.append(read_validation(path))
        except (FormatError, OSError):
            continue
    return found


def usable_rungs(
    request: TrialRequest, validations: Iterable[Validation] = (), system: str | None = None
) -> tuple[tuple[Rung, ...], list[str]]:
    """The rungs that a search may use for a request, and one line for each that it may not, with the reason.

    The last validation of the backbone on the same data counts: a proxy that ranks no better than FLOPs or parameters
    is not used. Without a validation the declared rungs are used, but for those that are declared unproven.

    Raises SpecError: the backbone has no rungs.
    """
    judged = _judged(request, validations, system)
    used, lines = [], []
    for rung in rungs_of(request):
        is_used = judged.get(rung.name, not rung.unproven)
        if rung.is_full or is_used:
            used.append(rung)
        elif rung.name in judged:
            lines.append(f"the rung {rung.name!r} {_NOT_USED}")
        else:
            lines.append(
                f"the rung {rung.name!r} is not used: no validation shows that it ranks operators of "
                f"{request.backbone}; `syno-lab search --validate-proxy` makes one"
            )
    return tuple(used), lines


def usable_probe(
    request: TrialRequest, validations: Iterable[Validation] = (), system: str | None = None
) -> tuple[bool, list[str]]:
    """Whether a search may choose operators by the score of the probe, and a line that says why not.

    As :func:`usable_rungs`; without a validation it may.
    """
    is_used = _judged(request, validations, system).get(PROBE, True)
    return is_used, [] if is_used else [f"the probe {_NOT_USED}"]


def _judged(request: TrialRequest, validations: Iterable[Validation], system: str | None) -> dict[str, bool]:
    """Of the rungs and the probe, as far as they are validated for a request, whether they are used."""
    found: dict[str, bool] = {}
    for one in validations:
        is_same_data = Path(one.data).name == Path(request.data).name
        if one.backbone == request.backbone and is_same_data and system in (None, one.system):
            found |= dict.fromkeys(one.used, True) | dict.fromkeys(one.unused, False)
    return found


def validate_proxies(
    settings: SearchSettings,
    runner: Runner,
    *,
    folder: Path,
    operators: int = OPERATORS,
    seeds: int = SEEDS,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Validation:
    """Validate the proxies of the settings' backbone on so many operators of its search space.

    ``settings.training`` is the full recipe, which each operator is trained with on ``seeds`` seeds; ``settings.seed``
    decides what is drawn. What is drawn and trained lies in ``folder``, and a later call with the same settings goes on
    from there. The result is written to ``folder``.

    Raises:
        SpecError: the backbone has no proxies, or no space.
        SearchError: fewer than four operators or no seeds are asked for; almost no operator can be trained to the end.
        Stopped: ``should_stop`` returned True.
    """
    if operators < LEAST or seeds < 1:
        raise SearchError(
            f"expected {LEAST} or more operators and 1 or more seeds to validate proxies, found {operators} and {seeds}"
        )
    begun = time.monotonic()
    work = _Work(settings, runner, folder, report, should_stop, _Draws(settings, folder))
    kept = work.accepted(operators)
    trained = work.rest(kept, final_seeds(seeds))
    found = [work.validated(number, trained) for number in range(len(work.draws.texts))]
    counted = [one for one in found if not one.reason]
    if len(counted) < LEAST:
        raise SearchError(
            f"expected {LEAST} or more operators trained to the end, found {len(counted)} of {len(kept)}: "
            + next((one.reason for one in found if one.reason), "")
        )
    result = work.result(found, counted, final_seeds(seeds), time.monotonic() - begun)
    write_whole(folder / RESULT_FILE, msgspec.json.format(msgspec.json.encode(result)))
    return result


def validate_here(
    settings: SearchSettings,
    lab: Path,
    *,
    operators: int = OPERATORS,
    seeds: int = SEEDS,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Validation:
    """:func:`validate_proxies` in the lab of a folder, with the settings' workers as processes of this one."""
    place = private.folder(validation_folder(lab, settings.name))
    with (
        TrialWorkers(settings.workers, place / LOG_FILE) as pool,
        LocalRunner(place / "trainings", settings.workers, should_stop, train=pool.run) as runner,
    ):
        return validate_proxies(
            settings,
            runner,
            folder=place,
            operators=operators,
            seeds=seeds,
            report=report,
            should_stop=should_stop,
        )


class _Draws:
    """The operators drawn so far, in their order; a file keeps them, so that a continued validation has the same."""

    def __init__(self, settings: SearchSettings, folder: Path) -> None:
        self.space = Space(settings)
        self._path = folder / DRAWN_FILE
        self._search = self.space.search(msgspec.structs.replace(settings, method="random"))
        # What decides the trainings; workers and threads do not.
        training = msgspec.structs.replace(settings.training, threads=None).to_dict()
        asked = settings.identity | {"training": training, "method": "random"}
        for key in ("name", "seeds"):
            asked.pop(key, None)
        self._identity = msgspec.json.decode(msgspec.json.encode(asked))
        self.texts: list[str] = []
        private.folder(folder)
        if self._path.exists():
            kept = msgspec.json.decode(read_bytes(self._path, _MOST_BYTES))
            if kept.get("settings") != self._identity:
                raise SearchError(
                    f"expected a validation with these settings in {folder}, found one with others; give this one "
                    "another --name"
                )
            self.texts = list(kept["operators"])
            self._search.resume([(read_operator(text), 0.0) for text in self.texts])

    def more(self, count: int, report: Report, should_stop: Callable[[], bool]) -> None:
        """Draw ``count`` more. Raises SearchError where the space has none, Stopped on request."""
        for _ in range(count):
            report(0.0, f"drawing operators: {len(self.texts)}")
            deadline = time.process_time() + PATIENCE_S

            def enough(deadline: float = deadline) -> bool:
                return should_stop() or time.process_time() > deadline

            candidate = self._search.ask(enough)
            if candidate is None:
                if should_stop():
                    raise Stopped("stopped while operators were drawn")
                raise SearchError(
                    f"expected another operator {self.space.limits} to validate proxies with, found none after "
                    f"{len(self.texts)}; ask for fewer --operators"
                )
            operator: Operator = candidate.operator
            self._search.drop(candidate)
            self.texts.append(operator.to_json())
        content = {"settings": self._identity, "operators": self.texts}
        write_whole(self._path, msgspec.json.encode(content))


class _Work:
    """The trainings of a validation."""

    def __init__(
        self,
        settings: SearchSettings,
        runner: Runner,
        folder: Path,
        report: Report,
        should_stop: Callable[[], bool],
        draws: _Draws,
    ) -> None:
        self.settings, self.runner, self.report, self.should_stop = settings, runner, report, should_stop
        self.draws = draws
        self.rungs = [rung for rung in rungs_of(settings.training) if not rung.is_full]
        self.full = next(rung for rung in rungs_of(settings.training) if rung.is_full)
        self.trained: dict[tuple[int, str, int], TrialOutcome] = {}
        self.baseline_s: float | None = None

    def _run(self, wanted: Mapping[tuple[int, str, int], TrialRequest], share: tuple[float, float], what: str) -> None:
        """Train all of these, and keep their outcomes."""
        low, high = share
        named = {
            (number, rung, seed): (f"{self.settings.name}: operator {number}, {rung}, seed {seed}", request)
            for (number, rung, seed), request in wanted.items()
        }

        def told(done: int, total: int) -> None:
            self.report(low + (high - low) * done / total, f"{what}: {done} of {total} trainings")

        stopped = "stopped; what is trained is kept, and the same command continues it"
        self.trained |= train_all(self.runner, named, told, self.should_stop, stopped)

    def accepted(self, count: int) -> list[int]:
        """The numbers of ``count`` operators that the first rung does not reject, trained on it."""
        if not self.rungs:
            raise SearchError(f"expected a proxy of {self.settings.training.backbone} to validate, found none")
        first = self.rungs[0]
        baseline = rung_request(self.settings.training, first)
        self._run({(-1, first.name, 0): baseline}, (0, 0.02), "the baseline")
        alone = self.trained[-1, first.name, 0]
        if alone.state != "finished":
            raise SearchError(f"expected the baseline to train on {first.name}, found {alone.state}: {alone.reason}")
        self.baseline_s = alone.work_s or None
        kept: list[int] = []
        looked = 0
        while len(kept) < count:
            if looked >= MOST_DRAWN * count:
                states = Counter(self.trained[number, first.name, 0].state for number in range(looked))
                raise SearchError(
                    f"expected {count} operators that train to the end on {first.name}, found {len(kept)} of {looked}: "
                    + ", ".join(f"{number} {state}" for state, number in states.items())
                )
            missing = count - len(kept)
            if len(self.draws.texts) < looked + missing:
                self.draws.more(looked + missing - len(self.draws.texts), self.report, self.should_stop)
            numbers = range(looked, looked + missing)
            self._run(self._asked(numbers, first, range(first.seeds)), (0.02, 0.2), first.name)
            kept += [one for one in numbers if self.trained[one, first.name, 0].state == "finished"]
            looked += missing
        return kept

    def rest(self, kept: Sequence[int], seeds: Sequence[int]) -> list[int]:
        """Train these operators on the other rungs and with the full recipe."""
        for rung in self.rungs[1:]:
            self._run(self._asked(kept, rung, range(rung.seeds)), (0.2, 0.4), rung.name)
        self._run(self._asked(kept, self.full, seeds), (0.4, 1.0), "the full recipe")
        return list(kept)

    def _asked(
        self, numbers: Iterable[int], rung: Rung, seeds: Iterable[int]
    ) -> dict[tuple[int, str, int], TrialRequest]:
        limit = self.baseline_s if rung is self.rungs[0] else None
        return {
            (number, rung.name, seed): rung_request(
                msgspec.structs.replace(self.settings.training, operator=self.draws.texts[number]),
                rung,
                seed=seed,
                baseline_s=limit,
            )
            for number in numbers
            for seed in list(seeds)
        }

    def _of(self, number: int, rung: str) -> list[TrialOutcome]:
        return [outcome for (one, name, _), outcome in self.trained.items() if (one, name) == (number, rung)]

    def validated(self, number: int, kept: Sequence[int]) -> ValidatedOperator:
        """All that is known of an operator."""
        text = self.draws.texts[number]
        operator = read_operator(text)
        costs, probed = self.draws.space.fitting_costs(operator), self.draws.space.operators.probe(operator)
        rungs: dict[str, dict[str, float]] = {}
        for rung in self.rungs:
            outcomes = self._of(number, rung.name)
            if outcomes:
                rungs[rung.name] = {
                    str(measure): fmean(reward_of(measure, outcome) for outcome in outcomes) for measure in _MEASURES
                }
        truth = self._of(number, self.full.name)
        failed = next((one for one in (*self._of(number, self.rungs[0].name), *truth) if one.state != "finished"), None)
        reason = "" if failed is None and number in kept else "not trained: enough others were"
        if failed is not None:
            reason = f"{failed.state}: {failed.reason}"
        return ValidatedOperator(
            operator=text,
            flops=costs.flops,
            params=costs.params,
            probe=None if probed is None else float(probed["score"]),
            rungs=rungs,
            truth=[] if reason else [one.accuracy or 0.0 for one in truth],
            reason=reason,
        )

    def result(
        self, found: list[ValidatedOperator], counted: list[ValidatedOperator], seeds: Sequence[int], wall_s: float
    ) -> Validation:
        """The agreements of everything with the truth."""
        predictors: dict[str, list[float]] = {
            f"{rung.name}: {measure}": [one.rungs[rung.name][measure] for one in counted]
            for rung in self.rungs
            for measure in (rung.measure, *(other for other in _MEASURES if other != rung.measure))
        }
        decides = {rung.name: f"{rung.name}: {rung.measure}" for rung in self.rungs}
        if all(one.probe is not None for one in counted):
            predictors[PROBE] = [one.probe or 0.0 for one in counted]
            decides[PROBE] = PROBE
        yardsticks = {
            "FLOPs": [float(one.flops) for one in counted],
            "parameters": [float(one.params) for one in counted],
        }
        agreed = agreements(predictors, yardsticks, [fmean(one.truth) for one in counted])
        is_used = {one.predictor: one.is_used for one in agreed}
        training = msgspec.structs.replace(self.settings.training, operator=None)
        return Validation(
            backbone=training.backbone,
            data=training.data,
            system=self.settings.system,
            training=training.to_dict(),
            seeds=list(seeds),
            rungs=[
                ValidatedRung(name=rung.name, measure=rung.measure, seeds=rung.seeds, cpu_s=self._cpu_s(rung.name))
                for rung in self.rungs
            ],
            agreements=agreed,
            ceiling=ceiling([[one.truth[at] for one in counted] for at in range(len(seeds))]),
            used=[name for name, predictor in decides.items() if is_used[predictor]],
            unused=[name for name, predictor in decides.items() if not is_used[predictor]],
            operators=found,
            counted=len(counted),
            drawn=len(found),
            states=dict(Counter(one.reason.partition(":")[0] for one in found if one.reason)),
            machine=one_machine(outcome.machine for outcome in self.trained.values()),
            full_cpu_s=self._cpu_s(self.full.name),
            cpu_s=sum(outcome.cpu_s for outcome in self.trained.values()),
            wall_s=wall_s,
        )

    def _cpu_s(self, rung: str) -> float:
        """The CPU seconds of a training on the rung, the mean over those that finished."""
        spent = [
            one.cpu_s
            for (number, name, _), one in self.trained.items()
            if name == rung and number >= 0 and one.state == "finished"
        ]
        return fmean(spent) if spent else 0.0
