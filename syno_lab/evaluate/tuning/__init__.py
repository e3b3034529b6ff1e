"""Tuning by TVM MetaSchedule on a device behind an RPC tracker; TVM itself only ever runs in child processes.

>>> with local_board() as board:                                            # doctest: +SKIP
...     task = TuningTask("conv2d", operator.to_json(), {"N": 1, "C_in": 64, "C_out": 64, "H": 28, "W": 28, "k": 3})
...     result = tune(task, tracker=board.address, key=board.key, trials=32, work_dir="tuning")
>>> result.latency_ms                                                       # doctest: +SKIP
"""

from syno_lab.evaluate.tuning.beside import time_schedules
from syno_lab.evaluate.tuning.board import Board, local_board
from syno_lab.evaluate.tuning.explain import Explanation, SpaceExplanation, explain_schedule, explain_space
from syno_lab.evaluate.tuning.method import COST_MODELS, RULES, STRATEGIES, Method
from syno_lab.evaluate.tuning.network import NetworkTuning, tune_network
from syno_lab.evaluate.tuning.presets import PRESETS, Preset
from syno_lab.evaluate.tuning.records import list_records
from syno_lab.evaluate.tuning.targets import TARGETS, NamedTarget
from syno_lab.evaluate.tuning.tracker import DeviceInfo, DeviceKey, TrackerSummary, check_tracker, tracker_summary
from syno_lab.evaluate.tuning.tune import QueueResult, TuningStopped, tune, tune_queue
from syno_lab.evaluate.tuning.values import TuningProgress, TuningResult, TuningTask

__all__ = [
    "COST_MODELS",
    "PRESETS",
    "RULES",
    "STRATEGIES",
    "TARGETS",
    "Board",
    "DeviceInfo",
    "DeviceKey",
    "Explanation",
    "Method",
    "NamedTarget",
    "NetworkTuning",
    "Preset",
    "QueueResult",
    "SpaceExplanation",
    "TrackerSummary",
    "TuningProgress",
    "TuningResult",
    "TuningStopped",
    "TuningTask",
    "check_tracker",
    "explain_schedule",
    "explain_space",
    "list_records",
    "local_board",
    "time_schedules",
    "tracker_summary",
    "tune",
    "tune_network",
    "tune_queue",
]
