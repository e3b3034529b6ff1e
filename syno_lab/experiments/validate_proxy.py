"""Validates proxies: trains operators on each rung and with the full recipe, and compares the rankings.

The operators are drawn at random from the space of a search, within the wish and limits. No proxy chooses the
operators, because operators that a proxy chose show little about it. Operators that the first rung rejects as slow are
replaced by other operators, as in a search. All measurements use held-out training images.
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
from syno_lab.models.rungs import Rung
from syno_lab.protocol import Operator
from syno_lab.store.outcomes import Measure
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
#: The defaults of a validation: the number of operators, and the number of seeds of the full recipe.
OPERATORS, SEEDS = 30, 2
#: A validation fails after so many draws for each requested operator, because then most operators are slow or fail.
MOST_DRAWN = 4
#: The name of the probe in :attr:`Validation.used`.
PROBE = "probe"
_NOT_USED = "is not used: its validation ranks no better than FLOPs or parameters"
_MEASURES: tuple[Measure, ...] = ("loss", "training loss", "accuracy")
_MOST_BYTES = 1 << 26


class ValidatedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator of a validation, with its results.

    Attributes:
        operator: the operator's JSON.
        flops, params: FLOPs and parameters of the network with the operator.
        probe: the score of :meth:`.OperatorSpace.probe`; None where the system has no probe.
        rungs: the mean reward over the rung's seeds, by the name of the rung and the measure.
        truth: the accuracy (for a text exp(-loss)) after the full recipe, for each seed.
        reason: why the validation ignores the operator, in one line; empty for an operator that counts.
    """

    operator: str
    flops: int
    params: int
    probe: float | None = None
    rungs: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    truth: list[float] = msgspec.field(default_factory=list)
    reason: str = ""


class ValidatedRung(msgspec.Struct, frozen=True, kw_only=True):
    """A rung in a validation: its measure, the number of seeds per operator, and the CPU seconds of one training."""

    name: str
    measure: Measure
    seeds: int
    cpu_s: float


class Validation(Plain, frozen=True, kw_only=True):
    """The result of a validation.

    Attributes:
        backbone, data, system: the backbone, data and system whose proxies are validated.
        training: the full recipe, as a :class:`.TrialRequest` without an operator.
        agreements: how well predictors rank operators: each rung by each measure (``40 steps: loss``), the probe, and
            the yardsticks FLOPs and parameters. The predictors in ``used`` may choose operators.
        ceiling: the highest correlation to expect, because accuracies of the full recipe differ from seed to seed.
        used, unused: the names of rungs (and ``probe``) that may choose operators, and of rungs that may not, because
            they rank operators no better than FLOPs or parameters.
        operators: all trained operators, including operators that the validation ignores.
        counted, drawn: how many operators count, and how many were drawn; ``states``: how many do not count, by reason.
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
    """Return the folder with the files of the validation ``name``, in the lab folder ``lab``."""
    return lab / FOLDER / name


def read_validation(path: Path) -> Validation:
    """Read the result of a validation. Raises FormatError for a file of another kind, OSError for a failed read."""
    return read_versioned(
        read_bytes(path, _MOST_BYTES), Validation, what=str(path), name=FORMAT, version=VERSION, most=_MOST_BYTES
    )


def validations_in(lab: Path) -> list[Validation]:
    """Return the results of all validations of a lab, the newest last; damaged files are left out."""
    validations = []
    for path in sorted(Path(lab).glob(f"{FOLDER}/*/{RESULT_FILE}"), key=lambda path: path.stat().st_mtime):
        try:
            validations.append(read_validation(path))
        except (FormatError, OSError):
            continue
    return validations


def usable_rungs(
    request: TrialRequest, validations: Iterable[Validation] = (), system: str | None = None
) -> tuple[tuple[Rung, ...], list[str]]:
    """Return the rungs that a search may use for a request, and for each other rung a line with the reason.

    The last validation of the backbone on the same data decides: a proxy that ranks no better than FLOPs or parameters
    is not used. Without a validation, all rungs are used except rungs that the backbone declares as unproven.

    Raises SpecError where the backbone has no rungs.
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
    """Return whether a search may choose operators by the probe's score; if not, also a line with the reason.

    A validation decides as in :func:`usable_rungs`; without a validation the probe is used.
    """
    is_used = _judged(request, validations, system).get(PROBE, True)
    return is_used, [] if is_used else [f"the probe {_NOT_USED}"]


