"""The convolutions that a kernel replaces, and the budget for all of them (Canvas, sections 4 and 6.3)."""

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

#: Windows of convolutions that a kernel replaces (section 4).
WINDOWS = (1, 3, 5, 7)


@dataclass(frozen=True)
class Place:
    """Equal convolutions of a network, to be replaced by one kernel with one solution.

    The template runs on C = min(c_in, c_out) channels, once for each of :attr:`parts` parts; a stride is pooled in
    front.

    Attributes:
        c_in, c_out: channels, one a multiple of the other.
        h, w: rows and columns of the output.
        kh, kw: the window, odd.
        stride: of the convolution.
        layers: how many there are.

    Raises SpecError where a number is none of these: which, and what was expected.
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
        """C of the template."""
        return min(self.c_in, self.c_out)

    @property
    def parts(self) -> int:
        """How often the template runs, each time with weights of its own (section 4)."""
        return max(self.c_in, self.c_out) // self.channels

    @property
    def params(self) -> int:
        """Weight elements of the convolutions themselves."""
        return self.layers * self.c_in * self.c_out * self.kh * self.kw

    @property
    def flops(self) -> int:
        """FLOPs of the convolutions themselves for one example, 2 for each multiply-add."""
        return 2 * self.params * self.h * self.w

    @property
    def pooling(self) -> int:
        """FLOPs for one example of the pooling in front."""
        return self.layers * self.stride**2 * self.c_in * self.h * self.w if self.stride > 1 else 0

    def binding(self, groups: int) -> dict[str, int]:
        """The numbers of the template's variables but for the dynamic ones."""
        return {"C": self.channels, "H": self.h, "W": self.w, "KH": self.kh, "KW": self.kw, "G": groups}

    def __str__(self) -> str:
        return f"place {self.c_in}->{self.c_out}, {self.h}x{self.w}, window {self.kh}x{self.kw}"


@dataclass(frozen=True)
class Budget:
    """Limits of the sums over all places; None is no limit.

    Attributes:
        max_flops, max_params: the most FLOPs for one example, and the most weight elements: the solver fills up.
        min_flops, min_params: the least that must be used after that.

    Raises SpecError where a limit is no whole number from 1 up, or a lower one is above the upper one.
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
        """The budget of shares of what the convolutions themselves cost; raises SpecError for one not above 0."""
        whole = {"flops": sum(place.flops for place in places), "params": sum(place.params for place in places)}
        shares = {"max_flops": max_flops, "max_params": max_params, "min_flops": min_flops, "min_params": min_params}
        found = {}
        for name, share in shares.items():
            if share is not None and not 0 < share < inf:
                raise SpecError(f"budget: expected a share above 0 for {name}, found {quoted(share)}")
            found[name] = None if share is None else max(1, int(share * whole[name[4:]]))
        return cls(**found)


NO_BUDGET = Budget()


class AtPlaces(Operator, Protocol):
    """An operator as its forms see it: :class:`syno_lab.canvas.fitted.Fitted`, which imports them to make them."""

    @property
    def kernel(self) -> Kernel:
        """The template."""

    @property
    def inner(self) -> tuple[str, ...]:
        """The variables that a network's solution determines."""

    def template(self, binding: Binding | None = None, /) -> tuple[Place, dict[str, int]]:
        """The place of a binding, and the template's numbers there."""


def group_choices_of(places: Sequence[Place]) -> tuple[int, ...]:
    """The numbers of groups to draw from: the divisors from 2 up that all C have in common (section 6.3)."""
    common = gcd(*[place.channels for place in places])
    small = [number for number in range(1, int(common**0.5) + 1) if common % number == 0]
    return tuple(sorted({found for number in small for found in (number, common // number)} - {1}))


def obstacle_to(site: Site) -> str | None:
    """Why no kernel can take the place of a layer, or None."""
    if site.kind != "conv2d":
        return f"expected a convolution, found a {site.kind} layer"
    obstacle = site.obstacle_to("shape")
    if obstacle is not None:
        return obstacle
    if site.groups != 1 or site.dilation != (1, 1):
        return "expected a dense convolution, without groups and dilation"
    if any(size not in WINDOWS for size in site.kernel_size):
        found = "x".join(map(str, site.kernel_size))
        return f"expected a window of {', '.join(map(str, WINDOWS))}, found {found}"
    if max(site.in_channels, site.out_channels) % min(site.in_channels, site.out_channels):
        return (
            "expected channels of which one number is a multiple of the other, "
            f"found {site.in_channels} and {site.out_channels}"
        )
    return None


def _place(site: Site) -> Place:
    """A network's layer as a place, all its calls together."""
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
    """The places of sites of a network, without those that no kernel can replace; places stay as they are.

    Raises SpecError where none is left, with the reason of the first.
    """
    found, reasons = [], []
    for one in given:
        if isinstance(one, Place):
            found.append(one)
        elif why := obstacle_to(one):
            reasons.append(f"{one.name}: {why}")
        else:
            found.append(_place(one))
    if not found:
        first = f": {reasons[0]}" if reasons else ""
        raise SpecError(f"places: expected at least one convolution that a kernel can replace, found none{first}")
    return tuple(found)
