"""The results store: one SQLite file per lab, which survives kills and concurrent processes, and detects damage.

`records` converts stored values, `database` opens the file, `searches` records trials, and `schema` defines the tables.
`studies` copies trials to Optuna. `store` opens a store.
"""

from .searches import SearchLog, SearchTrial
from .store import Store

__all__ = ["SearchLog", "SearchTrial", "Store"]
