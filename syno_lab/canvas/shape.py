"""The sizes of Canvas and the shapes of its tensors (Canvas, sections 5 and 6.2).

A size is a monomial over C, H, W, the window, the number of groups and the dynamic variables. C is the channels, H the
rows and W the columns of a template; KH and KW are the window of the replaced convolution. G is the network's number of
groups. The variables x0 to x7 are *dynamic variables*: sizes whose values the solver chooses. A shape has six named
slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import ClassVar
from weakref import WeakValueDictionary

from syno_lab.common.size import Size, Symbols
from syno_lab.common.size import product as product_of

#: The limit of dynamic variables of one draft at a time.
MOST_VARIABLES = 8
SYMBOLS = Symbols(("C", "H", "W"), ("G", "KH", "KW", *(f"x{number}" for number in range(MOST_VARIABLES))))

ONE = SYMBOLS.one
C, H, W, G, KH, KW = map(SYMBOLS.size, ("C", "H", "W", "G", "KH", "KW"))
#: The number of elements of a template's input, and of its output.
IMAGE = C * H * W

_C, _G = SYMBOLS.position["C"], SYMBOLS.position["G"]
_FIRST = SYMBOLS.position["x0"]


@lru_cache(maxsize=1 << 12)
def parse(text: str) -> Size:
    """Parse a size such as ``C/G`` or ``G^-1*C``. Raises SpecError for a text that is no size."""
    return SYMBOLS.size(text)


def volume_of(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes."""
    return product_of(sizes, SYMBOLS)


def variable(number: int) -> Size:
    """Return the dynamic variable of this number."""
    return parse(f"x{number}")


@lru_cache(maxsize=1 << 16)
def variables_of(size: Size) -> tuple[tuple[int, int], ...]:
    """Return the numbers of the dynamic variables in a size, with their exponents."""
    return tuple([(number, power) for number, power in enumerate(size.exponents[_FIRST:]) if power])


def static_part(size: Size) -> Size:
    """Return the size without its dynamic variables."""
    return Size(SYMBOLS, size.exponents[:_FIRST] + (0,) * MOST_VARIABLES)


@lru_cache(maxsize=1 << 16)
def substitute(size: Size, number: int, by: Size) -> Size:
    """Return the size with ``by`` in place of a dynamic variable."""
    power = size.exponents[_FIRST + number]
    return size / variable(number) ** power * by**power if power else size


@lru_cache(maxsize=1 << 16)
def fault_of(size: Size) -> str | None:
    """Return why a size cannot be a dimension, or None.

    Without a dynamic variable only G may be in the denominator. Each G in the denominator needs a C in the numerator,
    because G is the only known divisor, and divides only C. With a dynamic variable in the numerator, any quotient may
    become whole; the solver by constraints chooses such values. Theorem 1 (section 6.2): the powers of dynamic
    variables are at least 0 and sum to at most 1.
    """
    powers = size.exponents[_FIRST:]
    if min(powers) < 0:
        return f"a dynamic variable is below the line in {size.pretty}"
    if sum(powers) > 1:
        return f"more than one dynamic variable is in {size.pretty}"
    if any(powers):
        return None
    static = size.exponents[:_FIRST]
    if any(power < 0 for index, power in enumerate(static) if index != _G):
        return f"{size.pretty} is not always a whole number"
    if -static[_G] > static[_C]:
        return f"{size.pretty} is no whole number for all C that G divides"
    return None


def is_legal(size: Size) -> bool:
    """Return whether a size may be a dimension: see :func:`fault_of`."""
    return fault_of(size) is None


@lru_cache(maxsize=1 << 14)
def factors(size: Size) -> tuple[Size, ...]:
    """Return the factors of the numerator of a size: products of smaller powers; a C also has the factors G and C/G.

    1 is a factor, and a dynamic variable is a factor of itself.
    """
    results = {ONE}
    for name, power in zip(SYMBOLS.names, size.exponents, strict=True):
        choices = (ONE, C, G, C / G) if name == "C" else (ONE, parse(name))
        for _ in range(power):
            results = {a * b for a, b in product(results, choices)}
    return tuple(sorted(filter(is_legal, results), key=lambda size: size.exponents))


