"""``syno-lab operators``: the known operators."""

from __future__ import annotations

import inspect
from importlib import import_module

from syno_lab.commands.operands import known_names, known_operator
from syno_lab.commands.output import JsonTarget, check_json, say_table, write_json


def command(json: JsonTarget = None) -> None:
    """List the known operators by name."""
    check_json(json)
    known = import_module("syno_lab.operators").KNOWN
    rows = []
    for name in known_names():
        about = (inspect.getdoc(known[name]) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append({"name": name, "shape": str(known_operator(name)), "about": about})
    say_table([{"name": row["name"], "shape": row["shape"]} for row in rows], json)
    write_json(rows, json)
