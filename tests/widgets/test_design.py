"""The design of docs/design.md: its tokens alone, text that can be read, colours that stay apart."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from house import ROOT

from syno_lab.drawing.style import DARK_LOOKS, HIGHLIGHT, PRIMITIVE_LOOKS

WIDGETS = ROOT / "widgets" / "syno_widgets"
CSS = (WIDGETS / "shared.css").read_text(encoding="utf-8")
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
LEAST_APART = 8.0  # CIE76; about three just noticeable differences

Colour = np.ndarray
#: What linear RGB is for a reader who lacks one kind of cones (Machado, Oliveira and Fernandes 2009, severity 1).
LACKING = {
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


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


def lab(linear_rgb: Colour) -> Colour:
    """CIE L*a*b* under D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.clip(to_xyz @ linear_rgb, 0, None) / (0.9505, 1, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


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


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("lacking", LACKING)
def test_the_primitives_stay_apart_for_colour_blind_readers(lacking: str, mode: int) -> None:
    """Line and fill together: two primitives differ in at least one of them."""
    seen = {}
    for name in map(str.lower, PRIMITIVE_LOOKS):
        both = (linear(token(name + more, mode, "page")) for more in ("", "-fill"))
        seen[name] = [lab(np.clip(np.array(LACKING[lacking]) @ one, 0, 1)) for one in both]
    for one, other in itertools.combinations(seen, 2):
        apart = max(float(np.linalg.norm(a - b)) for a, b in zip(seen[one], seen[other], strict=True))
        assert apart >= LEAST_APART, f"{one} and {other}: {apart:.1f}"


def test_the_tokens_are_the_colours_of_the_pictures() -> None:
    for name, look in PRIMITIVE_LOOKS.items():
        fill, line = DARK_LOOKS[name]
        assert TOKENS[f"--syno-{name.lower()}"] == f"light-dark({look.border}, {line})"
        assert TOKENS[f"--syno-{name.lower()}-fill"] == f"light-dark({look.fill}, {fill})"
    assert TOKENS["--syno-lit"].startswith(f"light-dark({HIGHLIGHT}, ")


#: Where the colours stand: the tokens of pages, those of pictures, and what `dark_css` writes of these.
HOMES = ("shared.css", "style.py", "operator_graph_dark.css")
COLOUR = re.compile(r"""(?<![&\w])\#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})\b|\brgba?\(""")
SIZE = re.compile(r"""font-size["']?[:=]\s*\\?["']?([\d.]+)(px|pt|rem|["'])""")
SIZES = {"11", "12", "14", "16", "20"}


def sources() -> list[Path]:
    """What draws: the widgets, the engine, the site and the manual's pictures."""
    places = {"widgets/syno_widgets": ("css", "js", "py"), "syno_lab": ("py",), "docs": ("py", "css")}
    files = [path for place, ends in places.items() for end in ends for path in (ROOT / place).rglob(f"*.{end}")]
    return [path for path in files if path.name not in HOMES]


def test_no_colour_and_no_size_stands_outside_of_the_tokens() -> None:
    assert len(sources()) > 400
    assert COLOUR.search("color: #0b7480;")
    assert SIZE.search('font-size="13"')
    for path in sources():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            where = f"{path.relative_to(ROOT)}:{number}"
            found = COLOUR.search(line)
            assert found is None, f"{where}: expected a token of docs/design.md, found {found[0]}"
            for size, unit in SIZE.findall(line):
                is_token = size in SIZES and unit in ('"', "'", "px") and path.suffix != ".css"
                assert is_token, f"{where}: expected a size of docs/design.md, found {size}"
