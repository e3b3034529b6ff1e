"""Functions of a user's own that raise, end, print or give what nobody expects: networks, data, rules, rewards.

They are the user's: nothing of them is refused before it runs. What they raise must come back as one line that says
whose it is. What hangs, forks or ends the process is tried in processes of its own, by `kills.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hostile_surfaces import Opening, Place

#: Statements that a user's function may have in it; each is one line.
HARMS = (
    "raise ValueError('two\\nlines')",
    "raise ValueError('\\x1b[2J\\x1b]0;title\\x07')",
    "raise KeyError('\\u202egnp.exe')",
    "raise RuntimeError('x' * 1000000)",
    "raise Exception",
    "raise BaseException('whose')",
    "raise SystemExit",
    "raise SystemExit('good bye\\nall')",
    "import sys; sys.exit(3)",
    "raise StopIteration",
    "raise ExceptionGroup('several', [ValueError(1), KeyError(2)])",
    "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "raise type('Odd', (Exception,), {'__str__': lambda self: 3})()",
    "raise UnicodeDecodeError('utf-8', b'\\xff', 0, 1, 'no')",
    "raise OSError(28, 'No space left on device')",
    "raise NotImplementedError",
    "raise RecursionError('deep')",
    "raise SyntaxError('not here')",
    "raise Warning('careful')",
    "raise torch.OutOfMemoryError('out of memory')",
    "raise MemoryError",
    "import no_such_module",
    "open('/nowhere/at/all')",
    "1 / 0",
    "[][3]",
    "None.shape",
    "undefined_name",
    "assert False",
    "assert False, 'no\\r\\nway'",
    "(lambda f: f(f))(lambda f: f(f))",
    "print('x' * 1000000)",
    "print('\\ud800')",
    "import warnings; warnings.warn('careful\\nwith this')",
    "import logging; logging.getLogger().error('%s', 'x' * 1000)",
    "torch.zeros(2, 3) @ torch.zeros(2, 3)",
    "torch.zeros(1 << 50)",
    "return None",
    "return 3",
    "return 'text'",
    "return ()",
    "return object()",
    "return float('nan')",
    "return [None, None]",
    "return torch.zeros(0)",
    "return torch.full((4, 4), float('nan'))",
)
FILE = """
import torch
from torch import nn
from torch.utils.data import Dataset
{import_}

class Net(nn.Module):
    def __init__(self):
        {init}
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        {forward}
        if self.training:
            {training}
        return self.head(self.b(self.a(x).relu()).mean((2, 3)))

class Examples(Dataset):
    def __init__(self, part):
        self.part = part

    def __len__(self):
        {length}
        return 8

    def __getitem__(self, index):
        if index >= 8:
            raise IndexError
        {any_item}
        if index == 5 and self.part == "{part}":
            {item}
        return torch.full((3, 6, 6), index / 8), index % 4

def make_model():
    {model}
    return Net()

def make_dataset():
    {data}
    return Examples("train"), Examples("test")

def rule(state, step):
    {rule}
    return False

def reward(judged):
    {reward}
    return judged.accuracy
"""
_AT = ("import_", "init", "forward", "training", "length", "any_item", "item", "model", "data", "rule", "reward")


def functions(rng: random.Random, place: Place) -> Opening:
    """A file of functions, one of which does harm at one place, taken as a network, data, a rule or a reward."""
    at = rng.choice(_AT)
    harm = rng.choice(HARMS)
    if at == "import_" and harm.startswith("return"):
        harm = "1 / 0"
    bodies = dict.fromkeys(_AT, "pass") | {at: harm, "part": rng.choice(("train", "test"))}
    path = place.given / rng.choice(("net.py", "net.py", "my net.py", "né.py"))
    path.write_text(FILE.format_map(bodies), encoding="utf-8")
    if at in ("rule", "reward") or (at == "import_" and rng.random() < 0.3):
        return _as_a_command(_choice(path, "reward" if at == "reward" else "rule"))
    return _as_a_command(lambda: _trained(path))


def _as_a_command(opening: Opening) -> Opening:
    """A failed allocation passes through the library, for callers that then try less; the command says it in a line."""

    def opened() -> object:
        from syno_lab.effort import memory_error

        try:
            return opening()
        except Exception as error:
            found = memory_error(error)
            if found is None:
                raise
            raise found from error

    return opened


def _trained(path: Any) -> object:
    """What a search does with a network and data of the user's own, up to the first training."""
    import msgspec

    from syno_lab import operators
    from syno_lab.errors import SynoError
    from syno_lab.experiments.own import check_fit, with_data, with_layers, with_model
    from syno_lab.trial import TrialRequest, run_trial

    request = TrialRequest(backbone="", batch_size=4, epochs=1, threads=1)
    request = with_data(with_model(request, f"{path}:make_model"), f"{path}:make_dataset")
    request, _ = with_layers(request, None)
    check_fit(request)
    request = msgspec.structs.replace(request, operator=operators.separable().to_json())
    outcome = run_trial(request, folder=path.parent.parent / "trial")
    if outcome.state != "finished":
        raise SynoError(outcome.reason)
    return outcome


def _choice(path: Any, name: str) -> Opening:
    from itertools import islice

    from syno_lab.experiments.own_choice import own_reward, with_choice
    from syno_lab.experiments.settings import SearchSettings
    from syno_lab.operators import KNOWN
    from syno_lab.sessions.own_rule import own_rule
    from syno_lab.sessions.session import session_of
    from syno_lab.trial import TrialRequest

    def reward() -> object:
        settings = with_choice(SearchSettings(training=TrialRequest(backbone="resnet20")), reward=f"{path}:reward")
        return own_reward(settings)

    def rule() -> object:
        found = own_rule(f"{path}:rule")
        session = session_of(KNOWN["conv1x1"]().spec)

        session.restrict([found])
        return list(islice(session.candidates(session.state), 20))

    return reward if name == "reward" else rule


FUNCTIONS: dict[str, tuple[Callable[[random.Random, Place], Opening], int]] = {"functions": (functions, 1500)}
"""The surface of users' functions, and how many inputs a whole run gives to it."""
