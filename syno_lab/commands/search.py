"""``syno-lab search``: finds operators for a backbone, trains them, compares them with the baseline, stores them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from syno_lab.commands.detach import detach_all, lab_folder
from syno_lab.commands.options import Rule, check_board, named_value, whole_path
from syno_lab.commands.output import Reporter, say, say_table, tell, write_json
from syno_lab.commands.pgraphs.specs import wants_option
from syno_lab.commands.search_options import Given, parse_workers
from syno_lab.commands.search_own import advice, choice_again, named_again, say_files, with_choice, with_own
from syno_lab.commands.search_rungs import PlanTeller, say_rungs, say_untrained
from syno_lab.errors import DiskFullError, SearchError, SpecError, SynoError
from syno_lab.inputs import quoted
from syno_lab.processes.alone import holder
from syno_lab.processes.process import cores
from syno_lab.settings import Method, TuningSettings
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.experiments import SearchSettings, TuningChoice
    from syno_lab.reports.searched import Point, Tuned
    from syno_lab.trial import TrialRequest

KIND = "search"
DEFAULT_MINUTES, UNTRAINED_MINUTES = 30.0, 5.0
#: Seeds of the baseline and the best operators, without rungs.
SEEDS = 3
#: Epochs from which on the first of them tells enough to be judged by; below, it is a fifth of a training or more.
FEW_EPOCHS = 5


def command(given: Given) -> None:
    """Search operators for a network by training them in it (Syno, Algorithm 1).

    Many operators, the known ones of the space first, are trained on cheap proxies of the network, the rungs; only the
    best are trained in the network itself. Last, the best found within 0.4 and 0.25 of the replaced layers' FLOPs are
    compared with the baseline on seeds that the search did not use, on the test images.
    With --no-rungs, or for a number of --trials, each operator is trained in the network itself.
    With --untrained nothing is trained: the result is a front of a probe's score against FLOPs.
    The folder keeps every result at once: --continue continues a stopped search.
    """
    run, validating = given.run, given.validating
    place = lab_folder(run.folder)
    if run.address is not None and run.in_process:
        raise SynoError("--address: expected trainings as jobs; leave --in-process out")
    if run.detach and run.in_process:
        raise SynoError("--detach: expected a search as a job; leave --in-process out")
    if validating.validate_proxy:
        from syno_lab.commands.validate import validate

        validate(_settings(given, None, place), validating, run, place)
        return
    if validating.operators is not None or validating.full_seeds is not None:
        raise SynoError("--operators and --full-seeds: expected --validate-proxy beside them, found none")
    tuning = _tuning(given.tuning, given.choice.objectives)
    settings = _earlier(given, tuning, place) if run.go_on else _settings(given, tuning, place)
    if run.detach:
        _check_new(place, settings, run.go_on)
        from syno_lab.experiments.job import offer_gpus

        offer_gpus(settings, place)
        detach_all([(KIND, settings.to_dict(), run.name)], place)
        return
    with Reporter() as report:
        _check_new(place, settings, run.go_on)
        if settings.tuning is not None and settings.tuning.tracker is not None:
            check_board(settings.tuning.tracker, settings.tuning.board_key)
        if not run.go_on:
            _check(settings, report)
        teller = PlanTeller(place, settings.name, settings.minutes, report)

        def told(fraction: float, message: str) -> None:
            if settings.rungs:
                teller.look()
            report(KIND, fraction, message)

        with _advised(_command(place, settings, run.in_process), place):
            if run.in_process:
                from syno_lab.experiments import run_here

                result = run_here(settings, place, report=told)
            else:
                from syno_lab.experiments.job import run_as_job

                result = run_as_job(settings, place, address=run.address, report=told)
    _say(result)
    say_files(result)
    write_json(result)


# -- settings --------------------------------------------------------------------------------------------------------


def _settings(given: Given, tuning: TuningChoice | None, place: Path) -> SearchSettings:
    """The settings of a new search in the lab at ``place``."""
    from syno_lab.data.datasets import DATA_VARIABLE, DIGITS
    from syno_lab.experiments import SearchSettings
    from syno_lab.experiments.settings import USUAL_OBJECTIVES
    from syno_lab.trial import TrialRequest
    from syno_lab.trial.request import ENDLESS

    choice, search, training, machine = given.choice, given.search, given.training, given.machine
    untrained, in_process = search.untrained, given.run.in_process
    systems = _systems(choice.system)
    is_whole, usual = _kind_of(systems)
    method = choice.method or ("elites" if untrained else cast("Method", usual))
    for option, is_given in (("--rave", choice.rave), ("--virtual-loss", search.virtual_loss)):
        if is_given and method != "mcts":
            raise SearchError(f"{option}: expected --method mcts beside it, found {method}")
    count, gpus = parse_workers(machine.workers, in_process=in_process)
    device = "cuda" if gpus and training.device == "cpu" else training.device
    workers = 1 if untrained else count or (1 if in_process or device != "cpu" else cores())
    is_timed = training.budget_s is not None
    if training.budget_s is not None:
        _check_budget(training.budget_s, given)
    trained = msgspec.structs.asdict(training) | {"device": device}
    trained["optimizer"] = None if training.optimizer == "sgd" else training.optimizer  # as a search that names none
    request = TrialRequest(
        **trained | ({"epochs": ENDLESS} if is_timed else {}),
        backbone=given.network.backbone,
        options=given.built.options(),
        data=whole_path(given.network.data or os.environ.get(DATA_VARIABLE) or DIGITS),
        threads=None if in_process else max(1, cores() // workers),
        precision=given.built.precision_on(device),
        channels_last=True,
        stopping=None if given.ending.to_the_end or is_timed else _stopping(given.ending.stop_early, training.epochs),
    )
    request = with_own(request, given.network, tries=not is_whole)
    rungs = not is_timed and _in_rungs(given, request, place, tuning)
    searched = msgspec.structs.asdict(search)
    if search.minutes is None and search.trials is None:
        searched["minutes"] = UNTRAINED_MINUTES if untrained else DEFAULT_MINUTES
    settings = SearchSettings(
        **searched,
        training=request,
        name=given.run.name,
        method=method,
        tree="rave" if choice.rave else "uct",
        max_replaced_ratio=(1.0 if is_whole else 0.4) if choice.flops is None else choice.flops,
        max_traffic_ratio=choice.traffic or None,
        workers=workers,
        gpus=gpus,
        seeds=() if untrained else _seeds(machine.seeds, rungs),
        limits={} if is_whole else {"max_primitives": choice.max_primitives},
        weight_limits="primary",
        starts_with_known=not choice.from_nothing,
        tuning=tuning,
        rungs=rungs,
        system=systems,
        wants=wants_option(choice.wants) or None,
        objectives=USUAL_OBJECTIVES if choice.objectives is None else _names(choice.objectives),
        system_options=dict(
            named_value(text, "--system-option", "mutations=primer") for text in choice.system_option or ()
        ),
    )
    return with_choice(settings, choice)


def _check_budget(seconds: float, given: Given) -> None:
    if not 0 < seconds < float("inf"):
        raise SearchError(f"--budget: expected seconds above 0, found {seconds:g}")
    if given.choice.rungs or given.search.untrained:
        other = "--rungs" if given.choice.rungs else "--untrained"
        raise SearchError(f"--budget: expected trainings of the network itself, found {other}; leave one of them out")


def _in_rungs(given: Given, request: TrialRequest, place: Path, tuning: TuningChoice | None) -> bool:
    """Whether trials climb rungs: as the user says, or where the search has minutes and rungs that it may use."""
    from syno_lab.experiments.validate_proxy import usable_rungs, validations_in

    search = given.search
    if given.choice.rungs is not None:
        return given.choice.rungs
    if search.trials is not None or search.untrained or tuning is not None or search.lower_within is not None:
        return False
    try:
        systems = _systems(given.choice.system)
        if _kind_of(systems)[0]:
            return False
        used, _ = usable_rungs(request, validations_in(place), systems)
    except SpecError:  # a backbone without proxies, or an unknown one, which is told with all else that is wrong
        return False
    return any(not rung.is_full for rung in used)


def _seeds(count: int | None, in_rungs: bool) -> tuple[int, ...]:
    """The seeds of the comparison; in rungs, seeds on which the search has not trained."""
    from syno_lab.experiments.finals import LEAST_FINAL_SEEDS, final_seeds

    if in_rungs:
        return final_seeds(LEAST_FINAL_SEEDS if count is None else count)
    return tuple(range(SEEDS if count is None else count))


def _systems(names: str) -> str:
    """The formats of systems as a user names them, in the order of the registry: the same search in any order."""
    from syno_lab.systems import format_named, formats

    try:
        found = [format_named(name.strip()) for name in names.split(",")]
    except SpecError as error:
        raise SpecError(f"--system: {error}") from None
    return ",".join(sorted(found, key=list(formats()).index))


def _kind_of(systems: str) -> tuple[bool, str]:
    """Whether operators of these systems are whole networks, and how they are searched by default."""
    from syno_lab.protocol import OfNetworks
    from syno_lab.systems import find_system

    found = [find_system(name) for name in systems.split(",")]
    is_whole = any(isinstance(system, OfNetworks) for system in found)
    return is_whole, "pareto" if is_whole else "estimate"


def _names(text: str) -> tuple[str, ...]:
    return tuple([name.strip() for name in text.split(",")])


def _stopping(rule: Rule, epochs: int) -> dict[str, str | int]:
    """The rule for early termination as trials are given it.

    With few epochs the first is not judged where others follow: the learning rate has only just come to its highest,
    and accuracies say little yet. ResNet-20's after one of two epochs on three seeds were 0.190, 0.132 and 0.142, and
    then 0.255, 0.317 and 0.362: the rule of Canvas would have ended the two best of them for falling behind the worst.
    """
    has_warmup = rule in ("canvas", "median", "percentile")
    return {"rule": rule, **({"warmup": 1} if has_warmup and epochs < FEW_EPOCHS else {})}


def _check(settings: SearchSettings, report: Reporter) -> None:
    """Raise now all errors that can be found before a job is submitted."""
    from syno_lab.experiments import Space
    from syno_lab.trial.examples import plan_of_images

    report(KIND, 0.0, "looking at the backbone and the data")
    space = Space(settings)
    wants = f" that meet {space.operators.wants}" if space.operators.wants else ""
    what = "searching" if space.is_whole else f"{len(space.sites)} layers to replace by operators"
    report(
        KIND,
        0.0,
        f"{what} {space.operators}{wants}; "
        f"baseline {space.baseline.flops:,} FLOPs, {space.baseline.params:,} parameters",
    )
    for line in plan_of_images(settings.training):
        report(KIND, 0.0, line)


def _check_new(place: Path, settings: SearchSettings, go_on: bool) -> None:
    """Refuse a name that a search in this folder has or had."""
    from syno_lab.experiments import STATUS_FILE, search_folder

    if go_on:
        return
    _check_idle(place, settings.name)
    if (search_folder(place, settings.name) / STATUS_FILE).exists():
        raise SearchError(
            f"there is a search {quoted(settings.name)} in {place} already: continue it by "
            f"`{_command(place, settings, False)}`, or give this one another --name"
        )


def _check_idle(place: Path, name: str) -> None:
    """Refuse while a search of this name waits for its turn or runs: another terminal, or a job. Nothing is changed."""
    from syno_lab.experiments import LOCK_FILE, busy, search_folder
    from syno_lab.jobs import Lab
    from syno_lab.store.database import FILE_NAME

    if (place / FILE_NAME).exists():
        with Lab.open(place, start=False, is_thorough=False) as lab:
            alive = [job for job in lab.jobs(kind=KIND) if job.params.get("name") == name]
        for job in alive:
            if job.state in ("waiting", "running"):
                watching = shlex.join(["syno-lab", "jobs", "watch", str(job.id), "--folder", str(place)])
                raise SearchError(
                    f"the search {quoted(name)} in {place} is {job.state} already, as job {job.id}: watch it by "
                    f"`{watching}`, or give this one another --name"
                )
    if (who := holder(search_folder(place, name) / LOCK_FILE)) is not None:
        raise SearchError(busy(name, place).replace("{who}", who))


def _tuning(given: TuningSettings, objectives: str | None) -> TuningChoice | None:
    """What to tune; nothing without ``--tune-within`` or the latency among the objectives."""
    from syno_lab.experiments import TuningChoice
    from syno_lab.experiments.settings import LATENCY

    is_objective = objectives is not None and LATENCY in _names(objectives)
    if given.within is None and not is_objective:
        needless = {"--tracker": given.tracker, "--key": given.key, "--tune-trials": given.trials}
        for option in (option for option, value in needless.items() if value is not None):
            raise SynoError(f"{option}: expected --tune-within POINTS beside it, found none")
        return None
    return TuningChoice(**msgspec.structs.asdict(given))


def _earlier(given: Given, tuning: TuningChoice | None, place: Path) -> SearchSettings:
    """The settings of a search that was begun, with a new end, or something new to tune, where one is given."""
    from syno_lab.experiments import SETTINGS_FILE, SearchSettings, read_json, search_folder

    name, search = given.run.name, given.search
    found = read_json(search_folder(place, name) / SETTINGS_FILE)
    if found is None:
        raise SearchError(
            f"--continue: expected a search {quoted(name)} in {place}, found none; name another by --name and --folder"
        )
    settings = SearchSettings.from_dict(found)
    count, gpus = parse_workers(given.machine.workers)
    if count:
        settings = msgspec.structs.replace(settings, workers=count, gpus=gpus)
    if search.minutes is not None or search.trials is not None:
        settings = msgspec.structs.replace(settings, minutes=search.minutes, trials=search.trials)
    if tuning is not None:
        settings = msgspec.structs.replace(settings, tuning=tuning)
    elif settings.tuning is not None and settings.tuning.tracker is not None:
        _check_asked(place, settings.tuning.tracker, name)
    settings = choice_again(settings, given.choice)
    return msgspec.structs.replace(settings, training=named_again(settings.training, given.network))


def _check_asked(place: Path, tracker: str, name: str) -> None:
    """Refuse a tracker that the folder names if no job of the user there names it."""
    from syno_lab.jobs import Lab
    from syno_lab.jobs.trust import is_signed

    with Lab.open(place, start=False, is_thorough=False) as lab:
        for job in lab.ledger.jobs("kind=?", (KIND,)):
            asked = job.params.get("tuning")
            is_it = job.params.get("name") == name and isinstance(asked, dict) and asked.get("tracker") == tracker
            if is_it and is_signed(lab.ledger, job):
                return
    raise SearchError(
        f"--continue: the settings in {place} name the tracker {quoted(tracker)}, and no job there that is signed "
        "with your key names it: give --tracker, --key and --tune-within to tune there"
    )


def _command(place: Path, settings: SearchSettings, in_process: bool) -> str:
    words = ["syno-lab", "search", "--continue", "--folder", str(place), "--name", settings.name]
    words += advice(settings)
    return shlex.join([*words, "--in-process"] if in_process else words)


@contextmanager
def _advised(again: str, place: Path) -> Iterator[None]:
    """Around the search: after an interruption or on a full disk, say how to continue."""
    try:
        yield
    except DiskFullError as error:
        raise DiskFullError(f"{error}; `{again}` continues the search") from None
    except (KeyboardInterrupt, SystemExit):
        tell(f"the search is kept in {place}; `{again}` continues it")
        raise


# -- what came out ---------------------------------------------------------------------------------------------------


def _say(plain: Mapping[str, JSON]) -> None:
    from syno_lab.reports.searched import searched

    if plain.get("untrained"):
        say_untrained(plain)
        return
    if "plan" in plain:
        say_rungs(plain)
        return
    result = searched(plain)
    baseline = result.baseline
    say(
        f"{result.trials} trials, {result.trials_per_hour:.0f} an hour, {result.pruned_share:.0%} pruned; "
        f"overhead of search and store {result.overhead_share:.2%} of the trainings' time; {result.end}"
    )
    if baseline.accuracy is not None:
        say(
            f"baseline: {baseline.accuracy:.4f} ({len(baseline.accuracies or ())} seeds), {baseline.flops:,} FLOPs, "
            f"{baseline.params:,} parameters"
        )
    is_joint = "," in result.settings.system
    best = {share: one for share, one in result.best.items() if one is not None}
    say_table([_row("best within", _within(share), one, is_joint=is_joint) for share, one in best.items()])
    if isinstance(result.known, list):
        say_table([_row("known", str(one.known), one) for one in result.known])
    for share, compared in result.comparisons.items():
        which = "best known" if share == "known" else f"best within {_within(share)}"
        say(
            f"{which} - baseline: {compared.measure} {compared.by} ({len(compared.seeds)} seeds), "
            f"{compared.flops_ratio:.3f} of the FLOPs, {compared.params_ratio:.3f} of the parameters: "
            f"{compared.verdict}"
        )
    for lowered in result.lowered or ():
        say(f"limit lowered to {lowered['replaced_ratio']:.3f} of the replaced FLOPs after trial {lowered['number']}")
    if result.tuning is not None:
        _say_tuned(result.tuning)
    if result.last_failure:
        failed = sum(number for state, number in result.states.items() if state not in ("finished", "pruned"))
        say(f"{failed} trials ended without an accuracy, the last: {result.last_failure}")


def _within(share: str) -> str:
    from syno_lab.experiments import share_text

    return share_text(share)


def _row(head: str, name: str, one: Point, *, is_joint: bool = False) -> dict[str, JSON]:
    """A trial in a table of a result; its share of the replaced layers' FLOPs only where these are limited."""
    system = {"system": one.system} if is_joint else {}
    replaced = {} if one.replaced_ratio is None else {"of replaced": f"{one.replaced_ratio:.3f}"}
    costs = {"accuracy": one.accuracy, "FLOPs": f"{one.flops_ratio:.3f}"}
    return {head: name, "trial": one.number, **system, **costs, **replaced, "parameters": one.params}


def _say_tuned(tuning: Tuned) -> None:
    baseline = tuning.baseline_ms
    told = tuning.baseline_reason if baseline is None else f"baseline {baseline:.4g} ms"
    is_whole = tuning.of == "whole network"
    if is_whole:
        facts = tuning.baseline_facts
        each = f", {tuning.trials} candidates for each function on average, by the scheduler {tuning.scheduler}"
        what = f"those of the whole network through Relax{' on ' + facts['where'] if facts else ''}"
    else:
        each = f", {tuning.trials} candidates for each size of layer"
        what = f"the sum over the {tuning.of}, not the whole network"
    say(f"{tuning.tuned} tuned for {tuning.target}{each}; milliseconds are {what}; {told}")
    say_table(
        [
            {
                "front": f"trial {point['number']}",
                "accuracy": point["accuracy"],
                f"{'whole network' if is_whole else 'sum of layers'} [ms]": point["latency_ms"],
                "speedup": None if baseline is None else f"{baseline / point['latency_ms']:.2f}",
            }
            for point in tuning.front
        ]
    )
    for number, reason in tuning.failed.items():
        say(f"trial {number} was not tuned: {reason}")
