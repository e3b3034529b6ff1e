"""The results store: one SQLite file per laboratory folder, safe against kills, rivals and damage.

`records` are the values that go in and come out, `database` is the file and its failures, `searches` is
what a search was told, `studies` shows the same results to Optuna, `schema` has the tables, `store` opens it all.
"""

from .searches import SearchLog, SearchTrial
from .store import Store

__all__ = ["SearchLog", "SearchTrial", "Store"]
