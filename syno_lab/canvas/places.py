"""The convolutions that a kernel replaces, and the budget for the kernel's costs (Canvas, sections 4 and 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, inf
from typing import TYPE_CHECKING, Protocol

from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted
from syno_lab.protocol import Binding, Operator

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Kernel
    from syno_lab.models.sites import Site

#: The window sizes of convolutions that a kernel can replace (section 4).
WINDOWS = (1, 3, 5, 7)


@dataclass(frozen=True)
class Place:
    """Equal convolutions of a network, which one kernel with one solution replaces.

    The template runs on C = min(c_in, c_out) channels, once for each of :attr:`parts`, after a pooling for a stride.

    Attributes:
        c_in, c_out: the numbers of channels; one of them divides the other.
        h, w: rows and columns of the output.
        kh, kw: the window, of odd sizes.
        stride: the stride of the convolution.
        layers: the number of equal convolutions.

    Raises SpecError for a wrong number, with the expected values.
    """

    c_in: int
    c_out: int
    h: int
    w: int
    kh: int = 3
    kw: int = 3
    stride: int = 1
    layers: int = 1

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if positive(number) is None:
                raise SpecError(f"place: expected a whole number from 1 up for {name}, found {quoted(number)}")
        if max(self.c_in, self.c_out) % self.channels:
            raise SpecError(
                "place: expected c_in and c_out of which one is a multiple of the other, "
                f"found {self.c_in} and {self.c_out}"
            )
        for name, number in (("kh", self.kh), ("kw", self.kw)):
            if number % 2 == 0:
                raise SpecError(f"place: expected an odd number for {name}, found {number}: a window has a middle")

    @property
    def channels(self) -> int:
        """The number of channels of the template, C."""
        return min(self.c_in, self.c_out)

    @property
    def parts(self) -> int:
        """The number of runs of the template, each with weights of its own (section 4)."""
        return max(self.c_in, self.c_out) // self.channels

    @property
    def params(self) -> int:
        """The number of weight elements of the convolutions."""
        return self.layers * self.c_in * self.c_out * self.kh * self.kw

    @property
    def flops(self) -> int:
        """The FLOPs of the convolutions for one example, 2 for each multiply-add."""
        return 2 * self.params * self.h * self.w

    @property
    def pooling(self) -> int:
        """The FLOPs of the pooling for one example; 0 without a stride."""
        return self.layers * self.stride**2 * self.c_in * self.h * self.w if self.stride > 1 else 0

    def binding(self, groups: int) -> dict[str, int]:
        """Return the numbers of the template's variables without the dynamic variables."""
        return {"C": self.channels, "H": self.h, "W": self.w, "KH": self.kh, "KW": self.kw, "G": groups}

    def __str__(self) -> str:
        return f"place {self.c_in}->{self.c_out}, {self.h}x{self.w}, window {self.kh}x{self.kw}"


@dataclass(frozen=True)
class Budget:
    """Limits of a kernel's costs, summed over all replaced convolutions; None is no limit.

    Attributes:
        max_flops, max_params: the limits of FLOPs for one example and of weight elements, which the solver uses up.
        min_flops, min_params: the least FLOPs and weight elements of the result.

    Raises SpecError where a limit is no whole number from 1 up, or a lower limit is above the upper limit.
    """

    max_flops: int | None = None
    max_params: int | None = None
    min_flops: int | None = None
    min_params: int | None = None

    def __post_init__(self) -> None:
        for name, number in vars(self).items():
            if number is not None and positive(number) is None:
                raise SpecError(f"budget: expected a whole number from 1 up or None for {name}, found {quoted(number)}")
        for name, least, most in (
            ("flops", self.min_flops, self.max_flops),
            ("params", self.min_params, self.max_params),
        ):
            if least is not None and most is not None and least > most:
                raise SpecError(f"budget: expected min_{name} of at most {most}, which is max_{name}, found {least}")

    @classmethod
    def of_shares(
        cls,
        places: Sequence[Place],
        *,
        max_flops: float | None = None,
        max_params: float | None = None,
        min_flops: float | None = None,
        min_params: float | None = None,
    ) -> Budget:
        """Return a budget from shares of the convolutions' costs. Raises SpecError for a share that is not above 0."""
        own = {"flops": sum(place.flops for place in places), "params": sum(place.params for place in places)}
        shares = {"max_flops": max_flops, "max_params": max_params, "min_flops": min_flops, "min_params": min_params}
        limits = {}
        for name, share in shares.items():
            if share is not None and not 0 < share < inf:
                raise SpecError(f"budget: expected a share above 0 for {name}, found {quoted(share)}")
            limits[name] = None if share is None else max(1, int(share * own[name[4:]]))
        return cls(**limits)


NO_BUDGET = Budget()


class AtPlaces(Operator, Protocol):
    """The members of an operator that pictures and source code need: see :class:`syno_lab.canvas.fitted.Fitted`."""

    @property
    def kernel(self) -> Kernel:
        """The template."""

    @property
    def inner(self) -> tuple[str, ...]:
        """The variables that a network's solution determines."""

    def template(self, binding: Binding | None = None, /) -> tuple[Place, dict[str, int]]:
        """Return the place with the sizes of a binding, and the template's binding at this place."""


def group_choices_of(places: Sequence[Place]) -> tuple[int, ...]:
    """Return the possible numbers of groups: all common divisors above 1 of the places' channels C (section 6.3)."""
    common = gcd(*[place.channels for place in places])
    small = [number for number in range(1, int(common**0.5) + 1) if common % number == 0]
    return tuple(sorted({divisor for number in small for divisor in (number, common // number)} - {1}))


def obstacle_to(site: Site) -> str | None:
    """Return why no kernel can replace a layer, or None."""
    if site.kind != "conv2d":
        return f"expected a convolution, found a {site.kind} layer"
    obstacle = site.obstacle_to("shape")
    if obstacle is not None:
        return obstacle
    if site.groups != 1 or site.dilation != (1, 1):
        return "expected a dense convolution, without groups and dilation"
    if any(size not in WINDOWS for size in site.kernel_size):
        window = "x".join(map(str, site.kernel_size))
        return f"expected a window of {', '.join(map(str, WINDOWS))}, found {window}"
    if max(site.in_channels, site.out_channels) % min(site.in_channels, site.out_channels):
        return (
            "expected channels of which one number is a multiple of the other, "
            f"found {site.in_channels} and {site.out_channels}"
        )
    return None


def _place(site: Site) -> Place:
    """Return a network's layer as a place, with all its calls."""
    bound = site.binding("shape")
    return Place(
        site.in_channels,
        site.out_channels,
        bound["H"],
        bound["W"],
        *site.kernel_size,
        stride=site.stride[0],
        layers=site.calls,
    )


def places_of(given: Sequence[Place | Site]) -> tuple[Place, ...]:
    """Convert a network's layers (sites) to places, without layers that no kernel can replace; places stay as they are.

    Raises SpecError where no place is left; the message says why the first layer cannot be replaced.
    """
    places, reasons = [], []
    for item in given:
        if isinstance(item, Place):
            places.append(item)
        elif why := obstacle_to(item):
            reasons.append(f"{item.name}: {why}")
        else:
            places.append(_place(item))
    if not places:
        first = f": {reasons[0]}" if reasons else ""
        raise SpecError(f"places: expected at least one convolution that a kernel can replace, found none{first}")
    return tuple(places)
