"""What is done with one network for ``networks.py``, column by column, in a process of its own.

A column is right, refused by the lab in one line, or a fault: another exception, or something that differs. Outputs and
gradients of two networks are equal within 1e-4 of their spread.

Shapes: B examples in a batch, V classes.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from networks_listed import Listed
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import TensorDataset

import syno_lab as sl
from syno_lab.errors import SynoError
from syno_lab.experiments.own_file import network_file
from syno_lab.models import Place, Selection, Site, Survey, costs, put_in, slots, survey

BATCH, CLASSES, EXAMPLES = 3, 4, 32
EQUAL = 1e-4  # of the spread
#: Layers that operators may stand in.
ANY = Selection(kinds=("conv2d", "linear"), pointwise=True)
OPERATORS = (sl.operators.separable, sl.operators.grouped_linear)
OK, REFUSED, FAULT, DIFFERS, TORCH = "ok", "refused", "fault", "differs", "torch"


class DiffersError(Exception):
    """Something is not what it has to be."""


class TorchError(Exception):
    """PyTorch cannot do this with the network as it is, either."""


def need(condition: bool, what: str) -> None:
    """Raise DiffersError unless the condition holds."""
    if not condition:
        raise DiffersError(what)


def spread(of: Tensor) -> float:
    """The distance of the largest and the smallest element."""
    return float(of.max() - of.min())


def need_equal(found: Tensor, wanted: Tensor, what: str) -> None:
    """Raise DiffersError where two tensors differ by more than :data:`EQUAL` of the spread."""
    need(found.shape == wanted.shape, f"{what}: {list(found.shape)} for {list(wanted.shape)}")
    far = float((found - wanted).abs().max())
    need(far <= EQUAL * spread(wanted), f"{what}: differs by {far:.1e}, of a spread of {spread(wanted):.1e}")


def slopes(net: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The output for ``x``, and the gradients of its squares by the names of the parameters that have any."""
    net.zero_grad(set_to_none=True)
    y = net(x)
    y.square().sum().backward()
    return y.detach(), {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def need_equal_slopes(found: dict[str, Tensor], wanted: dict[str, Tensor], what: str) -> None:
    """Raise DiffersError where gradients differ, by name."""
    need(found.keys() == wanted.keys(), f"{what}: gradients of {sorted(found.keys() ^ wanted.keys())[:3]}")
    whole = max((float(slope.abs().max()) for slope in wanted.values()), default=0.0)
    for name, slope in wanted.items():
        far = float((found[name] - slope).abs().max())
        allowed = 10 * EQUAL * float(slope.abs().max()) + EQUAL / 10 * whole
        need(far <= allowed, f"{what}: the gradient of {name} differs by {far:.1e}, of {float(slope.abs().max()):.1e}")


class Tried:
    """A network with what its columns share."""

    def __init__(self, listed: Listed) -> None:
        self.listed = listed
        draw = torch.Generator().manual_seed(1)
        size = (EXAMPLES, *listed.shape)
        self.data = torch.randint(1, listed.tokens, size, generator=draw) if listed.tokens else torch.randn(
            size, generator=draw
        )  # fmt: skip
        self.x = self.data[:BATCH]
        torch.manual_seed(0)
        self.net = enlivened(listed.make(), self.data)
        with torch.no_grad():
            self.plain = self.net(self.x)
        self.seen: Survey | None = None
        self.operator: Any = None
        self.changed: nn.Module | None = None
        self.places: list[Place] = []

    @property
    def example(self) -> Any:
        """As the lab's functions take it: the shape of an image, else a batch of one."""
        return tuple(self.listed.shape) if len(self.listed.shape) == 3 else self.x[:1]

    def need_as_before(self) -> None:
        """Raise DiffersError where the network that was given has changed."""
        with torch.no_grad():
            need_equal(self.net.eval()(self.x), self.plain, "the network that was given has changed")

    # -- the columns -------------------------------------------------------------------------------------------------

    def survey(self) -> str:
        """All layers are counted, and the network is as before."""
        before = {name: module.training for name, module in self.net.named_modules()}
        self.seen = survey(self.net, self.example)
        need({name: module.training for name, module in self.net.named_modules()} == before, "modes have changed")
        need(self.seen.flops > 0 and bool(self.seen.sites), "no FLOPs or no layers")
        need(self.seen.params == sum(p.numel() for p in self.net.parameters()), "parameters are miscounted")
        self.need_as_before()
        return f"{len(self.seen.sites)} layers, {self.seen.flops:,} FLOPs"

    def put_in(self) -> str:
        """A known operator in all layers that it fits: gradients reach it where they reached the layer."""
        assert self.seen is not None
        sites = self.seen.select(ANY)
        made = [operator() for operator in OPERATORS]
        self.operator = max(made, key=lambda one: sum(place.replaced for place in costs(one, sites)))
        self.changed, self.places = put_in(self.net, sites, self.operator, partial=True)
        before = {name: value.clone() for name, value in self.net.state_dict().items()}
        torch.manual_seed(7)
        _, reached = slopes(self.net.train(), self.x)
        self.net.eval().load_state_dict(before)  # statistics of a batch
        torch.manual_seed(7)
        y, slope = slopes(self.changed.train(), self.x)
        self.changed.eval()
        need(y.shape == self.plain.shape and bool(y.isfinite().all()), "its output has another shape, or no numbers")
        for name, slot in self.slots():
            if any(path.startswith(f"{name}.") for path in reached):
                inner = [f"{name}.placeholder.kernel.{path}" for path, _ in slot.placeholder.kernel.named_parameters()]
                need(all(path in slope for path in inner), f"no gradient reaches the operator in {name}")
        self.net.zero_grad(set_to_none=True)
        count = sum(place.replaced for place in self.places)
        need(count == len(self.slots()) > 0, "a place is said to be replaced, and is not")
        return f"{type(self).named(self.operator)} in {count} of {len(self.seen.sites)} layers"

    def evaluation(self) -> str:
        """The same with and without gradients, and it is the operators that are called."""
        changed = self.whole()
        with torch.no_grad():
            found = changed(self.x)
        need_equal(found, changed(self.x).detach(), "with gradients and without")
        with_it = {name: value.clone() for name, value in changed.state_dict().items()}
        _, slope = slopes(changed, self.x)
        whole = max(float(one.abs().max()) for one in slope.values())
        for name, slot in self.slots():
            inner = f"{name}.placeholder.kernel."
            if not any(path.startswith(inner) and float(one.abs().max()) > 1e-4 * whole for path, one in slope.items()):
                continue  # such as the queries of one single position, whose attention is 1
            with torch.no_grad():
                for weight in slot.placeholder.kernel.parameters():
                    weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)) / 4)
                other = changed(self.x)
                changed.load_state_dict(with_it)
            need(float((other - found).abs().max()) > 1e-6 * spread(found), f"the operator in {name} changes nothing")
        return ""

    def aot_eager(self) -> str:
        """Compiled, with the same outputs and gradients."""
        return self.compiled("aot_eager")

    def inductor(self) -> str:
        """The same."""
        return self.compiled("inductor")

    def trace(self) -> str:
        """The graph's module has the outputs and gradients of the network."""
        net = self.net.eval()
        example = list(self.listed.shape) if len(self.listed.shape) == 3 else self.x
        graph = sl.alpha.trace(net, example)
        made = graph.to_torch().eval()
        plain, reached = slopes(net, self.x)
        found, others = slopes(first_of(made), self.x)
        net.zero_grad(set_to_none=True)
        need_equal(found, plain, "output")
        sums = [sorted(float(slope.abs().sum()) for slope in one.values()) for one in (others, reached)]
        whole = max(sums[1])
        here, there = ([one for one in each if one > 1e-5 * whole] for each in sums)
        need(len(here) == len(there), f"{len(here)} weights have gradients, in the network {len(there)}")
        far = max(abs(a - b) / max(b, 1e-2 * whole) for a, b in zip(here, there, strict=True))
        need(far <= 10 * EQUAL, f"sums of gradients differ by {far:.1e} of them")
        self.need_as_before()
        return f"{len(graph.nodes)} nodes"

    def plan(self) -> str:
        """``sl.improve`` up to the line of its plan that names the layers."""
        lines: list[str] = []

        def hear(line: str) -> None:
            lines.append(line)
            if "replaced" in line and "FLOPs" in line:
                raise Planned

        data = TensorDataset(self.data, torch.arange(EXAMPLES) % CLASSES)
        try:
            with tempfile.TemporaryDirectory() as folder:
                sl.improve(
                    self.listed.make,
                    (data, data),
                    minutes=0.1,
                    folder=folder,
                    epochs=1,
                    batch_size=8,
                    optimizer="adamw",
                    say=hear,
                )
        except Planned:
            return lines[-1].partition(":")[0]
        raise DiffersError("no line of the plan says what is replaced")

    def file(self) -> str:
        """The file of torch alone patches a new network, which takes the weights and gives the same output."""
        changed, seen = self.whole(), self.seen
        assert seen is not None
        sites: dict[str, Site] = {site.name: site for site in seen.sites}
        text = network_file(self.operator, [(sites[place.name], place) for place in self.places], 0, "pool")
        module = types.ModuleType("operator_file")
        exec(compile(text, "operator_file.py", "exec"), module.__dict__)
        try:
            theirs = module.patch(self.listed.make())
        except RuntimeError as error:
            if traceback.extract_tb(error.__traceback__)[-1].filename != "operator_file.py":
                raise
            raise SynoError(str(error)) from error  # the file has no other family
        theirs.load_state_dict(changed.state_dict())
        with torch.no_grad():
            need_equal(theirs.eval()(self.x), changed(self.x), "the network that the file patches")
        need(not any(name.startswith("syno_lab") for name in module.__dict__), "the file needs the lab")
        return ""

    # -- for them ----------------------------------------------------------------------------------------------------

    @staticmethod
    def named(operator: Any) -> str:
        """The name of a known operator."""
        return next(make.__name__ for make in OPERATORS if make() == operator)

    def whole(self) -> nn.Module:
        """The network with operators; what put_in said where there is none."""
        if self.changed is None:
            raise SynoError("no operator could be put in")
        return self.changed.eval()

    def slots(self) -> list[tuple[str, Any]]:
        """The slots of the network with operators."""
        assert self.changed is not None
        return slots(self.changed)

    def compiled(self, backend: str) -> str:
        """Compile the network with operators. Raises TorchError where PyTorch cannot compile the network as it is."""
        changed = self.whole()
        plain, wanted = slopes(changed, self.x)
        torch._dynamo.reset()
        try:
            found, reached = slopes(torch.compile(changed, backend=backend), self.x)
        except Exception as error:
            torch._dynamo.reset()
            try:
                torch.compile(self.net.eval(), backend=backend)(self.x)
            except Exception as also:  # noqa: BLE001 - whatever it is, it is not of an operator
                raise TorchError(f"PyTorch does not compile it without operators: {first_line(also)}") from error
            raise
        found_names = {name.removeprefix("_orig_mod."): slope for name, slope in reached.items()}
        need_equal(found, plain, "compiled")
        need_equal_slopes(found_names, wanted, "compiled")
        return ""


