"""Put the letters that an SVG uses into it, so that its texts are as wide wherever it is read as they were measured."""

from __future__ import annotations

import base64
import io
import re
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree

# Matplotlib's own output is read: quoted names are families, the others are generic.
_FAMILY = re.compile(r"'([^']+)'")
_SLANT = re.compile(r"\b(italic|oblique)\b")
_WEIGHT = re.compile(r"(?<![\w.#-])(bold|[1-9]00)(?=\s*(?:;|\s|$))")


def embed_fonts(svg: str) -> str:
    """An SVG that matplotlib wrote with texts as texts, and with the letters of its fonts in a style sheet."""
    used: dict[tuple[str, str, str], set[str]] = {}
    for element in ElementTree.fromstring(svg).iter():  # noqa: S314 - written by matplotlib just now
        look, text = element.get("style", ""), (element.text or "").strip()
        families = _FAMILY.findall(look)
        if not text or not families:
            continue
        slant, weight = _SLANT.search(look), _WEIGHT.search(look)
        left = set(text)
        for family in families:  # a letter is taken from the first family that has it
            face = (family, slant[1] if slant else "normal", weight[1] if weight else "normal")
            has = left & _letters(face)
            left -= has
            if has:
                used.setdefault(face, set()).update(has)
    rules = "".join(
        f"@font-face {{font-family: '{family}'; font-style: {slant}; font-weight: {weight}; "
        f"src: url(data:font/woff;base64,{_subset(_file((family, slant, weight)), ''.join(sorted(letters)))})}}\n"
        for (family, slant, weight), letters in sorted(used.items())
    )
    return svg.replace('<style type="text/css">', f'<style type="text/css">\n{rules}', 1)


def _file(face: tuple[str, str, str]) -> str | None:
    from matplotlib.font_manager import FontProperties, findfont

    family, slant, weight = face
    style: Any = slant  # one of three words, by the expression that found it
    wanted = FontProperties(family=[family], style=style, weight=int(weight) if weight.isdecimal() else weight)
    try:
        return str(findfont(wanted, fallback_to_default=False))
    except ValueError:
        return None


@lru_cache(maxsize=32)
def _letters(face: tuple[str, str, str]) -> frozenset[str]:
    from fontTools.ttLib import TTFont

    path = _file(face)
    if path is None:
        return frozenset()
    with TTFont(path, fontNumber=0, lazy=True) as font:
        return frozenset(map(chr, font.getBestCmap() or ()))


@lru_cache(maxsize=128)
def _subset(path: str | None, letters: str) -> str:
    """Those letters of a font as WOFF in base64, the same for the same letters."""
    from fontTools import subset

    assert path is not None
    options = subset.Options(
        layout_features=[], hinting=False, name_IDs=[], notdef_outline=True, flavor="woff", recalc_timestamp=False
    )
    options.font_number = 0
    options.drop_tables += ["FFTM", "GDEF", "GPOS", "GSUB", "MATH"]
    font = subset.load_font(path, options)
    cut = subset.Subsetter(options)
    cut.populate(text=letters)
    cut.subset(font)
    out = io.BytesIO()
    subset.save_font(font, out, options)
    return base64.b64encode(out.getvalue()).decode()
