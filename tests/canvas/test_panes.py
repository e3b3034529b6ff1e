"""The panes of Canvas's operators for places: the menu, the table of solutions, and what is read by gradients."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syno_lab.canvas import known
from syno_lab.canvas.filling import solve
from syno_lab.canvas.fitted import Fitted, outer_of
from syno_lab.canvas.kernel import Draft, Kernel
from syno_lab.canvas.panes import numbers
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.sampler import Sampler
from syno_lab.canvas.system import CANVAS
from syno_lab.cli import main
from syno_lab.codegen.receptive_field import receptive_field
from syno_lab.errors import SpecError, StoppedError
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import conv2d
from syno_lab.operators.neighbours import nearest
from syno_lab.panes import Asked, export, exports, read_pane
from syno_lab.panes.reach import gradients
from syno_lab.systems import operator_of

PLACES = (Place(16, 16, 8, 8, layers=3), Place(16, 32, 4, 4, stride=2), Place(32, 32, 4, 4, layers=2))
SIZES = {"N": 1, "C_in": 4, "C_out": 4, "H": 6, "W": 7}


def fitted(name: str, **budget: float) -> Fitted:
    return getattr(known, name)().fit(PLACES, Budget.of_shares(PLACES, **budget))  # type: ignore[no-any-return]


def asked(operator: Any, element: str = "center", **sizes: int) -> Asked[Any]:
    return Asked(operator, binding=tuple((SIZES | sizes).items()), element=element)


# -- places and solutions ----------------------------------------------------------------------------------------------


def test_the_menu_has_every_place_with_its_sizes() -> None:
    operator = fitted("involution", max_flops=0.9)
    menu = CANVAS.places(operator)
    assert len(menu) == len(PLACES)
    for (name, bound), place, solution in zip(menu.items(), PLACES, operator.solutions, strict=True):
        assert name.startswith(f"{place.c_in} to {place.c_out} channels, {place.h}x{place.w}")
        assert operator.complete_binding(bound) == bound
        assert operator.input_sizes(bound) == (1, place.c_in, place.stride * place.h, place.stride * place.w)
        assert tuple(bound[name] for name in operator.kernel.free) == solution
    assert CANVAS.places(Fitted(known.involution(), 2)) == {}


def _holds(operator: Fitted, place: Place, name: str, value: int) -> bool:
    """Whether a kernel has whole sizes at a place with this number of a variable."""
    others = {one: number for one, number in operator.complete_binding(outer_of(place)).items() if one != name}
    try:
        operator.complete_binding({**others, name: value})
    except SpecError:
        return False
    return True


def test_a_number_is_its_base_doubled_and_topped_up(rng: random.Random) -> None:
    """Each lcm is the least number at which the kernel's sizes are whole; the base is the solver's without a budget."""
    seen = 0
    for operator in Sampler(
        PLACES, max_flops=0.9, primitives=(3, 7), prefers_free=True, seed=rng.getrandbits(32)
    ).samples():
        if not operator.kernel.free:
            continue
        base = solve(operator.kernel, PLACES, Budget(), operator.groups)
        assert not isinstance(base, str)
        rows = numbers(operator, operator.places)
        at = [(place, index) for place in range(len(PLACES)) for index in range(len(operator.kernel.free))]
        for row, (place, index) in zip(rows, at, strict=True):
            assert row.value == operator.solutions[place][index]
            assert row.base == base.numbers[place][index]
            assert row.base % row.lcm == 0
            assert row.doublings is not None
            assert row.more is not None
            assert row.value == row.base * 2**row.doublings + row.more
            assert 0 <= row.more < row.base * 2**row.doublings
            assert row.is_solved
            wanted = next(
                number for number in range(1, row.lcm + 1) if _holds(operator, PLACES[place], row.variable, number)
            )
            assert row.lcm == wanted
        seen += 1
        if seen == 8:
            return


def test_the_table_marks_what_is_shown() -> None:
    operator = fitted("squeeze_excite", max_flops=0.05)
    for number, place in enumerate(PLACES):
        data = read_pane(Asked(operator, binding=tuple(outer_of(place).items())), "solutions")
        assert data["marked"] == [number]
        assert [row[-1] for row in data["rows"]] == [value for (value,) in operator.solutions]
        assert [row[1] for row in data["rows"]] == [place.layers for place in PLACES]
    away = asked(operator)
    data = read_pane(away, "solutions")
    assert data["marked"] == [3]
    assert data["rows"][3][1] == "not fitted"
    assert data["rows"][3][-1] == operator.complete_binding(dict(away.binding or ()))["x0"]
    forms = exports(away, "solutions", data)
    assert [one["format"] for one in forms] == ["CSV", "JSON"]
    assert len(export(away, "solutions", data, "csv").splitlines()) == 5

    alone = read_pane(Asked(Fitted(known.squeeze_excite())), "solutions")
    assert [row[1] for row in alone["rows"]] == ["not fitted"]
    assert "fitted to no network" in alone["note"]
    without = read_pane(asked(Fitted(known.grouped_convolution(), 2)), "solutions")
    assert without["rows"] == []
    assert (
        without["note"] == "The kernel has no dynamic variable: its sizes follow from the place. G = 2 at every place."
    )


def test_numbers_below_the_base_are_shown_as_they_are() -> None:
    """A file may hold any numbers: those of nobody's budget have no doublings."""
    operator = Fitted(Kernel(known.squeeze_excite().nodes), 1, (PLACES[0], replace(PLACES[2])), ((1,), (1,)))
    rows = numbers(operator, operator.places)
    assert [(row.base, row.doublings, row.more, row.value) for row in rows] == [(1, 0, 0, 1), (2, None, None, 1)]
    assert read_pane(Asked(operator), "solutions")["rows"][1][4:] == [2, None, None, 1]


