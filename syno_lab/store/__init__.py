"""The results store: one SQLite file per laboratory folder, safe against kills, rivals and damage.

`records` are the values that go in and come out, `database` is the file and its failures, `runs` is what one
experiment has written, `searches` what a search was told, `studies` shows the same results to Optuna, `schema` has the
tables, `store` opens it all.
"""

from .records import OperatorRecord, Trial
from .runs import Run
from .searches import SearchLog, SearchTrial
from .store import Store

__all__ = ["OperatorRecord", "Run", "SearchLog", "SearchTrial", "Store", "Trial"]
