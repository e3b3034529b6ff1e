"""The design of docs/design.md: no colour or size besides its tokens, and text that can be read."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from house import ROOT

from syno_lab.drawing.style import DARK_LOOKS, HIGHLIGHT, PRIMITIVE_LOOKS

CSS = (ROOT / "widgets" / "syno_widgets" / "shared.css").read_text(encoding="utf-8")
TOKENS = dict(re.findall(r"(--syno-[\w-]+): ([^;]+);", CSS))
#: Ground and ink of the hosts, light and dark: pages that stand alone, JupyterLab 4, VS Code.
HOSTS = {
    "page": (("#ffffff", "#1b1b1f"), ("#17171a", "#ececf0")),
    "JupyterLab": (("#ffffff", "rgb(0 0 0 / 87%)"), ("#111111", "rgb(255 255 255 / 100%)")),
    "VS Code": (("#ffffff", "#3b3b3b"), ("#1f1f1f", "#cccccc")),
}
SEVEN_TO_ONE = {"ink"}
TEXTS = ("ink", "quiet", "accent", "wrong", "good", "warn")
GROUNDS = ("ground", "raised", "hover", "tint")

Colour = np.ndarray


def read(colour: str, ground: Colour | None = None) -> Colour:
    """A colour as red, green and blue from 0 to 1; what shines through is mixed with the ground."""
    if colour.startswith("#"):
        return np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    *rgb, share = (float(one) for one in re.findall(r"[\d.]+", colour))
    below = np.ones(3) if ground is None else ground
    return np.array(rgb) / 255 * share / 100 + below * (1 - share / 100)


def token(name: str, mode: int, host: str) -> Colour:
    """The colour of a token in light (0) or dark (1)."""
    ground, ink = HOSTS[host][mode]
    if name in ("ground", "ink"):
        return read(ground) if name == "ground" else read(ink, read(ground))
    value = TOKENS[f"--syno-{name}"]
    if mixed := re.fullmatch(r"color-mix\(in srgb, var\(--syno-([\w-]+)\) (\d+)%, var\(--syno-([\w-]+)\)\)", value):
        share = int(mixed[2]) / 100
        return share * token(mixed[1], mode, host) + (1 - share) * token(mixed[3], mode, host)
    both = re.fullmatch(r"light-dark\((#\w+), (#\w+)\)", value)
    return read(both[mode + 1] if both else value)


def linear(colour: Colour) -> Colour:
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def contrast(one: Colour, other: Colour) -> float:
    """As WCAG 2.2 defines it."""
    dark, light = sorted(float(linear(colour) @ (0.2126, 0.7152, 0.0722)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def test_the_contrast_is_that_of_the_standard() -> None:
    assert contrast(read("#000000"), read("#ffffff")) == pytest.approx(21)
    assert contrast(read("#767676"), read("#ffffff")) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_each_ground(host: str, mode: int) -> None:
    for text, ground in itertools.product(TEXTS, GROUNDS):
        least = 7 if text in SEVEN_TO_ONE else 4.5
        found = contrast(token(text, mode, host), token(ground, mode, host))
        assert found >= least, f"{text} on {ground}: {found:.2f}"
    assert contrast(token("on-accent", mode, host), token("accent", mode, host)) >= 4.5
    assert contrast(token("mark-ink", mode, host), token("mark", mode, host)) >= 7
    for name in ("edge", "lit", *map(str.lower, PRIMITIVE_LOOKS)):
        assert contrast(token(name, mode, host), token("ground", mode, host)) >= 3, name
    for name in map(str.lower, PRIMITIVE_LOOKS):
        assert contrast(token(name, mode, host), token(f"{name}-fill", mode, host)) >= 3, name


def test_the_tokens_are_the_colours_of_the_pictures() -> None:
    for name, look in PRIMITIVE_LOOKS.items():
        fill, line = DARK_LOOKS[name]
        assert TOKENS[f"--syno-{name.lower()}"] == f"light-dark({look.border}, {line})"
        assert TOKENS[f"--syno-{name.lower()}-fill"] == f"light-dark({look.fill}, {fill})"
    assert TOKENS["--syno-lit"].startswith(f"light-dark({HIGHLIGHT}, ")
