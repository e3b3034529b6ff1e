"""The conversion of stored values to text and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import index
from typing import Any, SupportsFloat, TypeVar

import msgspec

from syno_lab.errors import StoreError
from syno_lab.inputs import quoted
from syno_lab.versioned import JSON

_Kind = TypeVar("_Kind")


def plain(value: object, where: str) -> Any:
    """Return `value` as JSON data. Numbers that are not finite become None, because JSON has no such numbers.

    Raises StoreError where an item is no text, number, list or mapping; `where` names the value in the message.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    for convert in ("tolist", "__fspath__"):  # NumPy has "tolist", a path has "__fspath__"
        if hasattr(value, convert):
            return plain(getattr(value, convert)(), where)
    raise StoreError(f"{where}: expected text, numbers, lists or mappings, found {type(value).__name__}")


def to_text(value: Mapping[str, JSON], where: str) -> str:
    """Return the canonical JSON of a mapping. Equal mappings have equal texts."""
    if not isinstance(value, Mapping):
        raise StoreError(f"{where}: expected a mapping, found {type(value).__name__}")
    return json.dumps(plain(value, where), sort_keys=True, ensure_ascii=False, allow_nan=False)


def from_text(text: str, kind: type[_Kind], name: str) -> _Kind:
    """Parse a JSON text of the store into a value of a type.

    Raises StoreError where the text is not JSON of that type, because another program wrote the text.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise not_ours(name, error) from None
    if not isinstance(value, kind):
        raise not_ours(name, f"expected a {kind.__name__}, found a {type(value).__name__}")
    return value


def decoded(text: str, decoder: msgspec.json.Decoder[_Kind], name: str) -> _Kind:
    """Decode a JSON text of the store. Raises StoreError as `from_text` does."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise not_ours(name, error) from None


def not_ours(name: str, why: object) -> StoreError:
    """Return the error for a row whose digest is right but whose content is not valid."""
    return StoreError(
        f"the results store holds {name} that Syno Lab did not write ({quoted(str(why))}): restore a copy of the store"
    )


def now() -> str:
    """Return the current time for people: ISO 8601, UTC, to the millisecond. No decision depends on this time."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def finite(value: object) -> float | None:
    """Return a number as a float; None if the value is missing, no number or not finite."""
    if value is None or isinstance(value, (str, bool)) or not isinstance(value, SupportsFloat):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):  # float() fails for an integer of 400 digits
        return None
    return number if math.isfinite(number) else None


def whole(value: int, name: str, least: int) -> int:
    """Return an integer that SQLite can store. Raises StoreError for a value that SQLite cannot store."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None or not least <= number < 2**63:
        raise StoreError(f"{name}: expected a whole number from {least} to 2^63-1, found {quoted(value)}")
    return number


def difference(old: Mapping[str, JSON], new: Mapping[str, JSON]) -> str:
    """Describe up to three differences between two settings: `epochs was 3, is 5`."""

    def shown(settings: Mapping[str, JSON], key: str) -> str:
        text = json.dumps(settings[key], ensure_ascii=False) if key in settings else "absent"
        return text if len(text) <= 60 else text[:57] + "..."

    keys = [key for key in sorted({*old, *new}) if (key in old, old.get(key)) != (key in new, new.get(key))]
    parts = [f"{key} was {shown(old, key)}, is {shown(new, key)}" for key in keys[:3]]
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return "; ".join(parts) + more