class Planned(Exception):  # noqa: N818 - no error: the plan has been said, nothing more is wanted
    """Raised from ``say``."""


class First(nn.Module):
    """The first of several outputs, or the one that there is."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """As it says."""
        y = self.net(x)
        return y[0] if isinstance(y, tuple) else y


first_of = First


def enlivened(net: nn.Module, x: Tensor) -> nn.Module:
    """The network in evaluation mode with weights that let every layer matter: differences are seen.

    As they are built, many pass signals on that shrink to nothing (statistics of batch normalisation that are those of
    no data, branches scaled by 1e-6). So weights are drawn anew, and statistics are those of ``x``.
    """
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        net.eval()(x[:1])  # lazy layers have their shapes now
        for weight in net.parameters():
            if weight.ndim > 1:
                weight.copy_(torch.randn(weight.shape, generator=draw) / math.sqrt(weight[0].numel()))
            elif 0 < float(weight.abs().max()) == float(weight.abs().min()) < 0.5:
                weight.fill_(0.5)
        norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum = None
            norm.reset_running_stats()
        if norms:
            net.train()(x)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    return net.eval()


def first_line(error: BaseException) -> str:
    """The type of an exception, and the first line of what it says."""
    said = (str(error).splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {said}"


def place_of(error: BaseException) -> str:
    """Where in the lab an exception was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "syno_lab" in frame.filename] or frames[-1:]
    return f"{ours[-1].filename.rpartition('syno_lab/')[2]}:{ours[-1].lineno}" if ours else ""


