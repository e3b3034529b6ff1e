"""Check recorded schedules before TVM applies them: a schedule is data and must not contain code.

A trace is a list of instructions on our program, mostly names and numbers. Two kinds of instructions could add code: an
annotation can import source text, and the expression of a layout can call a function. TVM would compile the code. No
rule of TVM or of the lab writes instructions of these kinds. This module needs no TVM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syno_lab.errors import FormatError, TuningError
from syno_lab.inputs import check_regular, quoted

#: The name of TVM's file of tuning records in a folder, and the largest size in bytes that is read.
DATABASE, MOST_BYTES = "database_tuning_record.json", 1 << 30


def check_trace(trace: Any) -> None:
    """Check that a trace, as TVM's JSON data, holds no code. Raises TuningError with the code that it holds."""
    try:
        bad = next((text for text in _texts(trace) if _is_code(text)), None)
    except RecursionError:
        raise TuningError("expected a recorded schedule, found lists nested too deeply") from None
    if bad is not None:
        raise TuningError(f"expected a recorded schedule of names and numbers, found code in it: {quoted(bad)}")


def check_database(folder: str | Path) -> None:
    """Check that TVM's own records in a folder hold no code; a folder without records is fine.

    Raises FormatError when the file is no JSON or too large; TuningError as :func:`check_trace`.
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
    """Yield every text in the data; a text that is JSON itself, such as a layout, yields its inner texts too."""
    if isinstance(value, str):
        yield value
        if value.lstrip()[:1] in ("{", "[", '"'):
            try:
                # For a duplicate key both values are read, because TVM may use either value.
                inner = json.loads(value, object_pairs_hook=lambda pairs: [item for pair in pairs for item in pair])
            except ValueError:
                return  # TVM cannot parse this text as JSON either
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for entry in value.items():
            yield from _texts(entry)
