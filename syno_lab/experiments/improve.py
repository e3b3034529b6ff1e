"""Bring your model: search operators for any network on any data, and return the patched network."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import msgspec
from torch import nn

from syno_lab.errors import SearchError, SpecError, StoreError, SynoError
from syno_lab.experiments.finals import LEAST_FINAL_SEEDS, final_seeds
from syno_lab.experiments.job import run_as_job, run_here
from syno_lab.experiments.own import Chosen, Data, Model, choose, with_data, with_model
from syno_lab.experiments.own_choice import RewardFunction, RuleFunction, with_choice
from syno_lab.experiments.own_file import network_file
from syno_lab.experiments.settings import DERIVED, SearchSettings
from syno_lab.experiments.space import Space
from syno_lab.experiments.watching import RESULT_FILE, SETTINGS_FILE, read_json, search_folder
from syno_lab.inputs import count_of
from syno_lab.processes.process import cores
from syno_lab.protocol import OfNetworks, Operator
from syno_lab.reports import LabReader, front_of
from syno_lab.reports.axes import RUNG
from syno_lab.reports.case_study import write_case_study
from syno_lab.reports.progress import plan_table, read_progress, title
from syno_lab.reports.searched import searched
from syno_lab.reports.text_tables import table_text
from syno_lab.store.place import lab_folder
from syno_lab.systems import DEFAULT_NAME, find_system, format_named, read_operator
from syno_lab.training import TrainingProgress, TrainingResult, train
from syno_lab.training.files import write_whole
from syno_lab.trial import TrialRequest, places_of, survey_of
from syno_lab.trial.backbone import build
from syno_lab.trial.examples import examples_of, plan_of_data
from syno_lab.trial.own import needs_this_process
from syno_lab.trial.request import Searching, request_of, separated
from syno_lab.versioned import JSON

#: The most layers that the plan lists by name.
_MOST_LISTED = 8
#: The default for the most FLOPs of an operator, as a share of the replaced layers' FLOPs.
FLOPS = 0.4
Say = Callable[[str], None]
Folder = str | Path
Patterns = Sequence[str]
#: The seconds between two reads of the front, and the most points of the front in one line of output.
_LOOK_S, _MOST_POINTS = 2.0, 5


@dataclass(frozen=True)
class Improvement:
    """The result of :func:`improve`.

    Attributes:
        settings: the settings of the search.
        folder: the folder of the search, with its files.
        result: the result of the search as plain data: ``baseline``, ``best``, ``comparisons``, ``verdict``, …
        operators: the operators of the finals, by the number of the trial, the best operator first.
        files: for each operator a Python file that needs torch alone and puts the operator into the network.
        notebook: the case study of the search, with its figures.
    """

    settings: SearchSettings
    folder: Path
    result: Mapping[str, JSON]
    operators: Mapping[int, Operator]
    files: Mapping[int, Path]
    notebook: Path

    def __repr__(self) -> str:
        return f"Improvement({self.verdict}; {self.folder})"

    @property
    def verdict(self) -> str:
        """The verdict on the best discovered operator, with its difference and interval, in one sentence."""
        return str(self.result["verdict"])

    @property
    def best(self) -> int:
        """The number of the best discovered operator (without finals: of the last rung); SearchError without one."""
        if not self.operators:
            raise SearchError("expected an operator that the search discovered, found none; give it more minutes")
        return next(iter(self.operators))

    def network(self, number: int | None = None, *, seed: int = 0) -> nn.Module:
        """Return the network with an operator of the finals (by default the best) in its layers, untrained.

        New weights are drawn from ``seed``. If the model was an ``nn.Module``, its other layers keep their weights.
        """
        return build(self._request(number, seed)).module

    def trained(
        self,
        number: int | None = None,
        *,
        seed: int = 0,
        on_progress: Callable[[TrainingProgress], None] | None = None,
    ) -> nn.Module:
        """Return :meth:`network`, trained as in the finals, without folds. Raises TrainingError where this fails."""
        net, _ = trained(self._request(number, seed), on_progress)
        return net.eval()

    def _request(self, number: int | None, seed: int) -> TrialRequest:
        chosen = self.best if number is None else number
        if chosen not in self.operators:
            known = ", ".join(map(str, self.operators)) or "none"
            raise SearchError(f"expected an operator of the finals, one of {known}, found {chosen}")
        operator = self.operators[chosen].to_json()
        return msgspec.structs.replace(self.settings.training, operator=operator, seed=seed, folds=None)


def trained(
    request: TrialRequest, on_progress: Callable[[TrainingProgress], None] | None = None
) -> tuple[nn.Module, TrainingResult]:
    """Train the network of a request with images or a user's own data; return the network and the result.

    Raises DataError where the data cannot be read, or are a text; SpecError for folds, which have a network each;
    TrainingError where the training fails.
    """
    if request.folds is not None:
        raise SpecError(f"folds: expected none in this call, found {request.folds}; use syno_lab.trial.run_trial")
    net = build(request).module
    result = train(
        net,
        examples_of(request),
        recipe=request.recipe,
        epochs=request.epochs,
        batch_size=request.batch_size,
        learning_rate=request.learning_rate,
        optimizer=request.optimizer or "sgd",
        seed=request.seed,
        device=request.device,
        precision=request.precision,
        on_progress=on_progress,
        raise_on_divergence=True,
    )
    return net, result


def improve(
    model: Model,
    data: Data,
    *,
    minutes: float = 30.0,
    folder: Folder | None = None,
    name: str = "improve",
    layers: Patterns | None = None,
    seeds: int = LEAST_FINAL_SEEDS,
    rules: Sequence[RuleFunction] = (),
    reward: RewardFunction | None = None,
    flops: float = FLOPS,
    system: str = DEFAULT_NAME,
    workers: int | None = None,
    say: Say | None = None,
    **more: Unpack[Searching],
) -> Improvement:
    """Search operators for the layers of your own network, with trainings on your own data.

    The function runs the search of ``syno-lab search``. The search replaces the layers by known and discovered
    operators, and trains each: first for few steps, then the best operators for more steps. The finals train the best
    operators within 0.4 and 0.25 of the layers' FLOPs, and the unchanged network, on ``seeds`` seeds. The comparison
    uses the test examples. The lab in ``folder`` stores every outcome. A later call continues, also with more minutes.

    Args:
        model: an ``nn.Module`` (each training starts with a copy of its weights); a function that returns a new module
            (each training draws new weights from its seed); ``"file.py:function"``, for jobs in other processes; or a
            backbone's name. The output for examples [B, …] is logits [B, V], or has a field ``logits``.
        data: two torch datasets (train, test) of pairs (tensor, class), a function that returns two datasets,
            ``"file.py:function"``, or a folder for ``syno_lab.load_dataset``. A module or a function of a notebook is
            trained in this process, one training at a time.
        minutes: the time limit in minutes, including baseline and finals.
        folder: the lab's folder; None: ``SYNO_LAB_FOLDER``, else ``.syno-lab``.
        name: the name of the search in the lab.
        layers: patterns of the names of layers to replace; None: see :func:`.own.with_layers`.
        seeds: the number of seeds in the finals.
        rules: your own functions that reject steps of operators (:func:`.own_choice.with_choice`).
        reward: your own function that rates a trained operator from 0 to 1; None: its accuracy.
        flops: the most FLOPs of an operator, as a share of the replaced layers' FLOPs.
        system: the system of the operators, or several with commas between them; not αNAS, which edits whole networks
            (``syno-lab search --system alpha``).
        workers: the number of trainings at a time, if trainings are jobs; None: one for each core.
        say: a function that is called with each line of progress (plan, front, end); None: the lines are printed.
        more: the settings of trainings (:class:`.Training`): ``epochs=5``, ``batch_size=64``, …; ``resolution=64``
            scales the images of a folder to this height and width (None: their own size). ``equal_within=2.0``: an
            operator is equal to the unchanged network if the whole interval of their difference is within 2 percentage
            points (for a text: hundredths of a nat). ``anyway=True``: search even if two trainings of the unchanged
            network show that no operators can be compared. ``folds=6``: the finals train on five sixths of the images
            and test on the rest, each in turn, so that every image is tested once.

    Raises:
        SpecError: no layer can be replaced, or the network does not accept the examples.
        DataError: the data are not pairs of a tensor and a class.
        CodeError: a user's function cannot be read or fails.
        SearchError: too few minutes (the message has the needed number), or no operators can be compared.
        StoreError: the lab has a search of this name for another network, data or training.
    """
    say = say or print
    systems = [format_named(part.strip()) for part in system.split(",")]
    for kind in map(find_system, systems):
        if isinstance(kind, OfNetworks):
            raise SpecError(
                f"system: expected operators for layers, found {kind.title}, whose operators are whole networks; "
                f"search those by `syno-lab search --system {kind.format} --model FILE.py:FUNCTION "
                "--dataset FILE.py:FUNCTION`"
            )
    lab = lab_folder(folder)
    choice, training = separated(more, minutes=minutes)
    request = with_data(with_model(request_of(training), model), data)
    found_layers = choose(request, layers, say)
    request = found_layers.request
    is_here = needs_this_process(request)
    count = 1 if is_here else workers or (cores() if request.device == "cpu" else 1)
    settings = SearchSettings(
        training=msgspec.structs.replace(request, threads=None if is_here else max(1, cores() // count)),
        name=name,
        minutes=minutes,
        rungs=True,
        max_replaced_ratio=flops,
        max_traffic_ratio=4.0,
        workers=count,
        seeds=final_seeds(seeds),
        equal_within=choice.equal_within,
        anyway=choice.anyway,
        limits={"max_primitives": 10},
        weight_limits="primary",
        starts_with_known=True,
        wants=DERIVED,
        system=",".join(systems),
    )
    settings = with_choice(settings, rules, reward)
    for line in plan_lines(settings, found_layers):
        say(line)
    result = finished(settings, lab)
    if result is None:
        result = _searched(settings, lab, is_here, say)
    say(f"done: {result['verdict']}")
    return improvement(settings, result, lab, say)


def plan_lines(settings: SearchSettings, chosen: Chosen) -> list[str]:
    """Return the plan in lines: the data, the network, the replaced and the unchanged layers, the limits.

    Raises SpecError if no operator can be within the limits.
    """
    survey, space = survey_of(settings.training), Space(settings)
    sites = chosen.sites
    replaced = sum(site.flops for site in sites)
    shown = [site.name for site in sites[:_MOST_LISTED]]
    more = "" if len(sites) <= _MOST_LISTED else f" and {len(sites) - _MOST_LISTED} more"
    names = f"{', '.join(shown)}{more}"
    share, at_once = replaced / max(1, survey.flops), count_of(settings.workers, "training")
    return [
        *plan_of_data(settings.training),
        f"{survey.network}: {survey.flops:,} FLOPs for one example, {survey.params:,} parameters",
        f"{len(sites)} of {len(survey.sites)} layers are replaced, {share:.0%} of the FLOPs: {names}",
        *chosen.stay,
        f"operators {space.limits}; {settings.minutes:g} minutes in all, {at_once} at a time",
    ]


def finished(settings: SearchSettings, lab: Path) -> dict[str, JSON] | None:
    """Return the stored result of this search if it has ended with these minutes and this margin, else None."""
    search_files = search_folder(lab, settings.name)
    known, result = read_json(search_files / SETTINGS_FILE), read_json(search_files / RESULT_FILE)
    if known is None or result is None or "verdict" not in result:
        return None
    earlier = SearchSettings.from_dict(known)
    is_same = earlier.minutes == settings.minutes and earlier.equal_within == settings.equal_within
    return result if is_same and earlier.identity == settings.identity else None


def _searched(settings: SearchSettings, lab: Path, is_here: bool, say: Say) -> dict[str, JSON]:
    streamer = _Streamer(lab, settings, say)
    try:
        if is_here:
            return run_here(settings, lab, report=streamer)
        return run_as_job(settings, lab, report=streamer)
    except KeyboardInterrupt:
        say(f"stopped; all is kept in {lab}: the same call goes on")
        raise
    except StoreError as error:
        raise StoreError(f"{error}; give this search another name or folder") from None


class _Streamer:
    """A search's callback ``report(fraction, message)``: it outputs the plan, new phases, and changes of the front."""

    def __init__(self, lab: Path, settings: SearchSettings, say: Say) -> None:
        self._reader = LabReader(lab)
        self._lab, self._name, self._minutes = lab, settings.name, settings.minutes or 0.0
        self._say = say
        self._next = 0.0
        self._shown_keys: set[str] = set()
        self._fronts: dict[str, dict[tuple[float, ...], str]] = {}

    def __call__(self, fraction: float, message: str) -> None:
        """Output the phase when it begins, and new points on the front of the phase's rung; a tie is no new point."""
        part, _, rest = message.partition(":")
        self._once(f"{fraction:4.0%} {title(part)}:{rest}" if rest else message, key=part)
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK_S
        progress = read_progress(self._lab, self._name)
        if progress is not None and progress.minutes is not None and abs(progress.minutes - self._minutes) < 0.01:
            self._once(table_text(plan_table(progress)), key="the plan")
            if progress.evidence:
                self._once(progress.evidence, key="the evidence")
        if line := self._front(part):
            self._say(line)

    def _once(self, line: str, *, key: str) -> None:
        if key not in self._shown_keys:
            self._shown_keys.add(key)
            self._say(line)

    def _front(self, rung: str) -> str:
        try:
            rows = self._reader.read().of(f"search:{self._name}")
            baseline = next((row for row in rows if row.is_baseline), None)
            front = front_of([row for row in rows if not row.is_baseline], (RUNG + rung, "flops"))
        except SynoError:  # the store is busy, or it has no trial yet
            return ""
        total = baseline.flops if baseline is not None and baseline.flops else None
        old, now = self._fronts.get(rung, {}), {front.points[at].values: front.points[at].name for at in front.front}
        self._fronts[rung] = now
        changes = [
            f"{name} {accuracy:.3f} at "
            + (f"{flops:,.0f} FLOPs" if total is None else f"{flops / total:.2f} of the FLOPs")
            for (accuracy, flops), name in sorted(now.items(), reverse=True)
            if (accuracy, flops) not in old
        ]
        more = f" and {len(changes) - _MOST_POINTS} more" if len(changes) > _MOST_POINTS else ""
        gone = ", ".join(name for values, name in old.items() if values not in now and name not in now.values())
        said = f"front on {title(rung)} (accuracy): {'; '.join(changes[:_MOST_POINTS])}{more}"
        return (said + (f", instead of {gone}" if gone else "")) if changes else ""


def improvement(settings: SearchSettings, result: Mapping[str, JSON], lab: Path, say: Say) -> Improvement:
    """Write the files of a search's result, and return the result."""
    search_files = search_folder(lab, settings.name)
    best = searched(result).best.values()
    texts = {point.number: point.operator for point in best if point is not None and point.number is not None}
    operators = {number: read_operator(text) for number, text in texts.items()}
    files = {}
    for number, operator in operators.items():
        request = msgspec.structs.replace(settings.training, operator=texts[number])
        strides = request.options.get("strides", "pool")
        sites = {site.name: site for site in survey_of(request).sites}
        text = network_file(operator, [(sites[slot.name], slot) for slot in places_of(request)], number, strides)
        files[number] = search_files / f"operator-{number}.py"
        write_whole(files[number], text.encode())
    output = Improvement(settings, search_files, result, operators, files, write_case_study(lab, settings.name))
    for number, path in files.items():
        say(f"trial {number}, as a file that needs torch alone: {path}")
    say(f"a case study of the search, as a notebook: {output.notebook}")
    return output
