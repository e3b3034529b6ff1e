"""Networks, data and primitives of the user's own, and the conditions for running their code in this process.

A request names a network or data of the user's own (``own:make_model@DIGEST``), and may carry their functions as text.
Reading a request runs none of its text, because the request may come from a file. :func:`bring` runs the text. Callers
of :func:`bring` are a process whose user has named the file, a job with a valid signature, and a trial's process whose
parent process has run the text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import torch
from torch import nn

from syno_lab.blame import blamed, guest
from syno_lab.copies import copied, uncompiled
from syno_lab.data.own import OwnData
from syno_lab.data.own import offer as offer_data
from syno_lab.errors import CodeError
from syno_lab.inputs import quoted
from syno_lab.ir.primitives import add_primitive, own_primitives
from syno_lab.models.registry import OWN
from syno_lab.models.registry import offer as offer_network
from syno_lab.patience import patient
from syno_lab.trial.request import TrialRequest
from syno_lab.user_code import UserCode, user_code

MODEL, DATA = "model", "data"
#: The prefix of a role, before the name of a primitive of the user's own.
PRIMITIVE = "primitive:"
#: The code that this process has run, by the registered name of the network, data or primitive that it makes.
_BROUGHT: dict[str, UserCode] = {}


def name_of(code: UserCode) -> str:
    """Return the name of a network or data of the user's own; functions with different texts have different names."""
    return f"{OWN}{code}"


def codes_of(request: TrialRequest) -> dict[str, tuple[str, UserCode]]:
    """Return the name and code of each of the user's own functions, by role: ``model``, ``data``, ``primitive:NAME``.

    Raises CodeError if the code differs from the code of the network or data that the request names.
    """
    codes = {}
    for role, code in (request.own or {}).items():
        name = {MODEL: request.backbone, DATA: request.data}.get(role)
        if role.startswith(PRIMITIVE):  # reading an operator checks a primitive's digest
            name = f"{role} {code}"
        elif name != name_of(code):
            raise CodeError(
                f"expected the code of {quoted(name)} as {quoted(role)}, found the code of {quoted(name_of(code))}"
            )
        codes[role] = name, code
    return codes


def bring(request: TrialRequest) -> None:
    """Run the request's code in this process, once, and register the network and the data that its functions make.

    Call this only for code that the user has named, or whose job the user has signed. The functions run on first use.
    If a function fails or returns a wrong value, the first use raises CodeError or DataError.

    Raises CodeError if the code cannot be run.
    """
    for role, (name, code) in codes_of(request).items():
        if _BROUGHT.get(name) == code:
            continue
        with torch.random.fork_rng(devices=[]):  # a file's random numbers are equal in all processes
            torch.manual_seed(0)
            value = code.function() if role.startswith(PRIMITIVE) else code.value()
        if role.startswith(PRIMITIVE):
            add_primitive(role.removeprefix(PRIMITIVE), value)
        elif role == MODEL:
            offer_network(name, checked(partial(_made, value), code.name, code.origin))
        else:
            offer_data(name, partial(_loaded, value, code.name, code.origin))
        _BROUGHT[name] = code


def whose(name: str) -> str:
    """Return the beginning of a message about a user's function, ``make_model of net.py: ``, or "" for other names."""
    code = _BROUGHT.get(name)
    return "" if code is None else f"{code.name} of {code.origin}: "


def with_primitives(request: TrialRequest) -> TrialRequest:
    """Return the request with the code of this process's primitives, for other processes that read operators with them.

    Raises CodeError if the source of a primitive cannot be found.
    """
    codes = {f"{PRIMITIVE}{primitive.name}": user_code(primitive.function) for primitive in own_primitives()}
    if not codes:
        return request
    _BROUGHT.update({f"{role} {code}": code for role, code in codes.items()})  # this process has run the code
    return msgspec.structs.replace(request, own={**(request.own or {}), **codes})


def check_brought(request: TrialRequest) -> None:
    """Refuse a request with code that this process has not run, so that a worker runs no code that was only read.

    Raises CodeError with the name of the function.
    """
    for name, code in codes_of(request).values():
        if _BROUGHT.get(name) != code:
            raise CodeError(f"expected code that this process has run, found {quoted(name)}; name its file again")


def needs_this_process(request: TrialRequest) -> bool:
    """Return whether the request names a network or data of this process alone, such as a notebook's object."""
    own = request.own or {}
    names = {MODEL: request.backbone, DATA: request.data}
    return any(name.startswith(OWN) and role not in own for role, name in names.items())


def checked(function: Callable[[], Any], name: str, origin: str) -> Callable[[], nn.Module]:
    """Return a builder of networks that calls ``function``; CodeError if ``function`` fails or returns no network."""

    def build() -> nn.Module:
        module = _called(function, name, origin)
        if not isinstance(module, nn.Module):
            raise CodeError(f"expected a torch.nn.Module from {name} of {origin}, found {quoted(module)}")
        if "_modules" not in vars(module):
            raise CodeError(
                f"{name} of {origin}: expected a module whose __init__ calls super().__init__(), found none"
            )
        return uncompiled(module)

    return build


def _made(value: Any) -> Any:
    """Return the network from a value in a user's file: the result of a function, or a copy of a module."""
    if isinstance(value, nn.Module):
        return copied(value)
    return value() if callable(value) else value


def _loaded(value: Any, name: str, origin: str) -> OwnData:
    # With a fixed seed, random splits of data are equal in all processes.
    with patient(f"the data of {origin}"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return OwnData.of(_called(value, name, origin) if callable(value) else value, name)


def _called(function: Callable[[], Any], name: str, origin: str) -> Any:
    where = f"{name} of {origin}"
    with patient(where), blamed(where), guest(origin):
        return function()
