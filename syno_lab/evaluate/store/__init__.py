"""The results store: one SQLite file per laboratory folder, safe against kills, rivals and damage.

`records` are the values that go in and come out, `database` is the file and its failures, `runs` is what one
experiment has written, `studies` shows the same results to Optuna, `store` opens it all.
"""

from .records import OperatorRecord, Trial
from .runs import Run
from .store import Store

__all__ = ["OperatorRecord", "Run", "Store", "Trial"]
