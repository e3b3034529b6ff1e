"""One trial: a network with an operator in it, trained once; a request and an outcome of plain data."""

from syno_lab.evaluate.trial.backbone import Costs, costs_of, full_costs_of, sites_of, survey_of
from syno_lab.evaluate.trial.request import State, TrialOutcome, TrialRequest
from syno_lab.evaluate.trial.run import run_trial
from syno_lab.evaluate.trial.stopping import RULES, StoppingRule, parse_rule

__all__ = [
    "RULES",
    "Costs",
    "State",
    "StoppingRule",
    "TrialOutcome",
    "TrialRequest",
    "costs_of",
    "full_costs_of",
    "parse_rule",
    "run_trial",
    "sites_of",
    "survey_of",
]
