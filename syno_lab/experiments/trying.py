"""A search is tried before it is promised: a known operator in the layers that it replaces, once, on two examples.

What the trials of the search will do is done: one evaluation and one training step, by the same ways. So a network that
asks of its layers what no operator has says so now, and not in each of a hundred trials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from glob import escape
from threading import Timer

import msgspec
import torch
from torch import Tensor, nn

from syno_lab.blame import blamed
from syno_lab.errors import SpecError
from syno_lab.models.sites import Kind, Site
from syno_lab.models.tried import generators_kept, try_network
from syno_lab.systems import find_system
from syno_lab.training.examples import ExampleTask, task_of
from syno_lab.training.images import ImageTask, StreamTask
from syno_lab.training.loop import cross_entropy, outputs_of
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
        SynoError: the network does not take the examples, or cannot be trained, without an operator either.
    """
    line = f"trying an operator in {len(sites)} layer{'s' * (len(sites) > 1)}, on two examples"
    told = Timer(_QUIET_S, say, [line])
    told.daemon = True
    told.start()
    try:
        with two_examples(request) as two:
            two.check()
            tries = _Tries(two, sites[0].kind, clock, clock() + SECONDS)
            names = [site.name for site in sites]
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


@dataclass(frozen=True)
class TwoExamples:
    """Two examples of a request's data, for networks that are tried."""

    request: TrialRequest
    task: ExampleTask | ImageTask | StreamTask
    device: torch.device

    def check(self) -> None:
        """Refuse a network that does not take them, or does not tell their classes apart, without an operator.

        Raises:
            SpecError, TrainingError, DataError: one line.
        """
        with torch.no_grad(), blamed("the network", SpecError):
            net, examples, _ = self.beside(self.request)
            self.task.check(outputs_of(net.eval(), examples), examples)

    def beside(self, request: TrialRequest) -> tuple[nn.Module, Tensor, Tensor]:
        """A request's network, new, the examples in the type of its weights, and their classes."""
        net = build(request).module.to(self.device)
        dtype = next((one.dtype for one in net.parameters() if one.is_floating_point()), torch.float32)
        return net, *self.task.test_batch(0, dtype)


@contextmanager
def two_examples(request: TrialRequest) -> Iterator[TwoExamples]:
    """Read two examples; the generators of torch, NumPy and Python are as before afterwards.

    Raises:
        SynoError: they cannot be read.
    """
    device = find_device(request.device)
    with generators_kept(), closing(task_of(examples_of(request), device, 2, "none")) as task:
        yield TwoExamples(request, task, device)


@dataclass
class _Tries:
    two: TwoExamples
    kind: Kind
    clock: Callable[[], float]
    end: float
    whole: list[str] = field(default_factory=list)  # layers in which operators work together
    broken: dict[str, str] = field(default_factory=dict)

    def why(self, names: Sequence[str]) -> str | None:
        """Why the network does not work with a known operator in these layers, or None."""
        asked, task = self.two.request, self.two.task
        if names:
            operator = find_system("syno-lab-operator").known()[_KNOWN[self.kind]]()
            options = {**asked.options, "match": [escape(name) for name in names]}
            asked = msgspec.structs.replace(asked, operator=operator.to_json(), options=options)
            if not any(place.replaced for place in places_of(asked)):
                return None  # a stride in its shape, or features that 4 does not divide
        net, examples, classes = self.two.beside(asked)

        def call(module: nn.Module) -> Tensor:
            with Arithmetic(asked.precision, self.two.device).forward():
                return task.check(module(examples), examples)

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
