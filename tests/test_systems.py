"""The registry of systems: what the user names in the environment, and what is wrong with it."""

from __future__ import annotations

import pytest

from syno_lab import systems
from syno_lab.errors import FormatError, SpecError


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a=b", r"SYNO_LAB_SYSTEMS: expected format=module:name;…, found 'a=b'"),
        ("=b:c", r"SYNO_LAB_SYSTEMS: expected format=module:name;…, found '=b:c'"),
        ("a=no_such_module:name", r"SYNO_LAB_SYSTEMS: expected a system at 'no_such_module:name', found: No module"),
        ("a=os:no_such_name", r"SYNO_LAB_SYSTEMS: expected a system at 'os:no_such_name', found: module 'os' has no"),
        ("a=os:sep", r"SYNO_LAB_SYSTEMS: expected a system .* at 'os:sep', found one without read, known"),
    ],
)
def test_a_wrong_system_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    monkeypatch.setenv(systems.VARIABLE, value)
    with pytest.raises(SpecError, match=message) as caught:
        systems.find_system("a")
    assert "\n" not in str(caught.value)


def test_a_system_can_be_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(systems.VARIABLE, "syno-lab-operator=")
    others = "syno-lab-canvas, syno-lab-alpha, syno-lab-nas-pte"
    with pytest.raises(FormatError, match=f"expected a format among {others}, found 'syno-lab-operator'"):
        systems.find_system("syno-lab-operator")
