"""Networks, data and primitives of the user's own: which code may run in this process, and who said so.

A request names a network or data of the user's own (``own:make_model@DIGEST``) and may carry the functions that make
them, as text. The text alone runs nothing: a request may come from a file. :func:`bring` runs it, and is called where
the user has named the file (a command, a call), in the process of a job whose signature holds, and in a process of
trials, which its own parent asks.
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
#: The role of the function of a primitive of the user's own, before the primitive's name.
PRIMITIVE = "primitive:"
#: The code that this process has run, by the names under which it offers what the code makes.
_BROUGHT: dict[str, UserCode] = {}


def name_of(code: UserCode) -> str:
    """The name of what a function of the user's own makes: another text is another name."""
    return f"{OWN}{code}"


def codes_of(request: TrialRequest) -> dict[str, tuple[str, UserCode]]:
    """By ``model``, ``data`` and ``primitive:NAME``, the name in the request and the code that it carries for it.

    Raises CodeError: it carries code for another name.
    """
    found = {}
    for role, code in (request.own or {}).items():
        name = {MODEL: request.backbone, DATA: request.data}.get(role)
        if role.startswith(PRIMITIVE):  # operators have its name and its digest, which are compared when they are read
            name = f"{role} {code}"
        elif name != name_of(code):
            raise CodeError(
                f"expected the code of {quoted(name)} as {quoted(role)}, found that of {quoted(name_of(code))}"
            )
        found[role] = name, code
    return found


def bring(request: TrialRequest) -> None:
    """Run the request's code in this process, once, and offer the network and the data that its functions make.

    Only for code that the user has named, or whose job they have signed. The functions are called on use; where they
    fail or return something else, that raises CodeError or DataError.

    Raises CodeError: the code cannot be run.
    """
    for role, (name, code) in codes_of(request).items():
        if _BROUGHT.get(name) == code:
            continue
        with torch.random.fork_rng(devices=[]):  # what a file draws as it is run is the same in each process
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
    """How a message begins that is about what a file of the user's makes, ``make_model of net.py: ``; else empty."""
    code = _BROUGHT.get(name)
    return "" if code is None else f"{code.name} of {code.origin}: "


def with_primitives(request: TrialRequest) -> TrialRequest:
    """The request with the code of this process's own primitives, so that other processes can read operators with them.

    Raises CodeError: the source of one of them cannot be found.
    """
    codes = {f"{PRIMITIVE}{one.name}": user_code(one.function) for one in own_primitives()}
    if not codes:
        return request
    _BROUGHT.update({f"{role} {code}": code for role, code in codes.items()})  # they are in this process already
    return msgspec.structs.replace(request, own={**(request.own or {}), **codes})


def check_brought(request: TrialRequest) -> None:
    """Refuse code that this process has not run: a file that it has read must not have another process run it.

    Raises CodeError with the function's name.
    """
    for name, code in codes_of(request).values():
        if _BROUGHT.get(name) != code:
            raise CodeError(f"expected code that this process was given, found {quoted(name)}; name its file again")


def needs_this_process(request: TrialRequest) -> bool:
    """Whether the request names a network or data that no text makes: an object of a notebook, which stays there."""
    own = request.own or {}
    names = {MODEL: request.backbone, DATA: request.data}
    return any(name.startswith(OWN) and role not in own for role, name in names.items())


def checked(function: Callable[[], Any], name: str, origin: str) -> Callable[[], nn.Module]:
    """``function`` as a builder of networks: it raises CodeError where it fails or returns something else."""

    def build() -> nn.Module:
        found = _called(function, name, origin)
        if not isinstance(found, nn.Module):
            raise CodeError(f"expected a torch.nn.Module from {name} of {origin}, found {quoted(found)}")
        if "_modules" not in vars(found):
            raise CodeError(
                f"{name} of {origin}: expected a module whose __init__ calls super().__init__(), found none"
            )
        return uncompiled(found)

    return build


def _made(value: Any) -> Any:
    """What a name in a file stands for as a network: what it gives when it is called, or a copy of a module."""
    if isinstance(value, nn.Module):
        return copied(value)
    return value() if callable(value) else value


def _loaded(value: Any, name: str, origin: str) -> OwnData:
    # Parts that are drawn at random are the same in each process.
    with patient(f"the data of {origin}"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return OwnData.of(_called(value, name, origin) if callable(value) else value, name)


def _called(function: Callable[[], Any], name: str, origin: str) -> Any:
    where = f"{name} of {origin}"
    with patient(where), blamed(where), guest(origin):
        return function()
