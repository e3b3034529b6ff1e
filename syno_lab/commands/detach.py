"""Shared by commands that submit jobs or ask about them: their options, their lab, and the submission.

``--detach`` is also how notebooks submit: ``%%syno search`` runs the command with its own words and this option, inside
:func:`working_in`, so that the job goes to the lab that the notebook has open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno_lab.commands.output import say, write_json
from syno_lab.errors import JobError
from syno_lab.store import place
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.jobs import Lab

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="PATH",
        callback=lambda folder: folder and place.lab_folder(folder),  # the user's own code may go to another folder
        help=f"The lab's folder. [default: ${place.FOLDER_VARIABLE}, else .syno-lab]",
    ),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Submit it as a job and return at once; `syno-lab jobs` shows it.")
]

_given: ContextVar[Lab | None] = ContextVar("given", default=None)


def lab_folder(folder: str | Path | None = None) -> Path:
    """The lab's folder as :func:`syno_lab.store.place.lab_folder` has it; inside :func:`working_in` that lab's."""
    given = _given.get()
    return place.lab_folder(folder) if folder or given is None else given.folder


@contextmanager
def use_lab(folder: Path | None = None, *, start: bool = True) -> Iterator[Lab]:
    """The lab of :func:`lab_folder`, open within the block; inside :func:`working_in` the lab given there, left open.

    ``start``: see that waiting jobs get run; False only to look, to pause and to cancel. Raises SynoError as
    :meth:`~syno_lab.jobs.Lab.open` does.
    """
    from syno_lab.jobs import Lab

    given = _given.get()
    if given is not None:
        yield given
        return
    with Lab.open(lab_folder(folder), start=start, is_thorough=False) as lab:
        yield lab


@contextmanager
def working_in(lab: Lab) -> Iterator[None]:
    """Commands within the block use this open lab; its owner runs its jobs."""
    token = _given.set(lab)
    try:
        yield
    finally:
        _given.reset(token)


def hand_over(lab: Lab) -> None:
    """Wait until the cluster has all jobs that can run, if this process ends afterwards and no keeper would send them.

    Raises JobError where the cluster does not start or answer.
    """
    if _given.get() is None:
        lab.hand_over()


def detach_all(jobs: Iterable[tuple[str, Mapping[str, JSON], str]], folder: Path | None = None) -> None:
    """Submit jobs, each a kind, parameters and a name, and say their numbers; JSON: ``{"jobs": [record, …]}``.

    They run in the lab's folder: paths in the parameters are absolute. Raises SynoError when the folder cannot be
    written to, a kind is unknown, parameters are not plain data, or no cluster starts.
    """
    with use_lab(folder) as lab:
        records = [lab.submit(kind, params, name=name).record() for kind, params, name in jobs]
        for record in records:
            say(f"job {record.id}: {record.kind}{f' {record.name}' if record.name else ''}, {record.state}")
        try:
            hand_over(lab)
        except JobError as error:
            numbers = ", ".join(str(record.id) for record in records)
            raise JobError(f"kept as job {numbers}, but nothing runs it yet: {error}") from None
    write_json({"jobs": records})
