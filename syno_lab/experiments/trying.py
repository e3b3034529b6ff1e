"""Tries a search before it starts: a known operator replaces the layers of the network, on two examples.

A try runs one evaluation and one training step, by the functions of the search's trials. So a network without
replaceable layers fails at once, and not in each of a hundred trials.
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

#: The seconds for all tries. After this time, a group that fails is not divided: all its layers count as broken.
SECONDS = 60.0
#: The known operator for tries, by the kind of layer; it fits a layer if 4 divides the channels.
_KNOWN: dict[Kind, str] = {"conv2d": "conv1x1", "linear": "grouped_linear"}


def broken_layers(
    request: TrialRequest,
    sites: Sequence[Site],
    say: Callable[[str], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, str]:
    """Return, by layer, the error of the network with an operator in the layer, for layers that cannot be replaced.

    All layers are tried together. If the try fails, each half is tried, down to single layers. The network works with
    operators in all other layers at once. Each try uses a new copy of the network. The lab's own networks need no try.

    Args:
        request: a request without an operator.
        sites: the layers, all of one kind.
        say: a function that is called with a line about the tries.
        clock: a clock in seconds.

    Raises SynoError where the network does not accept the examples, or cannot be trained, even without an operator.
    """
    with two_examples(request) as two:
        two.check()
        if not request.backbone.startswith(OWN):
            return {}
        say(f"trying an operator in {count_of(len(sites), 'layer')}, on two examples")
        two.try_in([], sites[0].kind)
        end = clock() + SECONDS
        working: list[str] = []
        broken: dict[str, str] = {}
        untried = [[site.name for site in sites]]
        while untried:
            group = untried.pop()
            try:
                two.try_in([*working, *group], sites[0].kind)
                working += group
            except SpecError as error:
                if len(group) == 1 or clock() >= end:
                    broken |= dict.fromkeys(group, f"with an operator in its place: {error}")
                else:
                    middle = len(group) // 2
                    untried += [group[middle:], group[:middle]]
        return broken


@dataclass(frozen=True)
class TwoExamples:
    """Two examples of a request's data, for tries of networks."""

    request: TrialRequest
    task: ExampleTask | ImageTask | StreamTask
    device: torch.device

    def check(self) -> None:
        """Refuse a network that, even without an operator, does not accept the examples or has too few outputs.

        Raises SpecError, TrainingError or DataError, in one line.
        """
        with torch.no_grad(), blamed("the network", SpecError):
            net, examples, _ = self._beside(self.request)
            self.task.check(outputs_of(net.eval(), examples), examples)

    def try_in(self, names: Sequence[str], kind: Kind) -> None:
        """Try the network with a known operator in these layers, which are of one kind.

        Raises SpecError where the network does not work with the operator.
        """
        own_request = self.request
        if names:
            operator = opened(f"known:{_KNOWN[kind]}")
            options = {**own_request.options, "match": [escape(name) for name in names]}
            own_request = msgspec.structs.replace(own_request, operator=operator.to_json(), options=options)
            if not any(place.replaced for place in places_of(own_request)):
                return  # the operator does not fit, for example 4 does not divide the features
        net, examples, classes = self._beside(own_request)

        def call(module: nn.Module) -> Tensor:
            with Arithmetic(own_request.precision, self.device).forward():
                return self.task.check(module(examples), examples)

        try_network(net, call, lambda logits: cross_entropy(logits, classes))

    def _beside(self, request: TrialRequest) -> tuple[nn.Module, Tensor, Tensor]:
        """Return a new network of the request, the examples in the type of the network's weights, and their classes."""
        net = build(request).module.to(self.device)
        dtype = next((weight.dtype for weight in net.parameters() if weight.is_floating_point()), torch.float32)
        return net, *self.task.test_batch(0, dtype)


@contextmanager
def two_examples(request: TrialRequest) -> Iterator[TwoExamples]:
    """Read two examples. Raises SynoError where the examples cannot be read, or a call does not end."""
    device = find_device(request.device)
    with patient("trying two examples", SpecError), closing(task_of(examples_of(request), device, 2, "none")) as task:
        yield TwoExamples(request, task, device)
