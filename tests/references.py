"""Find the values that cross references of docstrings and comments name: modules are imported, nothing is called."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from house import ROOT

PACKAGES = {"syno_lab": ROOT, "syno_widgets": ROOT / "widgets"}
_REFERENCE = re.compile(r":(?:py:)?(attr|class|data|exc|func|meth|mod|obj):`(?:[^`<]*<)?[!~]?([^`<>]+?)>?`")


class Reference(NamedTuple):
    """One reference: its line, the class around it, its role and its target."""

    line: int
    owner: str
    role: str
    target: str


@cache
def modules() -> dict[str, Path]:
    """Return the files of the engine and of the front ends by the full names of their modules."""
    files = [(folder, path) for name, folder in PACKAGES.items() for path in sorted((folder / name).rglob("*.py"))]
    names = {".".join(path.relative_to(folder).with_suffix("").parts): path for folder, path in files}
    return {name.removesuffix(".__init__"): path for name, path in names.items() if path.stem != "__main__"}


def references(path: Path) -> Iterator[Reference]:
    """Yield the references in a file."""
    text = path.read_text(encoding="utf-8")
    classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    for match in _REFERENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        owners = [node.name for node in classes if node.lineno <= line <= (node.end_lineno or 0)]
        yield Reference(line, owners[-1] if owners else "", match[1], match[2])


@cache
def full_name(module: str, owner: str, role: str, target: str) -> str | None:
    """Return the full name that a target means in a class of a module, or None if the name does not exist.

    A target is the name of a member, a name in the module, a name in its package, or a full name. A target with a
    leading dot is the end of a full name.
    """
    if target.startswith("."):
        ends = [name for name in modules() if f".{name}".endswith(target)]
        names = ends if role == "mod" else [*(f"{name}{target}" for name in modules()), *ends]
    else:
        package = module if modules()[module].stem == "__init__" else module.rpartition(".")[0]
        owners = [f"{module}.{owner}"] if owner else []
        names = [f"{scope}.{target}" for scope in (*owners, module, package)] + [target]
    return next((name for name in names if definition(name)), None)


@cache
def definition(name: str) -> str | None:
    """Return the full name under which a value is defined, or None if the name does not exist."""
    parts = name.split(".")
    begin = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in modules()), 1)
    try:
        value: object = importlib.import_module(".".join(parts[:begin]))
    except ImportError:
        return None
    home = ".".join(parts[:begin])
    for number, part in enumerate(parts[begin:], start=begin + 1):
        if isinstance(value, type) and number == len(parts) and _declares(value, part):
            return f"{home}.{part}"
        try:
            # A module may import a name when it is read, and a property of a class must not run.
            value = inspect.getattr_static(value, part) if isinstance(value, type) else getattr(value, part)
        except AttributeError:
            return None
        is_named = inspect.isfunction(value) or isinstance(value, type)
        home = f"{value.__module__}.{value.__qualname__}" if is_named else f"{home}.{part}"
    return home


def _declares(owner: type, name: str) -> bool:
    """Whether a class or a base class annotates a member, or a method sets it. A use of the member does not count."""
    own = [base for base in owner.__mro__ if base.__module__.partition(".")[0] in PACKAGES]
    sets = re.compile(rf"^ +(?:self\.\w+, )*self\.{re.escape(name)}(?:, self\.\w+)*(?:: [^=\n]+)? = ", re.MULTILINE)
    return any(name in vars(base).get("__annotations__", {}) or sets.search(inspect.getsource(base)) for base in own)
