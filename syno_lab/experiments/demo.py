"""The demo: a small search with its tunings in this process, then a figure, a table and the operators' pictures.

:func:`.run_search` runs the search, stores it and continues it after an interruption. The module `demo` makes the
settings and draws the results.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from syno_lab import private
from syno_lab.experiments.job import run_here
from syno_lab.experiments.settings import SearchSettings, TuningChoice
from syno_lab.experiments.space import Space
from syno_lab.experiments.tunings import Layer, baseline_layers, layers_of
from syno_lab.processes.process import output_of
from syno_lab.protocol import FLOAT32_BYTES
from syno_lab.reports import LabReader, TrialRow, front_of, front_picture
from syno_lab.reports.axes import LATENCY
from syno_lab.reports.tables import csv_bytes
from syno_lab.systems import read_operator
from syno_lab.training.files import write_whole
from syno_lab.trial import TrialRequest, sites_of
from syno_lab.versioned import JSON

Report = Callable[[str, float, str], None]
TARGET = "local"
BACKBONE = "resnet20"
WIDTH = 8  # The channels of the backbone's first stage.
_SMALLEST_IMAGE = 4  # A window of 3 must be smaller than the image on which it slides.
_PAGE = "syno_widgets.runs_page"  # The engine must not import Jupyter, so a child process writes the page.


@dataclass(frozen=True)
class Scale:
    """The sizes of the demo."""

    operators: int
    max_primitives: int
    min_share: float  # the least share of the dense convolution's FLOPs; a 1x1 convolution has 1/9
    train_images: int
    test_images: int
    epochs: int
    seconds: float  # The limit of a training, because some operators are slow; a test follows.
    within: float  # A tuned operator is at most so many percentage points below the baseline.
    trials: int  # The number of proposed schedules in a tuning.


QUICK = Scale(4, 8, min_share=1 / 40, train_images=1000, test_images=500, epochs=4, seconds=15, within=100, trials=4)
FULL = Scale(8, 8, min_share=1 / 8, train_images=5000, test_images=1000, epochs=3, seconds=25, within=100, trials=16)


@dataclass(frozen=True)
class DemoOptions:
    """The options of the demo.

    Attributes:
        data: a folder with CIFAR; None: the folder in ``SYNO_LAB_DATA``, else scikit-learn's digits.
        out: the folder for the store and all files; a second call with the same folder continues the demo.
        quick: whether to use fewer operators, images and trials, for three minutes instead of ten on two cores.
        seed: the seed of the search; all trainings have seed 0.
        scale: the sizes of the demo (operators, images, epochs, …); None: the sizes that ``quick`` selects.
    """

    data: Path | None = None
    out: Path = Path("demo-output")
    quick: bool = False
    seed: int = 0
    scale: Scale | None = None


@dataclass(frozen=True)
class DemoResult:
    """``summary`` is the command's JSON output; ``files`` are the written files, the page with the figure first."""

    summary: dict[str, JSON]
    table: list[dict[str, JSON]]
    files: list[Path] = field(default_factory=list)


def run_demo(options: DemoOptions, report: Report = lambda stage, fraction, message: None) -> DemoResult:
    """Run the demo, or continue an interrupted demo.

    ``report(stage, fraction, message)`` is called often: ``stage`` is ``data``, ``search`` or ``draw``, ``fraction`` is
    the stage's progress from 0 to 1.

    Raises:
        SynoError: data are missing or corrupt, the store is damaged, or another process runs a demo in the folder.
    """
    from syno_lab.data.datasets import load_dataset

    report("data", 0.0, "reading images")
    settings = demo_settings(options)
    training = settings.training
    data = load_dataset(training.data).part(training.train_images, training.test_images)
    report("data", 1.0, f"{data.name}: {len(data.train_images)} training, {len(data.test_images)} test images")
    if not options.out.is_dir():
        private.folder(options.out)
    run_here(settings, options.out, report=lambda fraction, message: report("search", fraction, message))
    return _draw(settings, data.name, options.out, report)


