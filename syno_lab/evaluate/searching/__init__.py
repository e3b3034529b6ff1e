"""Searches for operators of real networks (Syno, Algorithm 1): settings, the loop, and who trains for it."""

from syno_lab.evaluate.searching.driver import Driver, Stopped
from syno_lab.evaluate.searching.evaluators import Evaluators, JobEvaluators, LocalEvaluators, Running
from syno_lab.evaluate.searching.job import run_here, run_search
from syno_lab.evaluate.searching.settings import SearchSettings, TuningChoice
from syno_lab.evaluate.searching.space import Space
from syno_lab.evaluate.searching.standing import SHARES, Standing, Times
from syno_lab.evaluate.searching.tunings import JobTuners, Tuners, Tunings
from syno_lab.evaluate.searching.watching import (
    RESULT_FILE,
    SETTINGS_FILE,
    STATUS_FILE,
    TREE_FILE,
    read_json,
    search_folder,
)

__all__ = [
    "RESULT_FILE",
    "SETTINGS_FILE",
    "SHARES",
    "STATUS_FILE",
    "TREE_FILE",
    "Driver",
    "Evaluators",
    "JobEvaluators",
    "JobTuners",
    "LocalEvaluators",
    "Running",
    "SearchSettings",
    "Space",
    "Standing",
    "Stopped",
    "Times",
    "Tuners",
    "TuningChoice",
    "Tunings",
    "read_json",
    "run_here",
    "run_search",
    "search_folder",
]
