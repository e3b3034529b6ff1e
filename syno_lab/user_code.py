"""Convert a user's function to source text that another process can import: no pickle, and only the user's own code.

A function from a notebook cell or a module is sent as source. The source has all that the function needs: imports of
modules, the user's functions that it calls, and plain constants as literals. A tuning writes the source to a file in
its work folder, and only the tuning process runs it. A function can also be named as ``file.py:function``.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import linecache
import math
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

import msgspec

from syno_lab.beside import check_loaded, look_beside, modules_of
from syno_lab.blame import blamed, guest, is_users_file
from syno_lab.errors import CodeError
from syno_lab.inputs import kind_of, quoted
from syno_lab.patience import patient

_DIGEST = 12
_PLAIN = (bool, int, float, str, bytes, type(None))
_MOST_LISTED = 5
#: The digests of the user's own modules that this process has imported, by their names.
_LOADED: dict[str, str] = {}


class UserCode(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The function ``name`` in the Python text ``source``; ``origin`` is the file or module of the source.

    ``modules``: names and digests of the user's own modules that the source imports (:mod:`.beside`), as ``blocks=3f2a…
    other=…``. A caller that reads code from a job or a file must check that the user has signed or named the code.
    """

    name: str
    source: str
    origin: str
    modules: str = ""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise CodeError(f"expected the name of a function or a class, found {quoted(self.name)}")

    @classmethod
    def of(cls, name: str, source: str, origin: str) -> UserCode:
        """Create the value for a source, with the digests of the modules that the source imports now."""
        modules = modules_of(source, origin)
        return cls(name, source, origin, " ".join(f"{key}={module.digest}" for key, module in modules.items()))

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the modules by their names."""
        return {name: digest for name, _, digest in (entry.rpartition("=") for entry in self.modules.split())}

    @property
    def digest(self) -> str:
        """A hash by which records distinguish two functions with the same name."""
        modules = "".join(f"\0{name} {digest}" for name, digest in self.digests.items())
        return hashlib.sha256((self.source + modules).encode()).hexdigest()[:_DIGEST]

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}"

    @classmethod
    def from_dict(cls, found: object) -> UserCode:
        """Convert plain data to code. Raises CodeError for data of another form."""
        try:
            return msgspec.convert(found, cls)
        except msgspec.ValidationError:
            raise CodeError(f"expected code as its name, source and origin, found {quoted(found)}") from None

    def write(self, folder: Path) -> dict[str, str]:
        """Write the source to a file in ``folder``; return the entry for the tuning process. Raises CodeError."""
        path = folder / f"{self.name}-{self.digest}.py"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(self.source, encoding="utf-8")
        except OSError as error:
            raise CodeError(f"{quoted(self.name)} cannot be written to {path}: {error.strerror or error}") from None
        return {"name": self.name, "file": str(path.resolve()), "origin": self.origin}

    def function(self) -> Callable[..., Any]:
        """Return :meth:`value`. Raises CodeError if the value is not callable."""
        value = self.value()
        if not callable(value):
            raise CodeError(f"expected a function {quoted(self.name)} in {self.origin}, found {kind_of(value)}")
        return cast("Callable[..., Any]", value)

    def value(self) -> Any:
        """Run the source in this process and return the value of the name. The user must have named the code.

        The source can import modules beside its file; ``sys.path`` has priority. Raises CodeError in one line if the
        code fails or ends the process, or if an imported module has changed since the code was named.
        """
        known = modules_of(self.source, self.origin)
        now = {(name, record.digest) for name, record in known.items()}
        if changed := sorted({name for name, _ in now ^ set(self.digests.items())}):
            raise CodeError(
                f"{self.origin}: expected the modules that it imports as they were when it was named, found "
                f"{', '.join(changed[:_MOST_LISTED])} changed, new or gone; name the file again"
            )
        loaded = {name: module_ for name, module_ in known.items() if name in sys.modules}
        if any(
            getattr(sys.modules[name], "__file__", None) != module_record.file
            or _LOADED.get(name, module_record.digest) != module_record.digest
            for name, module_record in loaded.items()
        ):
            for name in loaded:  # unchanged modules may hold old values of changed modules
                del sys.modules[name]
        _LOADED.update(self.digests)
        module = ModuleType(f"syno_user_{self.digest}")
        module.__file__ = self.origin
        sys.modules[module.__name__] = module  # dataclasses and copies look up a class's module by its name
        before = set(sys.modules)
        look_beside(self.origin)
        try:
            with patient(self.origin), blamed(self.origin), guest(self.origin):
                exec(compile(self.source, self.origin, "exec"), module.__dict__)  # noqa: S102 - the user has named it
            check_loaded(self.origin, known, before)
            if self.name not in module.__dict__:
                raise CodeError(f"expected {quoted(self.name)} in {self.origin}, found none after it ran")
        except BaseException:
            sys.modules.pop(module.__name__, None)
            raise
        return module.__dict__[self.name]


def user_code(found: UserCode | Callable[..., Any] | str, *, is_class: bool = False) -> UserCode:
    """Convert a function, a class (with ``is_class``) or the text ``file.py:function`` to code.

    Raises CodeError for a lambda, a decorated function or a method, for a name whose value cannot be written as text,
    and for a missing file or function.
    """
    if isinstance(found, UserCode):
        return found
    if isinstance(found, str):
        return _from_file(found, is_class)
    return _from_class(found) if is_class else _from_function(found)


def _from_file(text: str, is_class: bool) -> UserCode:
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise CodeError(f"expected a function as 'file.py:function', found {quoted(text)}")
    try:
        source = Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CodeError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        tree = ast.parse(source)
        symbols = symtable.symtable(source, file, "exec").get_symbols()
    except SyntaxError as error:
        raise CodeError(f"{file}, line {error.lineno}: {error.msg}") from None
    bound = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    is_other = is_class and any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)
    takes_all = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree))
    if is_other or (name not in bound and not takes_all):
        there = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        has = f"; it has {', '.join(there[:_MOST_LISTED])}" if there else ""
        raise CodeError(f"expected a {'class' if is_class else 'function'} {quoted(name)} in {file}, found none{has}")
    return UserCode.of(name, source, str(Path(file).expanduser().absolute()))


def _from_function(function: Callable[..., Any]) -> UserCode:
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise CodeError(
            f"expected a function written with def, or 'file.py:function', found {kind_of(function)} {quoted(function)}"
        )
    parts: dict[str, str] = {}
    _collect(function.__name__, function, parts)
    # Annotations may then name TVM's types, which the file does not import.
    source = "from __future__ import annotations\n\n" + "\n".join(parts.values())
    return UserCode.of(function.__name__, source, function.__module__)


def _from_class(found: object) -> UserCode:
    """Convert a class and the names that it uses; find its source by the code object of a method, also in notebooks."""
    methods = [v for v in vars(found).values() if isinstance(v, FunctionType)] if inspect.isclass(found) else []
    if not inspect.isclass(found) or not methods:
        raise CodeError(f"expected a class with methods, or 'file.py:Class', found {quoted(found)}")
    name, code = found.__name__, methods[0].__code__
    lines = linecache.getlines(code.co_filename, methods[0].__globals__)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:  # in a cell with magics, the Python source begins on a later line
        tree = ast.Module([], [])
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and node.name == name
        and node.lineno <= code.co_firstlineno <= (node.end_lineno or 0)
    ]
    if len(nodes) != 1 or nodes[0].decorator_list:
        raise CodeError(
            f"the source of the class {quoted(name)} cannot be found: write it without decorators in a notebook cell "
            "or a file, not at a prompt"
        )
    text = textwrap.dedent("".join(lines[nodes[0].lineno - 1 : nodes[0].end_lineno]))
    used = {node.id for node in ast.walk(nodes[0]) if isinstance(node, ast.Name)} - {name}
    parts: dict[str, str] = {}
    _collect_used(used, methods[0], parts, f"{quoted(name)} uses: write it inside that class")
    source = "from __future__ import annotations\n\n" + "\n".join([*parts.values(), text])
    return UserCode.of(name, source, found.__module__)


def _collect(alias: str, value: object, parts: dict[str, str]) -> None:
    """Add the definition of ``alias`` to ``parts``, after the definitions that it needs on import."""
    if alias in parts:
        return
    if isinstance(value, ModuleType):
        parts[alias] = f"import {value.__name__} as {alias}\n"
    elif isinstance(value, FunctionType) and _is_users(value):
        parts[alias] = ""  # reserve the position, because the function may call itself
        text = _definition(value, alias)
        used = {*_names(value.__code__), *value.__code__.co_freevars}
        _collect_used(used, value, parts, f"{quoted(value.__name__)} uses: write it inside that function")
        del parts[alias]
        parts[alias] = text
    elif inspect.isfunction(value) or inspect.isclass(value) or inspect.isbuiltin(value):
        if getattr(value, "__module__", "__main__") == "__main__" or "." in value.__qualname__:
            raise CodeError(f"cannot send {quoted(alias)}, {kind_of(value)} of the notebook")
        parts[alias] = f"from {value.__module__} import {value.__qualname__} as {alias}\n"
    elif _is_plain(value):
        parts[alias] = f"{alias} = {value!r}\n"
    else:
        raise CodeError(f"cannot send {quoted(alias)}, {kind_of(value)}")


def _collect_used(names: set[str], function: FunctionType, parts: dict[str, str], user: str) -> None:
    """Add the definitions of the names that ``function`` can see; ``user`` ends the message of a refusal."""
    around = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for name in sorted(names & around.keys()):
        try:
            _collect(name, around[name], parts)
        except CodeError as error:
            raise CodeError(f"{error}, which {user}") from None


def _is_users(function: FunctionType) -> bool:
    """Return whether a function is the user's own; functions of installed packages are imported instead."""
    file = function.__code__.co_filename
    return file.startswith("<") or is_users_file(file)


