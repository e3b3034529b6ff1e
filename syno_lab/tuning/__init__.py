"""Tune operators with TVM MetaSchedule, on this machine or behind an RPC tracker; TVM runs only in child processes.

>>> task = TuningTask("conv2d", text, {"N": 1, "C_in": 64, "C_out": 64, "H": 28, "W": 28, "k": 3})  # doctest: +SKIP
>>> result = tune(task, trials=32, work_dir="tuning")                       # doctest: +SKIP
>>> result.latency_ms                                                       # doctest: +SKIP
"""

from syno_lab.tuning.board import Board, local_board
from syno_lab.tuning.explain import Explanation, SpaceExplanation, explain_schedule, explain_space
from syno_lab.tuning.measuring import time_operators, time_schedules
from syno_lab.tuning.method import COST_MODELS, MUTATORS, POSTPROCESSORS, RULES, STRATEGIES, Method
from syno_lab.tuning.network import NetworkTuning, tune_network
from syno_lab.tuning.options import PRESETS, Preset, TuningOptions
from syno_lab.tuning.records import list_records
from syno_lab.tuning.targets import TARGETS, NamedTarget
from syno_lab.tuning.tracker import DeviceInfo, DeviceKey, TrackerSummary, check_tracker, tracker_summary
from syno_lab.tuning.tune import QueueResult, TuningStopped, tune, tune_queue
from syno_lab.tuning.values import TuningProgress, TuningResult, TuningTask
