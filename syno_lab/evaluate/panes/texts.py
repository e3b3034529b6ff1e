"""PyTorch source, TIR and the equation as panes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from syno_lab.codegen.equation import equation
from syno_lab.codegen.formula import formula_svg
from syno_lab.errors import SynoError
from syno_lab.evaluate.panes.asked import Asked

TIR_TIMEOUT_S = 120.0


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
