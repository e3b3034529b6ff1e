"""PyTorch source, TIR and the equation as panes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from syno_lab.codegen.equation import equation
from syno_lab.errors import SynoError
from syno_lab.evaluate.panes.asked import Asked

TIR_TIMEOUT_S = 120.0
_SIZE = 14.0  # points
_GAP = 10.0
_MOST = 150  # signs of LaTeX in a line, about half as many on the page
# Before the brackets of the conditions, and before the product behind them.
_BREAKS = re.compile(r"(?=\\left\[0 )|(?<=\\right\]) (?!\\left\[0 )")
_FOR_MATPLOTLIB = (
    (r"\left", ""),
    (r"\right", ""),
    (r"\bmod", r"\;\mathrm{mod}\;"),
    (r"\le ", r"\leq "),
    (r"} \sum", r"} \; \sum"),
)


def source_pane(asked: Asked) -> dict[str, Any]:
    """``text``: the PyTorch module as a file that needs torch alone."""
    from syno_lab.codegen.torch_module import to_torch_source

    return {"text": to_torch_source(asked.operator, asked.bound())}


def tir_pane(asked: Asked) -> dict[str, Any]:
    """``text``: TVM's TIR, unscheduled, written by a process of its own, as TVM can take its process down.

    Raises:
        SynoError: when TVM refuses, dies or takes more than two minutes.
    """
    bind = [word for name, number in asked.bound().items() for word in ("--bind", f"{name}={number}")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "operator.json"
        file.write_text(asked.operator.to_json(), encoding="utf-8")
        # As in other child processes of ours: our module search path, and nothing from the folder it starts in.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        command = [sys.executable, "-P", "-m", "syno_lab.cli", "show", str(file), "--as", "tvm", *bind]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TIR_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
        except subprocess.TimeoutExpired:
            raise SynoError(f"TIR: TVM took more than {TIR_TIMEOUT_S:.0f} s; try smaller sizes") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"its process ended with status {done.returncode}"]
        raise SynoError(f"TIR: {lines[-1].removeprefix('syno-lab: ')}")
    return {"text": done.stdout}


def equation_pane(asked: Asked) -> dict[str, Any]:
    """The equation, whole and by stages: ``forms``, each with ``title``, ``text``, ``latex`` and ``svg``."""
    found = []
    for title, staged in (("One equation", False), ("By stages", True)):
        made = equation(asked.operator, asked.bound(), staged=staged)
        found.append(
            {"title": title, "text": str(made), "latex": made.latex, "svg": formula_svg(made.latex, str(made))}
        )
    return {"forms": found}


def formula_svg(latex: str, description: str) -> str:
    """LaTeX of our own equations and rewrites as an SVG element of outlines, in the colour of the text around it.

    It is set by matplotlib's own mathematics, so it needs neither LaTeX nor fonts nor a network. Long lines are broken
    before conditions and products.

    Args:
        latex: one formula, or several in ``aligned``.
        description: the text alternative.

    Raises:
        SynoError: for LaTeX that matplotlib does not know.
    """
    from matplotlib.textpath import TextPath

    paths = []
    top = width = 0.0
    for line in _lines(latex):
        try:
            path = TextPath((0, 0), f"${line}$", size=_SIZE)
        except ValueError as error:
            raise SynoError(f"equation: this LaTeX cannot be drawn: {str(error).splitlines()[-1]}") from None
        box = path.get_extents()
        # SVG counts downwards, matplotlib upwards.
        paths.append(_outline(path, top + box.y1))
        top += box.y1 - box.y0 + _GAP
        width = max(width, box.x1)
    height = top - _GAP
    label = escape(description, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2:.0f}pt" height="{height + 2:.0f}pt" '
        f'viewBox="-1 -1 {width + 2:.1f} {height + 2:.1f}" role="img" aria-label="{label}">\n'
        f"<title>{escape(description)}</title>\n"
        + "\n".join(f'<path fill="currentColor" d="{path}"/>' for path in paths)
        + "\n</svg>\n"
    )


def _lines(latex: str) -> list[str]:
    body = latex.replace("\\begin{aligned}\n", "").replace("\n\\end{aligned}", "").replace("&", "")
    found = []
    for formula in body.split(" \\\\\n"):
        parts = [part for part in _BREAKS.split(formula) if part.strip()]
        line = ""
        for part in parts:
            if line and len(line) + len(part) > _MOST:
                found.append(line)
                line = r"\quad\quad "
            line += part
        found.append(line)
    for old, new in _FOR_MATPLOTLIB:
        found = [line.replace(old, new) for line in found]
    return found


def _outline(path: Any, down: float) -> str:
    """A matplotlib path as the data of an SVG path."""
    letters = {path.MOVETO: "M", path.LINETO: "L", path.CURVE3: "Q", path.CURVE4: "C"}
    words = []
    for points, code in path.iter_segments():
        if code == path.CLOSEPOLY:
            words.append("Z")
        else:
            pairs = (f"{x:.2f} {down - y:.2f}" for x, y in zip(points[::2], points[1::2], strict=True))
            words.append(letters[code] + " ".join(pairs))
    return "".join(words)