def _definition(function: FunctionType, alias: str) -> str:
    name = function.__name__
    try:
        text = textwrap.dedent(inspect.getsource(function)).rstrip() + "\n"
    except (OSError, TypeError):
        raise CodeError(
            f"the source of {quoted(name)} cannot be found: write it in a notebook cell or a file, not at a prompt"
        ) from None
    tree = ast.parse(text)
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef) or node.decorator_list or name == "<lambda>":
        raise CodeError(f"expected {quoted(name)} to be a function written with def and without decorators")
    for default in [*node.args.defaults, *node.args.kw_defaults]:
        if default is not None and not isinstance(default, ast.Constant):
            raise CodeError(
                f"expected the defaults of {quoted(name)} to be constants, found {quoted(ast.unparse(default))}"
            )
    # If the function is used under another name, define that name as well.
    return text + ("" if alias == name else f"\n\n{alias} = {name}\n") + "\n"


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function and its inner functions read."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list | set | frozenset):
        return all(_is_plain(item) for item in value) and (bool(value) or not isinstance(value, set | frozenset))
    if isinstance(value, dict):
        return all(_is_plain(item) for entry in value.items() for item in entry)
    # The repr of a subclass may differ, and the repr of infinity is the name inf.
    return type(value) in _PLAIN and not (isinstance(value, float) and not math.isfinite(value))
