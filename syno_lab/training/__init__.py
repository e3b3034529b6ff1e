"""Training networks: the training loop, its tasks, checkpoints, progress and results."""

from syno_lab.training.loop import Judge, Task
from syno_lab.training.records import (
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
from syno_lab.training.train import find_device, train, train_text

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