COLUMNS: dict[str, Callable[[Tried], str]] = {
    "survey": Tried.survey,
    "put_in": Tried.put_in,
    "evaluation": Tried.evaluation,
    "aot_eager": Tried.aot_eager,
    "inductor": Tried.inductor,
    "trace": Tried.trace,
    "plan": Tried.plan,
    "file": Tried.file,
}
#: Of a network with an operator in it: they have no answer where there is none.
OF_CHANGED = ("evaluation", "aot_eager", "inductor", "file")


def cells(listed: Listed, columns: tuple[str, ...] = tuple(COLUMNS)) -> Iterator[tuple[str, dict[str, Any]]]:
    """The columns of one network as they are done: state, what is said, seconds."""
    tried = Tried(listed)
    earlier: dict[str, dict[str, Any]] = {}
    for name in columns:
        if name == "inductor" and not listed.inductor:
            continue
        begun, trail = time.monotonic(), ""
        if name in ("put_in", *OF_CHANGED) and earlier.get("survey", {}).get("state") != OK:
            state, said = earlier["survey"]["state"], earlier["survey"]["said"]
        elif name in OF_CHANGED and tried.changed is None:
            state, said = earlier["put_in"]["state"], earlier["put_in"]["said"]
        else:
            state, said, trail = _done(COLUMNS[name], tried)
        earlier[name] = {"state": state, "said": said, "seconds": round(time.monotonic() - begun, 2)}
        yield name, earlier[name] | ({"trail": trail} if trail else {})


def _done(column: Callable[[Tried], str], tried: Tried) -> tuple[str, str, str]:
    try:
        with _quiet():
            return OK, column(tried), ""
    except SynoError as error:
        said = str(error)
        return (REFUSED, said, "") if "\n" not in said and said else (FAULT, f"several lines: {said[:200]}", "")
    except DiffersError as error:
        return DIFFERS, str(error), ""
    except TorchError as error:
        return TORCH, str(error), ""
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return FAULT, f"{first_line(error)} ({place_of(error)})", traceback.format_exc(limit=-12)


@contextmanager
def _quiet() -> Iterator[None]:
    """What is printed goes to standard error: the answers are on standard output."""
    kept = sys.stdout
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = kept
