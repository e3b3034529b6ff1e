"""Random networks of ``torch.nn``, and what has to be equal when the lab changes, compiles or traces them.

A network is a plan: a tuple of parts that are values, so that one that fails is made smaller by leaving parts out. What
a part needs of its input, it reads off the input's shape. Outputs and gradients are equal within 1e-4 of the largest.

Shapes: B examples, C channels, H rows, W columns, L positions.
"""

from __future__ import annotations

import copy
import random
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import syno_lab as sl
from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.models import Selection, put_in, slots, survey, take_out

BATCH = 3
EQUAL = 1e-4
SHAPES = {"image": (4, 8, 8), "tokens": (6, 8), "signal": (4, 12), "flat": (12,)}
WAYS = ("patched", "compiled", "traced")


class Part(NamedTuple):
    """A part: its kind, a number that chooses among its variants, and the parts inside it."""

    kind: str
    variant: int = 0
    inner: tuple[tuple[Part, ...], ...] = ()

    def __repr__(self) -> str:
        inside = "".join(f", ({' '.join(map(repr, body))})" for body in self.inner)
        return f"{self.kind}({self.variant}{inside})"


class Plan(NamedTuple):
    """The shape of one example by its name, and the parts; a mean and a linear layer follow."""

    shape: str
    parts: tuple[Part, ...]
    seed: int


_PLAIN = {
    "image": ("conv", "conv", "batch_norm", "group_norm", "activation", "pool", "dropout", "function", "channels_last"),
    "tokens": ("linear", "linear", "layer_norm", "activation", "attention", "encoder", "dropout", "function"),
    "signal": ("conv", "conv", "batch_norm", "group_norm", "activation", "pool", "dropout", "function"),
    "flat": ("linear", "linear", "batch_norm", "layer_norm", "activation", "dropout", "function"),
}
_AROUND = ("residual", "concatenation", "gate", "nested")
_OTHERS = (
    "keyword",
    "shared",
    "hook",
    "pre_hook",
    "no_grad",
    "several",
    "asks",
    "in_place",
    "again",
    "autocast",
    "rare",
)


def draw(seed: int) -> Plan:
    """A plan by chance."""
    rng = random.Random(seed)
    shape = rng.choice(tuple(SHAPES))

    def body(most: int, depth: int) -> tuple[Part, ...]:
        return tuple(part(depth) for _ in range(rng.randint(1, most)))

    def part(depth: int) -> Part:
        chance = rng.random()
        if depth and chance < 0.3:
            kind = rng.choice(_AROUND)
            return Part(kind, rng.randrange(12), tuple(body(3, depth - 1) for _ in range(1 + (kind == _AROUND[1]))))
        if chance < 0.5:
            return Part(rng.choice(_OTHERS), rng.randrange(12))
        return Part(rng.choice(_PLAIN[shape]), rng.randrange(12))

    return Plan(shape, body(6, 2), seed)


def smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with one part less, or with a part in the place of what is around it."""

    def fewer(parts: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
        for number, part in enumerate(parts):
            before, after = parts[:number], parts[number + 1 :]
            yield before + after
            for place, inner in enumerate(part.inner):
                yield before + inner + after
                for less in fewer(inner):
                    yield (*before, part._replace(inner=(*part.inner[:place], less, *part.inner[place + 1 :])), *after)

    for parts in fewer(plan.parts):
        yield plan._replace(parts=parts)


def shrunk(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """A plan that still fails, and of which no smaller one does."""
    while (less := next((one for one in smaller(plan) if fails(one)), None)) is not None:
        plan = less
    return plan


# -- networks ----------------------------------------------------------------------------------------------------------


class Call(nn.Module):
    """A function of the layers below it."""

    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)


def _residual(x: Tensor, body: nn.Module) -> Tensor:
    y = body(x)
    return x + y if x.shape == y.shape else y


def _joined(x: Tensor, one: nn.Module, two: nn.Module) -> Tensor:
    y, z = one(x), two(x)
    axis = 1 if y.dim() != 3 or y.shape[1] != x.shape[1] else -1
    return torch.cat([y, z], axis) if y.shape == z.shape else y


def _gated(x: Tensor, body: nn.Module) -> Tensor:
    y = body(x)
    return y * torch.sigmoid(y.mean(tuple(range(1, y.dim())), keepdim=True))


def _without_gradients(x: Tensor, layer: nn.Module) -> Tensor:
    with torch.no_grad():
        y = layer(x)
    return y + 0.1 * x.mean()


def _keyword(x: Tensor, layer: nn.Module) -> Tensor:
    return layer(input=x)


def _shared(x: Tensor, layer: nn.Module) -> Tensor:
    return layer(torch.tanh(layer(x)))


def _several(x: Tensor, one: nn.Module, two: nn.Module) -> Tensor:
    return one(x) - two(x).relu()


def _asks(x: Tensor, layer: nn.Module) -> Tensor:
    weight = layer.weight
    return layer(x.to(device=weight.device, dtype=weight.dtype)) / weight.shape[0]


def _in_place(x: Tensor, layer: nn.Module) -> Tensor:
    y = layer(x)
    y += 0.5
    return y.relu_()


def _again(x: Tensor, layer: nn.Module) -> Tensor:
    return checkpoint(layer, x, use_reentrant=False)


def _autocast(x: Tensor, layer: nn.Module) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return layer(x)


def _by_value(x: Tensor, layer: nn.Module) -> Tensor:
    return layer(x) if x.abs().max() < 1e6 else x.new_zeros(layer(x).shape)


def _of_weight(x: Tensor, layer: nn.Module) -> Tensor:
    return layer(x) * layer.weight.mean()


def _recurrent(x: Tensor, layer: nn.Module) -> Tensor:
    return layer(x)[0]


def _attended(x: Tensor, layer: nn.Module) -> Tensor:
    return x + layer(x, x, x, need_weights=False)[0]


_FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: F.gelu(x),
    lambda x: x.relu().mul(0.5),
    lambda x: x.softmax(-1),
    lambda x: x - x.mean(-1, keepdim=True),
    lambda x: torch.cumsum(x, 1) / x.shape[1],
    lambda x: x.flip(-1),
    lambda x: torch.stack([x, -x]).amax(0),
    lambda x: x.clamp(-1, 1),
    lambda x: x.roll(1, -1),
    lambda x: F.normalize(x, dim=1),
    lambda x: x.transpose(1, -1).contiguous().transpose(1, -1),
    lambda x: x.chunk(2, 1)[0].repeat(*(2 if axis == 1 else 1 for axis in range(x.dim()))) if x.shape[1] > 1 else x,
)
_ACTIVATIONS = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.ELU, nn.LeakyReLU, nn.PReLU, nn.Hardswish, nn.Sigmoid)


class _Maker:
    """Makes modules for a shape, and says by running what shape they give."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def of(self, parts: tuple[Part, ...]) -> nn.Module:
        made = []
        for part in parts:
            layer = self.part(part)
            layer.eval()
            self.shape = tuple(layer(torch.zeros(2, *self.shape)).shape[1:])
            made.append(layer.train())
        return nn.Sequential(*made)

    def inside(self, parts: tuple[Part, ...]) -> nn.Module:
        return _Maker(self.shape).of(parts)

    @property
    def channels(self) -> int:
        return self.shape[-1] if len(self.shape) == 2 and self.is_tokens else self.shape[0]

    is_tokens = False

    def layer(self, variant: int, same: bool = False) -> nn.Module:
        """A convolution or a linear layer."""
        if self.is_tokens or len(self.shape) == 1:
            return nn.Linear(self.shape[-1], self.shape[-1] if same else (8, 12, 16)[variant % 3], variant % 2 == 0)
        kind = nn.Conv2d if len(self.shape) == 3 else nn.Conv1d
        width = self.channels if same else (4, 8, 12)[variant % 3]
        size, groups = (3, 1, 5)[variant // 2 % 3], (1, 1, 2)[variant // 3 % 3] if self.channels % 4 == 0 else 1
        stride = 2 if variant == 7 and not same and min(self.shape[1:]) > 3 else 1
        return kind(self.channels, width, size, stride, size // 2, groups=groups, bias=variant % 2 == 0)

    def part(self, part: Part) -> nn.Module:
        kind, variant, inner = part
        bodies = [self.inside(body) for body in inner]
        spatial = len(self.shape) - 1
        match kind:
            case "residual":
                return Call(_residual, *bodies)
            case "concatenation":
                return Call(_joined, *bodies)
            case "gate":
                return Call(_gated, *bodies)
            case "nested":
                return nn.Sequential(nn.Sequential(*bodies), nn.Identity())
            case "keyword":
                return Call(_keyword, self.layer(variant))
            case "shared":
                return Call(_shared, self.layer(variant, same=True))
            case "several":
                return Call(_several, self.layer(variant), self.layer(variant))
            case "no_grad":
                return Call(_without_gradients, self.layer(variant))
            case "asks":
                return Call(_asks, self.layer(variant))
            case "in_place":
                return Call(_in_place, self.layer(variant))
            case "again":
                return Call(_again, self.layer(variant))
            case "autocast":
                return Call(_autocast, self.layer(variant))
            case "rare":
                if variant == 0:
                    return Call(_by_value, self.layer(variant))
                if variant < 6 and self.is_tokens:
                    return Call(_recurrent, nn.GRU(self.shape[-1], 8, batch_first=True))
                return Call(_of_weight if variant == 1 else _shared, self.layer(variant, same=True))
            case "hook":
                layer = self.layer(variant)
                layer.register_forward_hook(lambda module, given, y: y * 1.5)
                return layer
            case "pre_hook":
                layer = self.layer(variant)
                layer.register_forward_pre_hook(lambda module, given: (given[0] * 0.5,))
                return layer
            case "conv" | "linear":
                return self.layer(variant)
            case "batch_norm":
                return (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d)[spatial](self.channels, affine=variant % 3 > 0)
            case "group_norm":
                # Contiguous: torch 2.13 itself ends the process in its backward pass of a channels_last input that
                # needs no gradient, and compiles another gradient for one that does.
                norm = nn.GroupNorm(2 if self.channels % 2 == 0 else 1, self.channels)
                return Call(lambda x, layer: layer(x.contiguous()), norm)
            case "layer_norm":
                return nn.LayerNorm(self.shape[-1])
            case "activation":
                return _ACTIVATIONS[variant % len(_ACTIVATIONS)]()
            case "dropout":
                return nn.Dropout(0.1 * (variant % 4))
            case "function":
                return Call(_FUNCTIONS[variant])
            case "channels_last":
                return Call(lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x)
            case "pool":
                pools: tuple[Any, ...] = (nn.MaxPool1d, nn.AvgPool1d) if spatial == 1 else (nn.MaxPool2d, nn.AvgPool2d)
                return pools[variant % 2](2, 2 if min(self.shape[1:]) > 3 else 1, padding=1)
            case "attention":
                width = self.shape[-1]
                heads = 2 if width % 2 == 0 else 1
                return Call(_attended, nn.MultiheadAttention(width, heads, dropout=0.0, batch_first=True))
            case "encoder":
                width = self.shape[-1]
                return nn.TransformerEncoderLayer(
                    width, 2 if width % 2 == 0 else 1, 16, 0.0, batch_first=True, norm_first=variant % 2 == 0
                )
        raise ValueError(kind)


class _Tokens(_Maker):
    is_tokens = True

    def inside(self, parts: tuple[Part, ...]) -> nn.Module:
        return _Tokens(self.shape).of(parts)


class Network(nn.Module):
    """The parts, a mean over all but the last axis of tokens or the first of others, and a linear layer."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        maker = (_Tokens if plan.shape == "tokens" else _Maker)(SHAPES[plan.shape])
        self.body = maker.of(plan.parts)
        self.is_tokens = plan.shape == "tokens"
        self.head = nn.Linear(maker.shape[-1] if self.is_tokens else maker.shape[0], 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        axes = (1,) if self.is_tokens else tuple(range(2, y.dim()))
        return self.head(y.mean(axes) if axes else y)


def network(plan: Plan) -> tuple[nn.Module, Tensor]:
    """The network with weights of its own, all of them moved a little, and a batch."""
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        net = Network(plan)
        with torch.no_grad():
            for weight in net.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
        return net, torch.randn(BATCH, *SHAPES[plan.shape])


# -- what has to be equal ----------------------------------------------------------------------------------------------


class DiffersError(Exception):
    """Two networks that have to give the same do not."""


def _values(net: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """The output, the gradient of the input, and how long the gradients of the weights are; chance begins anew.

    Only the lengths, in their order: an operator has a layer's weight with its axes in another order.
    """
    torch.manual_seed(0)
    given = x.clone().requires_grad_()
    y = net(given)
    weights = [one for one in net.parameters() if one.requires_grad] if isinstance(net, nn.Module) else []
    loss = (y * y.detach().cos()).sum()
    found, *others = torch.autograd.grad(loss, [given, *weights], allow_unused=True)
    lengths = sorted((one.norm() for one in others if one is not None), key=float, reverse=True)
    return [y.detach(), torch.zeros_like(x) if found is None else found, torch.stack([*lengths, torch.zeros(())])]


def _same(what: str, found: list[Tensor], wanted: list[Tensor]) -> None:
    for name, one, two in zip(("output", "gradient", "gradient of weights"), found, wanted, strict=True):
        if one.shape != two.shape:
            raise DiffersError(f"{what}: the {name} has the shape {list(one.shape)}, expected {list(two.shape)}")
        largest = max(1.0, float(two.abs().max()))
        if not torch.allclose(one, two, atol=EQUAL * largest, rtol=EQUAL):
            raise DiffersError(f"{what}: the {name} differs by {float((one - two).abs().max()):.2g} of {largest:.2g}")


def _in_both_modes(what: str, found: nn.Module, wanted: nn.Module, x: Tensor) -> None:
    for mode in (False, True):
        found.train(mode)
        wanted.train(mode)
        state = copy.deepcopy(wanted.state_dict())  # of batch norms
        expected = _values(wanted, x)
        wanted.load_state_dict(state)
        _same(f"{what} in {'training' if mode else 'evaluation'}", _values(found, x), expected)


def _kept(net: nn.Module) -> nn.Module:
    """Without dropout: tensors that are laid out otherwise, by a graph or a compiler, have chance fall otherwise."""
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return net


def _linear() -> Operator:
    """``Y[n, o] = sum_c X[n, c] W[c, o]`` on any number of positions."""
    build = Build("[N, D_in]", "[N, D_out]", ["N", "D_in", "D_out"], fixed_io_pairs=[(0, 0)])
    n, o = build.output
    c = build.reduce("D_in")
    build.contract(share=[c], give=[o])
    return build.finish(n, c)


def _patched(net: nn.Module, x: Tensor) -> nn.Module:
    """A copy with operators, and the old weights in them, in the place of linear layers and of 3x3 convolutions."""
    seen = survey(net, x)
    result = net
    for chosen, operator, order in (
        (Selection(kernel_size=(3, 3), stride=(1, 1)), sl.operators.conv2d(), (1, 2, 3, 0)),
        (Selection(kinds=("linear",)), _linear(), (1, 0)),
    ):
        reasons = seen.reasons(chosen)
        if sites := [site for site in seen.sites if reasons[site.name] is None]:
            result, _ = put_in(result, sites, operator, example=x)
            names = {site.name for site in sites}
            for name, slot in slots(result):
                if name in names:
                    (weight,) = slot.placeholder.parameters()
                    with torch.no_grad():
                        weight.copy_(slot.original.weight.permute(order))  # type: ignore[operator, arg-type]
    if result is net:
        raise SpecError("no layer that is replaced here")
    return result


def check(plan: Plan, ways: tuple[str, ...] = WAYS) -> dict[str, str]:
    """For each way ``"equal"``, the one line of the lab's refusal, or a line that begins with ``FAULT``.

    One that begins with ``TORCH`` says what torch does to the network without the lab.
    """
    found: dict[str, str] = {}
    net, x = network(plan)
    changed = net
    for way in ways:
        torch._dynamo.reset()
        try:
            if way == "patched":
                changed = _patched(net.eval(), x)
                _same("taken out", _values(take_out(copy.deepcopy(changed)).eval(), x), _values(net.eval(), x))
                _in_both_modes("patched", changed, copy.deepcopy(net), x)
            elif way == "compiled":
                both = _kept(copy.deepcopy(changed)), _kept(copy.deepcopy(changed))
                both[0].compile(backend="aot_eager")
                try:
                    _in_both_modes("compiled", *both, x)
                except DiffersError as error:
                    alone = _kept(copy.deepcopy(net)), _kept(copy.deepcopy(net))
                    alone[0].compile(backend="aot_eager")
                    try:
                        _in_both_modes("compiled", *alone, x)
                    except DiffersError:
                        found[way] = f"TORCH compiles the network without an operator wrong too: {error}"
                        continue
                    raise
            else:
                traced = sl.alpha.trace(net.eval(), x).to_torch()
                _in_both_modes("traced", _kept(traced), _kept(copy.deepcopy(net)), x)
            found[way] = "equal"
        except SynoError as error:
            said = str(error)
            found[way] = said if said and "\n" not in said else f"FAULT no single line: {said!r}"
        except DiffersError as error:
            found[way] = f"FAULT {error}"
        except Exception as error:  # noqa: BLE001 - whatever is raised is what the check looks for
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = (str(error).splitlines() or [""])[0][:160]
            found[way] = f"FAULT {type(error).__name__} at {where.filename.rpartition('/')[2]}:{where.lineno}: {said}"
    return found


def is_fault(found: dict[str, str]) -> bool:
    """Whether something differs or raises what is no line of the lab's."""
    return any(said.startswith("FAULT") for said in found.values())
