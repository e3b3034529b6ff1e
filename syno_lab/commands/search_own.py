"""A network and data of the user's own in ``syno-lab search``; a continued search must name them again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from syno_lab.commands.output import say, tell
from syno_lab.commands.search_options import Choice, Network
from syno_lab.errors import SearchError, SynoError
from syno_lab.inputs import quoted
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.experiments import SearchSettings
    from syno_lab.trial import TrialRequest
    from syno_lab.user_code import UserCode

_ROLES = {"model": "--model", "data": "--dataset"}


def with_own(request: TrialRequest, network: Network, *, tries: bool = True) -> TrialRequest:
    """Add the network and the data of the user's own to the request, and the layers to replace.

    ``tries``: whether to try operators in the layers, and to print which layers stay unchanged and why. The files run
    in this process, because the user has named them. Raises SynoError in one line for errors in the files.
    """
    if network.model is None and network.dataset is None:
        if network.layers:
            raise SynoError("--layers: expected --model beside it, found none; --option match= is for other networks")
        return request
    from syno_lab.experiments.own import check_fit, choose

    request = _with_code(request, network)
    if network.model is not None:
        chosen = choose(request, network.layers, tell, tries=tries)
        request = chosen.request
        for line in chosen.stay:
            tell(line)
    if network.model is None or not tries:
        check_fit(request)
    # channels_last was tested only with the lab's own networks.
    return msgspec.structs.replace(request, channels_last=False)


def named_again(request: TrialRequest, network: Network) -> TrialRequest:
    """Return the request of a stored search with the code that the command line names, in place of the stored code.

    Code from a lab's folder runs only if the user names it again.

    Raises SearchError if the command does not name a file of the search, or names a file with another text.
    """
    own = request.own or {}
    named_code = {"model": network.model, "data": network.dataset}
    for role, option in _ROLES.items():
        if role in own and named_code[role] is None:
            origin = _named(own[role])
            raise SearchError(
                f"--continue: this search runs {origin}; code in a lab's folder is not run: read the file, and name it "
                f"again by {option} {origin}"
            )
        if role not in own and named_code[role] is not None:
            raise SearchError(f"--continue: expected no {option}: this search has none")
    named = _with_code(request, network)
    if (named.backbone, named.data) != (request.backbone, request.data):
        raise SearchError(
            "--continue: the file has changed since the search began: continue with the old file, or search the new "
            "file under another --name"
        )
    return named


def with_choice(settings: SearchSettings, choice: Choice) -> SearchSettings:
    """Return the settings with the rules and the reward from the command line; their files run in this process."""
    from syno_lab.experiments import with_choice as with_code

    _check_code([*(("--rule", rule) for rule in choice.rule or ()), ("--reward", choice.reward)])
    return with_code(settings, choice.rule or (), choice.reward)


def choice_again(settings: SearchSettings, choice: Choice) -> SearchSettings:
    """Return the settings of a stored search, with the rules and the reward that the command line names again.

    Raises SearchError if the command names other rules or another reward, or files with another text.
    """
    named = with_choice(settings, choice)
    stored, current = settings.identity, named.identity
    for part, option in (("rules", "--rule"), ("reward", "--reward")):
        if stored.get(part) != current.get(part):
            again = shlex.join(_choice_options(settings)) or f"no {option}"
            raise SearchError(
                f"--continue: expected {again} with the text of the search's beginning; code in a "
                "lab's folder is not run: read the files, and name them again"
            )
    return named


def _choice_options(settings: SearchSettings) -> list[str]:
    options = [*(("--rule", code) for code in settings.rules), ("--reward", settings.reward)]
    return [word for option, code in options if code is not None for word in (option, _named(code))]


def _named(code: UserCode) -> str:
    return f"{code.origin}:{code.name}"


def _check_code(named: Iterable[tuple[str, str | None]]) -> None:
    from syno_lab.experiments.own import is_code

    for option, text in named:
        if text is not None and not is_code(text):
            raise SynoError(f"{option}: expected FILE.py:FUNCTION, found {quoted(text)}")


def _with_code(request: TrialRequest, network: Network) -> TrialRequest:
    from syno_lab.experiments.own import with_data, with_model

    _check_code((("--model", network.model), ("--dataset", network.dataset)))
    request = msgspec.structs.replace(request, own=None)
    if network.model is not None:
        request = with_model(request, network.model)
    if network.dataset is not None:
        request = with_data(request, network.dataset)
    return request


def advice(settings: SearchSettings) -> list[str]:
    """Return the options that the user must repeat with ``--continue``, besides the name and the folder."""
    own = settings.training.own or {}
    named = [word for role, option in _ROLES.items() if role in own for word in (option, _named(own[role]))]
    return _choice_options(settings) + named


def say_files(result: Mapping[str, JSON]) -> None:
    """Write the finalists for a network of the user's own as files, and print their paths."""
    from syno_lab.experiments import SearchSettings
    from syno_lab.experiments.improve import improvement

    settings = SearchSettings.from_dict(result["settings"])
    if settings.training.own is None or "finalists" not in result:
        return
    lab = Path(str(result["folder"])).parent.parent
    improvement(settings, result, lab, lambda line: say(line))
