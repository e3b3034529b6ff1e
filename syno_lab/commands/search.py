"""``syno-lab search``: find operators for a backbone, train them, compare them with the baseline, store the results."""

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
#: The number of seeds for the baseline and the best operators, without rungs.
SEEDS = 3
#: The least number of epochs with which the first epoch is judged; with fewer, its accuracy is not meaningful.
FEW_EPOCHS = 5


def command(options: Given) -> None:
    """Search operators for a network by training them in it (Syno, Algorithm 1).

    The search trains many operators on cheap proxies of the network, the rungs, beginning with the known operators of
    the space. Only the best operators are trained in the network itself. At the end, the best operators within 0.4 and
    0.25 of the replaced layers' FLOPs are compared with the baseline, on the test images and on seeds that the search
    did not use. With --no-rungs or --trials, each operator is trained in the network itself. With --untrained, nothing
    is trained: the result is a front of a probe's score against FLOPs. The folder stores every result at once:
    --continue continues a stopped search.
    """
    run, validating = options.run, options.validating
    folder = lab_folder(run.folder)
    if run.address is not None and run.in_process:
        raise SynoError("--address: expected trainings as jobs; leave --in-process out")
    if run.detach and run.in_process:
        raise SynoError("--detach: expected a search as a job; leave --in-process out")
    if validating.validate_proxy:
        from syno_lab.commands.validate import validate

        validate(_settings(options, None, folder), validating, run, folder)
        return
    if validating.operators is not None or validating.full_seeds is not None:
        raise SynoError("--operators and --full-seeds: expected --validate-proxy beside them, found none")
    tuning = _tuning(options.tuning, options.choice.objectives)
    settings = _earlier(options, tuning, folder) if run.go_on else _settings(options, tuning, folder)
    if run.detach:
        _check_new(folder, settings, run.go_on)
        from syno_lab.experiments.job import offer_gpus

        offer_gpus(settings, folder)
        detach_all([(KIND, settings.to_dict(), run.name)], folder)
        return
    with Reporter() as report:
        _check_new(folder, settings, run.go_on)
        if settings.tuning is not None and settings.tuning.tracker is not None:
            check_board(settings.tuning.tracker, settings.tuning.board_key)
        if not run.go_on:
            _check(settings, report)
        teller = PlanTeller(folder, settings.name, settings.minutes, report)

        def told(fraction: float, message: str) -> None:
            if settings.rungs:
                teller.look()
            report(KIND, fraction, message)

        with _advised(_command(folder, settings, run.in_process), folder):
            if run.in_process:
                from syno_lab.experiments import run_here

                result = run_here(settings, folder, report=told)
            else:
                from syno_lab.experiments.job import run_as_job

                result = run_as_job(settings, folder, address=run.address, report=told)
    _say(result, is_whole=run.whole_front)
    say_files(result)
    write_json(result)


# -- settings --------------------------------------------------------------------------------------------------------


