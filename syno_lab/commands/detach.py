"""Commands that run as jobs: the options that they share, and the one way to hand a job over.

``--detach`` is also how notebooks submit: ``%%syno search`` runs the command with its own words and this option.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syno_lab.commands.output import say, write_json

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs import Lab

FOLDER_VARIABLE = "SYNO_LAB_FOLDER"
DEFAULT_FOLDER = ".syno-lab"

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="PATH", help=f"The lab's folder. [default: ${FOLDER_VARIABLE}, else .syno-lab]"),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Submit it as a job and return at once; `syno-lab jobs` shows it.")
]


def lab_folder(folder: Path | None = None) -> Path:
    """The lab's folder: the one given, else that of ``SYNO_LAB_FOLDER``, else ``.syno-lab`` where we are."""
    return folder or Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)


def open_lab(folder: Path | None = None) -> Lab:
    """The lab of :func:`lab_folder`, opened. Raises StoreError and others of the family as :meth:`Lab.open` does."""
    from syno_lab.evaluate.jobs import Lab

    return Lab.open(lab_folder(folder))


def detach(
    kind: str, params: Mapping[str, Any], folder: Path | None = None, *, name: str = "", json: str | None = None
) -> None:
    """Submit a job of ``kind`` to the lab in ``folder`` and say its number; JSON: ``{"job": its record}``.

    Raises:
        SynoError: when the folder cannot be written to, or the kind or its parameters are unknown.
    """
    import msgspec

    with open_lab(folder) as lab:
        record = lab.submit(kind, dict(params), name=name).record()
    say(f"job {record.id}: {record.kind}{f' {record.name}' if record.name else ''}, {record.state}", json)
    write_json({"job": msgspec.to_builtins(record)}, json)
