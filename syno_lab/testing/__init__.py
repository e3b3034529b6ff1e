"""Tests that a system of operators must pass, for subclasses (:class:`.conformance.SystemConformance`).

For authors of systems: only this package needs pytest, and no other package imports it.
"""

from syno_lab.testing.conformance import Case, SystemConformance

__all__ = ["Case", "SystemConformance"]
