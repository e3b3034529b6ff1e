"""The atlas of operators: its plane against plain linear algebra, what is in it, its picture and its page."""

from __future__ import annotations

import re
from itertools import combinations
from math import dist
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from known_runs import fill_lab, operator_texts
from msgspec.structs import replace

from syno_lab.alpha.known import KNOWN as NETWORKS
from syno_lab.errors import SpecError, StoppedError
from syno_lab.operators import conv1x1, conv2d, dilated, separable
from syno_lab.reports import LabReader
from syno_lab.reports.atlas import (
    SHADES,
    Atlas,
    atlas,
    atlas_page,
    atlas_svg,
    distance,
    plane,
    shade,
    shown_atlas,
    traits_of,
)

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    folder = tmp_path_factory.mktemp("lab")
    fill_lab(folder, 14, texts=[*operator_texts(), NETWORKS["conv_block"]().to_json()])
    with LabReader(folder) as reader:
        return atlas(reader.read().rows, known=False)


def test_what_differs_in_two_words_is_drawn_as_it_is() -> None:
    traits = [{"a": 3, "b": 1, "c": 5}, {"a": 0, "b": 1, "c": 9}, {"b": 1}, {"a": 7, "b": 1, "c": 2}]
    places, kept = plane(traits)
    for (one, first), (other, second) in combinations(zip(traits, places, strict=True), 2):
        assert dist(first, second) == pytest.approx(distance(one, other), abs=1e-9)
    assert kept == pytest.approx(1.0)
    assert distance(traits[0], traits[1]) == 5.0
    assert distance(traits[2], {"b": 1, "a": 0}) == 0.0, "a word that is not there counts as 0"


def test_the_plane_keeps_most_of_the_squared_distances() -> None:
    rng = np.random.default_rng(7)
    points = rng.integers(0, 9, (12, 5))
    places, kept = plane([dict(zip("abcde", map(int, row), strict=True)) for row in points])
    # Principal axes, from the singular values: nothing keeps more.
    values = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) ** 2
    assert kept == pytest.approx(values[:2].sum() / values.sum())
    drawn = np.array(places)
    assert ((drawn - drawn.mean(axis=0)) ** 2).sum() == pytest.approx(values[:2].sum())
    assert plane([{"a": 1}, {"a": 1}]) == ([(0.0, 0.0)] * 2, 1.0)
    assert len(plane([{"a": 1}])[0]) == 1


def test_operators_that_do_alike_are_near() -> None:
    two, wide, one, apart = (traits_of(make()) for make in (conv2d, dilated, conv1x1, separable))
    assert two
    assert wide
    assert one
    assert apart
    assert distance(two, apart) < distance(two, one)
    assert traits_of(NETWORKS["conv_block"]()) is None, "a network is for no layer"


def test_the_best_trial_of_each_operator_is_in_it(found: Atlas, tmp_path: Path) -> None:
    fill_lab(tmp_path, 14, texts=[*operator_texts(), NETWORKS["conv_block"]().to_json()])
    with LabReader(tmp_path) as reader:
        rows = reader.read().rows
    best = {text: max(row.accuracy or 0.0 for row in rows if row.operator == text) for text in operator_texts()}
    assert sorted(one.value or 0.0 for one in found.places) == sorted(best.values())
    assert [one.value for one in found.places] == sorted((one.value or 0.0 for one in found.places), reverse=True)
    assert (found.measure, found.left_out, found.more) == ("accuracy", 1, 0)
    assert "0 known and 6 discovered operators" in found.words
    assert "1 do not fit a convolution's layer." in found.words
    least = atlas(rows, known=False, most=2)
    assert [one.key for one in least.places] == [one.key for one in found.places[:2]]
    assert least.more == 5
    with pytest.raises(SpecError, match="expected an operator that fits a convolution's layer, found none"):
        atlas((), known=False)
    with pytest.raises(StoppedError):
        atlas(rows, known=False, should_stop=lambda: True)


def test_the_picture_has_one_scale_and_its_names_lie_on_nothing(found: Atlas) -> None:
    shown = shown_atlas(found)
    shown = replace(shown, places=[replace(one, known=True) for one in shown.places])  # so that all have names
    root = ElementTree.fromstring(atlas_svg(shown))
    groups = {group.get("id"): group for group in root.iter(f"{SVG}g") if group.get("id")}
    spots, texts = [], []
    for number in range(len(found.places)):
        group = groups[f"p{number}"]
        moved = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", group.find(f"{SVG}path").get("transform"))
        spots.append((float(moved[1]), float(moved[2])))
        texts += group.findall(f"{SVG}text")
    ratios = [
        dist(spots[a], spots[b]) / dist((one.x, one.y), (other.x, other.y))
        for (a, one), (b, other) in combinations(enumerate(found.places), 2)
        if dist((one.x, one.y), (other.x, other.y)) > 1
    ]
    assert ratios
    assert max(ratios) == pytest.approx(min(ratios), rel=0.02)
    assert texts
    boxes = [(float(t.get("x")), float(t.get("y")), len(t.text) * 6.0) for t in texts]
    for (x, y, wide), (left, base, other) in combinations(boxes, 2):
        assert abs(y - base) >= 11 or x + wide <= left or left + other <= x
    # Every operator has FLOPs, so every mark has a colour: least and most differ by the whole scale.
    assert [shade(flops, 10**3, 10**9) for flops in (10**3, 2 * 10**6, 10**9)] == [SHADES[0], SHADES[4], SHADES[-1]]
    fills = {path.get("fill") for name in groups for path in groups[name].findall(f"{SVG}path")}
    assert len(fills & set(SHADES)) > 2
    assert shade(0, 10**3, 10**9) == SHADES[0]
    assert all(one.text.endswith(" FLOPs") for one in shown_atlas(found).places)


def test_the_page_is_safe_and_links(found: Atlas) -> None:
    shown = shown_atlas(found, {found.places[0].key: "operators/000.html"})
    shown.places[1] = replace(shown.places[1], name="<script>alert(1)</script>")
    text = atlas_page('a "title" <b>', shown)
    assert text.count('href="operators/000.html"') == 2, "in the picture and in the table"
    assert "<script" not in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "a &quot;title&quot; &lt;b&gt;" in text