# -- what is read ------------------------------------------------------------------------------------------------------


def reads(operator: Any, element: str = "center", **sizes: int) -> dict[str, Any]:
    return read_pane(asked(operator, element, **sizes), "reach")


def test_gradients_read_what_a_pgraph_says_it_reads() -> None:
    """A convolution's receptive field is known exactly; so is a pGraph's own, of which this is another way."""
    for where in ((0, 3, 3, 3), (0, 0, 0, 6), (0, None, 2, 2)):
        bound = {**SIZES, "k_1": 3}
        right = receptive_field(conv2d(), where, bound).mask
        found = gradients(conv2d(), where, Asked(conv2d(), binding=tuple(bound.items())))
        assert np.array_equal(found > 0, right)
        kernel = gradients(Fitted(known.convolution()), where, asked(Fitted(known.convolution())))
        assert np.array_equal(kernel > 0, right)


def test_what_known_kernels_read() -> None:
    """Figure 8 sees 6 of 9 neighbours (Canvas, section 8.5); a depth-wise kernel ends in all channels."""
    eight = reads(Fitted(known.figure_8()))
    assert "reads 6 of 168 elements of X" in eight["text"]
    assert [axis["reads"] for axis in eight["axes"]] == [1, 1, 3, 2]
    assert eight["svg"].count("<rect") == 1 + 6
    separable = reads(Fitted(known.depthwise_separable()))
    assert [axis["reads"] for axis in separable["axes"]] == [1, 4, 3, 3]
    assert [axis["cover"] for axis in reads(Fitted(known.squeeze_excite()))["axes"]] == ["whole"] * 4
    # Two parts on two blocks of channels, averaged, behind a pooling of 2 x 2.
    parts = reads(Fitted(known.residual()), C_in=8, s=2)
    assert [axis["reads"] for axis in parts["axes"]] == [1, 8, 2, 2]
    assert parts["text"].splitlines()[-1].endswith("0..1 from output axis 3")


def test_a_maximum_is_read_where_it_was_held_once() -> None:
    kernel = Kernel(known._chain(known.Draft(), 0, "unfold H", "fold_max KH")[0].nodes)
    (column,) = [axis for axis in reads(Fitted(kernel))["axes"] if axis["axis"] == 2]
    assert 1 <= column["reads"] <= 3


