"""Recorded schedules are data: before TVM applies one, nothing in it may be a program of its own.

A trace is a list of instructions on our program, and most are names and numbers. Two kinds could bring code along that
is compiled with ours: an annotation that imports source text, and a layout whose expression calls a function. No rule
of TVM's or of ours writes either. No TVM is needed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syno_lab.errors import FormatError, TuningError
from syno_lab.inputs import check_regular, quoted

#: TVM's file of tuning records in a folder of its own format, and the bytes of the largest that is read.
DATABASE, MOST_BYTES = "database_tuning_record.json", 1 << 30


def check_trace(trace: Any) -> None:
    """Refuse a trace, as TVM's JSON data, that brings code of its own along. Raises TuningError with what was found."""
    try:
        bad = next((text for text in _texts(trace) if _is_code(text)), None)
    except RecursionError:
        raise TuningError("expected a recorded schedule, found lists nested too deeply") from None
    if bad is not None:
        raise TuningError(f"expected a recorded schedule of names and numbers, found code in it: {quoted(bad)}")


def check_database(folder: str | Path) -> None:
    """The same for TVM's own records in a folder; nothing to say where there are none.

    Raises FormatError where they are no JSON, or too large; TuningError as `check_trace`.
    """
    file = Path(folder) / DATABASE
    if not file.exists():
        return
    try:
        check_regular(file, MOST_BYTES)
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                check_trace(line)
    except OSError as error:
        raise FormatError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FormatError(f"{file}: expected TVM's tuning records, found no text") from None


def _is_code(text: str) -> bool:
    return text.startswith("pragma_import") or text.endswith((".Call", ".Op", ".PrimFunc"))


def _texts(value: Any) -> Iterator[str]:
    """Every text in the data, those inside of texts that are JSON themselves included, as layouts are."""
    if isinstance(value, str):
        yield value
        if value.lstrip()[:1] in ("{", "[", '"'):
            try:
                # Of keys that are there twice we see both, whichever it is that TVM takes.
                inner = json.loads(value, object_pairs_hook=lambda pairs: [one for pair in pairs for one in pair])
            except ValueError:
                return  # no JSON for TVM either
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict):
        for entry in value.items():
            yield from _texts(entry)
