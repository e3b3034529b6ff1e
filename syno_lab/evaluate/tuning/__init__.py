"""Tuning by TVM MetaSchedule on a device behind an RPC tracker; TVM itself only ever runs in child processes.

>>> with local_board() as board:                                            # doctest: +SKIP
...     task = TuningTask("conv2d", operator.to_json(), {"N": 1, "C_in": 64, "C_out": 64, "H": 28, "W": 28, "k": 3})
...     result = tune(task, tracker=board.address, key=board.key, trials=32, work_dir="tuning")
>>> result.latency_ms                                                       # doctest: +SKIP
"""

from syno_lab.evaluate.tuning.board import Board, local_board
from syno_lab.evaluate.tuning.network import NetworkTuning, tune_network
from syno_lab.evaluate.tuning.targets import TARGETS, NamedTarget
from syno_lab.evaluate.tuning.tracker import DeviceKey, TrackerSummary, check_tracker, tracker_summary
from syno_lab.evaluate.tuning.tune import TuningStopped, tune
from syno_lab.evaluate.tuning.values import TuningProgress, TuningResult, TuningTask

__all__ = [
    "TARGETS",
    "Board",
    "DeviceKey",
    "NetworkTuning",
    "TrackerSummary",
    "TuningProgress",
    "TuningResult",
    "TuningStopped",
    "NamedTarget",
    "TuningTask",
    "check_tracker",
    "local_board",
    "tracker_summary",
    "tune",
    "tune_network",
]
