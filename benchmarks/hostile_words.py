"""The doors through which words come in: bindings, magics and widgets, command lines. See `hostile_surfaces`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile_damage as damage
from hostile_kit import BINDING, OPERATORS
from hostile_surfaces import Opening, Place

_NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 10**6, 10**12, 10**17, 10**18, 10**19, 10**4298, 10**5000, -(10**30), 1 << 63),
    *(True, False, None, 1.0, 2.5, float("nan"), float("inf"), "3", "three", b"3", [3], (3,), {}, 3j),
)


def bindings(rng: random.Random, place: Place) -> Opening:
    """Values of variables, as numbers of all kinds and as words."""
    import numpy as np

    from syno_lab.commands.operands import complete_binding, parse_binding
    from syno_lab.operators import KNOWN
    from syno_lab.panes import Asked, read_pane
    from syno_lab.pgraphs.panes import PANES

    operator = KNOWN[rng.choice(OPERATORS)]()
    names = list(operator.spec.symbols.names)
    odd = damage.odd_texts(place.marker)
    if rng.random() < 0.45:
        pairs = [
            damage.damaged_text(rng, f"{name}={BINDING.get(name, 2)}", place.marker) if rng.random() < 0.4 else
            f"{name}={rng.choice((*odd, *(str(one) for one in _NUMBERS[:9])))}"
            for name in names if rng.random() < 0.8
        ]  # fmt: skip
        way = rng.randrange(3)
        if way == 0:
            return lambda: parse_binding(pairs)
        if way == 1:
            return lambda: complete_binding(operator, pairs)
        words = [word for pair in pairs for word in ("--bind", pair)]
        return lambda: place.command("show", rng.choice(OPERATORS), *words)
    numbers = (
        *_NUMBERS,
        np.int64(3),
        np.int32(-1),
        np.float64(3.0),
        np.uint64((1 << 64) - 1),
        np.array(3),
        np.bool_(True),
    )
    binding: dict[Any, Any] = {name: BINDING.get(name, 2) for name in names}
    for _ in range(rng.choice((1, 1, 2, 4))):
        binding[rng.choice((*names, *names, "no_such", "\x1b[2J", "", 3))] = rng.choice(numbers)
    calls: tuple[Callable[[], object], ...] = (
        lambda: operator.flops(binding),
        lambda: operator.params(binding),
        lambda: operator.input_sizes(binding),
        lambda: operator.to_torch_source(binding),
        lambda: operator.spec.bound([binding]),
        lambda: str(operator.loops()),
        lambda: operator.receptive_field(binding) if hasattr(operator, "receptive_field") else None,
    )
    if rng.random() < 0.7:
        return rng.choice(calls)
    element = rng.choice((*odd, "center", "0, 3, :, 5", ":", "9" * 400 + ",0,0,0"))
    pane = rng.choice(("cost", "loops", "reach", "equation", "graph", "source", rng.choice(odd)))
    held = tuple(binding.items())
    _ = PANES
    return lambda: read_pane(Asked(operator, rng.choice(odd), held, element=element), pane)


def magics(rng: random.Random, place: Place) -> Opening:
    """Lines and cells of magics with hostile values put in, and widgets that are given hostile texts."""
    os.environ["SYNO_LAB_FOLDER"] = str(place.given.parent / "lab")
    odd = damage.odd_texts(place.marker)
    value = rng.choice((*odd, *odd, 10**4000, None, 2.5))
    way = rng.randrange(10)
    if way == 0:
        from syno_widgets.stepper import Stepper

        return lambda: Stepper(value)
    if way == 1:
        from syno_widgets import OperatorView

        from syno_lab.operators import KNOWN

        option = rng.choice(("pane", "element", "photo", "weights", "search"))
        return lambda: OperatorView(KNOWN["conv2d"](), **{option: value})
    if way == 2:
        from syno_widgets import RunsView

        option = rng.choice(("pane", "source", "x", "y", "z", "sort", "filter"))
        return lambda: RunsView(place.kit / "lab", **{option: value}).close()
    line = rng.choice(
        (
            "{value}",
            "conv2d {value}",
            "train {value} --epochs none",
            "train conv2d --data {value} --epochs=none",
            "tune conv2d --trials none --target {value}",
            "search --backbone {value} --no-such-option",
            "train conv2d --folder {value}",
            "show no {value}",
            "cancel x{value}",
            "log {value} x",
            "$value",
        )
    )
    name = rng.choice(("syno", "syno", "syno", "syno_card"))
    if rng.random() < 0.3:
        line = damage.damaged_text(rng, line, place.marker)
        first, *rest = line.split(maxsplit=1) or [""]
        if first in ("search", "train", "tune"):  # what is well-formed all the same would start a lab for minutes
            line = " ".join((first, "--no-such-option", *rest))
    line = line.replace("{value}", "{value}" if rng.random() < 0.7 else str(value)[:200])
    if str(place.marker) in line:  # braces that were typed are the user's own; only values come from elsewhere
        line = line.replace("{", "").replace("}", "")
    cell = (
        f"--data {{value}}\n--epochs none\n{rng.choice(odd[:30])}" if rng.random() < 0.25 and name == "syno" else None
    )
    return lambda: _magic(name, line, cell, value)


_shell: Any = None


def _magic(name: str, line: str, cell: str | None, value: object) -> object:
    """Run a magic as a cell does, in an IPython without history; its lab is this input's own."""
    global _shell
    from IPython.core.interactiveshell import InteractiveShell
    from syno_widgets.attached import AttachedLab
    from syno_widgets.magics import SynoMagics

    if _shell is None:
        InteractiveShell.HistoryManager = None
        _shell = InteractiveShell()
        _shell.history_manager = None
    lab = AttachedLab()
    _shell.register_magics(SynoMagics(_shell, lab))
    _shell.user_ns["value"] = value
    try:
        if cell is None:
            return _shell.run_line_magic(name, line)
        return _shell.run_cell_magic(name, line, cell)
    finally:
        lab.close()


