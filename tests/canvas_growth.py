"""Drafts of Canvas grown by chance, for the tests: every primitive, every span of a broadcast, any substitution."""

from __future__ import annotations

import random
from collections.abc import Mapping

from syno_lab.canvas.kernel import Draft, Kernel
from syno_lab.canvas.primitives import BROADCASTS, PRIMITIVES, Primitive
from syno_lab.canvas.shape import KH, KW, ONE, SLOTS, C, G, H, W, variable
from syno_lab.errors import PrimitiveError

#: Numbers under which G divides C; the dynamic variables are multiples of all of the others.
BINDING = {"C": 8, "G": 2, "KH": 3, "KW": 5, "H": 4, "W": 6} | {f"x{number}": 5760 for number in range(8)}
SPANS = (
    "",
    *SLOTS,
    *(f"{first}..{last}" for place, first in enumerate(SLOTS) for last in SLOTS[place + 1 :]),
)
SIZES = (
    ONE,
    C,
    G,
    C / G,
    KH,
    C * KH,
    C / G * KW,
    G * KH,
    H * W,
    C * H * W,
    variable(0),
    variable(1) * KW,
    G / C,
    H / G,
)


def at(binding: Mapping[str, int]) -> dict[str, int]:
    """The binding of an operator at a place where its template has these numbers."""
    inner = {name: number for name, number in binding.items() if name != "C"}
    return {"N": 1, "C_in": binding["C"], "C_out": binding["C"], "s": 1, **inner}


def candidates(draft: Draft, rng: random.Random) -> list[tuple[Primitive, tuple[int, ...]]]:
    """Primitives for some of the tensors of the draft that may or may not apply; broadcasts with the spans that do."""
    one, other = (rng.randrange(len(draft.shapes)) for _ in range(2))
    found = []
    for kind in PRIMITIVES.values():
        if kind.name == "fc":
            fresh = [] if draft.fresh is None else [variable(draft.fresh)]
            found += [(Primitive("fc", str(size)), (one,)) for size in (C, C / G, *fresh)]
        elif kind.arity == 2:
            shapes = (draft.shapes[one], draft.shapes[other])
            found += [(Primitive(kind.name, span), (one, other)) for span in SPANS if kind.applies(span, shapes)][:2]
        else:
            found += [(Primitive(kind.name, parameter), (one,)) for parameter in kind.offers(draft.shapes[one])]
    return found


def grow(draft: Draft, rng: random.Random) -> Draft:
    """The draft with one more node, or a dynamic variable less; the same where that is refused."""
    try:
        if draft.variables and rng.random() < 0.3:
            return draft.substitute(rng.choice(draft.variables), rng.choice(SIZES))
        primitives = candidates(draft, rng)
        name = rng.choice(sorted({primitive.name for primitive, _ in primitives}))
        return draft.apply(*rng.choice([found for found in primitives if found[0].name == name]))
    except PrimitiveError:
        return draft


def grown(rng: random.Random, steps: int) -> Draft:
    """A draft after so many attempts."""
    draft = Draft()
    for _ in range(steps):
        draft = grow(draft, rng)
    return draft


def kernel(rng: random.Random, steps: int) -> Kernel:
    """A kernel grown by chance, its branches blended at the end."""
    while True:
        draft = grown(rng, steps)
        try:
            for leaf in draft.leaves[:-1]:
                draft = _joined(draft, leaf, draft.leaves, rng)
            if draft.why_incomplete is not None:
                last = draft.leaves[-1]
                draft = draft.apply(Primitive("fc", "C"), (last,))
                if draft.why_incomplete is not None:
                    draft = _joined(draft, last + 1, (0,), rng)
            return draft.kernel()
        except PrimitiveError:
            continue


def _joined(draft: Draft, leaf: int, others: tuple[int, ...], rng: random.Random) -> Draft:
    """``leaf`` broadcast onto one of the others."""
    for other in rng.sample(others, len(others)):
        name = rng.choice(BROADCASTS)
        for span in SPANS:
            if other != leaf and draft.refusal(Primitive(name, span), (leaf, other)) is None:
                return draft.apply(Primitive(name, span), (leaf, other))
    raise PrimitiveError("these leaves do not match")
