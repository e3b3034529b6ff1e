"""The results store: one SQLite file per lab, which survives kills and concurrent processes, and detects damage.

`records` converts stored values, `database` the file and its errors, `searches` the trials of searches, `schema` the
tables. `studies` copies trials to Optuna. `store` opens a store.
"""

from .searches import SearchLog, SearchTrial
from .store import Store

__all__ = ["SearchLog", "SearchTrial", "Store"]
