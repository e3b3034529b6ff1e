"""The findings of `doctor` and `board`: whether this machine or a board meets a requirement of the lab."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A requirement: whether it is met, whether the lab always needs it, the observed value, and the advice."""

    name: str
    ok: bool
    needed: bool
    found: str
    advice: str = ""
