"""The main job, end to end: synthesise operators, train them, tune them behind a tracker, draw the Pareto curve.

Every result goes into the store as soon as it is there, and every step looks there first, so a demo that was
interrupted goes on where it was when it is run again with the same options.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import SynoError, TrackerError, TuningError
from syno_lab.ir.fingerprint import distinct_key, fingerprint, fingerprint_binding
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.synthesis.sampler import Sampler

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.evaluate.data import Dataset
    from syno_lab.evaluate.store import Run, Trial
    from syno_lab.evaluate.tuning import Board
    from syno_lab.models.extraction import Site

Report = Callable[[str, float, str], None]
BASELINE = "conv2d"
TARGET = "local"
_SMALLEST_IMAGE = 4  # windows of 3 must be smaller than what they slide along
_FIXED_SEED_OFFSET = 1000  # trainings do not share the sampler's seed


@dataclass(frozen=True)
class Scale:
    """How large the demo is."""

    operators: int
    max_primitives: int
    min_share: float  # FLOPs at least this share of the dense convolution's; 1x1 convolution is 1/9
    train_images: int
    test_images: int
    epochs: int
    seconds: float  # for one training: a guard against operators that PyTorch runs slowly, noted where it applies
    tuned: int
    trials: int


WIDTH = 8  # channels of the backbone's first stage
QUICK = Scale(4, 8, min_share=1 / 40, train_images=1000, test_images=500, epochs=4, seconds=15, tuned=1, trials=12)
FULL = Scale(8, 8, min_share=1 / 8, train_images=5000, test_images=1000, epochs=3, seconds=25, tuned=3, trials=16)


@dataclass(frozen=True)
class DemoOptions:
    """What to run.

    Attributes:
        data: a folder with CIFAR, or None for ``SYNO_LAB_DATA`` and then scikit-learn's digits.
        out: the folder for the store and all files; the same folder again continues.
        quick: fewer operators, images and trials, for three minutes instead of ten on two cores.
        seed: of the sampler and the trainings.
        scale: how much of everything, instead of what ``quick`` says.
    """

    data: Path | None = None
    out: Path = Path("demo-output")
    quick: bool = False
    seed: int = 0
    scale: Scale | None = None


@dataclass(frozen=True)
class DemoResult:
    """``summary`` is the JSON of the command line; ``files`` are what was written, the figure first."""

    summary: dict[str, Any]
    table: list[dict[str, Any]]
    files: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class _Lab:
    """What all steps of one demo share."""

    options: DemoOptions
    scale: Scale
    dataset: Dataset
    sites: list[Site]
    spec: Spec
    report: Report

    def net(self) -> nn.Module:
        """The backbone with freshly drawn weights, the same for every operator."""
        import torch

        from syno_lab.models.resnet import resnet_tiny

        torch.manual_seed(self.options.seed + _FIXED_SEED_OFFSET)
        return resnet_tiny(len(self.dataset.classes), in_channels=self.dataset.image_shape[0], width=WIDTH)

    def bindings(self) -> list[tuple[dict[str, int], int]]:
        """The distinct bindings of the sites, each with how often a forward pass needs it."""
        counted: dict[tuple[tuple[str, int], ...], int] = {}
        for site in self.sites:
            key = tuple({"N": 1, **site.mapping}.items())
            counted[key] = counted.get(key, 0) + site.calls
        return [(dict(key), count) for key, count in counted.items()]

    def total(self, count: Callable[[Mapping[str, int]], int]) -> int:
        """A figure of an operator summed over all sites it replaces."""
        return sum(count(binding) * calls for binding, calls in self.bindings())


def run_demo(options: DemoOptions, report: Report = lambda stage, fraction, message: None) -> DemoResult:
    """Run the demo, or what is left of it.

    ``report(stage, fraction, message)`` is called often: ``stage`` is ``data``, ``sample``, ``train``, ``tune`` or
    ``draw``, ``fraction`` how much of it is done.

    Raises:
        SynoError: one line, for missing or corrupt data, a damaged store, a tracker that does not answer.
    """
    from syno_lab.evaluate.store import Store

    scale = options.scale or (QUICK if options.quick else FULL)
    report("data", 0.0, "reading images")
    lab = _prepare(options, scale, report)
    options.out.mkdir(parents=True, exist_ok=True)
    with Store.open(options.out) as store:
        settings = _settings(lab)
        run = store.run(f"demo-{_digest(settings)}", settings)
        run.set_bindings(lab.bindings())
        _sample(lab, run)
        _train(lab, run)
        _tune(lab, run)
        return _draw(lab, run)


# -- data and backbone -----------------------------------------------------------------------------------------------


def _prepare(options: DemoOptions, scale: Scale, report: Report) -> _Lab:
    from syno_lab.evaluate.data import load_dataset
    from syno_lab.models.extraction import find_convolutions
    from syno_lab.models.resnet import resnet_tiny

    dataset = load_dataset(options.data)
    dataset = replace(
        dataset,
        train_images=dataset.train_images[: scale.train_images],
        train_labels=dataset.train_labels[: scale.train_images],
        test_images=dataset.test_images[: scale.test_images],
        test_labels=dataset.test_labels[: scale.test_images],
    )
    backbone = resnet_tiny(len(dataset.classes), in_channels=dataset.image_shape[0], width=WIDTH)
    sites = [
        site
        for site in find_convolutions(backbone, dataset.image_shape)
        if site.in_channels == site.out_channels and min(site.height, site.width) >= _SMALLEST_IMAGE
    ]
    first = sites[0]
    dense = 2 * 9 * first.in_channels * first.out_channels * first.height * first.width
    spec = Spec.parse(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N=1: 0", "C_in: 2", "C_out: 2", "H: 0", "W: 0"],
        ["k_1=3: 4", "g=4: 3"],
        fixed_io_pairs=[(0, 0)],
        mappings=[{"N": 1, **site.mapping} for site in sites],
        weight_limits="strict",
        max_primitives=scale.max_primitives,
        # At most the dense convolution's FLOPs, and enough to mix channels at all.
        max_flops=dense,
        min_flops=round(scale.min_share * dense),
        # Intermediates of at most the size of input and output together, so that PyTorch trains it in reasonable time.
        max_memory=4 * 4 * first.in_channels * first.height * first.width,
    )
    report("data", 1.0, f"{dataset.name}: {len(dataset.train_images)} training, {len(dataset.test_images)} test images")
    return _Lab(options, scale, dataset, sites, spec, report)


def _settings(lab: _Lab) -> dict[str, Any]:
    from syno_lab import __version__

    scale = lab.scale
    return {
        "version": __version__,
        "seed": lab.options.seed,
        "data": lab.dataset.name,
        "data_fingerprint": lab.dataset.fingerprint,
        "train_images": len(lab.dataset.train_images),
        "test_images": len(lab.dataset.test_images),
        "operators": scale.operators,
        "max_primitives": scale.max_primitives,
        "min_share": scale.min_share,
        "epochs": scale.epochs,
        "tuned": scale.tuned,
        "trials": scale.trials,
        "seconds": scale.seconds,
        "sites": [site.name for site in lab.sites],
    }


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


# -- the steps -------------------------------------------------------------------------------------------------------


def _sample(lab: _Lab, run: Run) -> None:
    """Draw distinct operators until the run has as many as it should, the baseline besides."""
    from syno_lab.evaluate.store import OperatorRecord
    from syno_lab.operators import conv2d

    def add(operator: Operator, name: str, label: str, baseline: bool) -> None:
        text = operator.to_json()
        flops, params = lab.total(operator.flops), lab.total(operator.params)
        run.add_operator(OperatorRecord(name, text, flops, params, label, baseline))

    known = run.operators()
    if not any(record.baseline for record in known):
        baseline = conv2d()
        usual = fingerprint_binding(lab.spec)
        small = {name: usual[name] for name in baseline.spec.symbols.names}
        add(baseline, fingerprint(baseline, small), BASELINE, True)
    wanted = lab.scale.operators
    found = {record.fingerprint for record in run.operators()}
    # The same seed gives the same operators in the same order: what the store has already is passed over.
    sampler = Sampler.from_spec(lab.spec, seed=lab.options.seed)
    operators = sampler.samples()
    while len(found) - 1 < wanted:
        operator = next(operators, None)
        if operator is None:
            raise SynoError(f"expected {wanted} distinct operators for the demo, found {len(found) - 1}")
        try:
            _, name = distinct_key(operator)
        except SynoError:
            continue  # too many terms to tell whether it is new
        if name not in found:
            # Not "operator 1": the paper has operators of that name.
            add(operator, name, f"sample {len(found)}", False)
            found.add(name)
        count = len(found) - 1
        lab.report("sample", count / wanted, f"{count} of {wanted} distinct operators after {sampler.trials} walks")
    lab.report("sample", 1.0, f"{wanted} distinct operators")


def _train(lab: _Lab, run: Run) -> None:
    """Train the backbone as it is, then with each operator in it, all alike."""
    from syno_lab.codegen.torch_module import to_torch
    from syno_lab.evaluate.training import TrainingProgress, train
    from syno_lab.models.extraction import replace_modules

    records = run.operators()
    folder = lab.options.out / "checkpoints"
    for place, record in enumerate(records):
        if run.training(record.fingerprint) is not None:
            continue

        def progress(now: TrainingProgress, place: int = place, label: str = record.label) -> None:
            share = (now.epoch - 1 + now.batch / max(now.batches, 1)) / now.epochs
            lab.report(
                "train", (place + min(share, 1.0)) / len(records), f"{label}: epoch {now.epoch}, loss {now.loss:.3f}"
            )

        net = lab.net()
        if not record.baseline:
            operator = Operator.from_json(record.operator)
            kernels = {site.name: to_torch(operator, {"N": 1, **site.mapping}) for site in lab.sites}
            net = replace_modules(net, kernels)
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = folder / f"{run.name}-{record.fingerprint}.pt"
        result = train(
            net,
            lab.dataset,
            epochs=lab.scale.epochs,
            time_limit_s=lab.scale.seconds,
            seed=lab.options.seed + _FIXED_SEED_OFFSET,
            on_progress=progress,
            checkpoint=checkpoint,
        )
        run.record_training(record.fingerprint, result.to_dict())
        checkpoint.unlink(missing_ok=True)
    lab.report("train", 1.0, f"{len(records)} trainings")


def _tune(lab: _Lab, run: Run) -> None:
    """Tune the baseline and the most accurate operators for every binding, through a tracker on loopback."""
    from syno_lab.evaluate.tuning import local_board

    trained = [trial for trial in run.trials() if trial.accuracy is not None]
    rivals = sorted((t for t in trained if not t.baseline), key=lambda t: (-(t.accuracy or 0.0), t.flops))
    chosen = [t for t in run.trials() if t.baseline] + rivals[: lab.scale.tuned]
    tasks = [
        (trial, binding, count)
        for trial in chosen
        for binding, count in lab.bindings()
        if not run.is_tuned(trial.fingerprint, TARGET, binding)
    ]
    if tasks:
        lab.report("tune", 0.0, "starting a tracker and an RPC server on 127.0.0.1")
        with local_board() as board:
            for place, (trial, binding, count) in enumerate(tasks):
                _tune_one(lab, run, board, trial, binding, count, place / len(tasks), 1 / len(tasks))
    lab.report("tune", 1.0, f"{len(chosen)} operators tuned for {len(lab.bindings())} sizes")


def _tune_one(
    lab: _Lab, run: Run, board: Board, trial: Trial, binding: dict[str, int], count: int, start: float, share: float
) -> None:
    from syno_lab.evaluate.tuning import TuningProgress, TuningTask, tune

    size = f"{binding['C_in']}x{binding['H']}x{binding['W']}"

    def progress(now: TuningProgress) -> None:
        best = "" if now.best_ms is None else f", best {now.best_ms:.3f} ms"
        lab.report("tune", start + share * now.trial / now.trials, f"{trial.label} {size}: trial {now.trial}{best}")

    lab.report("tune", start, f"{trial.label} {size}: starting")
    try:
        result = tune(
            TuningTask(f"{trial.label} {size}", trial.operator, binding),
            tracker=board.address,
            key=board.key,
            target=TARGET,
            trials=lab.scale.trials,
            seed=lab.options.seed,
            work_dir=lab.options.out / "tuning",
            on_progress=progress,
        )
    except TrackerError:
        raise  # nothing else would be tuned either
    except TuningError as error:
        lab.report("tune", start + share, f"not tuned: {error}")
        return
    run.record_latency(trial.fingerprint, target=TARGET, binding=binding, count=count, result=result.to_dict())


# -- what people look at ---------------------------------------------------------------------------------------------


def _draw(lab: _Lab, run: Run) -> DemoResult:
    """Write the figure, the table and every pGraph; gather the summary."""
    from syno_lab.codegen.drawing import dot, svg
    from syno_lab.codegen.torch_module import to_torch_source
    from syno_lab.evaluate.figures import draw, write_html
    from syno_lab.evaluate.frame import to_frame
    from syno_lab.evaluate.pareto import pareto_facts

    lab.report("draw", 0.0, "drawing pGraphs and the Pareto curve")
    out = lab.options.out
    trials = run.trials(TARGET)
    folder = out / "pgraphs"
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, str] = {}
    binding = lab.bindings()[0][0]
    files: list[Path] = []
    for trial in trials:
        operator = Operator.from_json(trial.operator)
        pictures[trial.fingerprint] = svg(operator, title=trial.label)
        stem = f"{trial.label.replace(' ', '-')}-{trial.fingerprint[:8]}"
        for suffix, text in (
            ("svg", pictures[trial.fingerprint]),
            ("dot", dot(operator, title=trial.label)),
            ("json", trial.operator),
            ("py", to_torch_source(operator, binding)),
        ):
            path = folder / f"{stem}.{suffix}"
            path.write_text(text, encoding="utf-8")
            files.append(path)
    facts = pareto_facts(trials, title=f"Accuracy on {lab.dataset.name} against latency")
    figures = [write_html(facts, out / "pareto.html", pictures)]
    figures += [draw(facts, out / name) for name in ("pareto.svg", "pareto.png")]
    frame = to_frame(trials)
    frame.to_csv(out / "results.csv", index=False)
    lab.report("draw", 1.0, f"figure in {figures[0]}")
    summary = {
        "baseline": next(_entry(trial) for trial in trials if trial.baseline),
        "operators": [_entry(trial) for trial in trials if not trial.baseline],
        "data": lab.dataset.name,
        "seed": lab.options.seed,
        "target": TARGET,
    }
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return DemoResult(
        summary, [{str(k): v for k, v in row.items()} for row in rows], [*figures, out / "results.csv", *files]
    )


def _entry(trial: Trial) -> dict[str, Any]:
    return {
        "fingerprint": trial.fingerprint,
        "label": trial.label,
        "accuracy": trial.accuracy,
        "latency_ms": trial.latency_ms,
        "flops": trial.flops,
        "params": trial.params,
        "operator": json.loads(trial.operator),
    }
