"""The sizes of Canvas and the shapes of its tensors (Canvas, sections 5 and 6.2).

A size is a monomial over C, H, W, the window, the number of groups and the dynamic variables. C channels, H rows and W
columns of a template; KH and KW the window of the replaced convolution; G the number of groups, one for a whole
network; x0 to x7 *dynamic variables*: sizes that stay free until they are solved. A shape has six named slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import ClassVar
from weakref import WeakValueDictionary

from syno_lab.common.size import Size, Symbols
from syno_lab.common.size import product as product_of

#: Dynamic variables that one draft may have at a time.
MOST_VARIABLES = 8
SYMBOLS = Symbols(("C", "H", "W"), ("G", "KH", "KW", *(f"x{number}" for number in range(MOST_VARIABLES))))

ONE = SYMBOLS.one
C, H, W, G, KH, KW = map(SYMBOLS.size, ("C", "H", "W", "G", "KH", "KW"))
#: The elements of the input and of the output of a template.
IMAGE = C * H * W

_C, _G = SYMBOLS.position["C"], SYMBOLS.position["G"]
_FIRST = SYMBOLS.position["x0"]


@lru_cache(maxsize=1 << 12)
def parse(text: str) -> Size:
    """The size of a text such as ``C/G`` or ``G^-1*C``. Raises SpecError."""
    return SYMBOLS.size(text)


def volume_of(sizes: Iterable[Size]) -> Size:
    """The product of sizes."""
    return product_of(sizes, SYMBOLS)


def variable(number: int) -> Size:
    """The dynamic variable of this number."""
    return parse(f"x{number}")


@lru_cache(maxsize=1 << 16)
def variables_of(size: Size) -> tuple[tuple[int, int], ...]:
    """The dynamic variables in a size: their numbers with their exponents."""
    return tuple([(number, power) for number, power in enumerate(size.exponents[_FIRST:]) if power])


def static_part(size: Size) -> Size:
    """The size without its dynamic variables."""
    return Size(SYMBOLS, size.exponents[:_FIRST] + (0,) * MOST_VARIABLES)


@lru_cache(maxsize=1 << 16)
def substitute(size: Size, number: int, by: Size) -> Size:
    """The size with ``by`` in the place of a dynamic variable."""
    power = size.exponents[_FIRST + number]
    return size / variable(number) ** power * by**power if power else size


@lru_cache(maxsize=1 << 16)
def fault_of(size: Size) -> str | None:
    """Why a size can be no dimension, or None.

    Without a dynamic variable nothing may stand below the line but G, and each G below needs a C above, because G
    divides C and nothing else is known to divide anything. With one above the line any quotient may still become whole;
    the solver by constraints sees to it. Theorem 1 (section 6.2): none below, and at most one, to the power 1, above.
    """
    powers = size.exponents[_FIRST:]
    if min(powers) < 0:
        return f"a dynamic variable is below the line in {size.pretty}"
    if sum(powers) > 1:
        return f"more than one dynamic variable is in {size.pretty}"
    if any(powers):
        return None
    static = size.exponents[:_FIRST]
    if any(power < 0 for place, power in enumerate(static) if place != _G):
        return f"{size.pretty} is not always a whole number"
    if -static[_G] > static[_C]:
        return f"{size.pretty} is no whole number for all C that G divides"
    return None


def is_legal(size: Size) -> bool:
    """Whether a size may be a dimension: see :func:`fault_of`."""
    return fault_of(size) is None


@lru_cache(maxsize=1 << 14)
def factors(size: Size) -> tuple[Size, ...]:
    """The factors of what stands above the line in a size: products of smaller powers; a C may also give G or C/G.

    1 is a factor, and so is a dynamic variable.
    """
    found = {ONE}
    for name, power in zip(SYMBOLS.names, size.exponents, strict=True):
        choices = (ONE, C, G, C / G) if name == "C" else (ONE, parse(name))
        for _ in range(power):
            found = {a * b for a, b in product(found, choices)}
    return tuple(sorted(filter(is_legal, found), key=lambda size: size.exponents))


#: The slots in the order of memory, after the batch. The first four are channel dimensions, the last two spatial ones.
SLOTS = ("G", "C", "KH", "KW", "H", "W")
CHANNELS = SLOTS[:4]
SPATIAL = SLOTS[4:]
#: The only sizes that these slots can have.
FIXED = {"KH": KH, "KW": KW, "H": H, "W": W}


class Shape:
    """Sizes by slots; an empty slot is no axis at all. Equal shapes are one object, so they compare by identity.

    Attributes:
        slots: a size or None for each of :data:`SLOTS`.
        sizes: those that are there, in order.
        volume: their product.
        free: the number of its dynamic variable, or None; Theorem 1 allows one.
        fault: what makes it illegal, as text, or None.
    """

    __slots__ = ("__weakref__", "fault", "free", "sizes", "slots", "volume")
    _made: ClassVar[WeakValueDictionary[tuple[Size | None, ...], Shape]] = WeakValueDictionary()

    slots: tuple[Size | None, ...]
    sizes: tuple[Size, ...]
    volume: Size
    free: int | None
    fault: str | None

    def __new__(cls, slots: tuple[Size | None, ...]) -> Shape:
        """The one shape with these slots; a slot of size 1 is empty."""
        slots = tuple([None if size is None or size.is_one else size for size in slots])
        found = cls._made.get(slots)
        if found is None:
            found = super().__new__(cls)
            found._set_up(slots)
            # setdefault: of two threads that make the same shape both get the one that was first.
            found = cls._made.setdefault(slots, found)
        return found

    @classmethod
    def of(cls, **sizes: str) -> Shape:
        """The shape of sizes given as text by the names of their slots: ``Shape.of(G="G", C="C/G", H="H", W="W")``."""
        return cls(tuple([parse(sizes[name]) if name in sizes else None for name in SLOTS]))

    def _set_up(self, slots: tuple[Size | None, ...]) -> None:
        assert len(slots) == len(SLOTS)
        self.slots = slots
        self.sizes = tuple([size for size in slots if size is not None])
        self.volume = volume = volume_of(self.sizes)
        variables = variables_of(volume)
        self.free = variables[0][0] if variables else None
        self.fault = _fault(slots, volume)

    def __reduce__(self) -> tuple[type[Shape], tuple[tuple[Size | None, ...]]]:
        return Shape, (self.slots,)

    def __getitem__(self, slot: str) -> Size | None:
        return self.slots[SLOTS.index(slot)]

    def with_slots(self, new: Mapping[str, Size | None]) -> Shape:
        """The shape with these slots changed."""
        return Shape(tuple([new.get(name, size) for name, size in zip(SLOTS, self.slots, strict=True)]))

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - equal shapes are one object, and few are in use
    def substituted(self, number: int, by: Size) -> Shape:
        """The shape with ``by`` in the place of a dynamic variable."""
        if self.free != number:
            return self
        return Shape(tuple([None if size is None else substitute(size, number, by) for size in self.slots]))

    def size(self, slot: str) -> Size:
        """The size of a slot, 1 for an empty one."""
        size = self[slot]
        return ONE if size is None else size

    @property
    def filled(self) -> tuple[str, ...]:
        """The names of the slots that are not empty."""
        return tuple([name for name, size in zip(SLOTS, self.slots, strict=True) if size is not None])

    @property
    def group_inputs(self) -> Size:
        """The channels of one group: what an FC sums over for an output element."""
        return self.size("C") * self.size("KH") * self.size("KW")

    def at(self, binding: Mapping[str, int]) -> tuple[int, ...]:
        """The six sizes for a binding, 1 for empty slots. Raises SpecError where one is no positive whole number."""
        return tuple([1 if size is None else size.at(binding) for size in self.slots])

    def __str__(self) -> str:
        return f"[{', '.join(size.pretty for size in self.sizes)}]"

    def __repr__(self) -> str:
        return f"Shape({self})"


def _fault(slots: tuple[Size | None, ...], volume: Size) -> str | None:
    for name, size in zip(SLOTS, slots, strict=True):
        if size is None:
            continue
        if name in FIXED and size != FIXED[name]:
            return f"slot {name}: expected {FIXED[name].pretty} or nothing, found {size.pretty}"
        fault = fault_of(size)
        if fault is not None:
            return f"slot {name}: {fault}"
    if sum(power for _, power in variables_of(volume)) > 1:
        return "more than one dynamic variable is in the shape"
    return None


#: The shape of a template's input and output.
INPUT = Shape.of(C="C", H="H", W="W")


@lru_cache(maxsize=1 << 14)
def solve_for_image(shape: Shape) -> Size | None:
    """The size of the dynamic variable with which a shape has C·H·W elements; None where there is none.

    Without a dynamic variable it is C·H·W itself, where the shape has as many elements. A variable is solved only where
    both axes of the image are there: as one of them it would be an FC of as many channels as there are pixels.
    """
    if shape.free is None:
        return IMAGE if shape.volume == IMAGE else None
    if shape["H"] is None or shape["W"] is None:
        return None
    size = IMAGE / substitute(shape.volume, shape.free, ONE)
    return size if is_legal(size) and shape.substituted(shape.free, size).fault is None else None
