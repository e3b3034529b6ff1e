"""Findings of the commands `doctor` and `board`: whether this machine or a board has something that the lab needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A requirement: whether it is met, whether the lab needs it, the observed value, and the remedy."""

    name: str
    ok: bool
    needed: bool
    found: str
    advice: str = ""
