"""A user's function as text that another process can import: without pickle, and only the user's own code.

A function from a notebook cell or a module is sent as its own source, with what it needs around it: modules that it
names are imported, the user's functions that it calls are sent with it, plain constants are written out. A tuning
writes the text to a file in its work folder, which only the tuning process runs. A function can also be named as
``file.py:function``.
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
#: The digests of modules of the user's own that this process has imported, by their names.
_LOADED: dict[str, str] = {}


class UserCode(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The function ``name`` in a Python file with the text ``source``; ``origin`` says where it comes from.

    ``modules``: names and digests of the modules of the user's own that the text imports (:mod:`.beside`), as
    ``blocks=3f2a… other=…``. Whoever reads code from a job or a file must check that the user has signed or named it.
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
        """The code of a text as it is now, with the digests of the modules that it imports."""
        modules = modules_of(source, origin)
        return cls(name, source, origin, " ".join(f"{one}={found.digest}" for one, found in modules.items()))

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the modules by their names."""
        return {name: digest for name, _, digest in (one.rpartition("=") for one in self.modules.split())}

    @property
    def digest(self) -> str:
        """A hash by which records distinguish two functions of one name."""
        modules = "".join(f"\0{name} {digest}" for name, digest in self.digests.items())
        return hashlib.sha256((self.source + modules).encode()).hexdigest()[:_DIGEST]

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}"

    @classmethod
    def from_dict(cls, found: object) -> UserCode:
        """The code in plain data. Raises CodeError for any other data."""
        try:
            return msgspec.convert(found, cls)
        except msgspec.ValidationError:
            raise CodeError(f"expected code as its name, source and origin, found {quoted(found)}") from None

    def write(self, folder: Path) -> dict[str, str]:
        """Write the text to a file in ``folder``; return its entry for the tuning process. Raises CodeError."""
        path = folder / f"{self.name}-{self.digest}.py"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(self.source, encoding="utf-8")
        except OSError as error:
            raise CodeError(f"{quoted(self.name)} cannot be written to {path}: {error.strerror or error}") from None
        return {"name": self.name, "file": str(path.resolve()), "origin": self.origin}

    def function(self) -> Callable[..., Any]:
        """:meth:`value`, which must be a function, a class or another object that can be called. Raises CodeError."""
        found = self.value()
        if not callable(found):
            raise CodeError(f"expected a function {quoted(self.name)} in {self.origin}, found {kind_of(found)}")
        return cast("Callable[..., Any]", found)

    def value(self) -> Any:
        """Run the text in this process, and return what has the name. Call it only for code that the user has named.

        Modules beside the file that it came from can be imported, after all others. Raises CodeError where the code
        raises an exception or ends the process, one line with it and the line of the file; and where a module that it
        imports is another than when the code was named.
        """
        known = modules_of(self.source, self.origin)
        now = {(name, found.digest) for name, found in known.items()}
        if changed := sorted({name for name, _ in now ^ set(self.digests.items())}):
            raise CodeError(
                f"{self.origin}: expected the modules that it imports as they were when it was named, found "
                f"{', '.join(changed[:_MOST_LISTED])} changed, new or gone; name the file again"
            )
        loaded = {name: found for name, found in known.items() if name in sys.modules}
        if any(
            getattr(sys.modules[name], "__file__", None) != found.file
            or _LOADED.get(name, found.digest) != found.digest
            for name, found in loaded.items()
        ):
            for name in loaded:  # one is of another folder, or has changed since, and others may hold what was in it
                del sys.modules[name]
        _LOADED.update(self.digests)
        module = ModuleType(f"syno_user_{self.digest}")
        module.__file__ = self.origin
        sys.modules[module.__name__] = module  # dataclasses and copies look a class's module up by its name
        before = set(sys.modules)
        look_beside(self.origin)
        try:
            with patient(self.origin), blamed(self.origin), guest(self.origin):
                exec(compile(self.source, self.origin, "exec"), module.__dict__)  # noqa: S102 - the user has named it
            check_loaded(self.origin, known, before)
            if self.name not in module.__dict__:
                raise CodeError(f"expected {quoted(self.name)} in {self.origin}, found none when it had run")
        except BaseException:
            sys.modules.pop(module.__name__, None)
            raise
        return module.__dict__[self.name]


def user_code(found: UserCode | Callable[..., Any] | str, *, is_class: bool = False) -> UserCode:
    """``found`` as text: a function, or ``file.py:function``; with ``is_class`` a class.

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
    bound = {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}
    is_other = is_class and any(isinstance(one, ast.FunctionDef) and one.name == name for one in tree.body)
    takes_all = any(isinstance(one, ast.ImportFrom) and one.names[0].name == "*" for one in ast.walk(tree))
    if is_other or (name not in bound and not takes_all):
        there = [one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
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
    # So that annotations may name TVM's types, which the file does not import.
    source = "from __future__ import annotations\n\n" + "\n".join(parts.values())
    return UserCode.of(function.__name__, source, function.__module__)


def _from_class(found: object) -> UserCode:
    """A class with the names that its text uses; its source is found by a method's, as notebooks have no file."""
    methods = [one for one in vars(found).values() if isinstance(one, FunctionType)] if inspect.isclass(found) else []
    if not inspect.isclass(found) or not methods:
        raise CodeError(f"expected a class with methods, or 'file.py:Class', found {quoted(found)}")
    name, code = found.__name__, methods[0].__code__
    lines = linecache.getlines(code.co_filename, methods[0].__globals__)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:  # a cell with magics, in which Python's text begins later
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
    around = {**methods[0].__globals__, **inspect.getclosurevars(methods[0]).nonlocals}
    used = {node.id for node in ast.walk(nodes[0]) if isinstance(node, ast.Name)} - {name}
    parts: dict[str, str] = {}
    for one in sorted(used & around.keys()):
        try:
            _collect(one, around[one], parts)
        except CodeError as error:
            raise CodeError(f"{error}, which {quoted(name)} uses: write it inside that class") from None
    source = "from __future__ import annotations\n\n" + "\n".join([*parts.values(), text])
    return UserCode.of(name, source, found.__module__)


def _collect(alias: str, value: object, parts: dict[str, str]) -> None:
    """Add the definition of ``alias`` to ``parts``, after the definitions that it uses at once."""
    if alias in parts:
        return
    if isinstance(value, ModuleType):
        parts[alias] = f"import {value.__name__} as {alias}\n"
    elif isinstance(value, FunctionType) and _is_users(value):
        parts[alias] = ""  # keeps its position; the function may call itself
        text = _definition(value, alias)
        around = {**value.__globals__, **inspect.getclosurevars(value).nonlocals}
        for name in sorted(set(_names(value.__code__)) | set(value.__code__.co_freevars)):
            if name in around:
                try:
                    _collect(name, around[name], parts)
                except CodeError as error:
                    raise CodeError(
                        f"{error}, which {quoted(value.__name__)} uses: write it inside that function"
                    ) from None
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


def _is_users(function: FunctionType) -> bool:
    """Whether a function is the user's; functions of installed packages are imported instead."""
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
    """The global names that a function and its inner functions read."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list | set | frozenset):
        return all(_is_plain(one) for one in value) and (bool(value) or not isinstance(value, set | frozenset))
    if isinstance(value, dict):
        return all(_is_plain(one) for entry in value.items() for one in entry)
    # A subclass may be written in another way, and "inf" is a name.
    return type(value) in _PLAIN and not (isinstance(value, float) and not math.isfinite(value))
