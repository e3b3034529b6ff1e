"""The stepper without a browser: its traits, its messages, its outputs."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import syno_widgets
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from pages import page_state
from syno_widgets import Stepper
from syno_widgets.comparing import Comparing
from syno_widgets.static import static_bundle
from syno_widgets.view import View
from traitlets.config import Config

from syno_lab.codegen import drawing
from syno_lab.errors import FormatError, PrimitiveError, SpecError, SynoError
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import KNOWN, conv2d
from syno_lab.pgraphs import menu as pgraph_menu
from syno_lab.sessions.session import Session
from syno_lab.synthesis.candidates import Candidate, candidates
from syno_lab.synthesis.distance import distance

WIDGETS = Path(syno_widgets.__file__).parent


@pytest.fixture
def stepper() -> Stepper:
    return Stepper(
        Spec.parse(
            "[N, C_in, H, W]",
            "[N, C_out, H, W]",
            ["N", "C_in", "C_out", "H", "W"],
            ["k_1=3"],
            fixed_io_pairs=[(0, 0)],
        )
    )


def test_an_operator_is_shown_against_the_wish(stepper: Stepper) -> None:
    assert "mixing" not in stepper.distance
    spec = conv2d().spec.with_wants("C_in>=m, H>=m")
    view = Stepper(spec)
    view.load("conv1x1")
    assert view.status.endswith("It misses the wish H>=m (it is one-to-one).")
    mixing = view.distance["mixing"]
    assert mixing["lacks"] == [[row, 2] for row in range(4)]
    assert mixing["verdict"] == "misses the wish H>=m (it is one-to-one)"
    view.reset()
    view.load("conv2d")
    assert view.status.endswith("It meets the wish C_in>=m, H>=m.")
    assert view.distance["mixing"]["lacks"] == []
    view.undo()
    assert "mixing" not in view.distance


def own_traits() -> set[str]:
    """The traits that the page sees, but for those of every widget."""
    own = {name for kind in (View, Comparing, Stepper) for name in kind.class_own_traits(sync=True)}
    return {name for name in own if not name.startswith("_")}


def ask(stepper: Stepper, kind: str, **more: Any) -> None:
    """A message as the browser sends it."""
    number = stepper.answered + 1
    stepper.handle({"kind": kind, "request": number, "revision": stepper.revision, **more})
    assert stepper.answered == number


def item(stepper: Stepper, primitive: str, text: str, kind: str = "canonical") -> dict[str, Any]:
    (group,) = [g for g in stepper.menu if g["primitive"] == primitive]
    (found,) = [i for i in group[kind] if i["text"] == text]
    return found


def tick(stepper: Stepper, text: str) -> str:
    (found,) = [t["id"] for t in stepper.ticks if t["text"] == text]
    return found


def build_conv2d(stepper: Stepper) -> None:
    for text in ("REDUCE C_in", "REDUCE k_1", "REDUCE k_1"):
        ask(stepper, "step", index=item(stepper, "REDUCE", text)["index"])
    share = [tick(stepper, text) for text in ("r_C_in", "r_k_1", "r_k_1__2")]
    ask(stepper, "contract", share=share, give=[tick(stepper, "i_C_out")])
    for text in ("UNFOLD i_H, r_k_1", "UNFOLD i_W, r_k_1__2"):
        ask(stepper, "step", index=item(stepper, "UNFOLD", text)["index"])


def test_the_nearest_steps_across_primitives(stepper: Stepper) -> None:
    build_conv2d(stepper)
    stepper.undo()  # one step before the end
    canonical = [one for one in stepper.candidates if one.verdict.canonical and one.distance is not None]
    best = sorted(one.distance for one in canonical)
    assert [one["distance"] for one in stepper.nearest] == best[:8]
    assert all(one["reaches"] for one in stepper.nearest)
    assert len({one["title"] for one in stepper.nearest}) > 1  # of several primitives
    ask(stepper, "step", index=stepper.nearest[0]["index"])
    assert (stepper.error, stepper.state.distance) == ("", best[0])
    stepper.selected = "c0"
    assert {one["index"] for one in stepper.nearest} <= {i["index"] for g in stepper.menu for i in g["canonical"]}


def test_conv2d_by_messages(stepper: Stepper) -> None:
    build_conv2d(stepper)
    assert stepper.error == ""
    assert stepper.operator == conv2d()
    assert stepper.complete
    assert stepper.status == "Complete after 6 steps: this is conv2d."
    assert stepper.svg == drawing.svg(conv2d(), highlight=[5], is_steady=True)
    assert stepper.description == drawing.describe(conv2d())
    assert [row["text"] for row in stepper.tree][:2] == ["start", "REDUCE C_in"]
    assert stepper.place == 6
    assert stepper.line == list(range(7))
    assert set(stepper.links) >= {"c0", "c7", "s5", "w0", "x", "y"}
    assert [name for name, link in stepper.links.items() if link["top"]] == ["c4", "c7", "c8"], "c0 is fixed"


def test_undo_redo_jump_reset_and_replay(stepper: Stepper) -> None:
    build_conv2d(stepper)
    done = stepper.svg
    ask(stepper, "undo")
    assert stepper.place == 5
    assert stepper.svg != done
    ask(stepper, "redo")
    assert stepper.svg == done
    ask(stepper, "go", index=2)
    assert len(stepper.state.steps) == 2
    ask(stepper, "step", index=item(stepper, "REDUCE", "REDUCE C_in")["index"])
    assert (stepper.place, stepper.line) == (7, [0, 1, 2, 7])
    rows = [(row["place"], row["level"], row["branch"]) for row in stepper.tree]
    assert rows[:5] == [(0, 0, False), (1, 0, False), (2, 0, False), (7, 1, True), (3, 0, False)]
    ask(stepper, "go", index=6)
    assert stepper.svg == done
    ask(stepper, "reset")
    assert stepper.state.steps == ()
    ask(stepper, "replay", name="pixel_shuffle")
    for _ in KNOWN["pixel_shuffle"]().steps:
        assert not stepper.complete
        ask(stepper, "redo")
    assert "this is pixel_shuffle" in stepper.status
    ask(stepper, "load", name="matmul")
    assert stepper.operator == KNOWN["matmul"]()


def test_from_python(stepper: Stepper) -> None:
    first = next(c for c in stepper.candidates if c.primitive == "REDUCE")
    assert stepper.apply(first) == stepper.state
    assert stepper.undo() == State.root(stepper.state.spec)
    assert len(stepper.redo().steps) == 1
    assert stepper.reset().steps == ()
    assert stepper.jump(0).steps == ()
    assert len(stepper.go(1).steps) == 1
    stepper.place = 0
    assert stepper.state.steps == ()
    with pytest.raises(SynoError, match="place: expected a number from 0 to 2, found 9"):
        stepper.place = 9
    assert stepper.load("conv2d") == conv2d().state
    assert stepper.load(conv2d(), at_start=True).steps == ()
    with pytest.raises(PrimitiveError, match="not an operator yet"):
        _ = stepper.operator
    with pytest.raises(SynoError, match="unknown operator 'conv9d'"):
        stepper.load("conv9d")


def test_menu_lists_every_candidate_with_its_verdict(stepper: Stepper) -> None:
    build_conv2d(stepper)
    stepper.jump(4)
    found = candidates(stepper.state)
    for group in stepper.menu:
        mine = [c for c in found if c.primitive == group["primitive"]]
        judged = mine[: pgraph_menu.JUDGED]
        assert group["unjudged"] == len(mine) - len(judged)
        assert len(group["canonical"]) + group["more_canonical"] == sum(c.verdict.canonical for c in judged)
        assert len(group["pruned"]) + group["more_pruned"] == sum(not c.verdict.canonical for c in judged)
        assert len(group["canonical"]) <= pgraph_menu.SHOWN
    assert any(group["unjudged"] for group in stepper.menu)
    for group in stepper.menu:
        ask(stepper, "whole", name=group["primitive"])
    for group in stepper.menu:
        mine = [c for c in found if c.primitive == group["primitive"]]
        assert len(group["canonical"]) == sum(c.verdict.canonical for c in mine)
        assert len(group["pruned"]) == sum(not c.verdict.canonical for c in mine)
        assert group["more_canonical"] == group["more_pruned"] == group["unjudged"] == 0
        for kind in ("canonical", "pruned"):
            for entry in group[kind]:
                candidate = found[entry["index"]]
                assert candidate.primitive == group["primitive"]
                assert candidate.verdict.canonical == (kind == "canonical")
                assert entry["distance"] == candidate.distance
                assert (entry["reason"] or None, entry["rule"] or None) == (
                    candidate.verdict.reason,
                    candidate.verdict.rule,
                )
            reached = [e["distance"] for e in group[kind]]
            assert reached == sorted(reached, key=lambda far: (far is None, far or 0))
    assert {g["primitive"] for g in stepper.menu} == {c.primitive for c in found}
    stepper.undo()
    stepper.redo()
    assert any(group["unjudged"] for group in stepper.menu), "all are shown at one place, where it was asked for"


def test_only_what_can_be_done_with_a_coordinate(stepper: Stepper) -> None:
    build_conv2d(stepper)
    stepper.jump(3)
    everything = stepper.menu
    chosen = drawing.coordinate_ids(stepper.state)["c2"]
    stepper.selected = "c2"
    listed = [i["index"] for g in stepper.menu for i in g["canonical"] + g["pruned"]]
    assert listed
    assert all("c2" in i["operands"] + i["given"] for g in stepper.menu for i in g["canonical"] + g["pruned"])
    counted = ("more_canonical", "more_pruned", "unjudged")
    number = sum(len(g["canonical"]) + len(g["pruned"]) + sum(map(g.get, counted)) for g in stepper.menu)
    assert number == sum(chosen in c.operands + c.given for c in stepper.candidates)
    stepper.selected = "s0"
    assert stepper.menu == everything, "a primitive is no coordinate"
    stepper.selected = "c2"
    ask(stepper, "step", index=listed[0])
    assert stepper.selected == ""
    with pytest.raises(SynoError, match=r"selected: expected a node of the drawing, .*found 'c99'"):
        stepper.selected = "c99"


def test_why_a_step_is_pruned(stepper: Stepper) -> None:
    build_conv2d(stepper)
    stepper.jump(4)
    late = item(stepper, "REDUCE", "REDUCE k_1", "pruned")
    ask(stepper, "why", index=late["index"])
    verdict = stepper.candidates[late["index"]].verdict
    assert (stepper.why["index"], stepper.why["rule"], stepper.why["latex"]) == (
        late["index"],
        verdict.rule,
        verdict.latex,
    )
    assert stepper.why["svg"].startswith("<svg")
    ask(stepper, "why", index=item(stepper, "UNFOLD", "UNFOLD i_H, r_k_1")["index"])
    assert "this one is canonical" in stepper.error
    stepper.undo()
    assert stepper.why == {}


def test_distance_is_explained(stepper: Stepper) -> None:
    assert stepper.distance["number"] == stepper.tree[0]["distance"] == 2
    assert "REDUCE C_in comes first: 1 step." in stepper.distance["words"]
    build_conv2d(stepper)
    assert stepper.distance["number"] == 0
    course = re.search(r"over the steps: (.*?); shown is place 6", stepper.distance["course"])
    assert course
    assert course[1] == ", ".join(str(distance(entry.state)) for entry in stepper.session.history)
    assert stepper.distance["groups"].startswith("<svg")


def test_of_a_long_history_a_part_is_drawn() -> None:
    session = Session(conv2d(), KNOWN)
    for _ in range(30):
        session.load("conv2d")
    stepper = Stepper.of(session.to_word())
    assert len(stepper.tree) == len(stepper.line) == 217
    assert stepper.distance["course"].count("<ellipse") == 48
    for place in (0, 100, 216):
        stepper.go(place)
        course = re.search(
            r"over the steps(?: from place (\d+) on)?: (.*?); shown is (.*?)\.", stepper.distance["course"]
        )
        assert course
        first = int(course[1] or 0)
        line = [entry.distance for entry in stepper.session.history]
        assert course[2] == ", ".join(map(str, line[first : first + 48]))
        assert course[3] == f"place {place}"
        assert first <= place < first + 48


def test_the_picture_is_sent_before_the_next_steps_are_worked_out(
    stepper: Stepper, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    class Out(io.StringIO):
        def flush(self) -> None:
            order.append("sent")

    def work_out(state: State, *_: Any, **limits: Any) -> list[Candidate]:
        order.append("next steps")
        return candidates(state, **limits)

    monkeypatch.setattr(sys, "stdout", Out())
    monkeypatch.setattr("syno_lab.pgraphs.stepping.candidates", work_out)
    stepper.observe(lambda _change: order.append("picture"), "svg")
    stepper.observe(lambda _change: order.append("list"), "revision")
    ask(stepper, "step", index=0)
    assert order == ["picture", "sent", "next steps", "list"]
    sys.stdout.close()  # nobody listens
    ask(stepper, "undo")
    assert stepper.error == ""


def test_suggestions_lead_to_the_input(stepper: Stepper) -> None:
    ask(stepper, "suggest")
    assert stepper.error == ""
    assert [row["distance"] for row in stepper.tree] == [2, 1]
    ask(stepper, "finish")
    assert stepper.place == 1
    assert stepper.line == [0, 1, 2]
    ask(stepper, "redo")
    assert stepper.complete
    ask(stepper, "suggest")
    assert stepper.error == "nothing to suggest: this is an operator already"


def test_completions_are_laid_ahead_and_from_python_taken() -> None:
    spec = Spec.parse("[C, H]", "[D, H]", ["C=8: 1", "D=8: 0", "H=8: 0"], ["k=3: 1"], max_primitives=4)
    stepper = Stepper(spec, seed=3)
    ask(stepper, "random")
    assert stepper.error == ""
    assert stepper.place == 0
    assert len(stepper.line) > 1
    for _ in stepper.line[1:]:
        ask(stepper, "redo")
    assert stepper.complete
    again = Stepper(spec, seed=3)
    assert again.complete_at_random() == stepper.state
    assert again.complete
    assert Stepper(spec).finish().is_complete


def test_a_session_is_kept_and_opened_again(stepper: Stepper, tmp_path: Path) -> None:
    build_conv2d(stepper)
    stepper.jump(3)
    stepper.apply(stepper.candidates[0])
    for text in (stepper.word, stepper.to_json()):
        again = Stepper.of(text)
        assert (again.svg, again.line, again.tree) == (stepper.svg, stepper.line, stepper.tree)
    other = Stepper(stepper.state.spec)
    ask(other, "open", name=stepper.word)
    assert other.svg == stepper.svg
    assert other.place == stepper.place + 1
    third = Stepper(stepper.state.spec)
    third.word = stepper.word
    assert third.svg == stepper.svg
    third.place = 0
    assert third.state.steps == ()
    kept = third.word
    with pytest.raises(FormatError, match="session: expected syno-session:…, or JSON"):
        third.word = "<script>"
    assert third.word == kept


def test_of_any_operator(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(conv2d().to_json())
    for operator in (conv2d(), "conv2d", conv2d().to_json(), file, str(file)):
        stepper = Stepper.of(operator)
        assert (stepper.place, stepper.line) == (0, list(range(7)))
        stepper.place = 6
        assert stepper.operator == conv2d()
    assert Stepper.of("conv2d", at_start=False).place == 6
    with pytest.raises(SynoError, match=r"or a trial \(SEARCH#12\), found 'conv9d'; did you mean conv"):
        Stepper.of("conv9d")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found nothing"),
        ("syno-session:%%%", "is damaged"),
        ('{"format": "syno-lab-operator", "version": 1, "steps": "<script>"}', "operator file: expected JSON"),
        ('{"format": "syno-lab-operator", "version": 9}', "expected version 1, found 9"),
        ("[" * 100_000, "found '\\[\\["),
    ],
)
def test_a_hostile_file_changes_nothing(stepper: Stepper, text: str, said: str) -> None:
    build_conv2d(stepper)
    before = stepper.svg, stepper.revision, stepper.session.places
    ask(stepper, "open", name=text)
    assert re.search(said, stepper.error)
    assert "\n" not in stepper.error
    assert before == (stepper.svg, stepper.revision, stepper.session.places)


def test_a_page_that_stands_alone(stepper: Stepper, tmp_path: Path) -> None:
    build_conv2d(stepper)
    file = tmp_path / "stepper.html"
    text = stepper.to_html(file)
    assert file.read_text() == text
    state = page_state(text)
    assert state["live"] is False
    assert state["svg"] == stepper.svg
    assert set(state) == own_traits()
    with pytest.raises(SynoError, match="cannot write"):
        stepper.to_html(tmp_path / "no" / "folder.html")


def test_a_pruned_step_can_be_taken(stepper: Stepper) -> None:
    build_conv2d(stepper)
    stepper.jump(4)
    late = item(stepper, "REDUCE", "REDUCE k_1", "pruned")
    assert late["reason"]
    ask(stepper, "step", index=late["index"])
    assert stepper.error == ""
    assert len(stepper.state.reductions) == 4


def test_preview_of_a_contraction(stepper: Stepper) -> None:
    ask(stepper, "step", index=item(stepper, "REDUCE", "REDUCE C_in")["index"])
    c_in, c_out = tick(stepper, "r_C_in"), tick(stepper, "i_C_out")
    before = stepper.revision
    ask(stepper, "preview", share=[c_in], give=[c_out])
    assert stepper.preview == {"legal": True, "canonical": True, "distance": 0, "text": "canonical"}
    ask(stepper, "preview", share=[], give=[c_out])
    assert stepper.preview["legal"] is False
    assert stepper.preview["text"].startswith("SHARE: expected at least one shared coordinate")
    ask(stepper, "preview")
    assert stepper.preview == {}
    assert stepper.revision == before
    assert "c0" not in {t["id"] for t in stepper.ticks}, "the fixed batch takes part in nothing"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"kind": "step", "index": 99999}, "no step 99999: expected a number from 0 to"),
        ({"kind": "step", "index": 0, "revision": 0}, "the list has changed since that choice"),
        ({"kind": "whole", "name": "SHARE", "revision": 0}, "the list has changed since that choice"),
        ({"kind": "contract", "share": ["c9"]}, "no coordinate 'c9' in this pGraph"),
        ({"kind": "contract", "share": ["c1"] * 300}, "expected at most 256 ticks, found 300"),
        ({"kind": "contract", "share": []}, "SHARE: expected at least one shared coordinate"),
        ({"kind": "contract", "share": ["c0"]}, "is fixed and takes part in nothing"),
        ({"kind": "undo"}, "nothing to undo"),
        ({"kind": "redo"}, "nothing to redo"),
        ({"kind": "go", "index": 5}, "no place 5: expected a number from 0 to 0"),
        ({"kind": "why", "index": 99999}, "no step 99999: expected a number from 0 to"),
        ({"kind": "open", "name": "x" * (1 << 22) + "x"}, "expected a text of at most"),
        ({"kind": "load", "name": "<script>"}, "unknown operator '<script>'"),
        ({"kind": "explode"}, "a message that the stepper does not know"),
        ({"kind": "step", "index": "0"}, "a message that the stepper does not know"),
        ({"kind": "undo", "extra": 1}, "a message that the stepper does not know"),
    ],
)
def test_bad_messages_are_one_line_and_change_nothing(stepper: Stepper, message: dict[str, Any], said: str) -> None:
    before = stepper.svg, stepper.revision, stepper.session.history
    stepper.handle({"request": 7, "revision": stepper.revision, **message})
    assert said in stepper.error
    assert "\n" not in stepper.error
    assert stepper.answered == 7
    assert before == (stepper.svg, stepper.revision, stepper.session.places)
    ask(stepper, "step", index=0)
    assert stepper.error == ""


@pytest.mark.parametrize("junk", [None, 3, "undo", [], {}])
def test_junk_from_the_browser(stepper: Stepper, junk: Any) -> None:
    stepper.handle(junk)
    assert "a message that the stepper does not know" in stepper.error


def test_an_unforeseen_failure_leaves_the_widget_alive(
    stepper: Stepper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_args: object, **_options: object) -> str:
        raise RuntimeError("the layout\nbroke")

    monkeypatch.setattr(drawing, "svg", fail)
    ask(stepper, "step", index=0)
    assert stepper.error == "RuntimeError: the layout"
    assert "Traceback" in caplog.text
    monkeypatch.undo()
    ask(stepper, "reset")
    assert stepper.error == ""


def test_unknown_keywords_and_starts_are_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'width'"):
        Stepper(conv2d(), width=3)
    with pytest.raises(SpecError, match="expected a spec, a state or an operator of a system that is known, found int"):
        Stepper(3)
    with pytest.raises(SpecError, match="NAS-PTE: its operators are not built by steps"):
        Stepper(nas_pte_1())
    with pytest.raises(SpecError, match="NAS-PTE: its operators are not built by steps"):
        Stepper.of(nas_pte_1().to_json())


def own_script() -> str:
    """The script, but for what it shares with other widgets."""
    return "".join((WIDGETS / name).read_text() for name in Stepper._files if name.startswith("stepper"))


def test_traits_are_what_the_script_reads() -> None:
    """Each synchronised trait is used by the script, and the script reads no other; each is documented."""
    read = set(re.findall(r'model\.get\("(\w+)"\)', own_script()))
    own = own_traits()
    assert read == own
    source = "".join((WIDGETS / name).read_text() for name in ("stepper.py", "comparing.py", "view.py"))
    for name in own:
        assert re.search(rf'    {name} = t\..*\n    """', source), f"{name} has no line of documentation"


