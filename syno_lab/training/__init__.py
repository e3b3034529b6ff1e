"""Training networks: the training loop, its tasks, checkpoints, progress and results."""

from syno_lab.training.loop import Judge, Task
from syno_lab.training.records import EpochRecord, Resumption, Stopped, TrainingProgress, TrainingResult
from syno_lab.training.train import find_device, train, train_text
