"""Functions that do the work of a command in one call: search, train, tune, and read an operator or a lab.

Each call prints its progress on standard error, and imports large libraries only when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure
    from torch import nn

    from syno_lab.experiments.own import Data, Model
    from syno_lab.protocol import Operator
    from syno_lab.reports import Front
    from syno_lab.reports.figures import Subject
    from syno_lab.sessions.session import Session
    from syno_lab.systems import Named
    from syno_lab.training import TrainingProgress, TrainingResult
    from syno_lab.trial.request import Searching, Training
    from syno_lab.tuning import TuningResult

Folder = str | Path


def read(source: Folder, folder: Folder | None = None) -> Operator:
    """Read an operator of any system by a name (``conv2d``, ``search#12`` of the lab in ``folder``), file or text.

    Raises FormatError for a file or a text without an operator; StoreError for a trial that is not there or failed;
    SynoError for a name of nothing, or of two things.
    """
    return _named(source, folder).operator


def _named(source: Operator | Folder, folder: Folder | None = None) -> Named:
    from syno_lab.commands.operands import load_operator
    from syno_lab.systems import Named

    return load_operator(source, folder) if isinstance(source, str | Path) else Named("operator", source)


def session(start: object) -> Session:
    """Begin a session that builds an operator of any system by steps; the stepper shows sessions.

    Args:
        start: a spec, a state, an operator, or the text of a session or of an operator's file.

    Raises SpecError if no system accepts the value, or its system cannot build operators by steps.
    """
    from syno_lab.sessions.session import session_of

    return session_of(start)


def search(
    backbone: str = "resnet20",
    data: Folder | None = None,
    *,
    minutes: float | None = None,
    trials: int | None = None,
    untrained: bool = False,
    system: str = "pgraphs",
    max_primitives: int = 10,
    seed: int = 0,
    folder: Folder | None = None,
    name: str = "search",
    go_on: bool = False,
    in_process: bool = False,
    **more: Unpack[Searching],
) -> OpenLab:
    """Search operators for a network of the lab by training them in it (``syno-lab search``, which has more settings).

    Print the plan, progress, funnel and front. For your own network and data, use :func:`syno_lab.improve`.

    Args:
        backbone: the name of a network in the list of ``syno-lab backbone``.
        data: a folder of images, a text file, or ``digits``; None: ``SYNO_LAB_DATA``, else ``digits``.
        minutes: the minutes of the search; by default 30, untrained 5, and no limit with ``trials``.
        trials: the most operators to evaluate.
        untrained: whether to rank operators by the score of a probe, and train none.
        system: ``pgraphs``, ``canvas`` or ``alpha``, or several with commas between them.
        max_primitives: the most primitives of an operator.
        seed: the seed of the search's choices.
        folder: the folder of the lab; None: as in :func:`open_lab`.
        name: the name of the search in the lab.
        go_on: whether to continue the search of this name; only its limits of minutes and trials may change.
        in_process: whether to train in this process, one operator after another, without jobs.
        more: settings as for :func:`train`, and ``equal_within`` and ``anyway`` as for :func:`syno_lab.improve`.

    Raises:
        SearchError: the lab has a search of this name, or a number is out of range.
        FormatError: a setting of the training is unknown or has the wrong type.
        SpecError: the backbone or system is unknown, or no operator can be within the limits.
    """
    from syno_lab.commands import search_options as options
    from syno_lab.commands.detach import lab_folder
    from syno_lab.commands.search import command
    from syno_lab.settings import TrainingSettings, TuningSettings, check_bounds
    from syno_lab.trial.request import separated

    path = lab_folder(folder)
    settings, training = separated(more, minutes=minutes, trials=trials, untrained=untrained, seed=seed)
    trained = TrainingSettings.from_dict(dict(training))
    check_bounds(trained)
    network = options.Network(backbone=backbone, data=None if data is None else str(data))
    choice = options.Choice(system=system, max_primitives=max_primitives)
    run = options.Run(name=name, folder=path, go_on=go_on, in_process=in_process)
    rest = (options.Ending(), options.Built(), options.Machine(), options.Validating(), TuningSettings())
    command(options.Given(network, settings, choice, trained, *rest, run))
    return OpenLab(path)


def train(
    network: Model,
    data: Data,
    *,
    operator: Operator | Folder | None = None,
    layers: Sequence[str] | None = None,
    seed: int = 0,
    **training: Unpack[Training],
) -> tuple[nn.Module, TrainingResult]:
    """Train a network on images or data of your own, as it is or with an operator in it (``syno-lab train``).

    Args:
        network: an ``nn.Module`` (a copy is trained), a function that returns a new module,
            ``"file.py:function"``, or the name of a backbone. The network maps a batch [B, …] to logits [B, V].
        data: ``"digits"``, a folder for :func:`syno_lab.load_dataset`, two torch datasets (train, test) of pairs
            (tensor, class), or a function or ``"file.py:function"`` that returns them.
        operator: an operator, or a value for :func:`read`; it is in all layers that are replaced. None: no operator.
        layers: patterns of the names of layers to replace, in your own network; None: see :func:`.own.choose`.
        seed: the seed of the weights, the order of the examples and their augmentation.
        training: the settings ``recipe`` (``short`` or ``converged``), ``epochs`` (3; converged, 60), ``batch_size``
            (64), ``learning_rate`` (0.1, with ``adamw`` 0.001), ``optimizer`` (``sgd`` or ``adamw``), ``device``,
            ``resolution`` (of the images of a folder).

    Raises:
        SpecError: the network has no layer that operators can replace, or no layer that this operator fits.
        DataError: the data cannot be read, or are a text, which only ``syno-lab train`` accepts.
        TrainingError: the training fails.
    """
    from syno_lab.commands.output import Reporter
    from syno_lab.experiments.improve import trained
    from syno_lab.experiments.own import choose, with_data, with_model
    from syno_lab.models.registry import OWN
    from syno_lab.trial.request import request_of

    text = None if operator is None else _named(operator).operator.to_json()
    request = with_data(with_model(request_of(training, seed=seed, operator=text), network), data)
    with Reporter() as report:
        if request.backbone.startswith(OWN):
            tell = partial(report, "train", 0.0)
            request = choose(request, layers, tell, tries=text is not None).request
        return trained(request, lambda now: report("train", *_shown(now)))


def _shown(now: TrainingProgress) -> tuple[float, str]:
    """Return the completed share of a training, and a text with the loss and accuracy."""
    done = (now.epoch - 1 + (now.phase == "test" or now.batch / now.batches)) / now.epochs
    return done, f"epoch {now.epoch} of {now.epochs}, {now.phase}: loss {now.loss:.3f}, accuracy {now.accuracy:.3f}"


def tune(
    operator: Operator | Folder,
    sizes: Mapping[str, int] | None = None,
    *,
    target: str = "local",
    tracker: str | None = None,
    key: str | None = None,
    trials: int = 16,
    seed: int = 0,
    folder: Folder = ".syno-lab/tuning",
) -> TuningResult:
    """Search the fastest schedule of an operator and measure it (``syno-lab tune``; :mod:`syno_lab.tuning` has more).

    Args:
        operator: an operator of any system, or a value for :func:`read`.
        sizes: the sizes of the operator's variables; None: its defaults, or the sizes of a trial's first layer.
        target: ``local``, ``local:THREADS``, a Jetson such as ``jetson-orin-nano-cpu``, or a TVM target.
        tracker: ``host:port`` of an RPC tracker of the device; None: this machine.
        key: the key of the device at the tracker.
        trials: the number of candidates to measure.
        seed: the seed of the search.
        folder: the folder for logs and records. Records answer a repeated call and continue a stopped tuning.

    Raises:
        SpecError: a size is missing or does not fit.
        TrackerError: the tracker or the device does not answer.
        TuningError: the tuning fails for another reason.
    """
    from syno_lab import tuning
    from syno_lab.commands.output import Reporter
    from syno_lab.systems import builder_of
    from syno_lab.tuning.options import enough_s

    label, parsed, places = _named(operator)
    text = parsed.to_json()
    bound = parsed.complete_binding({**(places[0][1] if places else {}), **(sizes or {})})
    task = tuning.TuningTask(label, text, bound, builder=builder_of(text))
    options = tuning.TuningOptions(
        work_dir=folder,
        store=Path(folder) / "records",
        target=target,
        tracker=tracker,
        key=key,
        trials=trials,
        seed=seed,
        deadline_s=enough_s(trials, 1),
    )
    with Reporter() as report:
        return tuning.tune(task, options, on_progress=lambda now: report("tune", now.trial / now.trials, str(now)))


class OpenLab:
    """The results in the folder of a lab. Each call reads the current results, also while searches write them."""

    def __init__(self, folder: Path) -> None:
        from syno_lab.reports import LabReader

        self.folder = folder
        self._reader = LabReader(folder)
        self._reader.read()

    def trials(self, search: str | None = None, axes: Sequence[str] = ("accuracy", "flops")) -> pd.DataFrame:
        """Return a row for each trial of a search, or of all searches: accuracies, costs, the operator, ``on_front``.

        ``axes`` are the two or three columns that define the front. Raises StoreError if there is no such search.
        """
        from syno_lab.reports import front_of, trials_frame

        rows = self._reader.read().of(search)
        front = front_of([row for row in rows if not row.is_baseline], axes)
        return trials_frame(rows, on_front={front.points[at].key for at in front.front})

    def front(
        self,
        search: str | None = None,
        axes: Sequence[str] = ("accuracy", "flops"),
        *,
        all: bool = False,  # noqa: A002 as the command's --all
    ) -> pd.DataFrame:
        """Return rows of :meth:`trials`: first baselines, then the Pareto front of these axes, then other finalists.

        With ``all``, the other trials follow.
        """
        from syno_lab.store.rungs import FINAL

        frame = self.trials(search, axes)
        kept = frame["is_baseline"] | frame["on_front"] | (frame["rung"] == FINAL)
        order = ["is_baseline", "on_front", "kept"]
        ordered = frame.assign(kept=kept).sort_values(order, ascending=False, kind="stable")
        return (ordered if all else ordered[ordered["kept"]]).drop(columns="kept")

    def figure(
        self, of: Subject = "front", search: str | None = None, axes: Sequence[str] = ("flops", "accuracy")
    ) -> Figure:
        """Return a figure of plotly of a search, or of all searches (:func:`.figures.lab_figure`).

        ``of`` is ``front``, ``curves``, ``funnel``, ``layers`` or ``comparisons``; ``axes`` are the axes of a front.
        Raises StoreError if there is no such search, or no value for the figure, SpecError for an unknown ``of``.
        """
        from syno_lab.reports.figures import lab_figure

        return lab_figure(self._reader.read(), of, search, axes)

    def pareto(self, search: str | None = None, axes: Sequence[str] = ("flops", "accuracy")) -> Front:
        """Return the front of a search, or of all, with ``figure()`` for a notebook and ``save("front.pdf")``."""
        from syno_lab.reports import front_of

        return front_of(self._reader.read().of(search), axes)

    def operator(self, name: str) -> Operator:
        """Return an operator by a name of :func:`read`; if one search alone has it, ``12`` or ``trial 12`` is enough.

        Raises StoreError if there is no such trial, if it failed (unless ``name`` is its key, ``search:search#12``), or
        if it is the network without an operator.
        """
        from syno_lab.reports.named import trial_named

        is_short = name.removeprefix("trial ").isdecimal()
        return trial_named(name, self.folder).operator if is_short else read(name, self.folder)


def open_lab(folder: Folder | None = None) -> OpenLab:
    """Open the lab in a folder (None: ``SYNO_LAB_FOLDER``, else ``.syno-lab``) to read its trials, front and operators.

    Raises StoreError if there is no lab, or its store is damaged or has another version.
    """
    from syno_lab.commands.detach import lab_folder

    return OpenLab(lab_folder(folder))
