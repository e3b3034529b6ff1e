"""Findings: whether this machine or a board has one thing that the lab needs. `doctor` and `board` show them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing: whether it is there, whether the lab needs it, what was found, and what to do where it is missing."""

    name: str
    ok: bool
    needed: bool
    found: str
    advice: str = ""