def test_an_element_that_is_not_there_and_being_stopped() -> None:
    with pytest.raises(SpecError, match=r"expected an index for each of 4 output axes, below \[1, 4, 6, 7\]"):
        reads(Fitted(known.residual()), "0, 9, 0, 0")
    stopped = replace(asked(Fitted(known.residual())), should_stop=lambda: True)
    with pytest.raises(StoppedError):
        read_pane(stopped, "reach")


def test_gradients_that_are_no_numbers() -> None:
    draft = Draft().apply("exp").apply("exp")  # above 1, so that no square of squares is 0
    for tensor in range(2, 18):
        draft = draft.broadcast("mul", tensor, tensor)
    kernel = draft.kernel()
    with pytest.raises(SpecError, match="expected finite gradients for one of 8 random inputs, found none"):
        reads(Fitted(kernel))


def test_nas_pte_reads_its_groups() -> None:
    """The first half of the outputs is a convolution of 2 groups: a channel of it reads half of the inputs."""
    found = reads(nas_pte_1(), "0, 0, 3, 3", C_in=8, C_out=8)
    assert [axis["reads"] for axis in found["axes"]] == [1, 4, 3, 3]


# -- widgets and commands that take an operator of any system ----------------------------------------------------------


def test_a_kernel_stands_for_its_operator(capsys: pytest.CaptureFixture[str]) -> None:
    from syno_widgets import OperatorView
    from syno_widgets.course import check

    view = OperatorView(known.squeeze_excite(), pane="solutions")
    assert view.operator == Fitted(known.squeeze_excite())
    assert view.name == "squeeze_excite"
    assert {name.partition(" ")[0] for name, _ in view.choices["places"]} == {"ResNet-20", "ResNet-34"}
    view.show(fitted("squeeze_excite", max_flops=0.05))
    assert len(view.choices["places"]) == 3, "the layers that it was solved for"
    assert operator_of("squeeze_excite") is None

    check(known.residual(), Fitted(known.residual()))
    check(known.KNOWN["residual"](), known.spatially_separable())
    wrong = known.Draft().apply("fc C").apply("gelu").kernel()
    check(wrong, known.Draft().apply("fc C").apply("relu").kernel())
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Right."
    assert "the weights are used in another way (shapes [1, 8, 8]; expected [1, 8, 24], [1, 8, 40])" in said[1]
    assert (
        "its weights have the right shapes ([1, 8, 8]), but it is another operator: Canvas kernel: fc C, gelu"
        in said[2]
    )


def test_what_needs_sums_of_products_says_so() -> None:
    from syno_widgets.course import Moved, terms

    for make in (terms, Moved):
        with pytest.raises(
            SpecError, match="terms: expected an operator that is sums of products, found one of Canvas"
        ):
            make(Fitted(known.residual()), SIZES)  # type: ignore[operator]
    with pytest.raises(SpecError, match="nearest: expected a pGraph, whose steps are compared, found 'Fitted'"):
        nearest(Fitted(known.residual()))  # type: ignore[arg-type]


def test_show_says_what_a_kernel_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kernel.json"
    file.write_text(fitted("squeeze_excite", max_flops=0.05).to_json())
    assert main(["show", str(file), "--as", "receptive-field", "--at", "0,1,:,2"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("with N=1, C_in=16, C_out=16, H=8, W=8, KH=3, KW=3, s=1, x0=")
    assert "Y[0, 1, :, 2] reads 1,024 of 1,024 elements of X," in told
    assert main(["show", "figure_8", "--as", "receptive-field"]) == 0  # without places, at the view's sizes
    assert "reads 6 of 50,176 elements of X," in capsys.readouterr().out
    assert main(["show", str(file), "--as", "mixing"]) == 2
    assert "--as mixing: expected a pGraph, found kernel, an operator of Canvas" in capsys.readouterr().err