def _settings(wanted: Given, tuning: TuningChoice | None, folder: Path) -> SearchSettings:
    """Return the settings of a new search in the lab at ``folder``."""
    from syno_lab.data.datasets import DATA_VARIABLE, DIGITS
    from syno_lab.experiments import SearchSettings
    from syno_lab.experiments.settings import USUAL_OBJECTIVES
    from syno_lab.trial import TrialRequest
    from syno_lab.trial.request import ENDLESS

    choice, search, training, machine = wanted.choice, wanted.search, wanted.training, wanted.machine
    untrained, in_process = search.untrained, wanted.run.in_process
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
        _check_budget(training.budget_s, wanted)
    trained = msgspec.structs.asdict(training) | {"device": device}
    trained["optimizer"] = None if training.optimizer == "sgd" else training.optimizer  # as without --optimizer
    request = TrialRequest(
        **trained | ({"epochs": ENDLESS} if is_timed else {}),
        backbone=wanted.network.backbone,
        options=wanted.built.options(),
        data=whole_path(wanted.network.data or os.environ.get(DATA_VARIABLE) or DIGITS),
        threads=None if in_process else max(1, cores() // workers),
        precision=wanted.built.precision_on(device),
        channels_last=True,
        stopping=None
        if wanted.ending.to_the_end or is_timed or training.folds
        else _stopping(wanted.ending.stop_early, training.epochs),
    )
    request = with_own(request, wanted.network, tries=not is_whole)
    rungs = not is_timed and _in_rungs(wanted, request, folder, tuning)
    searched = msgspec.structs.asdict(search)
    if search.minutes is None and search.trials is None:
        searched["minutes"] = UNTRAINED_MINUTES if untrained else DEFAULT_MINUTES
    settings = SearchSettings(
        **searched,
        training=request,
        name=wanted.run.name,
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


def _check_budget(seconds: float, options: Given) -> None:
    if not 0 < seconds < float("inf"):
        raise SearchError(f"--budget: expected seconds above 0, found {seconds:g}")
    if options.choice.rungs or options.search.untrained:
        other = "--rungs" if options.choice.rungs else "--untrained"
        raise SearchError(f"--budget: expected trainings of the network itself, found {other}; leave one of them out")


def _in_rungs(options: Given, request: TrialRequest, folder: Path, tuning: TuningChoice | None) -> bool:
    """Return whether trials climb rungs: as the user sets it, by default if the search has minutes and usable rungs."""
    from syno_lab.experiments.validate_proxy import usable_rungs, validations_in

    search = options.search
    if options.choice.rungs is not None:
        return options.choice.rungs
    if search.trials is not None or search.untrained or tuning is not None or search.lower_within is not None:
        return False
    try:
        systems = _systems(options.choice.system)
        if _kind_of(systems)[0]:
            return False
        used, _ = usable_rungs(request, validations_in(folder), systems)
    except SpecError:  # no proxies, or an unknown backbone, for which a later check raises an error
        return False
    return any(not rung.is_full for rung in used)


def _seeds(count: int | None, in_rungs: bool) -> tuple[int, ...]:
    """Return the seeds of the comparison; in rungs, seeds on which the search has not trained."""
    from syno_lab.experiments.finals import LEAST_FINAL_SEEDS, final_seeds

    if in_rungs:
        return final_seeds(LEAST_FINAL_SEEDS if count is None else count)
    return tuple(range(SEEDS if count is None else count))


def _systems(names: str) -> str:
    """Return the formats of the named systems in the order of the registry; the user's order has no effect."""
    from syno_lab.systems import format_named, formats

    try:
        format_names = [format_named(name.strip()) for name in names.split(",")]
    except SpecError as error:
        raise SpecError(f"--system: {error}") from None
    return ",".join(sorted(format_names, key=list(formats()).index))


def _kind_of(systems: str) -> tuple[bool, str]:
    """Return whether operators of these systems are whole networks, and the default method for these systems."""
    from syno_lab.protocol import OfNetworks
    from syno_lab.systems import find_system

    chosen = [find_system(name) for name in systems.split(",")]
    is_whole = any(isinstance(system, OfNetworks) for system in chosen)
    return is_whole, "pareto" if is_whole else "estimate"


def _names(text: str) -> tuple[str, ...]:
    return tuple([name.strip() for name in text.split(",")])


def _stopping(rule: Rule, epochs: int) -> dict[str, str | int]:
    """Return the rule for early termination in a trial's request.

    With few epochs, the first of several epochs is not judged, because the learning rate has just reached its maximum,
    and accuracies are not meaningful. ResNet-20 on three seeds had 0.190, 0.132 and 0.142 after one of two epochs, then
    0.255, 0.317 and 0.362. Canvas's rule would have ended the two best trainings: they were worst at first.
    """
    has_warmup = rule in ("canvas", "median", "percentile")
    return {"rule": rule, **({"warmup": 1} if has_warmup and epochs < FEW_EPOCHS else {})}


def _check(settings: SearchSettings, report: Reporter) -> None:
    """Check the settings, and raise every error that can be found before a job is submitted."""
    from syno_lab.experiments import Space
    from syno_lab.trial.examples import plan_of_data

    report(KIND, 0.0, "looking at the backbone and the data")
    space = Space(settings)
    for line in plan_of_data(settings.training):
        report(KIND, 0.0, line)
    wants = f" that meet {space.operators.wants}" if space.operators.wants else ""
    subject = "searching" if space.is_whole else f"{len(space.sites)} layers to replace by operators"
    report(
        KIND,
        0.0,
        f"{subject} {space.operators}{wants}; "
        f"baseline {space.baseline.flops:,} FLOPs, {space.baseline.params:,} parameters",
    )
    if settings.seeds and not settings.rungs and not space.is_whole:
        report(KIND, 0.0, "no rivals (separable, grouped, narrowed) are trained: only a search in rungs has them")


def _check_new(folder: Path, settings: SearchSettings, go_on: bool) -> None:
    """Raise an error for the name of a search that exists or existed in this folder."""
    from syno_lab.experiments import STATUS_FILE, search_folder

    if go_on:
        return
    _check_idle(folder, settings.name)
    if (search_folder(folder, settings.name) / STATUS_FILE).exists():
        raise SearchError(
            f"there is a search {quoted(settings.name)} in {folder} already: continue it by "
            f"`{_command(folder, settings, False)}`, or give this one another --name"
        )


def _check_idle(folder: Path, name: str) -> None:
    """Raise an error if a search of this name waits or runs, in another terminal or as a job. Nothing is changed."""
    from syno_lab.experiments import LOCK_FILE, busy, search_folder
    from syno_lab.jobs import Lab
    from syno_lab.store.database import FILE_NAME

    if (folder / FILE_NAME).exists():
        with Lab.open(folder, start=False, is_thorough=False) as lab:
            alive = [job for job in lab.jobs(kind=KIND) if job.params.get("name") == name]
        for job in alive:
            if job.state in ("waiting", "running"):
                watching = shlex.join(["syno-lab", "jobs", "watch", str(job.id), "--folder", str(folder)])
                raise SearchError(
                    f"the search {quoted(name)} in {folder} is {job.state} already, as job {job.id}: watch it by "
                    f"`{watching}`, or give this one another --name"
                )
    if (owner := holder(search_folder(folder, name) / LOCK_FILE)) is not None:
        raise SearchError(busy(name, folder).replace("{who}", owner))


def _tuning(settings: TuningSettings, objectives: str | None) -> TuningChoice | None:
    """Return what to tune; None without ``--tune-within`` and without the latency among the objectives."""
    from syno_lab.experiments import TuningChoice
    from syno_lab.experiments.settings import LATENCY

    is_objective = objectives is not None and LATENCY in _names(objectives)
    if settings.within is None and not is_objective:
        needless = {"--tracker": settings.tracker, "--key": settings.key, "--tune-trials": settings.trials}
        for option in (option for option, value in needless.items() if value is not None):
            raise SynoError(f"{option}: expected --tune-within POINTS beside it, found none")
        return None
    return TuningChoice(**msgspec.structs.asdict(settings))


def _earlier(options: Given, tuning: TuningChoice | None, folder: Path) -> SearchSettings:
    """Return the settings of a stored search, with the end and the tuning from the command line."""
    from syno_lab.experiments import SETTINGS_FILE, SearchSettings, read_json, search_folder

    name, search = options.run.name, options.search
    stored = read_json(search_folder(folder, name) / SETTINGS_FILE)
    if stored is None:
        raise SearchError(
            f"--continue: expected a search {quoted(name)} in {folder}, found none; name another by --name and --folder"
        )
    settings = SearchSettings.from_dict(stored)
    count, gpus = parse_workers(options.machine.workers)
    if count:
        settings = msgspec.structs.replace(settings, workers=count, gpus=gpus)
    if search.minutes is not None or search.trials is not None:
        settings = msgspec.structs.replace(settings, minutes=search.minutes, trials=search.trials)
    if tuning is not None:
        settings = msgspec.structs.replace(settings, tuning=tuning)
    elif settings.tuning is not None and settings.tuning.tracker is not None:
        _check_asked(folder, settings.tuning.tracker, name)
    settings = msgspec.structs.replace(choice_again(settings, options.choice), anyway=search.anyway)
    return msgspec.structs.replace(settings, training=named_again(settings.training, options.network))


def _check_asked(folder: Path, tracker: str, name: str) -> None:
    """Raise an error if the folder's settings name a tracker that no signed job of the user names."""
    from syno_lab.jobs import Lab
    from syno_lab.jobs.trust import is_signed

    with Lab.open(folder, start=False, is_thorough=False) as lab:
        for job in lab.ledger.jobs("kind=?", (KIND,)):
            tuning = job.params.get("tuning")
            is_it = job.params.get("name") == name and isinstance(tuning, dict) and tuning.get("tracker") == tracker
            if is_it and is_signed(lab.ledger, job):
                return
    raise SearchError(
        f"--continue: the settings in {folder} name the tracker {quoted(tracker)}, and no job there that is signed "
        "with your key names it: give --tracker, --key and --tune-within to tune there"
    )


def _command(folder: Path, settings: SearchSettings, in_process: bool) -> str:
    words = ["syno-lab", "search", "--continue", "--folder", str(folder), "--name", settings.name]
    words += advice(settings)
    return shlex.join([*words, "--in-process"] if in_process else words)


@contextmanager
def _advised(again: str, folder: Path) -> Iterator[None]:
    """Run the search in the block; after an interruption or on a full disk, print how to continue."""
    try:
        yield
    except DiskFullError as error:
        raise DiskFullError(f"{error}; `{again}` continues the search") from None
    except (KeyboardInterrupt, SystemExit):
        tell(f"the search is kept in {folder}; `{again}` continues it")
        raise


# -- results ----------------------------------------------------------------------------------------------------------


def _say(plain: Mapping[str, JSON], *, is_whole: bool) -> None:
    from syno_lab.reports.searched import searched
    from syno_lab.store.verdicts import sentence

    if plain.get("untrained"):
        say_untrained(plain)
        return
    if "plan" in plain:
        say_rungs(plain, is_whole=is_whole)
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
    best = {share: point for share, point in result.best.items() if point is not None}
    say_table([_row("best within", _within(share), point, is_joint=is_joint) for share, point in best.items()])
    if isinstance(result.known, list):
        say_table([_row("known", str(point.known), point) for point in result.known])
    for share, compared in result.comparisons.items():
        which = "best known" if share == "known" else f"best within {_within(share)}"
        say(
            f"{which}, {compared.flops_ratio:.3f} of the FLOPs, {compared.params_ratio:.3f} of the parameters: "
            f"{sentence(compared)}"
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


def _row(head: str, name: str, point: Point, *, is_joint: bool = False) -> dict[str, JSON]:
    """Return a table row of a trial, with its share of the replaced layers' FLOPs if these are limited."""
    system = {"system": point.system} if is_joint else {}
    replaced = {} if point.replaced_ratio is None else {"of replaced": f"{point.replaced_ratio:.3f}"}
    costs = {"accuracy": point.accuracy, "FLOPs": f"{point.flops_ratio:.3f}"}
    return {head: name, "trial": point.number, **system, **costs, **replaced, "parameters": point.params}


def _say_tuned(tuning: Tuned) -> None:
    baseline = tuning.baseline_ms
    baseline_text = tuning.baseline_reason if baseline is None else f"baseline {baseline:.4g} ms"
    is_whole = tuning.of == "whole network"
    if is_whole:
        facts = tuning.baseline_facts
        budget = f", {tuning.trials} candidates for each function on average, by the scheduler {tuning.scheduler}"
        meaning = f"those of the whole network through Relax{' on ' + facts['where'] if facts else ''}"
    else:
        budget = f", {tuning.trials} candidates for each size of layer"
        meaning = f"the sum over the {tuning.of}, not the whole network"
    say(f"{tuning.tuned} tuned for {tuning.target}{budget}; milliseconds are {meaning}; {baseline_text}")
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
