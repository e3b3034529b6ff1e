"""What all backbones ask of the numbers they are built from."""

from __future__ import annotations

from syno_lab.errors import SpecError


def check_counts(whose: str, **counts: int) -> None:
    """Raise SpecError, in the words of ``whose``, for a number that is not a whole one from 1 up."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SpecError(f"{whose} needs {name} as a whole number from 1 up, found {value!r}")
