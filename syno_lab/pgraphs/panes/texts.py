"""The equation as a pane."""

from __future__ import annotations

from typing import Any

from syno_lab.codegen.equation import equation
from syno_lab.codegen.formula import formula_svg
from syno_lab.pgraphs.panes.asked import Asked


def equation_pane(asked: Asked) -> dict[str, Any]:
    """The equation, whole and by stages: ``forms``, each with ``title``, ``text``, ``latex`` and ``svg``."""
    found = []
    for title, staged in (("One equation", False), ("By stages", True)):
        made = equation(asked.operator, asked.bound(), staged=staged)
        found.append(
            {"title": title, "text": str(made), "latex": made.latex, "svg": formula_svg(made.latex, str(made))}
        )
    return {"forms": found}
