"""A search is tried before it is promised: a known operator in the layers that it replaces, once, on two examples.

What the trials of the search will do is done: one evaluation and one training step, by the same ways. So a network that
asks of its layers what no operator has says so now, and not in each of a hundred trials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from threading import Timer

import msgspec
import torch

from syno_lab.errors import SpecError
from syno_lab.models.sites import Kind, Site
from syno_lab.models.tried import generators_kept, try_network
from syno_lab.systems import find_system
from syno_lab.training.examples import ExampleTask, task_of
from syno_lab.training.images import ImageTask, StreamTask
from syno_lab.training.loop import cross_entropy
from syno_lab.training.recipes import Arithmetic
from syno_lab.training.train import find_device
from syno_lab.trial import TrialRequest, places_of
from syno_lab.trial.backbone import build
from syno_lab.trial.examples import examples_of

#: Seconds in which layers are tried; those that are not told apart by then stay together. Looked at between tries.
SECONDS = 60.0
#: Seconds after which a line says what takes so long.
_QUIET_S = 1.0
#: Operators that go into any layer that coefficients divide.
_KNOWN: dict[Kind, str] = {"conv2d": "conv1x1", "linear": "grouped_linear"}


def broken_layers(
    request: TrialRequest,
    sites: Sequence[Site],
    say: Callable[[str], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, str]:
    """Why operators cannot stand in some of the layers, by the layers' names; what the network says with one there.

    All layers are tried together, and only where that fails halves of them, down to single ones; operators in all that
    are left work together. Each try is with a new copy of the network, and the generators of torch, NumPy and Python
    are as before afterwards.

    Args:
        request: without an operator.
        sites: the layers, all of one kind.
        say: is given a line where it takes longer than a second.
        clock: seconds.

    Raises:
        SpecError: the network cannot be trained without an operator either.
    """
    device, names = find_device(request.device), [site.name for site in sites]
    line = f"trying an operator in {len(names)} layer{'s' * (len(names) > 1)}, on two examples"
    told = Timer(_QUIET_S, say, [line])
    told.daemon = True
    told.start()
    try:
        with generators_kept(), closing(task_of(examples_of(request), device, 2, "none")) as task:
            tries = _Tries(request, sites[0].kind, task, device, clock, clock() + SECONDS)
            why = tries.why(names)
            if why is None:
                return {}
            alone = tries.why([])
            if alone is not None:
                raise SpecError(alone)
            tries.take_apart(names, why)
            return tries.broken
    finally:
        told.cancel()


@dataclass
class _Tries:
    request: TrialRequest
    kind: Kind
    task: ExampleTask | ImageTask | StreamTask
    device: torch.device
    clock: Callable[[], float]
    end: float
    whole: list[str] = field(default_factory=list)  # layers in which operators work together
    broken: dict[str, str] = field(default_factory=dict)

    def why(self, names: Sequence[str]) -> str | None:
        """Why the network does not work with a known operator in these layers, or None."""
        asked = self.request
        if names:
            operator = find_system("syno-lab-operator").known()[_KNOWN[self.kind]]()
            options = {**asked.options, "match": list(names)}
            asked = msgspec.structs.replace(asked, operator=operator.to_json(), options=options)
            if not any(place.replaced for place in places_of(asked)):
                return None  # a stride in its shape, or features that 4 does not divide
        net = build(asked).module.to(self.device)
        dtype = next((one.dtype for one in net.parameters() if one.is_floating_point()), torch.float32)
        examples, classes = self.task.test_batch(0, dtype)

        def call(module: torch.nn.Module) -> torch.Tensor:
            with Arithmetic(asked.precision, self.device).forward():
                return self.task.check(module(examples), examples)

        try:
            try_network(net, call, lambda logits: cross_entropy(logits, classes))
        except SpecError as error:
            return str(error)
        return None

    def take_apart(self, names: Sequence[str], why: str) -> None:
        """Sort layers into whole and broken ones; operators in them and in the whole ones fail: ``why``."""
        if len(names) == 1 or self.clock() >= self.end:
            self.broken |= dict.fromkeys(names, f"with an operator in its place: {why}")
            return
        first, second = names[: len(names) // 2], names[len(names) // 2 :]
        said = self.why([*self.whole, *first])
        if said is None:
            self.whole += first
            self.take_apart(second, why)
            return
        self.take_apart(first, said)
        said = self.why([*self.whole, *second])
        if said is None:
            self.whole += second
        else:
            self.take_apart(second, said)
