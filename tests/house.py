"""The rooms of the engine in their order, and which of its files import which: read from the source, nothing is run."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "syno_lab"

# A room imports only rooms further up in this list.
ROOMS = (
    "processes",
    "store",
    "jobs",
    "common",
    "drawing",
    "ir",
    "synthesis",
    "search",
    "codegen",
    "operators",
    "panes",
    "models",
    "pgraphs",
    "nas_pte",
    "canvas",
    "alpha",
    "data",
    "training",
    "trial",
    "tuning",
    "reports",
    "experiments",
    "testing",
)

# What every room may use; these files use nothing but each other.
SHARED = (
    "beside",
    "blame",
    "copies",
    "effort",
    "errors",
    "generated",
    "history",
    "history_tree",
    "inputs",
    "own_rule",
    "patience",
    "player",
    "private",
    "protocol",
    "quiz",
    "scratch",
    "session_protocol",
    "signing",
    "systems",
    "user_code",
    "version",
    "versioned",
)

# Files that may import anything: the public names, and the command line.
FRONT = ("__init__.py", "api.py", "cli.py", "commands", "doctor.py")


def modules() -> list[Path]:
    return sorted(ENGINE.rglob("*.py"))


def imports(path: Path, *, types: bool = False) -> Iterator[tuple[str, bool]]:
    """Every module that a file imports, and whether at once rather than inside a function.

    ``types``: imports for the type checker alone too.
    """
    package = path.relative_to(ROOT).parent.parts

    def visit(node: ast.AST, at_once: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for name in child.names:
                    yield name.name, at_once
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else []
                module = ".".join([*base, *([child.module] if child.module else [])])
                whole = [name.name for name in child.names if not is_module(f"{module}.{name.name}")]
                if whole:  # else modules of a package are imported, not names of the package itself
                    yield module, at_once
                for name in child.names:
                    yield f"{module}.{name.name}", at_once
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                if types:
                    yield from ((module, False) for part in child.body for module, _ in _visit_one(part))
                yield from ((module, at_once) for part in child.orelse for module, _ in visit(part, at_once))
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from visit(child, at_once and not inside)

    def _visit_one(statement: ast.stmt) -> Iterator[tuple[str, bool]]:
        return visit(ast.Module([statement], []), False)

    return visit(ast.parse(path.read_text(encoding="utf-8")), True)


def is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def name(path: Path) -> str:
    parts = ("syno_lab", *path.relative_to(ENGINE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def arrows() -> dict[str, set[str]]:
    """Which modules of the engine each one imports, at once, on use or for types."""
    names = {name(path): path for path in modules()}
    return {
        name: {module for module, _ in imports(path, types=True) if module in names and module != name}
        for name, path in names.items()
    }


def room_arrows() -> dict[tuple[str, str], int]:
    """The rooms that a room imports, commands and widgets too: (importing, imported) to the importing files' number."""
    files = [(path, path.relative_to(ENGINE).parts[0]) for path in modules() if path.parent != ENGINE]
    files += [(path, "widgets") for path in sorted((ROOT / "widgets" / "syno_widgets").rglob("*.py"))]
    found: Counter[tuple[str, str]] = Counter()
    for path, room in files:
        parts = (module.split(".") for module, _ in imports(path) if module.startswith("syno_lab."))
        found.update((room, other) for other in {part[1] for part in parts} if other in ROOMS and other != room)
    return dict(found)
