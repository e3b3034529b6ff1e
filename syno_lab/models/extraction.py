"""Finding the convolutions of a network and putting other operators in their places.

Shapes: N images, C_in and C_out channels, H rows, W columns.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from syno_lab.errors import SpecError
from syno_lab.models.placeholder import Placeholder


@dataclass(frozen=True)
class Site:
    """One convolution of a network, as it is used on one image.

    ``name``: dotted, as in ``named_modules``. ``height``, ``width``: of its input. ``kernel_size``: rows and columns.
    ``flops``: 2 for each multiply-add of one image, summed over ``calls`` (how often the network calls it); a bias is
    not counted. ``params``: all of its parameters, a bias included.
    """

    name: str
    in_channels: int
    out_channels: int
    height: int
    width: int
    kernel_size: tuple[int, int]
    flops: int
    params: int
    calls: int = 1

    @property
    def mapping(self) -> dict[str, int]:
        """The values of C_in, C_out, H and W here, for a Placeholder."""
        return {"C_in": self.in_channels, "C_out": self.out_channels, "H": self.height, "W": self.width}


class WithBias(nn.Module):
    """A module with images [N, C, H, W] as its output, and a bias [C] added to it."""

    def __init__(self, module: nn.Module, bias: Tensor) -> None:
        super().__init__()
        self.module = module
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """Apply the module, then add the bias."""
        return self.module(x) + self.bias[:, None, None]


def find_convolutions(
    net: nn.Module,
    input_shape: tuple[int, int, int],
    *,
    kernel_size: tuple[int, int] | None = (3, 3),
    stride: tuple[int, int] | None = (1, 1),
    groups: int | None = 1,
    predicate: Callable[[str, nn.Conv2d], bool] | None = None,
) -> list[Site]:
    """Return the convolutions of ``net`` that an operator of the same shapes can replace, in the order of their calls.

    They are seen in one forward pass over a zero image [C, H, W] of ``input_shape`` in evaluation mode; the network is
    as before afterwards. ``kernel_size``, ``stride`` and ``groups`` select (None: any), and so does ``predicate`` on
    name and module. Left out are dilated convolutions, those whose output is not ⌈H/stride⌉ x ⌈W/stride⌉, and those
    used on images of several sizes, which one operator could not follow. Raises SpecError where the network refuses the
    shape.
    """
    names = {module: name for name, module in net.named_modules() if isinstance(module, nn.Conv2d)}
    seen: dict[nn.Conv2d, list[tuple[int, int, int, int]]] = {}

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d)
        seen.setdefault(module, []).append((*inputs[0].shape[-2:], *output.shape[-2:]))

    _run_once(net, input_shape, names, record)
    sites = []
    for module, sizes in seen.items():
        height, width, out_height, out_width = sizes[0]
        rows, columns = module.stride
        suits = (
            len(set(sizes)) == 1
            and module.dilation == (1, 1)
            and (out_height, out_width) == (-(-height // rows), -(-width // columns))
            and (kernel_size is None or module.kernel_size == tuple(kernel_size))
            and (stride is None or module.stride == tuple(stride))
            and (groups is None or module.groups == groups)
            and (predicate is None or predicate(names[module], module))
        )
        if suits:
            sites.append(
                Site(
                    name=names[module],
                    in_channels=module.in_channels,
                    out_channels=module.out_channels,
                    height=height,
                    width=width,
                    kernel_size=(module.kernel_size[0], module.kernel_size[1]),
                    flops=2 * module.weight.numel() * out_height * out_width * len(sizes),
                    params=sum(parameter.numel() for parameter in module.parameters()),
                    calls=len(sizes),
                )
            )
    return sites


def _run_once(
    net: nn.Module,
    input_shape: tuple[int, int, int],
    watched: Iterable[nn.Module],
    record: Callable[[nn.Module, tuple[Tensor, ...], Tensor], None],
) -> None:
    if len(input_shape) != 3 or any(size < 1 for size in input_shape):
        raise SpecError(f"expected the input shape of one image as [C, H, W], found {list(input_shape)}")
    weight = next((parameter for parameter in net.parameters() if parameter.is_floating_point()), torch.empty(0))
    image = torch.zeros((1, *input_shape), dtype=weight.dtype, device=weight.device)
    modes = [(module, module.training) for module in net.modules()]
    hooks = [module.register_forward_hook(record) for module in watched]
    try:
        net.eval()
        with torch.no_grad():
            net(image)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"expected a network that takes images {list(input_shape)}, found: {reason}") from error
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training


def replace_modules(net: nn.Module, modules: Mapping[str, nn.Module], *, in_place: bool = False) -> nn.Module:
    """Return ``net`` with the named modules in the place of its own, in a copy unless ``in_place``.

    A module that stands in several places is replaced in all of them. Where a convolution with a bias is replaced, its
    bias stays and is added to the new module's output. The new modules themselves go in, not copies. Raises SpecError
    for a name that the network has not, or one inside another; nothing is changed then.
    """
    known = dict(net.named_modules(remove_duplicate=False))
    unknown = [name for name in modules if name not in known]
    if unknown:
        raise SpecError(
            f"expected names of modules of this {type(net).__name__}, found {', '.join(map(repr, unknown))}"
        )
    for outer in modules:
        for inner in modules:
            if inner != outer and (not outer or inner.startswith(outer + ".")):
                raise SpecError(f"expected separate modules to replace, found {inner!r} inside {outer!r}")
    result = net if in_place else copy.deepcopy(net)
    targets = {result.get_submodule(name): module for name, module in modules.items()}
    replacements = {
        old: WithBias(new, old.bias) if isinstance(old, nn.Conv2d) and old.bias is not None else new
        for old, new in targets.items()
    }
    if result in replacements:
        return replacements[result].train(result.training)
    for parent in list(result.modules()):
        for name, child in list(parent._modules.items()):
            if child in replacements:
                setattr(parent, name, replacements[child].train(child.training))
    return result


def with_placeholders(net: nn.Module, sites: Iterable[Site]) -> nn.Module:
    """Return a copy of ``net`` with an empty Placeholder at each site; its mapping names C_in, C_out, H and W."""
    return replace_modules(net, {site.name: Placeholder(site.mapping) for site in sites})
