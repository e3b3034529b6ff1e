"""Whole tasks in one call each, as the commands do them: train, tune, and read an operator or a lab.

Each tells its progress on standard error. What it needs is loaded when it is called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from syno_lab.experiments.own import Data, Model
    from syno_lab.protocol import Operator
    from syno_lab.reports import Reading, TrialRow
    from syno_lab.sessions.session import Session
    from syno_lab.training import TrainingProgress, TrainingResult
    from syno_lab.trial.request import Training
    from syno_lab.tuning import TuningResult

Folder = str | Path


class Trained(NamedTuple):
    """A trained network, and how its training went."""

    network: nn.Module
    result: TrainingResult


def read(source: Folder) -> Operator:
    """An operator of any system: a known one by its name, one in a file by its path, or the text of such a file.

    Raises:
        FormatError: a file or a text that is none of an operator.
        SynoError: neither a known operator nor a file.
    """
    from syno_lab.systems import operator_named

    found: Operator = operator_named(source)
    return found


def _operator(named: Operator | Folder) -> Operator:
    return read(named) if isinstance(named, str | Path) else named


def session(start: object) -> Session:
    """A session of building an operator by steps, of any system: what the stepper shows.

    Args:
        start: a spec, a state, an operator, or the text of a session or of an operator's file.

    Raises:
        SpecError: no system knows it, or operators of its system are not built by steps.
        FormatError: a text that holds neither.
    """
    from syno_lab.sessions.session import session_of

    return session_of(start)


def train(
    network: Model,
    data: Data,
    *,
    operator: Operator | Folder | None = None,
    layers: Sequence[str] | None = None,
    seed: int = 0,
    **training: Unpack[Training],
) -> Trained:
    """Train a network on images or data of your own, as it is or with an operator in it (``syno-lab train``).

    Args:
        network: an ``nn.Module``, of which a copy is trained, a function that returns a new one,
            ``"file.py:function"``, or the name of a backbone. It takes a batch [B, …] and gives logits [B, V].
        data: ``"digits"``, a folder as :func:`syno_lab.load_dataset` reads it, two torch datasets (train, test) of
            pairs (tensor, class), or a function or ``"file.py:function"`` that returns them.
        operator: one, or what :func:`read` takes; it stands in all layers that are replaced. None: no operator.
        layers: patterns of the names of layers to replace, of a network of your own; None: see :func:`.own.choose`.
        seed: of the weights, the order of the examples and their augmentation.
        training: how: ``epochs`` (3), ``batch_size`` (64), ``learning_rate`` (0.1, of ``adamw`` 0.001), ``optimizer``
            (``sgd`` or ``adamw``), ``device``.

    Raises:
        SpecError: the network has no layer that operators can replace, or none that this one fits.
        DataError: the data cannot be read, or are a text, which ``syno-lab train`` takes.
        TrainingError: the training does not end well.
    """
    from syno_lab.commands.output import Reporter
    from syno_lab.experiments.improve import trained
    from syno_lab.experiments.own import choose, with_data, with_model
    from syno_lab.models.registry import OWN
    from syno_lab.trial.request import request_of

    text = None if operator is None else _operator(operator).to_json()
    request = with_data(with_model(request_of(training, seed=seed, operator=text), network), data)
    with Reporter() as report:
        if request.backbone.startswith(OWN):
            tell = partial(report, "train", 0.0)
            request = choose(request, layers, tell, tries=text is not None).request
        return Trained(*trained(request, lambda now: report("train", *_shown(now))))


def _shown(now: TrainingProgress) -> tuple[float, str]:
    """The share of a training that is done, and how well it goes."""
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
        operator: one of any system, or what :func:`read` takes.
        sizes: of its variables; None: its own.
        target: ``local``, ``local:THREADS``, a Jetson such as ``jetson-orin-nano-cpu``, or a TVM target.
        tracker: ``host:port`` of an RPC tracker that has the device; None: this machine.
        key: of the device at the tracker.
        trials: candidates to measure.
        seed: of the search.
        folder: for logs, and for records, from which a repeated call is answered and a stopped one goes on.

    Raises:
        SpecError: a size is missing or does not fit.
        TrackerError: the tracker or the device does not answer.
        TuningError: for all other faults.
    """
    from syno_lab import tuning
    from syno_lab.commands.output import Reporter
    from syno_lab.systems import builder_of
    from syno_lab.tuning.presets import enough_s

    found = _operator(operator)
    text = found.to_json()
    label = str(operator) if isinstance(operator, str) and not operator.lstrip().startswith("{") else "operator"
    task = tuning.TuningTask(label, text, found.complete_binding(sizes), builder=builder_of(text))
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
    """The results in the folder of a lab: read anew by each call, also while searches write them."""

    def __init__(self, folder: Path) -> None:
        from syno_lab.reports import LabReader

        self.folder = folder
        self._reader = LabReader(folder)
        self.reading()

    def __repr__(self) -> str:
        found = self.reading()
        return f"<lab {self.folder}: {len(found.sources)} searches, {len(found.rows)} trials>"

    def reading(self) -> Reading:
        """All that is there, as :mod:`syno_lab.reports` has it. Raises StoreError for a damaged store."""
        return self._reader.read()

    def trials(self, search: str | None = None) -> pd.DataFrame:
        """A row for each trial of a search by its name, or of all: accuracies, costs, operator, whether on the front.

        Raises:
            StoreError: there is no such search.
        """
        from syno_lab.reports import trials_frame

        on_front = {row.key for row in self._on_front(search, ("accuracy", "flops"))}
        return trials_frame(self.reading().of(search), on_front=on_front)

    def front(self, search: str | None = None, axes: Sequence[str] = ("accuracy", "flops")) -> pd.DataFrame:
        """The rows of :meth:`trials` that no other is better than on all axes, by two or three names of columns.

        Raises:
            StoreError: there is no such search.
            SynoError: an axis is unknown.
        """
        from syno_lab.reports import trials_frame

        rows = self._on_front(search, axes)
        return trials_frame(rows, on_front={row.key for row in rows})

    def operator(self, name: str) -> Operator:
        """The operator of a trial by its key, as ``search:NAME#12``, or of the only search by ``12`` or ``trial 12``.

        Raises:
            StoreError: there is no such trial, or it is the network without an operator.
        """
        from syno_lab.errors import StoreError
        from syno_lab.inputs import quoted

        found = self.reading()
        number = name.removeprefix("trial ")
        keys = [row.key for row in found.rows if name == row.key or number == str(row.number)]
        row = found.row(keys[0] if len(keys) == 1 else name)
        if not row.operator:
            raise StoreError(f"trial {quoted(name)}: expected one with an operator, found the network without one")
        return read(row.operator)

    def _on_front(self, search: str | None, axes: Sequence[str]) -> list[TrialRow]:
        from syno_lab.reports import front_of

        rows = {row.key: row for row in self.reading().of(search) if not row.is_baseline}
        front = front_of(rows.values(), axes)
        return [rows[front.points[at].key] for at in front.front]


def open_lab(folder: Folder | None = None) -> OpenLab:
    """The lab in a folder (None: ``SYNO_LAB_FOLDER``, else ``.syno-lab``), to read its trials, front and operators.

    Raises:
        StoreError: there is no lab, or its store is damaged or of another version.
    """
    return OpenLab(Path(folder or os.environ.get("SYNO_LAB_FOLDER") or ".syno-lab").absolute())