def _judged(request: TrialRequest, validations: Iterable[Validation], system: str | None) -> dict[str, bool]:
    """Return, by name, whether each validated rung and the probe may be used for a request."""
    used: dict[str, bool] = {}
    for validation in validations:
        is_same_data = Path(validation.data).name == Path(request.data).name
        if validation.backbone == request.backbone and is_same_data and system in (None, validation.system):
            used |= dict.fromkeys(validation.used, True) | dict.fromkeys(validation.unused, False)
    return used


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
    """Validate the proxies of the settings' backbone on ``operators`` operators of its search space.

    ``settings.training`` is the full recipe, by which each operator is trained on ``seeds`` seeds. ``settings.seed``
    decides the drawn operators. Drawn operators and trainings are stored in ``folder``, and a later call with the same
    settings continues from there. The result is written to ``folder``.

    Raises:
        SpecError: the backbone has no proxies, or no space.
        SearchError: fewer than four operators or no seeds are requested; the trainings of almost all operators failed.
        Stopped: ``should_stop`` returned True.
    """
    if operators < LEAST or seeds < 1:
        raise SearchError(
            f"expected {LEAST} or more operators and 1 or more seeds to validate proxies, found {operators} and {seeds}"
        )
    started = time.monotonic()
    work = _Work(settings, runner, folder, report, should_stop, _Draws(settings, folder))
    numbers = work.accepted(operators)
    trained = work.rest(numbers, final_seeds(seeds))
    results = [work.validated(number, trained) for number in range(len(work.draws.texts))]
    counted = [entry for entry in results if not entry.reason]
    if len(counted) < LEAST:
        raise SearchError(
            f"expected {LEAST} or more operators trained to the end, found {len(counted)} of {len(numbers)}: "
            + next((entry.reason for entry in results if entry.reason), "")
        )
    result = work.result(results, counted, final_seeds(seeds), time.monotonic() - started)
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
    """Run :func:`validate_proxies` in the lab of a folder, with child processes as workers."""
    validation_files = private.folder(validation_folder(lab, settings.name))
    with (
        TrialWorkers(settings.workers, validation_files / LOG_FILE) as pool,
        LocalRunner(validation_files / "trainings", settings.workers, should_stop, train=pool.run) as runner,
    ):
        return validate_proxies(
            settings,
            runner,
            folder=validation_files,
            operators=operators,
            seeds=seeds,
            report=report,
            should_stop=should_stop,
        )