#: The slots in memory order, after the batch. The first four are channel dimensions, the last two spatial dimensions.
SLOTS = ("G", "C", "KH", "KW", "H", "W")
CHANNELS = SLOTS[:4]
SPATIAL = SLOTS[4:]
#: The only possible sizes of these slots.
FIXED = {"KH": KH, "KW": KW, "H": H, "W": W}


class Shape:
    """A tensor's size in each slot; an empty slot is no axis. Equal shapes are one object, so they compare by identity.

    Attributes:
        slots: a size or None for each of :data:`SLOTS`.
        sizes: the sizes of the slots that are not empty, in order.
        volume: the product of the sizes.
        free: the number of the shape's dynamic variable, or None; Theorem 1 allows one.
        fault: the reason why the shape is illegal, as text, or None.
    """

    __slots__ = ("__weakref__", "fault", "free", "sizes", "slots", "volume")
    _known: ClassVar[WeakValueDictionary[tuple[Size | None, ...], Shape]] = WeakValueDictionary()

    slots: tuple[Size | None, ...]
    sizes: tuple[Size, ...]
    volume: Size
    free: int | None
    fault: str | None

    def __new__(cls, slots: tuple[Size | None, ...]) -> Shape:
        """Return the unique shape with these slots; a slot of size 1 is empty."""
        slots = tuple([None if size is None or size.is_one else size for size in slots])
        shape = cls._known.get(slots)
        if shape is None:
            shape = super().__new__(cls)
            shape._set_up(slots)
            # setdefault: if two threads make the same shape, both get the first object.
            shape = cls._known.setdefault(slots, shape)
        return shape

    @classmethod
    def of(cls, **sizes: str) -> Shape:
        """Make a shape from sizes as text, by slot: ``Shape.of(G="G", C="C/G", H="H", W="W")``."""
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
        """Return the shape with some slots changed."""
        return Shape(tuple([new.get(name, size) for name, size in zip(SLOTS, self.slots, strict=True)]))

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - equal shapes are one object, and few are in use
    def substituted(self, number: int, by: Size) -> Shape:
        """Return the shape with the size ``by`` in place of a dynamic variable."""
        if self.free != number:
            return self
        return Shape(tuple([None if size is None else substitute(size, number, by) for size in self.slots]))

    def size(self, slot: str) -> Size:
        """Return the size of a slot, 1 for an empty slot."""
        size = self[slot]
        return ONE if size is None else size

    @property
    def filled(self) -> tuple[str, ...]:
        """The names of the slots that are not empty."""
        return tuple([name for name, size in zip(SLOTS, self.slots, strict=True) if size is not None])

    @property
    def group_inputs(self) -> Size:
        """The channels of one group: the size of an FC's sum for an output element."""
        return self.size("C") * self.size("KH") * self.size("KW")

    def at(self, binding: Mapping[str, int]) -> tuple[int, ...]:
        """Return the six sizes for a binding, 1 for empty slots. Raises SpecError for a size that is not whole."""
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
    """Return the size of the dynamic variable for which a shape has C·H·W elements; None where no size does.

    For a shape of C·H·W elements without a dynamic variable, the result is C·H·W. A variable is solved only where the
    shape has H and W. A variable that replaces H or W would need an FC with as many channels as pixels.
    """
    if shape.free is None:
        return IMAGE if shape.volume == IMAGE else None
    if shape["H"] is None or shape["W"] is None:
        return None
    size = IMAGE / substitute(shape.volume, shape.free, ONE)
    return size if is_legal(size) and shape.substituted(shape.free, size).fault is None else None