def test_the_script_speaks_the_language_of_requests() -> None:
    script = own_script()
    source = (WIDGETS / "stepper_request.py").read_text()
    kinds = set(re.findall(r'"(\w+)"', re.search(r"kind: Literal\[(.*?)\]", source, re.DOTALL)[1]))
    for kind in kinds:
        assert f'"{kind}"' in script


@pytest.mark.parametrize(
    "name", ["stepper.js", "stepper_steps.js", "stepper_history.js", "stepper.css", "operator_graph.css"]
)
def test_no_address_stands_in_what_is_shipped(name: str) -> None:
    text = (WIDGETS / name).read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|import\s*\(|url\(|fetch\(|eval\(|innerHTML", text)


# -- outputs -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    """A shell as a kernel has one, gone afterwards; without its history file."""
    config = Config({"HistoryManager": {"enabled": False}})
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()


def test_bundle_has_widget_picture_and_words(stepper: Stepper) -> None:
    data, _ = stepper._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "image/svg+xml", "text/plain"}
    assert data["image/svg+xml"] == stepper.svg
    assert data["text/plain"] == stepper.description


def test_display_gives_the_widget_and_the_picture_it_hides(stepper: Stepper, shell: Any) -> None:
    with capture_output() as captured:
        stepper._ipython_display_()
    live, static = (output.data for output in captured.outputs)
    assert "application/vnd.jupyter.widget-view+json" in live
    assert "application/vnd.jupyter.widget-view+json" not in static
    assert f'data-syno-static="{stepper.static_id}"' in static["text/html"]
    assert static["image/svg+xml"] == stepper.svg
    with capture_output() as captured:
        stepper.apply(stepper.candidates[0])
    (update,) = captured.outputs
    assert update.data["image/svg+xml"] == stepper.svg


def test_static_bundle_escapes_its_words() -> None:
    bundle = static_bundle("id", "<svg/>", '"><script>')
    assert "<script>" not in bundle["text/html"]
    assert "&lt;script&gt;" in bundle["text/html"]
    assert bundle["text/plain"] == '"><script>'


def test_two_steppers_hide_their_own_pictures() -> None:
    assert Stepper(conv2d()).static_id != Stepper(conv2d()).static_id


# -- magics ------------------------------------------------------------------------------------------------------------


def test_magics(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_line_magic("load_ext", "syno_lab")
    shell.run_line_magic("syno", "")
    assert "conv2d" in capsys.readouterr().out
    shown = shell.run_line_magic("syno", "conv2d")
    assert shown.operator == conv2d()
    with pytest.raises(UsageError, match="unknown operator 'conv9d'; known are matmul"):
        shell.run_line_magic("syno", "conv9d")
    with capture_output() as captured:
        shell.run_line_magic("syno_card", "unfold")
    assert captured.outputs[0].data["image/svg+xml"].startswith("<svg")
    with pytest.raises(UsageError, match="unknown primitive 'pool'; known are SPLIT"):
        shell.run_line_magic("syno_card", "pool")


def test_the_engine_does_without_jupyter() -> None:
    for path in (Path(drawing.__file__).parents[1]).rglob("*.py"):
        assert not re.search(
            r"^\s*(import|from) (IPython|ipywidgets|jupyter|anywidget)", path.read_text(), re.MULTILINE
        ), path
