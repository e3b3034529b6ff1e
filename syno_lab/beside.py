"""The modules of the user's own that a text imports: found without running it, and told apart by what they hold.

A file is known by its text; a network of it depends on what the file imports from beside it too. All such modules
count, and those that they import: of the file's folder, of packages there, and of other places that Python looks in.
Those of Python and of installed packages do not.
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
_MOST = 2000  # modules
_IMPORTS = ("import_module", "__import__")
#: Folders that :func:`look_beside` has put at the end of ``sys.path``, the last one first.
_FOLDERS: list[str] = []


@dataclass(frozen=True)
class Module:
    """A module of the user's own: its file, and the hash of what is in it."""

    file: str
    digest: str


def look_beside(file: str) -> None:
    """Let imports find what is beside a file, after everything else but what is beside files looked at earlier."""
    folder = _folder(file)
    if folder is None or (folder in sys.path and folder not in _FOLDERS):
        return
    sys.path[:] = [one for one in sys.path if one not in _FOLDERS]
    _FOLDERS[:] = [folder, *(one for one in _FOLDERS if one != folder)]
    sys.path += _FOLDERS


def modules_of(source: str, file: str) -> dict[str, Module]:
    """The modules of the user's own that a text imports, directly or through others, by their names.

    Args:
        source: the text.
        file: that it is in; modules beside a ``.py`` file are found after all others.

    Raises CodeError for more modules than are looked at.
    """
    importlib.invalidate_caches()
    folder = _folder(file)
    path = [one for one in sys.path if one not in _FOLDERS] + ([] if folder is None else [folder]) + _FOLDERS
    specs: dict[str, ModuleSpec | None] = {}
    found: dict[str, Module] = {}
    waiting = [(source, "")]
    while waiting:
        text, package = waiting.pop()
        places = _places(specs[package]) if package else [folder] if folder is not None else []
        names = (accumulate(name.split("."), "{}.{}".format) for name in _imported(text, package, places))
        for one in chain.from_iterable(names):  # the packages that a module is in, and the module
            if one in specs:
                continue
            spec = specs[one] = _spec(one, path, specs)
            if spec is None or not spec.has_location or spec.origin is None:
                continue
            try:
                content = Path(spec.origin).read_bytes()
            except OSError:
                continue
            if len(found) == _MOST:
                raise CodeError(f"{file}: expected at most {_MOST} modules beside it, found more; install a package")
            found[one] = Module(spec.origin, hashlib.sha256(content).hexdigest()[:_DIGEST])
            inside = one if spec.submodule_search_locations is not None else one.rpartition(".")[0]
            if spec.origin.endswith(".py"):
                waiting.append((content.decode("utf-8", "replace"), inside))
    return dict(sorted(found.items()))


def check_loaded(file: str, known: dict[str, Module], before: set[str]) -> None:
    """Refuse a module of the user's own beside those ``before`` the file ran and what :func:`modules_of` has found.

    Raises CodeError with the module, and how it can be found.
    """
    for name in sys.modules.keys() - before - known.keys():
        place = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(place, str) and is_users_file(place, name):
            above = Path(place).parents[name.count(".") + (Path(place).stem == "__init__")]
            raise CodeError(
                f"{file}: expected imports from beside it, found {name} of {place}, whose changes would not be seen: "
                f"set PYTHONPATH={above} or install it"
            )


def _folder(file: str) -> str | None:
    return str(Path(file).parent) if file.endswith(".py") else None


def _spec(name: str, path: list[str], specs: dict[str, ModuleSpec | None]) -> ModuleSpec | None:
    """Where a module of the user's own is; None for all others."""
    above = name.rpartition(".")[0]
    if name in sys.stdlib_module_names:
        return None
    try:
        spec = PathFinder.find_spec(name, _places(specs[above]) if above else path)
        for finder in sys.meta_path if spec is None and not above else ():
            spec = spec or finder.find_spec(name, None)  # packages that are installed to be edited
    except (ImportError, ValueError, AttributeError):
        return None
    places = [spec.origin] if spec is not None and spec.origin is not None else _places(spec)
    return spec if all(is_users_file(place, name) for place in places) else None


def _places(spec: ModuleSpec | None) -> list[str]:
    """The folders of a package; none for other modules."""
    return list(getattr(spec, "submodule_search_locations", None) or ())


def _all_in(places: Sequence[str], package: str) -> list[str]:
    """The names of all modules of a package, or of those beside a file that is in none."""
    files = ((file, place) for place in places for file in Path(place).glob("**/*.py" if package else "*.py"))
    names = (".".join((package, *file.relative_to(place).with_suffix("").parts)) for file, place in files)
    return [name.lstrip(".").removesuffix(".__init__") for name in names]


def _imported(text: str, package: str, places: Sequence[str]) -> Iterator[str]:
    """The full names of all that a text imports, modules or not; where it makes names as it runs, all in ``places``."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # its import will say so
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names = [base, *(f"{base}{'' if base.endswith('.') else '.'}{one.name}" for one in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _IMPORTS and node.args:
            said = getattr(node.args[0], "value", None)
            names = [said] if isinstance(said, str) else _all_in(places, package)
        for name in names:
            try:
                full = resolve_name(name, package or None) if name.startswith(".") else name
            except ImportError:
                continue
            if full and "*" not in full:
                yield full
