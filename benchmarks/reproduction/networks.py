"""The latencies of Figures 5, 6 and 8: whole networks, tuned alike and measured in turns."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import msgspec
from torch import nn

from reproduction.items import Work
from reproduction.scale import Options, Scale
from reproduction.trainings import BASELINE, KNOWN, compared, image_request
from syno_lab.errors import SynoError, TrackerError
from syno_lab.experiments.driver import Stopped
from syno_lab.processes.process import cores
from syno_lab.scratch import scratch
from syno_lab.systems import read_operator
from syno_lab.trial.backbone import build
from syno_lab.trial.facts import facts_of
from syno_lab.tuning.network import FunctionsTuning, compiled, run_networks, tune_functions
from syno_lab.tuning.options import TuningOptions
from syno_lab.tuning.tune import TuningStopped
from syno_lab.tuning.values import TuningProgress
from syno_lab.tuning.versus import both_networks

ROUNDS = 3


def networks(options: Options, scale: Scale, work: Work, accuracies: dict[str, Any], found: dict[str, Any]) -> Any:
    """Each network's accuracy (of the part before) with its latency: the median of rounds that alternate.

    The baseline's convolutions are conv2d's pGraph where an operator can take their place, so that all networks have
    the same rules, candidates and layouts.
    """
    operators = compared(found)
    facts = facts_of(image_request(options, scale))
    image = (facts.channels, facts.size, facts.size)
    failed: dict[str, str] = {}
    for number, label in enumerate(operators):
        try:
            work.item(
                f"tuning of {label}",
                partial(_tuned, options, scale, operators[label], image, label, (number, len(operators)), work),
            )
        except (Stopped, TrackerError):
            raise
        except SynoError as error:
            failed[label] = str(error)
    found_ms: dict[str, list[float]] = {label: [] for label in operators}
    parts: dict[str, dict[str, Any]] = {}
    for turn in range(ROUNDS):
        for label in list(operators)[:: 1 if turn % 2 == 0 else -1]:
            if label in failed:
                continue
            try:
                one = work.item(
                    f"round {turn} of {label}",
                    partial(_measured, options, scale, operators[label], image, label, turn, work),
                )
            except Stopped:
                raise
            except SynoError as error:
                failed[label] = str(error)
                continue
            found_ms[label].append(one["latency_ms"])
            parts[label] = one
    rows = []
    for row in accuracies["rows"]:
        latencies = found_ms.get(row["label"], [])
        rows.append(
            row
            | {"latency_ms": statistics.median(latencies) if len(latencies) == ROUNDS else None}
            | {"rounds_ms": latencies, "failed": failed.get(row["label"], "")}
            | {key: parts.get(row["label"], {}).get(key) for key in ("functions", "tuned", "error")}
        )
    about = {key: value for key, value in accuracies.items() if key not in ("rows", "about")}
    measured = {"candidates": scale.network_candidates, "rounds": ROUNDS, "threads": cores(), "image": list(image)}
    return about | measured | {"baseline": BASELINE, "rows": rows}


def _network(options: Options, scale: Scale, operator: str | None, image: tuple[int, int, int]) -> nn.Module:
    request = image_request(options, scale)
    if operator is not None:
        return build(msgspec.structs.replace(request, operator=operator)).module.eval()
    first = compared({}, KNOWN[:1])[KNOWN[0]]
    assert first is not None
    base, _, _ = both_networks(read_operator(first), build(request).module, image)
    return base.eval()


def _folder(work: Work, label: str) -> Any:
    return work.folder / "".join(letter if letter.isalnum() else "-" for letter in label)


def _tuned(
    options: Options,
    scale: Scale,
    operator: str | None,
    image: tuple[int, int, int],
    label: str,
    place: tuple[int, int],
    work: Work,
) -> dict[str, Any]:
    """``place`` is the number of this network, and that of all."""
    number, total = place

    def tell(now: TuningProgress) -> None:
        work.check()
        done = 0.9 * (number + now.trial / now.trials) / total
        work.report(done, f"{label}: {now.label}: {now}")

    net, example = _network(options, scale, operator, image), (1, *image)
    try:
        # In one folder for all networks: what several of them call is tuned once.
        done = tune_functions(
            net, example, records=work.folder / "functions", on_progress=tell, trials=scale.network_candidates
        )
    except TuningStopped:
        work.check()
        raise
    with scratch("syno-reproduce-") as folder:  # for the schedules that are kept
        compiled(done, folder, keep=_folder(work, label))
    return {"tuned": len(done.results), "failed": done.failed}


def _measured(
    options: Options,
    scale: Scale,
    operator: str | None,
    image: tuple[int, int, int],
    label: str,
    turn: int,
    work: Work,
) -> dict[str, Any]:
    work.report(0.9 + 0.1 * turn / ROUNDS, f"{label}, round {turn + 1} of {ROUNDS}")
    tuned = work.item(f"tuning of {label}", dict)["tuned"]
    with scratch("syno-reproduce-") as folder:
        how = TuningOptions(work_dir=folder)
        untuned = FunctionsTuning(_network(options, scale, operator, image), (1, *image), False, how)
        ready = compiled(untuned, folder, keep=_folder(work, label) if tuned else None)
        (((one,),), _) = run_networks([ready], how, rounds=1)
    return {"latency_ms": one.latency_ms, "best_ms": one.best_ms, "error": one.error} | {
        "functions": one.functions,
        "tuned": one.tuned,
    }
