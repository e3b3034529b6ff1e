"""The parts of ``docs/networks-tried.md``: what became of each network that ``networks.py`` tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from page import NONE, Measure, Part, Result, table

COLUMNS = {
    "survey": "survey",
    "put_in": "`put_in`",
    "evaluation": "evaluation",
    "aot_eager": "compiled, `aot_eager`",
    "inductor": "compiled, inductor",
    "trace": "`trace`",
    "plan": "plan",
    "file": "file",
}
MARKS = {"ok": "●", "refused": "○", "torch": "□", "fault": "✕", "differs": "≠"}


def _mark(row: Result, column: str) -> str:
    cell = row["cells"].get(column)
    return NONE if cell is None else MARKS[cell["state"]]


def _replaced(row: Result) -> str:
    cell = row["cells"]["put_in"]
    return cell["said"] if cell["state"] == "ok" else NONE


def networks_of(packages: Sequence[str]) -> Callable[[Result], str]:
    """The table of the networks of some packages."""

    def rows(result: Result) -> str:
        found = [row for row in result["rows"] if row["package"] in packages]
        heading = ["network", "after" if packages == ("torch.nn",) else "what it is", "operator", *COLUMNS.values()]
        lines = []
        for row in found:
            marks = [_mark(row, column) for column in COLUMNS]
            lines.append([row["name"], row["source"], _replaced(row), *marks])
        return table(heading, lines)

    return rows


def totals(result: Result) -> str:
    """How many networks are right in each column, and in which other ways they end."""
    lines = []
    for column, name in COLUMNS.items():
        states = Counter(row["cells"][column]["state"] for row in result["rows"] if column in row["cells"])
        lines.append([name, str(states.total()), *(str(states[state]) for state in MARKS)])
    words = "● right | ○ refused in one line | □ PyTorch refuses it | ✕ traceback | ≠ differs"
    packages = ", ".join(f"{name} {version}" for name, version in sorted(result["packages"].items()))
    return f"{table(f'column | networks | {words}', lines)}\n\n{len(result['rows'])} networks; {packages}."


def reasons(result: Result) -> str:
    """Each line that stands for what is not right, with the networks and columns that have it."""
    found: dict[str, list[str]] = {}
    for row in result["rows"]:
        said: dict[str, list[str]] = {}
        for column, cell in row["cells"].items():
            if cell["state"] != "ok":
                said.setdefault(f"{MARKS[cell['state']]} `{cell['said'].replace('`', '')}`", []).append(COLUMNS[column])
        for line, columns in said.items():
            found.setdefault(line, []).append(f"**{row['name']}** ({', '.join(columns)})")
    return "\n".join(f"- {', '.join(names)}: {line}" for line, names in found.items()) or "Nothing is refused."


_COMMAND = "python benchmarks/networks.py"
_PACKAGES = ("transformers", "monai", "efficientnet_pytorch")
PARTS = (
    Part(
        "networks-tried",
        Measure("networks", _COMMAND, totals),
        Measure("networks", _COMMAND, networks_of(_PACKAGES), "## Of packages"),
        Measure(
            "networks", _COMMAND, networks_of(("torch.nn",)), "## By hand\n\nSources are issues and pull requests."
        ),
        Measure("networks", _COMMAND, reasons, "## What is refused"),
        one_footer=True,
    ),
)
