"""The walks of docs/architecture.md are in the source, and do not grow."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from house import ENGINE, ROOT

from syno_lab.jobs import KINDS
from syno_lab.later import FILES

#: The sections of the walks, each with the most steps from file to file, child processes included.
WALKS = {"From the spec to the operator": 11, "From the click to the picture": 12, "From the command to the store": 20}
#: Where another thread or process goes on: the function that wakes or starts it, and the one in which it begins.
ELSEWHERE = {
    ("jobs/keeper.py", "wake"): "_run",
}
#: Where a message or a trait goes from one program to the other: the text that both functions have.
MESSAGES = {
    ("stepper_steps.js", "stepper.js"): "ask",
    ("stepper.js", "view.py"): "request",
    ("stepper.py", "stepper.js"): "svg",
}

Place = tuple[str, str, str]  # a file, the function that is called, and the one that calls the next file


def walk(section: str) -> list[Place]:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    part = page.partition(f"## {section}\n")[2].partition("\n##")[0]
    found = re.findall(r"^(\d+)\. `([\w/]+\.(?:py|js))`: `(\w+)`(?:, `(\w+)`)?", part, re.MULTILINE)
    numbers = [int(number) for number, *_ in found]
    assert numbers == list(range(1, len(re.findall(r"^\d+\.", part, re.MULTILINE)) + 1)), "a line has another form"
    return [(file, entry, leave or entry) for _, file, entry, leave in found]


def text_of(file: str) -> str:
    return (ROOT / file if file.startswith("widgets/") else ENGINE / file).read_text(encoding="utf-8")


@cache
def functions(file: str) -> dict[str, str]:
    """The source of each function of a file by its name; of several with one name all together."""
    text = text_of(file)
    found: dict[str, str] = {}
    if file.endswith(".js"):
        whole = re.finditer(r"^( *)(?:(?:async|static|function) )*(\w+)\(.*\) \{\n(?:.*\n)*?\1\}", text, re.MULTILINE)
        parts = [(match[2], match[0]) for match in whole]
    else:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        parts = [(node.name, ast.get_source_segment(text, node) or "") for node in nodes]
    for name, source in parts:
        found[name] = found.get(name, "") + source
    return found


@cache
def classes(file: str, method: str) -> list[str]:
    """The classes of a Python file that have a method."""
    if not file.endswith(".py"):
        return []
    nodes = [node for node in ast.walk(ast.parse(text_of(file))) if isinstance(node, ast.ClassDef)]
    return [node.name for node in nodes if any(getattr(part, "name", "") == method for part in node.body)]


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
    """Whether a file calls the function of another.

    By its name, as a process, as a kind of job, or as a method of a value that it makes.
    """
    module = "syno_lab." + other[0].removesuffix(".py").replace("/", ".")
    if one[2] == "_function":
        return f"{module}:{other[1]}" in KINDS.values()
    if one[0] == "later.py":
        return module == f"syno_lab.{FILES.get(other[1])}"
    source = source_of(one)
    return any(mentions(source, name) for name in (module, other[1], *classes(other[0], other[1])))


def sends(one: Place, other: Place) -> bool:
    """Whether a file sends a message or a trait that the other one reads."""
    word = MESSAGES.get((Path(one[0]).name, Path(other[0]).name))
    return word is not None and all(mentions(source_of(place), word) for place in (one, other))


def source_of(place: Place) -> str:
    return "".join(functions(place[0])[name] for name in place[1:])


@pytest.mark.parametrize("section", WALKS)
def test_the_walk_is_in_the_source(section: str) -> None:
    places = walk(section)
    assert len(places) > 10
    for file, entry, leave in places:
        assert {entry, leave} <= set(functions(file)), f"{file} has no {entry} or {leave}"
        assert reaches(file, entry, leave), f"{file}: {entry} does not lead to {leave}"
    for number, place in enumerate(places[1:], start=1):
        # What a file calls may return to it before the next call.
        called = any(calls(one, place) for one in places[max(0, number - 3) : number])
        assert called or any(sends(one, place) for one in places[:number]), f"nobody calls {place[1]} of {place[0]}"


def test_the_walks_begin_and_end_where_they_say() -> None:
    spec, click, command = (walk(section) for section in WALKS)
    assert [spec[0][:2], spec[-1][0]] == [("commands/pgraphs/sample.py", "command"), "generated.py"]
    assert [click[0][0], click[-1][0]] == [
        f"widgets/syno_widgets/{name}.js" for name in ("stepper_steps", "operator_graph")
    ]
    assert command[0][0].startswith("commands/")
    assert command[-1] == ("store/database.py", "write", "write")


@pytest.mark.parametrize("section", WALKS)
def test_the_walk_does_not_grow(section: str) -> None:
    assert len(walk(section)) - 1 <= WALKS[section]
