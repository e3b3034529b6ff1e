"""The walk of docs/architecture.md from the command to the store's write is in the source, and does not grow."""

from __future__ import annotations

import ast
import re
from functools import cache

from house import ENGINE, ROOT

from syno_lab.jobs import KINDS

#: Calls from file to file, child processes included.
MOST_CALLS = 20
#: Where another thread or process goes on: the function that wakes or starts it, and the one in which it begins.
ELSEWHERE = {
    ("jobs/keeper.py", "wake"): "_run",
}

Place = tuple[str, str, str]  # a file, the function that is called, and the one that calls the next file


def walk() -> list[Place]:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    part = page.partition("## From the command to the store")[2].partition("\n## ")[0]
    found = re.findall(r"^\d+\. `([\w/]+\.py)`: `(\w+)`(?:, `(\w+)`)?", part, re.MULTILINE)
    return [(file, entry, leave or entry) for file, entry, leave in found]


@cache
def functions(file: str) -> dict[str, str]:
    """The source of each function of a file by its name; of several with one name all together."""
    text = (ENGINE / file).read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            found[node.name] = found.get(node.name, "") + (ast.get_source_segment(text, node) or "")
    return found


def mentions(source: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", source) is not None


def reaches(file: str, entry: str, leave: str) -> bool:
    """Whether a function of a file leads to another one there."""
    seen, left = {entry}, [entry]
    while left:
        at = left.pop()
        if at == leave:
            return True
        onward = [name for name in functions(file) if mentions(functions(file)[at], name)]
        onward += [ELSEWHERE[file, at]] if (file, at) in ELSEWHERE else []
        left += [name for name in onward if name not in seen]
        seen.update(onward)
    return False


def calls(one: Place, other: Place) -> bool:
    """Whether a file calls the function of another: by its name, as a process, or as a kind of job."""
    module = "syno_lab." + other[0].removesuffix(".py").replace("/", ".")
    if one[2] == "_function":
        return f"{module}:{other[1]}" in KINDS.values()
    source = functions(one[0])[one[2]]
    return mentions(source, module) or mentions(source, other[1])


def test_the_walk_is_in_the_source() -> None:
    places = walk()
    assert places[0][0].startswith("commands/")
    assert places[-1] == ("store/database.py", "write", "write")
    for file, entry, leave in places:
        assert {entry, leave} <= set(functions(file)), f"{file} has no {entry} or {leave}"
        assert reaches(file, entry, leave), f"{file}: {entry} does not lead to {leave}"
    for number, place in enumerate(places[1:], start=1):
        # What a file calls may return to it before the next call.
        before = places[max(0, number - 3) : number]
        assert any(calls(one, place) for one in before), f"nobody calls {place[1]} of {place[0]}"


def test_the_walk_does_not_grow() -> None:
    assert len(walk()) - 1 <= MOST_CALLS
