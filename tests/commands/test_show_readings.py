"""``syno-lab show`` as a program, an equation, a table, a receptive field and a mixing matrix."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import answered, refused

from syno_lab import operators
from syno_lab.codegen.figure_operator import figure
from syno_lab.nas_pte.operator import nas_pte_1

SIZES = ["--bind", "N=1", "--bind", "C_in=8", "--bind", "C_out=8", "--bind", "H=6", "--bind", "W=6"]


@pytest.mark.parametrize("name", ["conv2d", "operator_1"])
@pytest.mark.parametrize("form", ["python", "c", "latex", "table", "receptive-field", "mixing"])
def test_golden(name: str, form: str, capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]) -> None:
    golden(f"show/{name}_{form}.txt", answered(capsys, "show", name, "--as", form))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--as", "loops"], operators.operator_1().loops()),
        (["--as", "python", "--wrt", "W2"], operators.operator_1().loops(wrt="W2")),
        (["--as", "c", "--staged"], operators.operator_1().loops(language="c", staged=True)),
        (["--as", "latex", "--wrt", "X"], operators.operator_1().equation(wrt="X").latex),
        (["--as", "latex", "--staged"], operators.operator_1().equation(staged=True).latex),
        (["--as", "table", "--wrt", "X"], str(operators.operator_1().coordinates(wrt="X"))),
    ],
)
def test_stages_and_gradients(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(capsys, "show", "operator_1", *arguments).rstrip("\n") == expected.rstrip("\n")


def test_sizes_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert "    C_in = 8\n" in answered(capsys, "show", "conv2d", "--as", "python", *SIZES)
    assert "C_in = 8," in answered(capsys, "show", "conv2d", "--as", "c", *SIZES)
    table = answered(capsys, "show", "conv2d", "--as", "table", *SIZES).splitlines()
    assert table[6].split()[:4] == ["X", "1", "C_in", "8"]
    # N is 1, and one position is all of them.
    assert answered(capsys, "show", "conv2d", "--as", "mixing", *SIZES).splitlines()[1].split() == list("Naaxx")
    field = answered(capsys, "show", "conv2d", "--as", "receptive-field", *SIZES, "--at", "0,0,0,:").splitlines()
    assert field[1] == "Y[0, 0, 0, :] reads 96 of 288 elements of X in 256 terms"


@pytest.mark.parametrize(
    ("arguments", "made", "options"),
    [
        ([], operators.operator_1().figure(), {}),
        (["--width", "page", "--font", "serif"], operators.operator_1().figure(), {"width": "page", "font": "serif"}),
        (
            ["--of", "loops", "--wrt", "X", "--width", "3.5"],
            operators.operator_1().figure("loops", wrt="X"),
            {"width": 3.5},
        ),
        (["--of", "equation", "--staged"], operators.operator_1().figure("equation", staged=True), {}),
    ],
)
def test_a_figure_is_saved(
    arguments: list[str], made: Any, options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "f.pdf"
    assert answered(capsys, "show", "operator_1", "--as", "figure", "--out", str(out), *arguments) == f"{out}\n"
    assert out.read_bytes() == made.content("pdf", **options)


def test_a_figure_of_another_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "f.tikz"
    answered(capsys, "show", "nas_pte_1", "--as", "figure", "--out", str(out))
    assert out.read_bytes() == figure(nas_pte_1()).content("tikz")
    of_loops = ("show", "nas_pte_1", "--as", "figure", "--of", "loops", "--out", str(tmp_path / "g.pdf"))
    assert "of: expected graph, as only complete pGraphs have more" in refused(capsys, *of_loops)
    assert [one.name for one in tmp_path.iterdir()] == ["f.tikz"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--as", "c", "--wrt", "W3"], "wrt: expected X or W1, found 'W3'"),
        (["--as", "c", "--wrt", "X", "--staged"], "staged: the stages are those of the forward operator"),
        (
            ["--as", "mixing", "--wrt", "X"],
            "--wrt: expected --as loops, python, c, latex, figure, table, found --as mixing",
        ),
        (["--staged"], "--staged: expected --as loops, python, c, latex, figure, found --as summary"),
        (["--as", "figure"], "expected --out FILE for the figure, such as --out figure.pdf"),
        (
            ["--as", "figure", "--out", "x.doc"],
            "expected a name that ends in .pdf, .svg, .png, .tex, .tikz, .pgf",
        ),
        (["--as", "figure", "--out", "x.pdf", "--width", "wide"], "width: expected column, page or 0.5 to 40 inches"),
        (["--as", "figure", "--out", "x.pdf", "--font", "No"], "font: expected sans, serif or a family"),
        (["--as", "figure", "--out", "x.pdf", "--staged"], "--staged and --wrt: expected --of loops or --of equation"),
        (["--as", "svg", "--width", "page"], "--width: expected --as figure, found --as svg"),
        (["--of", "loops"], "--of: expected --as figure, found --as summary"),
        (["--as", "c", "--at", "0"], "--at: expected --as receptive-field, found --as c"),
        (
            ["--as", "receptive-field", *SIZES, "--at", "0,0"],
            "output index: expected an index for each of 4 output axes",
        ),
        (["--as", "receptive-field", *SIZES, "--at", "0,0,0,6"], "output index: expected an index for each of 4"),
        (["--as", "receptive-field", "--at", "a,b"], "output element: expected center, or numbers and : with"),
        (["--as", "receptive-field", "--bind", "N=1"], "no value for C_in, C_out, H, W"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "show", "conv2d", *arguments)
