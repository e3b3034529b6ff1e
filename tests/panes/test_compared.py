"""Operators side by side: which steps are the same, against programs whose common part is known, and what they cost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from syno_lab.alpha import Graph, operation
from syno_lab.alpha.operator import NetworkOperator
from syno_lab.canvas.known import KNOWN as KERNELS
from syno_lab.codegen.receptive_field import receptive_field
from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.state import State
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import KNOWN, conv2d, operator_1, separable
from syno_lab.panes.aligned import align, trace_all
from syno_lab.panes.compared import (
    NOTHING,
    columns_and_rows,
    common_sizes,
    cost_rows,
    reach_rows,
    side_by_side,
    sizes_of,
    subjects_of,
)

SIZES = {"N": 1, "C_in": 16, "C_out": 32, "H": 10, "W": 12, "k_1": 3, "g": 4, "s": 2}


def rows_of(*values: Any) -> list[tuple[str, list[str]]]:
    """Mark and words of each row, a text for each operator."""
    subjects = subjects_of(values)
    rows = align(trace_all([one.format for one in subjects], [one.operator for one in subjects]))
    return [(row.mark, ["" if cell is None else cell.words for cell in row.cells]) for row in rows]


def test_the_common_part_of_two_pgraphs() -> None:
    contraction = "CONTRACTION share r_C_in, r_k_1, r_k_1__2"
    assert rows_of(conv2d(), separable()) == [
        ("same", ["REDUCE C_in"] * 2),
        ("same", ["REDUCE k_1"] * 2),
        ("same", ["REDUCE k_1"] * 2),
        ("only", ["", "CONTRACTION share r_C_in, give i_C_out"]),
        ("differs", [f"{contraction}, give i_C_out", contraction]),  # three shared in common, against one
        ("same", ["UNFOLD i_H, r_k_1"] * 2),
        ("same", ["UNFOLD i_W, r_k_1__2"] * 2),
    ]


def test_names_and_order_of_reductions_make_no_difference() -> None:
    build = Build(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N", "C_in", "C_out", "H", "W"],
        ["k_1=3"],
        fixed_io_pairs=[(0, 0)],
    )
    _, c_out, height, width = build.output
    k_w, k_h, c_in = build.reduce("k_1"), build.reduce("k_1"), build.reduce("C_in")
    build.contract([k_h, c_in, k_w], [c_out])
    build.unfold(width, k_w)
    build.unfold(height, k_h)
    other = build.state.operator()
    assert other == conv2d()  # the equality of pGraphs has an encoding of its own
    rows = rows_of(conv2d(), other)
    assert [mark for mark, _ in rows] == ["same"] * 6
    assert ["UNFOLD i_H, r_k_1", "UNFOLD i_H, r_k_1__2"] in [words for _, words in rows]


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_beginning_is_the_same_and_the_rest_is_not(name: str) -> None:
    operator = KNOWN[name]()
    state = State.root(operator.spec)
    for number, step in enumerate(operator.steps):
        marks = [row.mark for row in align(trace_all([operator.format] * 2, [operator, state]))]
        assert marks == ["same"] * number + ["only"] * (len(operator.steps) - number)
        state = state.apply(step)


def test_of_three_some_have_a_step() -> None:
    rows = align(trace_all([operator_1().format] * 3, [operator_1(), KNOWN["operator_2"](), conv2d()]))
    marks = {row.mark for row in rows}
    assert marks == {"same", "some", "differs", "only"}
    for row in rows:
        keys = [None if cell is None else cell.key for cell in row.cells]
        there = [key for key in keys if key is not None]
        assert row.mark == (
            "only" if len(there) == 1 else "differs" if len(set(there)) > 1 else "same" if None not in keys else "some"
        )
    # Each step stands in one row, and those of an operator in an order in which what is taken is there before.
    for number, operator in enumerate((operator_1(), KNOWN["operator_2"](), conv2d())):
        column = [row.cells[number] for row in rows if row.cells[number] is not None]
        assert len(column) == len(operator.steps)


def test_kernels_from_the_input() -> None:
    rows = rows_of(KERNELS["convolution"](), KERNELS["grouped_convolution"]())
    assert rows[0] == ("same", ["t1 = unfold H,W(t0)"] * 2)
    assert {mark for mark, _ in rows[1:]} == {"only"}  # one groups first, so its FC takes another tensor


def test_networks_have_the_rest_behind_an_edit_in_common() -> None:
    chains = (["relu", "sigmoid", "batch_norm"], ["relu", "gelu", "batch_norm"])
    graphs = [Graph.chain((1, 4, 4, 8), [operation(name) for name in names]) for names in chains]
    rows = rows_of(*map(NetworkOperator.of_graph, graphs))
    assert [mark for mark, _ in rows] == ["same", "only", "only", "same"]


def test_systems_have_no_step_in_common() -> None:
    subjects = subjects_of([conv2d(), KERNELS["convolution"](), nas_pte_1()])
    columns, rows = columns_and_rows(subjects)
    assert {row["mark"] for row in rows} == {"only"}
    assert len(rows) == len(conv2d().steps) + len(KERNELS["convolution"]().nodes)
    assert [column["marks"] == {} for column in columns] == [False, False, True]  # NAS-PTE's have no steps


def test_marks_name_nodes_of_the_picture() -> None:
    columns, rows = columns_and_rows(subjects_of([conv2d(), separable()]))
    assert [(column["letter"], column["name"]) for column in columns] == [("A", "conv2d"), ("B", "separable")]
    for number, column in enumerate(columns):
        drawn = {one.get("id") for one in ElementTree.fromstring(column["svg"]).iter()}
        ids = {name for row in rows if row["cells"][number] for name in row["cells"][number]["ids"]}
        assert len(ids & drawn) > len(ids) / 2
        assert set(column["marks"]) <= ids
    assert columns[0]["marks"]["w0"] == "differs"
    assert "s4" not in columns[0]["marks"], "the UNFOLD of H is the same in both"
    assert [row["words"] for row in rows if row["mark"] == "only"] == ["only B"]


def test_sizes_fit_all_and_costs_are_theirs() -> None:
    subjects = subjects_of([conv2d(), operator_1(), operator_1().state])
    assert [subject.operator for subject in subjects] == [conv2d(), operator_1(), operator_1()]
    sizes = common_sizes(subjects)
    assert set(sizes) == set(operator_1().variables)
    assert common_sizes(subjects, SIZES) == SIZES
    rows = {row["title"]: row for row in cost_rows(subjects, SIZES)}
    for title, count in (("FLOPs", "flops"), ("parameters", "params")):
        numbers = [getattr(one, count)(sizes_of(one, SIZES)) for one in (conv2d(), operator_1())]
        assert [cell["text"] for cell in rows[title]["cells"]] == [f"{number:,}" for number in (*numbers, numbers[1])]
        assert rows[title]["cells"][1]["ratio"] == f"{numbers[1] / numbers[0]:.3g} x"
        assert rows[title]["differs"]
    assert not rows["input"]["differs"]
    reads = reach_rows(subjects, SIZES)
    field = receptive_field(conv2d(), "center", sizes_of(conv2d(), SIZES))
    assert [row["cells"][0]["text"] for row in reads] == [
        f"{len(axis.positions)} of {axis.number}" for axis in field.axes
    ]


def test_an_unfinished_one_has_a_picture_and_steps_alone() -> None:
    state = State.root(conv2d().spec)
    for step in conv2d().steps[:4]:
        state = state.apply(step)
    subjects = subjects_of([conv2d(), state], ["whole", "part"])
    columns, rows = columns_and_rows(subjects)
    assert columns[1]["about"].startswith("After 4 steps")
    assert [row["mark"] for row in rows] == ["same"] * 4 + ["only"] * 2
    for row in (*cost_rows(subjects, common_sizes(subjects)), *reach_rows(subjects, common_sizes(subjects))):
        assert row["cells"][1] == {"text": NOTHING, "ratio": ""}
        assert not row["differs"]


def test_pictures_beside_each_other() -> None:
    columns, _ = columns_and_rows(subjects_of([conv2d(), separable()], ["<a>", "b"]))
    parts = [ElementTree.fromstring(column["svg"]) for column in columns]
    whole = ElementTree.fromstring(side_by_side([(column["name"], column["svg"]) for column in columns]))
    inner = whole.findall("{http://www.w3.org/2000/svg}svg")
    assert [one.get("viewBox") for one in inner] == [one.get("viewBox") for one in parts]
    ends = [(float(one.get("x", "")), float(one.get("x", "")) + float(one.get("width", ""))) for one in inner]
    assert all(before[1] <= after[0] for before, after in pairwise(ends)), "they lie on each other"
    assert "<a>" in [text.text for text in whole.findall("{http://www.w3.org/2000/svg}text")]


def test_what_cannot_be_compared() -> None:
    with pytest.raises(SpecError, match="expected 2 to 4 operators, found 1"):
        subjects_of([conv2d()])
    with pytest.raises(SpecError, match="expected 2 to 4 operators, found 5"):
        subjects_of([conv2d()] * 5)
    with pytest.raises(SpecError, match="a name for each of 2 operators, found 1"):
        subjects_of([conv2d(), separable()], ["a"])
    with pytest.raises(SpecError, match="expected a spec, a state or an operator of a system that is known, found int"):
        subjects_of([conv2d(), 3])
    with pytest.raises(SpecError, match="no sizes that fit all operators; give a binding"):
        common_sizes(subjects_of([conv2d(), operator_1()]), {"C_in": 7, "g": 4})
