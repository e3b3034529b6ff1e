"""A user's function as text that the tuning process can import: no pickle, and nothing but what the user wrote.

A function from a notebook cell or a module is sent as its own source, with what it needs around it: modules that it
names are imported, functions beside it are sent with it, plain constants are written out. It is put into a file in the
work folder, which is run in the tuning process alone. A function can also be named as ``file.py:function``.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from syno_lab.errors import TuningError

_DIGEST = 12
_PLAIN = (bool, int, float, str, bytes, type(None))


@dataclass(frozen=True)
class UserCode:
    """The function ``name`` in a Python file with the text ``source``; ``origin`` says where it comes from."""

    name: str
    source: str
    origin: str

    @property
    def digest(self) -> str:
        """By this records tell two texts of one name apart."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:_DIGEST]

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}"

    def write(self, folder: Path) -> dict[str, str]:
        """Put the text into a file in ``folder``; what the tuning process is told of it. Raises TuningError."""
        path = folder / f"{self.name}-{self.digest}.py"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(self.source, encoding="utf-8")
        except OSError as error:
            raise TuningError(f"{self.name!r} cannot be written to {path}: {error.strerror or error}") from None
        return {"name": self.name, "file": str(path.resolve()), "origin": self.origin}


def user_code(found: UserCode | Callable[..., Any] | str) -> UserCode:
    """``found`` as text: a function, or ``file.py:function``.

    Raises:
        TuningError: for a lambda, a decorated function or a method, for a name that stands for something which cannot
            be written as text, and for a file or function that is not there.
    """
    if isinstance(found, UserCode):
        return found
    if isinstance(found, str):
        return _from_file(found)
    return _from_function(found)


def _from_file(text: str) -> UserCode:
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise TuningError(f"expected a function as 'file.py:function', found {text!r}")
    try:
        source = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TuningError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise TuningError(f"{file}, line {error.lineno}: {error.msg}") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
        raise TuningError(f"expected a function {name!r} in {file}, found none")
    return UserCode(name, source, file)


def _from_function(function: Callable[..., Any]) -> UserCode:
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise TuningError(
            f"expected a function written with def, or 'file.py:function', found {_kind(function)} {function!r}"
        )
    parts: dict[str, str] = {}
    _collect(function.__name__, function, parts)
    # Annotations name types of TVM, which the file need not import.
    source = "from __future__ import annotations\n\n" + "\n".join(parts.values())
    return UserCode(function.__name__, source, function.__module__)


def _collect(alias: str, value: object, parts: dict[str, str]) -> None:
    """Add what defines ``alias`` to ``parts``, which is in order: what a definition runs at once comes before it."""
    if alias in parts:
        return
    if isinstance(value, ModuleType):
        parts[alias] = f"import {value.__name__} as {alias}\n"
    elif isinstance(value, FunctionType) and _is_users(value):
        parts[alias] = ""  # its place: it may call itself
        text = _definition(value, alias)
        around = {**value.__globals__, **inspect.getclosurevars(value).nonlocals}
        for name in sorted(set(_names(value.__code__)) | set(value.__code__.co_freevars)):
            if name in around:
                try:
                    _collect(name, around[name], parts)
                except TuningError as error:
                    raise TuningError(
                        f"{error}, which {value.__name__!r} uses: write it inside that function"
                    ) from None
        del parts[alias]
        parts[alias] = text
    elif inspect.isfunction(value) or inspect.isclass(value) or inspect.isbuiltin(value):
        if getattr(value, "__module__", "__main__") == "__main__" or "." in value.__qualname__:
            raise TuningError(f"cannot send {alias!r}, {_kind(value)} of the notebook")
        parts[alias] = f"from {value.__module__} import {value.__qualname__} as {alias}\n"
    elif _is_plain(value):
        parts[alias] = f"{alias} = {value!r}\n"
    else:
        raise TuningError(f"cannot send {alias!r}, {_kind(value)}")


def _is_users(function: FunctionType) -> bool:
    """Whether a function is not a library's: those of installed packages are imported."""
    path = function.__code__.co_filename
    return "site-packages" not in path and not path.startswith(str(Path(dis.__file__).parent))


def _definition(function: FunctionType, alias: str) -> str:
    name = function.__name__
    try:
        text = textwrap.dedent(inspect.getsource(function)).rstrip() + "\n"
    except (OSError, TypeError):
        raise TuningError(
            f"the source of {name!r} cannot be found: write it in a notebook cell or a file, not at a prompt"
        ) from None
    tree = ast.parse(text)
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef) or node.decorator_list or name == "<lambda>":
        raise TuningError(f"expected {name!r} to be a function written with def and without decorators")
    arguments = node.args
    if arguments.defaults or any(one is not None for one in arguments.kw_defaults):
        for default in [*arguments.defaults, *arguments.kw_defaults]:
            if default is not None and not isinstance(default, ast.Constant):
                raise TuningError(f"expected the defaults of {name!r} to be constants, found {ast.unparse(default)}")
    # Where another name stands for it, that name must be defined as well.
    return text + ("" if alias == name else f"\n\n{alias} = {name}\n") + "\n"


def _names(code: CodeType) -> Iterator[str]:
    """The global names that a function reads, those of functions inside it included."""
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


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