def words(rng: random.Random, place: Place) -> Opening:
    """Command lines with words in them that nobody means."""
    odd = damage.odd_texts(place.marker)

    def any_of(*plain: object) -> object:
        return rng.choice(odd) if rng.random() < 0.6 else rng.choice(plain)

    def path(*plain: object) -> object:
        if rng.random() < 0.4:
            return damage.odd_place(rng, place.given / f"odd{rng.randrange(10**6)}")
        return any_of(*plain)

    out: Path = place.given.parent
    lines: tuple[Callable[[], list[object]], ...] = (
        lambda: ["show", any_of("conv2d"), "--as", any_of("loops", "table"), "--at", any_of("0,0,0,0", ":,:")],
        lambda: ["show", "conv2d", "--as", "loops", "--wrt", any_of("X", "W1", "W9"), "--staged"],
        lambda: ["show", path("conv2d"), "--as", any_of("summary")],
        lambda: ["export", path("conv2d"), "--out", out / "a.none", "--as", any_of("python")],
        lambda: ["export", "conv2d", "--out", out / "a.py", "--bind", any_of("N=1"), "--scale", any_of("nan", "1e400")],
        lambda: ["replay", path("none.json")],
        lambda: ["sample", "--spec", path("none.json"), "--count", any_of(1), "--seconds", "0.2"],
        lambda: ["sample", "--count", 1, "--seed", any_of(1), "--max-primitives", any_of(0)],
        lambda: ["enumerate", "--spec", path("none"), "--max-primitives", any_of(2), "--count", 2],
        lambda: ["ablate", any_of("canonical"), "--max-primitives", any_of("3..2", "0"), "--trials", any_of("x")],
        lambda: ["backbone", any_of("resnet20", "none"), "--data", path("none")],
        lambda: ["train", path("none"), "--epochs", any_of(1), "--data", any_of("none")],
        lambda: ["train", "conv2d", "--epochs", any_of("x"), "--data", path("none"), "--lr", any_of("nan")],
        lambda: ["search", "--data", path("none"), "--backbone", any_of("none"), "--trials", any_of("x")],
        lambda: ["tune", path("none"), "--target", any_of("none"), "--trials", any_of("x")],
        lambda: ["tune", "conv2d", "--target", rng.choice(odd), "--trials", "x"],
        lambda: ["network", any_of("none"), "--backbone", any_of("none"), "--trials", "x"],
        lambda: ["board", any_of("none"), "--no-such", any_of("x")],
        lambda: ["jobs", any_of("list", "show"), any_of(1), "--folder", out / "no-lab"],
        lambda: ["jobs", "list", "--folder", damage.odd_place(rng, out / "odd")],
        lambda: ["jobs", "show", any_of(1), "--folder", place.kit / "lab"],
        lambda: ["kernel", any_of("none"), any_of("x")],
        lambda: ["demo", "--data", path("none"), "--seed", any_of("x"), "--no-such"],
        lambda: [any_of("none"), any_of("none"), any_of("none")],
    )
    line = rng.choice(lines)()
    if rng.random() < 0.1:
        line.insert(rng.randrange(1, len(line) + 1), rng.choice(odd))
    return lambda: place.command(*line)


WORDS: dict[str, tuple[Callable[[random.Random, Place], Opening], int]] = {
    "bindings": (bindings, 800),
    "magics": (magics, 500),
    "words": (words, 600),
}
"""Surfaces of words by name, and how many inputs a whole run gives to each."""
