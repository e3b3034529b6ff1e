"""The rooms of the engine in their order, and which of its files import which: read from the source, nothing is run."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
    "sessions",
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
    "settings",
    "beside",
    "blame",
    "copies",
    "effort",
    "errors",
    "generated",
    "inputs",
    "later",
    "patience",
    "private",
    "protocol",
    "scratch",
    "signing",
    "systems",
    "user_code",
    "version",
    "versioned",
)

# Files that may import anything: the public names, and the command line.
FRONT = ("__init__.py", "api.py", "tasks.py", "cli.py", "commands", "doctor.py")


def modules() -> list[Path]:
    return sorted(ENGINE.rglob("*.py"))


def imports(path: Path, *, types: bool = False) -> list[tuple[str, bool]]:
    """Every module that a file imports, and whether at once rather than inside a function.

    ``types``: imports for the type checker alone too.
    """
    return [(module, at_once) for module, at_once, is_type in _imports(path) if types or not is_type]


@cache
def _imports(path: Path) -> list[tuple[str, bool, bool]]:
    """Every import with whether it is at once, and whether it is for the type checker alone; a file is read once."""
    package = path.relative_to(ROOT).parent.parts
    found: list[tuple[str, bool, bool]] = []

    def visit(node: ast.AST, at_once: bool, is_type: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((name.name, at_once, is_type) for name in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else []
                module = ".".join([*base, *([child.module] if child.module else [])])
                if not all(is_module(f"{module}.{name.name}") for name in child.names):
                    found.append((module, at_once, is_type))  # names of the package itself, not only its modules
                found.extend((f"{module}.{name.name}", at_once, is_type) for name in child.names)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                visit(ast.Module(child.body, []), False, True)
                for part in child.orelse:
                    visit(part, at_once, is_type)
            elif not isinstance(child, ast.expr | ast.expr_context):  # expressions hold no imports
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                visit(child, at_once and not inside, is_type)

    visit(ast.parse(path.read_text(encoding="utf-8")), True, False)
    return found


@cache
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


# -- how much there is -------------------------------------------------------------------------------------------------


class Lines(NamedTuple):
    """The lines of a file: all, those of code, and those of docstrings and comments alone; the others are blank."""

    total: int
    code: int
    words: int


def lines(path: Path) -> Lines:
    """Counted by ``tokenize``; a line with code and a comment is one of code."""
    text = path.read_text(encoding="utf-8")
    code: set[int] = set()
    words: set[int] = set()
    begins = True  # a statement: a string alone there is a docstring, or one of a field
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        rows = range(token.start[0], token.end[0] + 1)
        if token.type == tokenize.COMMENT:
            words.update(rows)
        elif token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            begins = True
        elif token.type == tokenize.STRING and begins:
            words.update(rows)
        elif token.type not in (tokenize.NL, tokenize.ENDMARKER):
            code.update(rows)
            begins = False
    return Lines(text.count("\n"), len(code), len(words - code))


_MAPPINGS = {"dict", "Mapping", "MutableMapping", "defaultdict"}


def open_types() -> tuple[int, int]:
    """Of signatures and fields of classes: those with a mapping to ``Any`` or ``object``, and with one of these alone.

    A name that a module gives to a type counts as that type.
    """
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in modules()]
    aliases: dict[str, list[ast.expr]] = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
                for target in node.targets:
                    aliases.setdefault(ast.unparse(target), []).append(node.value)

    def last(node: ast.AST) -> str:
        return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""

    def is_open(node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in ("Any", "object")

    def maps(node: ast.expr, *within: str) -> bool:
        for part in ast.walk(node):
            name = last(part)
            if name in aliases and name not in within and any(maps(one, name, *within) for one in aliases[name]):
                return True
            is_mapping = isinstance(part, ast.Subscript) and last(part.value) in _MAPPINGS
            if is_mapping and isinstance(part.slice, ast.Tuple) and is_open(part.slice.elts[-1]):
                return True
        return False

    signatures: list[list[ast.expr]] = []
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef):
            given = node.args
            all_of = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
            signatures.append([one.annotation for one in all_of if one and one.annotation])
            signatures[-1] += [node.returns] if node.returns else []
        elif isinstance(node, ast.ClassDef):
            signatures += [[field.annotation] for field in node.body if isinstance(field, ast.AnnAssign)]
    return sum(any(map(maps, types)) for types in signatures), sum(any(map(is_open, types)) for types in signatures)
