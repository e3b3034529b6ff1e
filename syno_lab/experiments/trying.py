"""A search is tried before it is promised: a known operator in the layers that it replaces, once, on two examples.

What the trials of the search will do is done: one evaluation and one training step, by the same ways. So a network that
asks of its layers what no operator has says so now, and not in each of a hundred trials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from glob import escape

import msgspec
import torch
from torch import Tensor, nn

from syno_lab.blame import blamed
from syno_lab.errors import SpecError
from syno_lab.inputs import count_of
from syno_lab.models.registry import OWN
from syno_lab.models.sites import Kind, Site
from syno_lab.models.tried import try_network
from syno_lab.patience import patient
from syno_lab.systems import opened
from syno_lab.training.loop import cross_entropy, outputs_of
from syno_lab.training.recipes import Arithmetic
from syno_lab.training.tasks import ExampleTask, ImageTask, StreamTask, task_of
from syno_lab.training.train import find_device
from syno_lab.trial import TrialRequest, places_of
from syno_lab.trial.backbone import build
from syno_lab.trial.examples import examples_of

#: Seconds in which layers are tried; those that are not told apart by then stay together. Looked at between tries.
SECONDS = 60.0
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
    are left work together. Each try is with a new copy of the network. Networks of the lab's own need no try.

    Args:
        request: without an operator.
        sites: the layers, all of one kind.
        say: is told what is done.
        clock: seconds.

    Raises SynoError where the network does not take the examples, or cannot be trained, without an operator either.
    """
    with two_examples(request) as two:
        two.check()
        if not request.backbone.startswith(OWN):
            return {}
        say(f"trying an operator in {count_of(len(sites), 'layer')}, on two examples")
        two.try_in([], sites[0].kind)
        end = clock() + SECONDS
        whole: list[str] = []
        broken: dict[str, str] = {}
        untried = [[site.name for site in sites]]
        while untried:
            group = untried.pop()
            try:
                two.try_in([*whole, *group], sites[0].kind)
                whole += group
            except SpecError as error:
                if len(group) == 1 or clock() >= end:
                    broken |= dict.fromkeys(group, f"with an operator in its place: {error}")
                else:
                    half = len(group) // 2
                    untried += [group[half:], group[:half]]
        return broken


@dataclass(frozen=True)
class TwoExamples:
    """Two examples of a request's data, for networks that are tried."""

    request: TrialRequest
    task: ExampleTask | ImageTask | StreamTask
    device: torch.device

    def check(self) -> None:
        """Refuse a network that does not take them, or does not tell their classes apart, without an operator.

        Raises SpecError, TrainingError or DataError, in one line.
        """
        with torch.no_grad(), blamed("the network", SpecError):
            net, examples, _ = self._beside(self.request)
            self.task.check(outputs_of(net.eval(), examples), examples)

    def try_in(self, names: Sequence[str], kind: Kind) -> None:
        """Try the network with a known operator in these layers, which are of one kind.

        Raises SpecError: it does not work with them.
        """
        asked = self.request
        if names:
            operator = opened(_KNOWN[kind])
            options = {**asked.options, "match": [escape(name) for name in names]}
            asked = msgspec.structs.replace(asked, operator=operator.to_json(), options=options)
            if not any(place.replaced for place in places_of(asked)):
                return  # a stride in its shape, or features that 4 does not divide
        net, examples, classes = self._beside(asked)

        def call(module: nn.Module) -> Tensor:
            with Arithmetic(asked.precision, self.device).forward():
                return self.task.check(module(examples), examples)

        try_network(net, call, lambda logits: cross_entropy(logits, classes))

    def _beside(self, request: TrialRequest) -> tuple[nn.Module, Tensor, Tensor]:
        """A request's network, new, the examples in the type of its weights, and their classes."""
        net = build(request).module.to(self.device)
        dtype = next((one.dtype for one in net.parameters() if one.is_floating_point()), torch.float32)
        return net, *self.task.test_batch(0, dtype)


@contextmanager
def two_examples(request: TrialRequest) -> Iterator[TwoExamples]:
    """Read two examples. Raises SynoError where they cannot be read, or what is done with them has no end."""
    device = find_device(request.device)
    with patient("trying two examples", SpecError), closing(task_of(examples_of(request), device, 2, "none")) as task:
        yield TwoExamples(request, task, device)
