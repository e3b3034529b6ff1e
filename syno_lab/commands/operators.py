"""``syno-lab operators``: list the known operators."""

from __future__ import annotations

import inspect

from syno_lab.commands.output import say_table, write_json
from syno_lab.systems import all_systems


def command() -> None:
    """List the known operators of all systems by name."""
    rows = []
    for system in all_systems():
        for name, make in system.known.items():
            about = (inspect.getdoc(make) or "").partition("\n\n")[0].replace("\n", " ")
            rows.append({"name": name, "system": system.title, "shape": str(make()), "about": about})
    say_table([{key: row[key] for key in ("name", "system", "shape")} for row in rows])
    write_json(rows)
