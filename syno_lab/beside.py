"""Find the user's own modules that a Python source imports, without running the source, and hash their contents.

A record identifies a user's file by its text. The result of the file also depends on the modules that it imports.
`beside` finds the user's modules that a file imports, directly or indirectly: beside that file, in packages, elsewhere
on ``sys.path``. Modules of Python and of installed packages are skipped.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from itertools import accumulate, chain
from pathlib import Path

from syno_lab.blame import is_users_file
from syno_lab.errors import CodeError

_DIGEST = 12
_MOST = 2000  # the most modules
_IMPORTS = ("import_module", "__import__")
#: Folders that :func:`look_beside` has appended to ``sys.path``, the latest first.
_FOLDERS: list[str] = []


@dataclass(frozen=True)
class Module:
    """A module of the user's own: its file, and the hash of the file's content."""

    file: str
    digest: str


def look_beside(file: str) -> None:
    """Append a file's folder to ``sys.path``, before the folders of files that were added earlier."""
    folder = _folder(file)
    if folder is None or (folder in sys.path and folder not in _FOLDERS):
        return
    sys.path[:] = [path for path in sys.path if path not in _FOLDERS]
    _FOLDERS[:] = [folder, *(path for path in _FOLDERS if path != folder)]
    sys.path += _FOLDERS


def modules_of(source: str, file: str) -> dict[str, Module]:
    """Return the user's own modules that a source imports, directly or indirectly, by their names.

    Args:
        source: the Python source.
        file: the file of the source. Modules beside a ``.py`` file are searched after ``sys.path``.

    Raises CodeError for more than 2000 modules.
    """
    importlib.invalidate_caches()
    folder = _folder(file)
    path = [entry for entry in sys.path if entry not in _FOLDERS] + ([] if folder is None else [folder]) + _FOLDERS
    specs: dict[str, ModuleSpec | None] = {}
    modules: dict[str, Module] = {}
    waiting = [(source, "")]
    while waiting:
        text, package = waiting.pop()
        folders = _places(specs[package]) if package else [folder] if folder is not None else []
        names = (accumulate(name.split("."), "{}.{}".format) for name in _imported(text, package, folders))
        for module in chain.from_iterable(names):  # the packages of the module, then the module itself
            if module in specs:
                continue
            spec = specs[module] = _spec(module, path, specs)
            if spec is None or not spec.has_location or spec.origin is None:
                continue
            try:
                content = Path(spec.origin).read_bytes()
            except OSError:
                continue
            if len(modules) == _MOST:
                raise CodeError(f"{file}: expected at most {_MOST} modules beside it, found more; install a package")
            modules[module] = Module(spec.origin, hashlib.sha256(content).hexdigest()[:_DIGEST])
            inside = module if spec.submodule_search_locations is not None else module.rpartition(".")[0]
            if spec.origin.endswith(".py"):
                waiting.append((content.decode("utf-8", "replace"), inside))
    return dict(sorted(modules.items()))


def check_loaded(file: str, known: dict[str, Module], before: set[str]) -> None:
    """Refuse a user's module that was loaded after ``before`` and that :func:`modules_of` did not find (``known``).

    Raises CodeError with the name of the module and advice.
    """
    for name in sys.modules.keys() - before - known.keys():
        path = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(path, str) and is_users_file(path, name):
            above = Path(path).parents[name.count(".") + (Path(path).stem == "__init__")]
            raise CodeError(
                f"{file}: expected imports from beside it, found {name} of {path}, whose changes the lab cannot see: "
                f"set PYTHONPATH={above} or install it"
            )


def _folder(file: str) -> str | None:
    return str(Path(file).parent) if file.endswith(".py") else None


def _spec(name: str, path: list[str], specs: dict[str, ModuleSpec | None]) -> ModuleSpec | None:
    """Find the import spec of a module of the user's own; None for every other module."""
    above = name.rpartition(".")[0]
    if name in sys.stdlib_module_names:
        return None
    try:
        spec = PathFinder.find_spec(name, _places(specs[above]) if above else path)
        for finder in sys.meta_path if spec is None and not above else ():
            spec = spec or finder.find_spec(name, None)  # this finds editable packages too
    except (ImportError, ValueError, AttributeError):
        return None
    places = [spec.origin] if spec is not None and spec.origin is not None else _places(spec)
    return spec if all(is_users_file(place, name) for place in places) else None


def _places(spec: ModuleSpec | None) -> list[str]:
    """Return the folders of a package; none for other modules."""
    return list(getattr(spec, "submodule_search_locations", None) or ())


def _all_in(places: Sequence[str], package: str) -> list[str]:
    """List the names of all modules in a package; for a file outside packages, of all modules beside the file."""
    files = ((file, place) for place in places for file in Path(place).glob("**/*.py" if package else "*.py"))
    names = (".".join((package, *file.relative_to(place).with_suffix("").parts)) for file, place in files)
    return [name.lstrip(".").removesuffix(".__init__") for name in names]


def _imported(text: str, package: str, places: Sequence[str]) -> Iterator[str]:
    """Yield the full names that a source imports; if it computes a name to import, also all modules in ``places``."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # the import of the module raises this error
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names = [base, *(f"{base}{'' if base.endswith('.') else '.'}{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _IMPORTS and node.args:
            argument = getattr(node.args[0], "value", None)
            names = [argument] if isinstance(argument, str) else _all_in(places, package)
        for name in names:
            try:
                full = resolve_name(name, package or None) if name.startswith(".") else name
            except ImportError:
                continue
            if full and "*" not in full:
                yield full
