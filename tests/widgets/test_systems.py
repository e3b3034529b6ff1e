"""Widgets know operators by the protocol alone: another system than pGraphs is shown where pGraphs are not there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import syno_widgets
from syno_widgets import Compare, Explorer, OperatorView, Stepper

from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.ir.state import State
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import conv2d
from syno_lab.pgraphs.stepping import CONSTRUCTION
from syno_lab.sessions.session import Session, session_of
from syno_lab.systems import VARIABLE, system_for

WIDGETS = Path(syno_widgets.__file__).parent
#: What only pGraphs have.
INSIDES = ("ir", "synthesis", "codegen", "pgraphs", "operators")


def test_no_widget_reaches_for_the_insides_of_pgraphs() -> None:
    found = set()
    for path in WIDGETS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            found |= {(path.name, name) for name in names if name.split(".")[1:2] and name.split(".")[1] in INSIDES}
    assert found == set()


def test_an_operator_is_shown_where_pgraphs_are_not_registered() -> None:
    code = """
import sys
from syno_lab.nas_pte.operator import nas_pte_1
from syno_widgets import OperatorView
view = OperatorView(nas_pte_1())
print(view.pane_graph["state"], view.pane_cost["state"])
print(sorted(name for name in sys.modules if name.startswith(("syno_lab.pgraphs", "syno_lab.synthesis.sampler"))))
"""
    env = {**os.environ, VARIABLE: "syno-lab-operator="}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True, env=env
    )
    assert done.stdout.splitlines() == ["ready ready", "[]"]


@pytest.mark.parametrize(
    "start",
    [
        conv2d(),
        conv2d().state,
        conv2d().to_json(),
        Session(conv2d()).to_word(),
        Session(conv2d()).to_json(),
    ],
    ids=["operator", "state", "file", "word", "JSON"],
)
def test_a_session_begins_with_whatever_its_system_knows(start: Any) -> None:
    session = session_of(start)
    assert session.construction is CONSTRUCTION
    assert (session.state, session.operator) == (conv2d().state, conv2d())
    assert session.name == "conv2d", "the known operators are there"
    again = session.read(session.to_word())
    assert again.construction is CONSTRUCTION
    assert [(e.number, e.parent, e.step) for e in again.places] == [
        (e.number, e.parent, e.step) for e in session.places
    ]
    assert session_of(conv2d().spec).state == State.root(conv2d().spec)


def test_what_no_system_builds_by_steps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for start in (nas_pte_1(), nas_pte_1().to_json()):
        with pytest.raises(SpecError, match="NAS-PTE: its operators are not built by steps"):
            session_of(start)
    with pytest.raises(FormatError, match="session: expected syno-session:…, or JSON of a session or an operator"):
        session_of("nonsense")
    monkeypatch.setenv(VARIABLE, "syno-lab-operator=")
    for start in (conv2d(), conv2d().state, 3):
        with pytest.raises(SpecError, match="expected a spec, a state or an operator of a system that is known"):
            system_for(start)
    with pytest.raises(FormatError, match="operator file: expected"):
        session_of(conv2d().to_json())


def test_names_and_files_are_understood_where_an_operator_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(conv2d().to_json())
    for operator in ("conv2d", file, str(file), conv2d().to_json()):
        compared = Compare(operator, "operator_1", names=("a", "b"))
        assert [one["name"] for one in compared.columns] == ["a", "b"]
        compared.close()
        shown = OperatorView(operator)
        assert shown.operator == conv2d()
        shown.close()
        explorer = Explorer(operator)
        assert explorer.source == "space"
        explorer.close()
    for view in (lambda what: Compare(what, "conv2d"), OperatorView, Stepper.of):
        with pytest.raises(SynoError, match="found 'conv3d'; did you mean conv"):
            view("conv3d")
        with pytest.raises(SynoError, match=r"an operator file or a trial .SEARCH#12., found"):
            view(tmp_path / "none.json")
    (tmp_path / "noise.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SynoError, match="expected text in UTF-8"):
        OperatorView(tmp_path / "noise.json")
