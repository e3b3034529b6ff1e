"""``syno-lab operators``: the known operators."""

from __future__ import annotations

import inspect
from contextlib import suppress
from importlib import import_module
from typing import Any

from syno_lab.commands.operands import known_names, known_operator
from syno_lab.commands.output import JsonTarget, check_json, say_table, write_json
from syno_lab.errors import SpecError


def command(json: JsonTarget = None) -> None:
    """List the known operators; FLOPs and parameters are those of their default sizes."""
    check_json(json)
    rows = [_row(name) for name in known_names()]
    say_table([{key: value for key, value in row.items() if key != "about"} for row in rows], json)
    write_json(rows, json)


def _row(name: str) -> dict[str, Any]:
    operator = known_operator(name)
    flops: int | None = None
    params: int | None = None
    with suppress(SpecError):  # it has no default sizes
        flops, params = operator.flops(), operator.params()
    about = inspect.getdoc(getattr(import_module("syno_lab.operators"), name)) or ""
    return {
        "name": name,
        "shape": str(operator),
        "flops": flops,
        "params": params,
        "about": about.partition("\n\n")[0].replace("\n", " "),
    }
