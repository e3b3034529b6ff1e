"""Options, the lab and the submission of jobs, for all commands that submit or list jobs.

Notebooks submit with ``--detach`` too: ``%%syno search`` runs the command with this option inside :func:`working_in`. A
notebook's job is submitted to the lab that the notebook has open.
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
        callback=lambda folder: folder and place.lab_folder(folder),  # now, as the user's code may change the folder
        help=f"The lab's folder. [default: ${place.FOLDER_VARIABLE}, else .syno-lab]",
    ),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Submit it as a job and return at once; `syno-lab jobs` shows it.")
]

_working_lab: ContextVar[Lab | None] = ContextVar("working_lab", default=None)


def lab_folder(folder: str | Path | None = None) -> Path:
    """Return the folder of :func:`syno_lab.store.place.lab_folder`; inside :func:`working_in`, that lab's folder."""
    open_lab = _working_lab.get()
    return place.lab_folder(folder) if folder or open_lab is None else open_lab.folder


@contextmanager
def use_lab(folder: Path | None = None, *, start: bool = True) -> Iterator[Lab]:
    """Open the lab of :func:`lab_folder` for the block; inside :func:`working_in`, yield that open lab.

    ``start``: whether waiting jobs are started; False to list, pause or cancel jobs. Raises SynoError as
    :meth:`~syno_lab.jobs.Lab.open`.
    """
    from syno_lab.jobs import Lab

    open_lab = _working_lab.get()
    if open_lab is not None:
        yield open_lab
        return
    with Lab.open(lab_folder(folder), start=start, is_thorough=False) as lab:
        yield lab


@contextmanager
def working_in(lab: Lab) -> Iterator[None]:
    """Let commands in the block use this open lab; the owner of the lab runs the jobs."""
    token = _working_lab.set(lab)
    try:
        yield
    finally:
        _working_lab.reset(token)


def hand_over(lab: Lab) -> None:
    """Submit all jobs that can run to the cluster, if this process has no keeper that would submit them later.

    Raises JobError if the cluster does not start or answer.
    """
    if _working_lab.get() is None:
        lab.hand_over()


def detach_all(jobs: Iterable[tuple[str, Mapping[str, JSON], str]], folder: Path | None = None) -> None:
    """Submit jobs, each as (kind, parameters, name), and print their numbers; JSON: ``{"jobs": [record, …]}``.

    Jobs run in the lab's folder, so paths in the parameters must be absolute. Raises SynoError if the folder cannot be
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
