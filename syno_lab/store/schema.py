"""The tables of a store. A file stores the version of its tables; a file of another version is refused.

The last column of a row is a digest, see :mod:`syno_lab.store.database`.
"""

from __future__ import annotations

import re

APPLICATION_ID = 0x53594E4F  # "SYNO"

# `token` is drawn for each attempt; only the process with this token may record how the attempt ended. The `steps` of a
# trial are `syno_lab.protocol.SearchStep`s.
_JOBS_AND_SEARCHES = """
CREATE TABLE syno_jobs (
    job INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, params TEXT NOT NULL, parent INTEGER,
    after TEXT NOT NULL, resources TEXT NOT NULL, max_attempts INTEGER NOT NULL, created TEXT NOT NULL,
    state TEXT NOT NULL, wish TEXT NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
    deaths INTEGER NOT NULL, reason TEXT NOT NULL, result TEXT, started TEXT, ended TEXT,
    wall_s REAL NOT NULL, cpu_s REAL NOT NULL, digest TEXT NOT NULL);
CREATE INDEX syno_jobs_by_state ON syno_jobs (state);
CREATE INDEX syno_jobs_by_parent ON syno_jobs (parent);
CREATE TABLE syno_leases (
    job INTEGER PRIMARY KEY REFERENCES syno_jobs, token TEXT NOT NULL, place TEXT NOT NULL, boot TEXT NOT NULL,
    supervisor TEXT NOT NULL, child TEXT NOT NULL, beat INTEGER NOT NULL, at REAL NOT NULL, digest TEXT NOT NULL);
CREATE TABLE syno_attempts (
    job INTEGER NOT NULL REFERENCES syno_jobs, attempt INTEGER NOT NULL, host TEXT NOT NULL, started TEXT NOT NULL,
    ended TEXT, cause TEXT NOT NULL, wall_s REAL NOT NULL, cpu_s REAL NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (job, attempt));
CREATE TABLE syno_progress (
    job INTEGER PRIMARY KEY REFERENCES syno_jobs, fraction REAL NOT NULL, message TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE syno_searches (
    search INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL, created TEXT NOT NULL,
    digest TEXT NOT NULL);
CREATE TABLE syno_search_trials (
    search INTEGER NOT NULL REFERENCES syno_searches, number INTEGER NOT NULL, fingerprint TEXT NOT NULL,
    operator TEXT NOT NULL, steps TEXT NOT NULL, flops INTEGER NOT NULL, params INTEGER NOT NULL,
    created TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (search, number), UNIQUE (search, fingerprint));
CREATE TABLE syno_search_outcomes (
    search INTEGER NOT NULL, number INTEGER NOT NULL, position INTEGER NOT NULL, state TEXT NOT NULL,
    accuracy REAL, reward REAL NOT NULL, job INTEGER, outcome TEXT NOT NULL, ended TEXT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (search, number),
    FOREIGN KEY (search, number) REFERENCES syno_search_trials (search, number));
CREATE TABLE syno_search_latencies (
    search INTEGER NOT NULL, number INTEGER NOT NULL, target TEXT NOT NULL, latency_ms REAL NOT NULL,
    result TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (search, number, target),
    FOREIGN KEY (search, number) REFERENCES syno_search_trials (search, number));
"""

# The signature of a job, with the key of the account that submitted the job: see `syno_lab.jobs.trust`.
_SIGNATURES = """
CREATE TABLE syno_signatures (
    job INTEGER PRIMARY KEY REFERENCES syno_jobs, signature TEXT NOT NULL, digest TEXT NOT NULL);
"""

# The trainings of a search in rungs: see `syno_lab.store.rungs`. The baseline has the number -1.
_RUNGS = """
CREATE TABLE syno_search_rungs (
    place INTEGER PRIMARY KEY, search INTEGER NOT NULL REFERENCES syno_searches, number INTEGER NOT NULL,
    rung TEXT NOT NULL, seed INTEGER NOT NULL, priority INTEGER NOT NULL, holder TEXT NOT NULL,
    deaths INTEGER NOT NULL, state TEXT NOT NULL, measure REAL, outcome TEXT NOT NULL, ended TEXT,
    digest TEXT NOT NULL, UNIQUE (search, number, rung, seed));
"""

# The sizes of a trial's layers: `syno_lab.store.searches.LayerSizes`.
_LAYERS = """
CREATE TABLE syno_search_layers (
    search INTEGER NOT NULL REFERENCES syno_searches, number INTEGER NOT NULL, sizes TEXT NOT NULL,
    digest TEXT NOT NULL, PRIMARY KEY (search, number));
"""

_TABLES = _JOBS_AND_SEARCHES + _SIGNATURES + _RUNGS + _LAYERS
SCHEMA_VERSION = 8
#: The statements that turn an empty file into a store.
SCRIPT = f"PRAGMA application_id={APPLICATION_ID}; {_TABLES} PRAGMA user_version={SCHEMA_VERSION};"


def _kinds() -> dict[str, dict[str, str]]:
    tables: dict[str, dict[str, str]] = {}
    for table, columns in re.findall(r"CREATE TABLE (\w+) \((.*?)\);", _TABLES, re.DOTALL):
        tables[table] = dict(re.findall(r"(\w+) ((?:TEXT|INTEGER|REAL)(?: NOT NULL)?)", columns))
    return tables


#: The declared type of each column of each table. SQLite itself accepts any value in any column.
KINDS = _kinds()
