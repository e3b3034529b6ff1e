"""What a system of operators must fulfil, as tests to subclass (:class:`.conformance.SystemConformance`).

For authors of systems: this room alone needs pytest, and nothing of the lab imports it.
"""

from syno_lab.testing.conformance import Case, SystemConformance

__all__ = ["Case", "SystemConformance"]