def demo_settings(options: DemoOptions) -> SearchSettings:
    """Return the settings of the demo's search. Raises DataError where the data are missing or damaged."""
    from syno_lab.data.datasets import DATA_VARIABLE, DIGITS

    scale = options.scale or (QUICK if options.quick else FULL)
    source = str(options.data or os.environ.get(DATA_VARIABLE) or DIGITS)
    training = TrialRequest(
        backbone=BACKBONE,
        options={"width": WIDTH, "blocks": 1},
        data=source if source == DIGITS else str(Path(source).expanduser().absolute()),
        train_images=scale.train_images,
        test_images=scale.test_images,
        epochs=scale.epochs,
        budget_s=scale.seconds,
    )
    sites = [
        site
        for site in sites_of(training)
        if site.in_channels == site.out_channels and min(site.height, site.width) >= _SMALLEST_IMAGE
    ]
    largest = max(sites, key=lambda site: site.flops)
    dense = largest.flops // largest.calls
    settings = SearchSettings(
        training=msgspec.structs.replace(
            training, options={**training.options, "match": [site.name for site in sites]}
        ),
        seed=options.seed,
        trials=scale.operators,
        max_replaced_ratio=1.0,
        max_traffic_ratio=4.0,
        seeds=(0,),
        limits={
            "max_primitives": scale.max_primitives,
            # An operator has at most the FLOPs of the dense convolution, and enough FLOPs to mix channels.
            "max_flops": dense,
            "min_flops": round(scale.min_share * dense),
            # Intermediate tensors are at most as large as input plus output, so that PyTorch trains fast enough.
            "max_memory": 4 * FLOAT32_BYTES * largest.in_channels * largest.height * largest.width,
        },
        coefficients=("k_1=3: 4", "g=4: 3"),
        tuning=TuningChoice(within=scale.within, target=TARGET, trials=scale.trials, of="layers"),
    )
    # A demo with other options is another search in the same folder.
    digest = hashlib.sha256(json.dumps(settings.identity, sort_keys=True).encode()).hexdigest()
    return msgspec.structs.replace(settings, name=f"demo-{digest[:8]}")


def _draw(settings: SearchSettings, data: str, out: Path, report: Report) -> DemoResult:
    """Write the figure, the table and the files of every operator; return the summary."""
    import pandas as pd

    report("draw", 0.0, "drawing the operators and the Pareto curve")
    source = f"search:{settings.name}"
    with LabReader(out) as reader:
        rows = reader.read().of(source)
    front = front_of(rows, (LATENCY + TARGET, "accuracy"))
    pages = [out / "pareto.html"]
    output_of(_PAGE, str(out), source, str(pages[0]))
    for form in ("svg", "png"):
        pages.append(out / f"pareto.{form}")
        write_whole(pages[-1], front_picture(front, form, title=f"Accuracy on {data} against latency"))
    table = _table(rows, {front.points[index].key for index in front.front})
    pages.append(out / "results.csv")
    write_whole(pages[-1], csv_bytes(pd.DataFrame(table)))
    space = Space(settings)
    entries, files = [], []
    for row in rows:
        if row.is_baseline:
            layer = baseline_layers(space.sites)[0]
        else:
            layer = layers_of(read_operator(row.operator), space.sites, space.strides)[0]
        entries.append(_entry(row, layer))
        files += _operator_files(out / "pgraphs", row, layer)
    report("draw", 1.0, f"figure in {pages[0]}")
    summary: dict[str, JSON] = {
        "baseline": entries[0],
        "operators": entries[1:],
        "data": data,
        "seed": settings.seed,
        "target": TARGET,
    }
    return DemoResult(summary, table, [*pages, *files])


def _table(rows: Sequence[TrialRow], on_front: Collection[str]) -> list[dict[str, JSON]]:
    """Return a row for each trial; ``speedup`` above 1: faster than the baseline; ``flops_ratio`` below 1: cheaper."""
    baseline = next(row for row in rows if row.is_baseline)
    base_ms = baseline.latencies.get(TARGET)
    table: list[dict[str, JSON]] = []
    for row in rows:
        latency = row.latencies.get(TARGET)
        table.append(
            {
                "label": row.label,
                "fingerprint": row.fingerprint.partition(" ")[0],
                "accuracy": row.accuracy,
                "latency_ms": latency,
                "flops": row.flops,
                "params": row.params,
                "speedup": base_ms / latency if base_ms and latency else None,
                "flops_ratio": row.flops / baseline.flops,
                "on_front": row.key in on_front,
            }
        )
    return table


def _entry(row: TrialRow, layer: Layer) -> dict[str, JSON]:
    return {
        "fingerprint": row.fingerprint,
        "label": row.label,
        "state": row.state,
        "accuracy": row.accuracy,
        "latency_ms": row.latencies.get(TARGET),
        "flops": row.flops,
        "params": row.params,
        "operator": json.loads(layer.operator),
    }


def _operator_files(folder: Path, row: TrialRow, layer: Layer) -> list[Path]:
    """Write the operator's picture, its DOT and JSON files, and its PyTorch code for the largest layer."""
    operator = read_operator(layer.operator)
    stem = folder / "-".join([*row.label.split(), *([row.fingerprint[:8]] if row.fingerprint else [])])
    texts = {
        "svg": operator.svg(title=row.label),
        "dot": operator.dot(title=row.label),
        "json": layer.operator,
        "py": operator.to_torch_source(layer.binding),
    }
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_whole(path, text.encode())
    return paths