class _Draws:
    """The operators drawn so far, in order. A file stores the operators, so that the validation can continue."""

    def __init__(self, settings: SearchSettings, folder: Path) -> None:
        self.space = Space(settings)
        self._path = folder / DRAWN_FILE
        self._search = self.space.search(msgspec.structs.replace(settings, method="random"))
        # The settings that change results of trainings, without workers and threads.
        training = msgspec.structs.replace(settings.training, threads=None).to_dict()
        identity = settings.identity | {"training": training, "method": "random"}
        for key in ("name", "seeds"):
            identity.pop(key, None)
        self._identity = msgspec.json.decode(msgspec.json.encode(identity))
        self.texts: list[str] = []
        private.folder(folder)
        if self._path.exists():
            stored = msgspec.json.decode(read_bytes(self._path, _MOST_BYTES))
            if stored.get("settings") != self._identity:
                raise SearchError(
                    f"expected a validation with these settings in {folder}, found one with others; choose "
                    "another --name"
                )
            self.texts = list(stored["operators"])
            self._search.resume([(read_operator(text), 0.0) for text in self.texts])

    def more(self, count: int, report: Report, should_stop: Callable[[], bool]) -> None:
        """Draw ``count`` more operators. Raises SearchError if no other operator is found, Stopped on a request."""
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

    def _run(self, work: Mapping[tuple[int, str, int], TrialRequest], share: tuple[float, float], label: str) -> None:
        """Run all trainings of ``work``, and store their outcomes."""
        low, high = share
        named = {
            (number, rung, seed): (f"{self.settings.name}: operator {number}, {rung}, seed {seed}", request)
            for (number, rung, seed), request in work.items()
        }

        def report_count(done: int, total: int) -> None:
            self.report(low + (high - low) * done / total, f"{label}: {done} of {total} trainings")

        stopped = "stopped; what is trained is kept, and the same command continues it"
        self.trained |= train_all(self.runner, named, report_count, self.should_stop, stopped)

    def accepted(self, count: int) -> list[int]:
        """Train operators on the first rung until ``count`` have finished; return their numbers."""
        if not self.rungs:
            raise SearchError(f"expected a proxy of {self.settings.training.backbone} to validate, found none")
        first = self.rungs[0]
        baseline = rung_request(self.settings.training, first)
        self._run({(-1, first.name, 0): baseline}, (0, 0.02), "the baseline")
        alone = self.trained[-1, first.name, 0]
        if alone.state != "finished":
            raise SearchError(f"expected the baseline to train on {first.name}, found {alone.state}: {alone.reason}")
        self.baseline_s = alone.work_s or None
        valid: list[int] = []
        tried = 0
        while len(valid) < count:
            if tried >= MOST_DRAWN * count:
                states = Counter(self.trained[number, first.name, 0].state for number in range(tried))
                raise SearchError(
                    f"expected {count} operators that train to the end on {first.name}, found {len(valid)} of {tried}: "
                    + ", ".join(f"{number} {state}" for state, number in states.items())
                )
            missing = count - len(valid)
            if len(self.draws.texts) < tried + missing:
                self.draws.more(tried + missing - len(self.draws.texts), self.report, self.should_stop)
            numbers = range(tried, tried + missing)
            self._run(self._requests(numbers, first, range(first.seeds)), (0.02, 0.2), first.name)
            valid += [number for number in numbers if self.trained[number, first.name, 0].state == "finished"]
            tried += missing
        return valid

    def rest(self, kept: Sequence[int], seeds: Sequence[int]) -> list[int]:
        """Train the operators of these numbers on the other rungs and with the full recipe."""
        for rung in self.rungs[1:]:
            self._run(self._requests(kept, rung, range(rung.seeds)), (0.2, 0.4), rung.name)
        self._run(self._requests(kept, self.full, seeds), (0.4, 1.0), "the full recipe")
        return list(kept)

    def _requests(
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
        return [outcome for (other, name, _), outcome in self.trained.items() if (other, name) == (number, rung)]

    def validated(self, number: int, kept: Sequence[int]) -> ValidatedOperator:
        """Return an operator with its results on all rungs and with the full recipe."""
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
        failed = next((row for row in (*self._of(number, self.rungs[0].name), *truth) if row.state != "finished"), None)
        reason = "" if failed is None and number in kept else "not trained: enough others were"
        if failed is not None:
            reason = f"{failed.state}: {failed.reason}"
        return ValidatedOperator(
            operator=text,
            flops=costs.flops,
            params=costs.params,
            probe=None if probed is None else float(probed["score"]),
            rungs=rungs,
            truth=[] if reason else [outcome.accuracy or 0.0 for outcome in truth],
            reason=reason,
        )

    def result(
        self, found: list[ValidatedOperator], counted: list[ValidatedOperator], seeds: Sequence[int], wall_s: float
    ) -> Validation:
        """Return the validation's result, with the agreement of each predictor with the truth."""
        predictors: dict[str, list[float]] = {
            f"{rung.name}: {measure}": [operator.rungs[rung.name][measure] for operator in counted]
            for rung in self.rungs
            for measure in (rung.measure, *(other for other in _MEASURES if other != rung.measure))
        }
        decides = {rung.name: f"{rung.name}: {rung.measure}" for rung in self.rungs}
        if all(operator.probe is not None for operator in counted):
            predictors[PROBE] = [operator.probe or 0.0 for operator in counted]
            decides[PROBE] = PROBE
        yardsticks = {
            "FLOPs": [float(operator.flops) for operator in counted],
            "parameters": [float(operator.params) for operator in counted],
        }
        agreed = agreements(predictors, yardsticks, [fmean(operator.truth) for operator in counted])
        is_used = {agreement.predictor: agreement.is_used for agreement in agreed}
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
            ceiling=ceiling([[operator.truth[index] for operator in counted] for index in range(len(seeds))]),
            used=[name for name, predictor in decides.items() if is_used[predictor]],
            unused=[name for name, predictor in decides.items() if not is_used[predictor]],
            operators=found,
            counted=len(counted),
            drawn=len(found),
            states=dict(Counter(operator.reason.partition(":")[0] for operator in found if operator.reason)),
            machine=one_machine(outcome.machine for outcome in self.trained.values()),
            full_cpu_s=self._cpu_s(self.full.name),
            cpu_s=sum(outcome.cpu_s for outcome in self.trained.values()),
            wall_s=wall_s,
        )

    def _cpu_s(self, rung: str) -> float:
        """Return the mean CPU seconds of the finished trainings on the rung."""
        spent = [
            outcome.cpu_s
            for (number, name, _), outcome in self.trained.items()
            if name == rung and number >= 0 and outcome.state == "finished"
        ]
        return fmean(spent) if spent else 0.0
