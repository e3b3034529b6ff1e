"""Searches for operators of real networks (Syno, Algorithm 1): settings, the search loop, trainings and tunings."""

from syno_lab.experiments.driver import Driver
from syno_lab.experiments.job import busy, run_here, run_search
from syno_lab.experiments.own_choice import Judged, with_choice
from syno_lab.experiments.runner import JobRunner, LocalRunner, Runner, Running, Stopped
from syno_lab.experiments.settings import SearchSettings, TuningChoice
from syno_lab.experiments.space import Space
from syno_lab.experiments.standing import SHARES, Standing, Times, share_text
from syno_lab.experiments.tunings import Tunings
from syno_lab.experiments.untrained import FRONT_FILE, PROBED, Untrained, run_untrained
from syno_lab.experiments.watching import (
    LOCK_FILE,
    RESULT_FILE,
    SETTINGS_FILE,
    STATUS_FILE,
    TREE_FILE,
    read_json,
    search_folder,
)
