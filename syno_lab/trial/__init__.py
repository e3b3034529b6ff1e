"""Trials: a trial trains a network with an operator; its request and its outcome are plain data."""

from syno_lab.store.verdicts import Verdict, sentence
from syno_lab.trial.backbone import Costs, costs_of, full_costs_of, places_of, sites_of, survey_of
from syno_lab.trial.compare import Comparison, Interval, paired_bootstrap, two_way_interval
from syno_lab.trial.request import State, TrialOutcome, TrialRequest
from syno_lab.trial.run import run_trial
from syno_lab.trial.rungs import Rung, rung_request, rungs_of
from syno_lab.trial.stage import Stage, StageTrial, run_stage
from syno_lab.trial.stopping import RULES, StoppingRule, parse_rule
from syno_lab.trial.workers import TrialWorker, TrialWorkers
