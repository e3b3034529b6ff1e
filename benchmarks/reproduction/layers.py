"""Figure 9: Operators 1 and 2 and NAS-PTE's against conv2d, tuned alike, on layers of ResNet-34."""

from __future__ import annotations

from typing import Any

from reproduction.items import Work
from reproduction.scale import CANDIDATE_S, Options, Scale
from syno_lab.errors import TuningError
from syno_lab.experiments.settings import DEFAULT_SYSTEM
from syno_lab.processes.process import cores
from syno_lab.protocol import Operator
from syno_lab.systems import builder_of, find_system
from syno_lab.tuning.options import enough_s
from syno_lab.tuning.tune import TuningStopped, tune
from syno_lab.tuning.values import TuningProgress, TuningTask

#: Channels and height of the 3x3 convolutions of stride 1 in ResNet-34 at 224x224.
SHAPES = ((64, 56), (128, 28), (256, 14), (512, 7))
_COEFFICIENTS = {"g": 8, "s": 2}
_NAS_PTE = "syno-lab-nas-pte"


def operators() -> dict[str, Operator]:
    """The operators of Figure 9 by name, conv2d first."""
    known = find_system(DEFAULT_SYSTEM).known
    found = {name: known[name]() for name in ("conv2d", "operator_1", "operator_2")}
    return found | {name: make() for name, make in find_system(_NAS_PTE).known.items()}


def layers(options: Options, scale: Scale, work: Work) -> dict[str, Any]:
    """A row for each operator and layer: the tuned latency, or the reason why there is none."""
    rows: list[dict[str, Any]] = []
    made = operators()
    total = len(made) * len(SHAPES)
    for channels, height in SHAPES:
        sizes = {"N": 1, "C_in": channels, "C_out": channels, "H": height, "W": height}
        for name, operator in made.items():
            rest = {key: value for key, value in _COEFFICIENTS.items() if key in operator.variables}
            binding = operator.complete_binding({**sizes, **rest})
            label = f"{name}, {channels} channels, {height}x{height}"
            done = len(rows)

            def tell(now: TuningProgress, done: int = done, label: str = label) -> None:
                work.report((done + now.trial / now.trials) / total, f"{label}: {now}")

            def run(
                operator: Operator = operator, binding: dict[str, int] = binding, label: str = label, tell: Any = tell
            ) -> dict[str, Any]:
                text = operator.to_json()
                try:
                    result = tune(
                        TuningTask(label, text, binding, builder=builder_of(text)),
                        work_dir=work.folder / "logs",
                        store=work.folder / "records",
                        trials=scale.layer_candidates,
                        seed=options.seed,
                        deadline_s=enough_s(scale.layer_candidates),
                        on_progress=tell,
                        should_stop=work.should_stop,
                    )
                except TuningStopped:
                    work.check()
                    raise
                except TuningError as error:
                    return {"latency_ms": None, "error": str(error).replace(str(work.folder), "")}
                kept = {"latency_ms": result.latency_ms, "best_ms": result.best_ms, "failed": result.failed}
                return kept | {"trials": result.trials, "seconds": result.seconds}

            found = work.item(label, run)
            costs = {"flops": operator.flops(binding), "params": operator.params(binding)}
            rows.append({"operator": name, "channels": channels, "height": height, **costs, **found})
    return {
        "candidates": scale.layer_candidates,
        "threads": cores(),
        "planned_candidate_s": CANDIDATE_S,
        "layers": rows,
    }
