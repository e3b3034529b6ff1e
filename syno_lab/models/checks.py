"""Checks of the numbers from which a backbone is built."""

from __future__ import annotations

from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted

#: Layers, channels, tokens of a vocabulary: no machine holds a network with more.
MOST = 1 << 20


def check_counts(whose: str, **counts: int) -> None:
    """Raise SpecError, in the words of ``whose``, for a number that is not a whole one from 1 to `MOST`."""
    for name, value in counts.items():
        number = positive(value)
        if number is None:
            raise SpecError(f"{whose} needs {name} as a whole number from 1 up, found {quoted(value)}")
        if number > MOST:
            raise SpecError(f"{whose} needs {name} of at most {MOST}, found {number}")
