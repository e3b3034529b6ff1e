"""The map without a browser: its traits, its messages, and the atlas that it writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import syno_widgets
from known_runs import fill_lab, operator_texts
from pages import page_state
from syno_widgets import Map
from syno_widgets.view import View

from syno_lab.errors import SpecError, StoreError, SynoError
from syno_lab.systems import read_operator

WIDGETS = Path(syno_widgets.__file__).parent


def test_the_map_of_a_lab_and_its_atlas(tmp_path: Path) -> None:
    fill_lab(tmp_path, 2)
    view = Map(tmp_path, known=False)
    try:
        assert view.wait(120)
        assert len(view.atlas.places) == 2
        assert [one["key"] for one in view.shown["places"]] == [one["key"] for one in view.links.values()]
        key = view.shown["places"][0]["key"]
        view.handle({"kind": "open", "request": 1, "key": key})
        assert (view.error, view.answered) == ("", 1)
        assert view.opened is not None
        assert view.opened.operator in [read_operator(text) for text in operator_texts()]
        view.handle({"kind": "open", "request": 2, "key": "nowhere"})
        assert view.error == "map: expected the key of an operator in it, found 'nowhere'"
        state = page_state(view.to_html())
        assert (state["opened"], state["svg"]) == (None, view.svg)

        index = view.write(tmp_path / "atlas", panes=["graph"])
        pages = re.findall(r'href="([^"]+)"', index.read_text())
        assert len(pages) == 4
        for page in set(pages):
            held = page_state((index.parent / page).read_text())
            assert held["pane_graph"]["state"] == "ready"
        with pytest.raises(SynoError, match="cannot write"):
            view.write(index / "below a file")
    finally:
        view.close()


def test_what_cannot_be_mapped(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not there"):
        Map(tmp_path / "nowhere")
    fill_lab(tmp_path, 1)
    with pytest.raises(StoreError, match="no search 'other'"):
        Map(tmp_path, source="other")
    empty = Map(known=False)
    with pytest.raises(SpecError, match="found none"):
        _ = empty.atlas
    assert "found none" in empty.error
    empty.close()


def test_every_trait_is_documented_and_read_by_the_script() -> None:
    script = "".join((WIDGETS / name).read_text() for name in ("shared.js", "atlas_map.js"))
    read = set(re.findall(r'model\.get\("(\w+)"\)', script))
    named = {name for names in re.findall(r"listen\(\[(.*?)\]", script) for name in re.findall(r'"(\w+)"', names)}
    traits = {**View.class_own_traits(sync=True), **Map.class_own_traits(sync=True)}
    own = {name for name in traits if not name.startswith("_")}
    assert read | named == own
    source = "".join((WIDGETS / name).read_text() for name in ("view.py", "atlas_map.py"))
    for name in own:
        assert re.search(rf'    {name} = t\..*\n    """', source), f"{name} has no line of documentation"
    mine = "".join((WIDGETS / name).read_text() for name in ("atlas_map.js", "atlas_map.css"))
    assert not re.search(r"https?:|@import|import\s*\(|url\(|fetch\(|eval\(|innerHTML", mine)
