"""Training networks: the loop, what it learns from, its checkpoints, and what it tells."""

from syno_lab.evaluate.training.loop import Judge, Task
from syno_lab.evaluate.training.records import (
    CURVE_FORMAT,
    CURVE_VERSION,
    EpochRecord,
    Resumption,
    Stopped,
    TrainingProgress,
    TrainingResult,
    load_curve,
    save_curve,
)
from syno_lab.evaluate.training.train import find_device, train, train_text

__all__ = [
    "CURVE_FORMAT",
    "CURVE_VERSION",
    "EpochRecord",
    "Judge",
    "Resumption",
    "Stopped",
    "Task",
    "TrainingProgress",
    "TrainingResult",
    "find_device",
    "load_curve",
    "save_curve",
    "train",
    "train_text",
]
