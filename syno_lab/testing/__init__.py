"""Tests that a system of operators must pass, for subclasses (:class:`.conformance.SystemConformance`).

The package is for authors of systems. No other package of the engine needs pytest or imports this package.
"""

from syno_lab.testing.conformance import Case, SystemConformance

__all__ = ["Case", "SystemConformance"]
