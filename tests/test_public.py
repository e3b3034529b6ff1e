"""The public names: short signatures, docstrings of their own, and the functions that methods call in later rooms."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from house import ROOT
from IPython.core.inputtransformer2 import TransformerManager

import syno_lab as sl
from syno_lab import later

#: The longest signature of a public name: what fits on a few lines of a terminal.
LONGEST = 400


def _callables() -> Iterator[tuple[str, Callable[..., object]]]:
    """The public names, and the public methods of public classes."""
    for name in dir(sl):
        found = getattr(sl, name)
        if inspect.isfunction(found) or inspect.isclass(found):
            yield name, found
        if inspect.isclass(found):
            methods = inspect.getmembers(found, callable)
            yield from ((f"{name}.{method}", call) for method, call in methods if not method.startswith("_"))


@pytest.mark.parametrize(("name", "call"), list(_callables()))
def test_a_public_name_has_a_short_signature_and_a_docstring(name: str, call: Callable[..., object]) -> None:
    if call is sl.SynoError or inspect.isbuiltin(call) or inspect.ismethoddescriptor(call):
        return  # Python's own
    assert len(str(inspect.signature(call))) < LONGEST, str(inspect.signature(call))
    assert inspect.getdoc(call), f"{name} has no docstring"
    assert not (call.__doc__ or "").startswith("See :func:"), f"{name} sends its reader elsewhere"


def _later_methods() -> Iterator[tuple[type, str]]:
    for value in (sl.State, sl.Operator):
        yield from ((value, name) for name in dir(value) if name in later.FILES)
    yield sl.Sampler, "replace"


@pytest.mark.parametrize(("value", "name"), list(_later_methods()))
def test_a_method_has_the_signature_of_the_function_that_it_calls(value: type, name: str) -> None:
    found = inspect.getattr_static(value, name)
    if isinstance(found, property):
        return
    mine, theirs = inspect.signature(found), inspect.signature(later.function(name))
    options = dict(list(theirs.parameters.items())[value is not sl.Sampler :])
    for option in list(mine.parameters.values())[1:]:
        other = options.pop(option.name)
        assert (option.kind, option.default) == (other.kind, other.default), option.name
    assert not options or (value, name) == (sl.State, "figure"), f"not offered: {', '.join(options)}"
    theirs_named = theirs.return_annotation.removeprefix("nn.").replace("Array", "NDArray[Any]")
    assert mine.return_annotation.removeprefix("nn.") == theirs_named


def test_every_function_of_a_later_room_is_called_by_a_method() -> None:
    named = {name for value in (sl.State, sl.Operator) for name in dir(value)}
    assert set(later.FILES) == named & set(later.FILES) | {"replace", "mappings_of", "find_search", "trial_named"}


def _code(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return "\n".join(TransformerManager().transform_cell("".join(cell)) for cell in cells)
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


PAGES = [ROOT / "README.md", *sorted((ROOT / "notebooks").rglob("*.ipynb")), *sorted((ROOT / "docs").glob("*.md"))]


def test_what_the_pages_use_is_public() -> None:
    """Names of ``sl``, and of modules that the reference describes; the first change imports modules that it edits."""
    described = set()
    for page in (ROOT / "docs" / "api").glob("*.md"):
        described |= set(re.findall(r"module:: (\S+)", page.read_text(encoding="utf-8")))
    used = set()
    for page in PAGES:
        for node in ast.walk(ast.parse(_code(page))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("syno_lab"):
                edited = f"+++ b/{(node.module or '').replace('.', '/')}.py" if page.name == "first-change.md" else None
                is_described = node.module in described or (edited is not None and edited in page.read_text())
                assert is_described, f"{page.name}: {node.module} is on no page of docs/api"
                module = import_module(node.module or "")
                assert all(hasattr(module, name.name) for name in node.names), f"{page.name}: {ast.unparse(node)}"
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sl":
                used.add(node.attr)
    used |= set(re.findall(r"\bsl\.(\w+)", (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")))
    assert len(used) > 15
    assert used <= set(dir(sl)), f"not public: {', '.join(sorted(used - set(dir(sl))))}"
