"""Finds trials of a lab by their names: ``SEARCH#12``, ``SEARCH#best``, or ``search:SEARCH#12`` as a row's key."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from syno_lab.errors import StoreError
from syno_lab.inputs import nearest, quoted
from syno_lab.reports.rows import TRAINED, Source, TrialRow, read_search
from syno_lab.reports.searched import RESULT, read_said, searched
from syno_lab.store import SearchLog, Store
from syno_lab.store.place import lab_folder
from syno_lab.systems import BEST, SEARCH, Named, read_operator

#: The states of a trial that failed, in words.
_FAILED = {"failed": "failed", "oom": "ran out of memory", "diverged": "diverged"}
_TRIAL = "trial "
_WITH = "SELECT name FROM syno_searches JOIN syno_search_trials USING (search) WHERE number=CAST(? AS INTEGER)"


def find_search(name: str, folder: str | Path | None = None) -> bool:
    """Return whether a lab has the search of a trial's name; False too where there is no lab, or none to be read."""
    with suppress(StoreError), Store.look(lab_folder(folder)) as store:
        return bool(_of(name.rpartition("#")[0], store))
    return False


def find_trial(name: str, folder: str | Path | None = None) -> tuple[Source, TrialRow]:
    """Return a trial and its search by its name, or its number (``12``, ``trial 12``) if one search alone has it.

    Raises StoreError where there is no such lab, search or trial, and for a name that two trials have.
    """
    place = lab_folder(folder)
    with Store.look(place) as store:
        search, mark, which = name.removeprefix(_TRIAL).rpartition("#")
        logs = _of(search, store) if mark else _with(which, store)
        if len(logs) > 1:
            keys = " or ".join(f"{SEARCH}{log.name}#{which}" for log in logs)
            raise StoreError(f"{quoted(name)} is the name of {len(logs)} trials: write {keys}")
        if not logs:
            names = nearest(search, [log.name for log in store.searches()])[:3]
            raise StoreError(
                f"no trial {quoted(name)} in {place}: expected SEARCH#NUMBER or SEARCH#{BEST}, with a search such as "
                f"{', '.join(names) or 'none, as this lab has no searches'}"
            )
        source, rows = read_search(logs[0], store, ())
        best = _best(source, rows, place)
        wanted = f"{source.key}#{best if which == BEST else which}"
        row = next((row for row in rows if row.key == wanted), None)
        if row is None:
            numbers = [row.number for row in rows if row.operator]
            has = f"has the trials {numbers[0]} to {numbers[-1]}" if numbers else "has no trials yet"
            which_best = "none of them has trained" if best is None else f"{BEST} is {best}"
            raise StoreError(f"no trial {quoted(name)} in {place}: search {quoted(source.name)} {has}; {which_best}")
        return source, row


def trial_named(name: str, folder: str | Path | None = None) -> Named:
    """Return the operator of a trial by a name of :func:`find_trial`; errors as of :func:`find_trial`.

    Raises StoreError too for a network without an operator, and for a trial that failed, unless ``name`` is its key.
    """
    source, row = find_trial(name, folder)
    if not row.operator:
        raise StoreError(f"trial {quoted(name)}: expected a trial with an operator, found the baseline")
    if row.state in _FAILED and not name.startswith(SEARCH):
        raise StoreError(
            f"{source.name}#{row.number}: expected an operator that trained, found one that {_FAILED[row.state]}: "
            f"{row.reason or 'no reason is known'}; write {row.key} to take it all the same"
        )
    return Named(row.key.removeprefix(SEARCH), read_operator(row.operator), row.places)


def _of(search: str, store: Store) -> list[SearchLog]:
    """Return the searches that a name before the # can mean: a search's name can begin with ``search:`` itself."""
    return [log for log in store.searches() if search in (log.name, SEARCH + log.name)]


def _with(which: str, store: Store) -> list[SearchLog]:
    """Return the searches that have a trial with this number."""
    names = store.database.column(_WITH, (which,))
    return [log for log in store.searches() if log.name in names]


def _best(source: Source, rows: list[TrialRow], folder: Path) -> int | None:
    """Return the best operator of the search's result, else of its last rung, discovered ones first; else None."""
    points = searched(read_said(folder, source.name, RESULT)).best.values()
    numbers = [point.number for point in points if point is not None and point.number is not None]
    ended = [row for row in rows if row.operator and row.state == TRAINED]
    best = max(ended, key=lambda row: (not row.known, *row.worth), default=None)
    return numbers[0] if numbers else None if best is None else best.number
