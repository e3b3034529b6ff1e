"""Pictures of micro-DAGs are read back from the SVG and must be the very kernel again; costs by primitive sum up."""

import csv
import io
import random
import re
from collections.abc import Callable
from html import unescape
from xml.etree import ElementTree

import pytest

from syno_lab.canvas import known
from syno_lab.canvas.drawing import describe, dot, svg, words
from syno_lab.canvas.fitted import Fitted, fill
from syno_lab.canvas.kernel import Draft, Kernel, Node
from syno_lab.canvas.known import KNOWN
from syno_lab.canvas.panes import PANES, solutions
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.primitives import BROADCASTS, Primitive
from syno_lab.canvas.sampler import Sampler
from syno_lab.panes import NAMES, Asked
from syno_lab.panes.forms import content

SVG = "{http://www.w3.org/2000/svg}"
SMALL = {"N": 2, "C_in": 4, "C_out": 8, "H": 4, "W": 6, "KH": 3, "KW": 5, "s": 2}
_NODE = re.compile(r"^  (\w+) \[id=", re.MULTILINE)
_EDGE = re.compile(r'^  (\w+) -> (\w+) \[id="([^"]*)"', re.MULTILINE)


def ids_of(picture: str) -> list[str]:
    """Of the tensors and primitives in an SVG."""
    found = [group.get("id", "") for group in ElementTree.fromstring(picture).iter(f"{SVG}g")]
    return [name for name in found if name != "graph0"]


def texts_of(picture: str) -> list[str]:
    return [
        text.get("data-text") or "".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")
    ]


def nodes_in(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """The nodes of a micro-DAG from its DOT text: each with the first line of its label and its inputs in order."""
    found = {}
    edges = {name: (upper, lower) for upper, lower, name in _EDGE.findall(text)}
    for number in range(1, len(re.findall(r'\[id="t\d+"', text))):
        name = f"p{number}"
        if name in edges:
            upper, lower = edges[name]
            label = re.search(rf'id="{name}".*?<TD[^>]*>(.*?)</TD>', text)
            inputs = (upper,)
        else:
            (left, into), (right, too) = edges[f"{name}-lhs"], edges[f"{name}-rhs"]
            assert into == too == name == edges[f"{name}-out"][0]
            lower = edges[f"{name}-out"][1]
            label = re.search(rf'id="{name}".*?label="(?:[^\w]* )?(.*?)"', text)
            inputs = (left, right)
        assert lower == f"t{number}"
        assert label is not None
        found[number] = unescape(label[1]), tuple([int(one[1:]) for one in inputs])
    return list(found.values())


def wanted(nodes: tuple[Node, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return [(str(node.primitive), node.inputs) for node in nodes]


def shift_minus_input(*inputs: int) -> Fitted:
    """A shift and the input, subtracted in this order."""
    return Fitted(Kernel((Node(Primitive("shift", "H+1"), (0,)), Node(Primitive("sub"), inputs))))


# -- the picture -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOWN)
def test_every_known_kernel_is_read_back_from_its_picture(name: str) -> None:
    operator = Fitted(KNOWN[name]())
    text, kernel = operator.dot(), operator.kernel
    assert nodes_in(text) == wanted(kernel.nodes)
    tensors = [one for one in _NODE.findall(text) if one.startswith("t")]
    assert tensors == [f"t{number}" for number in range(len(kernel.shapes))]
    picture = operator.svg()
    assert sorted(ids_of(picture)) == sorted(words(operator))
    shown = texts_of(picture)
    for wish in (*map(str, kernel.shapes), *(str(node.primitive) for node in kernel.nodes)):
        assert any(wish in line for line in shown), wish
    for number, weight in enumerate(kernel.weights, start=1):
        assert f"W{number} [{', '.join(size.pretty for size in weight)}]" in shown
    (title, *_) = ElementTree.fromstring(picture).iter(f"{SVG}title")
    assert title.text == describe(kernel)
    assert all(f"t{number} = {node}" in describe(kernel) for number, node in enumerate(kernel.nodes, start=1))


def test_drawn_kernels_are_read_back(rng: random.Random) -> None:
    sampler = Sampler([Place(4, 4, 4, 6)], max_flops=None, primitives=(3, 9), seed=rng.randrange(1 << 30))
    for _ in range(20):
        operator = sampler.sample()
        assert nodes_in(dot(operator)) == wanted(operator.kernel.nodes)
        assert nodes_in(dot(operator.kernel.draft)) == wanted(operator.kernel.nodes)
        assert dot(operator) == dot(Fitted(Kernel(operator.kernel.nodes, operator.kernel.normalise)))


def test_the_sides_of_a_broadcast_are_told_apart() -> None:
    one, other = shift_minus_input(1, 0), shift_minus_input(0, 1)
    assert one.dot() != other.dot()
    assert nodes_in(one.dot())[1] == ("sub", (1, 0))
    assert nodes_in(other.dot())[1] == ("sub", (0, 1))
    assert words(one)["p2-lhs"] == "LHS of sub: t1"
    twice = Fitted(Kernel((Node(Primitive("add"), (0, 0)),)))  # both edges have one name in Graphviz
    assert {"p1-lhs", "p1-rhs"} <= set(ids_of(twice.svg()))
    assert "LHS of add: t0; RHS of add: t0" in twice.svg()


def test_golden_dot_of_squeeze_excite(golden: Callable[[str, str], None]) -> None:
    golden("drawing/squeeze_excite.dot", dot(Fitted(known.squeeze_excite())))


def test_a_binding_adds_numbers_and_how_the_template_runs_there() -> None:
    operator = Fitted(Kernel(known.squeeze_excite().nodes))
    assert "= [" not in operator.dot()
    shown = texts_of(operator.svg(SMALL))
    assert "[C, H, W] = [4, 4, 6]" in shown
    assert "W2 [1, C, x0] = [1, 4, 1]" in shown
    for line in (
        "x0 = 1",
        "behind an average pooling of 2 x 2",
        "2 parts on the same input, concatenated",
        "place 4->8, 4x6, window 3x5",
    ):
        assert line in shown
    assert "2 parts on blocks of channels, averaged" in operator.dot({**SMALL, "C_in": 16})


def test_normalisation_is_drawn_with_its_weights() -> None:
    shown = texts_of(Fitted(Kernel(known.depthwise_separable().nodes, normalise=True)).svg())
    assert {"batch normalisation W2, W3, ReLU", "batch normalisation W5, W6", "W4 [1, C, C]"} <= set(shown)


def test_a_view_and_the_empty_kernel() -> None:
    assert "viewed as [C, H, W]" in dot(Fitted(known.involution()))
    assert "viewed as" not in dot(Fitted(known.convolution()))
    (tensor,) = ids_of(svg(Fitted(Kernel(()))))
    assert tensor == "t0"
    assert "input, output" in dot(Fitted(Kernel(())))


def test_leaves_of_a_draft_are_marked_by_colour_and_word() -> None:
    draft = Draft(known.involution().nodes[:5])
    text = dot(draft)
    marked = {int(name) for name in re.findall(r'id="t(\d+)", class="[^"]*\bleaf\b', text)}
    assert marked == set(draft.leaves) == {4, 5}
    assert {"t4 leaf", "t5 leaf"} <= set(texts_of(svg(draft)))
    assert "leaf" not in dot(draft, leaves_marked=False)
    assert "output" not in text
    assert describe(draft).endswith("leaves: t4, t5.")
    assert describe(Draft()).endswith("leaf: t0.")


def test_options() -> None:
    operator = Fitted(known.residual())
    assert operator.dot(of_another_system=1) == operator.dot()
    picture = operator.svg(title='<b> & "c"')
    (said, *_) = ElementTree.fromstring(picture).iter(f"{SVG}title")
    assert texts_of(picture)[0] == '<b> & "c"'
    assert (said.text or "").startswith('<b> & "c". Canvas kernel')
    assert re.findall(r'id="(t\d+)", class="[^"]*highlight', operator.dot(highlight=[1])) == ["t1"]


# -- panes -------------------------------------------------------------------------------------------------------------


def asked_for(operator: Fitted, binding: dict[str, int]) -> Asked[Fitted]:
    return Asked(operator, "mine", tuple(binding.items()))


def test_rows_of_costs_sum_to_the_operator(rng: random.Random) -> None:
    place = Place(4, 12, 4, 6, stride=2)
    seed = rng.randrange(1 << 30)
    sampled = []
    for normalise in (False, True):
        sampler = Sampler([place], max_flops=None, primitives=(2, 8), normalise=normalise, seed=seed)
        sampled += [sampler.sample() for _ in range(20)]
    for operator in [Fitted(make(), 2) for make in KNOWN.values()] + sampled:
        for sizes in (SMALL, {**SMALL, "C_in": 16, "s": 1}, {**SMALL, "C_in": 8}):
            bound = operator.complete_binding(sizes)
            data = PANES["cost"].read(asked_for(operator, bound))
            rows = data["rows"]
            assert sum(row["flops"] for row in rows) == operator.flops(bound) == data["totals"]["flops"]
            assert sum(row["weight_bytes"] for row in rows) == 4 * operator.params(bound)
            assert sum(row["share"] for row in rows) == pytest.approx(1.0 if operator.flops(bound) else 0.0)
            names = words(operator)
            assert all(name in names for row in rows for name in row["ids"])
            nodes = [row for row in rows if row["does"].startswith("t")]
            assert len(nodes) == len(operator.kernel.nodes)
            made = sum(row["out_bytes"] for row in nodes)
            assert made == 4 * (operator.traffic(bound) - bound["N"] * 8 * 4 * 6)  # but for the output
            assert [row["stage"] for row in rows] == list(range(1, len(rows) + 1))
            assert any("average pooling" in row["does"] for row in rows) == (sizes["s"] > 1)
            normal = [row for row in rows if row["does"].startswith("batch normalisation")]
            assert len(normal) == len(operator.kernel.normalised)


def test_a_convolution_costs_what_it_sums_over() -> None:
    (unfold, fc) = PANES["cost"].read(asked_for(Fitted(known.convolution()), {**SMALL, "C_out": 4, "s": 1}))["rows"]
    assert (unfold["flops"], unfold["iterations"]) == (0, 2 * 4 * 15 * 24)
    assert fc == {
        "stage": 2,
        "does": "t2 = fc C(t1)",
        "sums": "C·KH·KW",
        "out": "[N, C, H, W] = [2, 4, 4, 6]",
        "iterations": 2 * 4 * 24 * 4 * 15,
        "flops": 2 * 2 * 4 * 24 * 4 * 15,
        "share": 1.0,
        "weight_bytes": 4 * 4 * 4 * 15,
        "out_bytes": 4 * 2 * 4 * 24,
        "ids": ["p2"],
    }


def test_solutions_by_place() -> None:
    places = (Place(4, 4, 4, 6, layers=2), Place(4, 8, 2, 4, stride=2), Place(8, 8, 2, 4))
    operator = fill(known.squeeze_excite(), places, Budget.of_shares(places, max_flops=0.5))
    assert isinstance(operator, Fitted)
    rows = solutions(operator)
    assert [(row["c_in"], row["c_out"], row["layers"], row["parts"]) for row in rows] == [
        (place.c_in, place.c_out, place.layers, place.parts) for place in operator.places
    ]
    assert [(row["x0"],) for row in rows] == list(operator.solutions)
    assert sum(row["layers_flops"] for row in rows) == operator.spent.flops
    assert sum(row["layers_params"] for row in rows) == operator.spent.params
    asked = asked_for(operator, SMALL)
    data = PANES["cost"].read(asked)
    assert data["solutions"] == rows
    text = content(asked, "cost", PANES["cost"].exports(asked, data), data, "csv of solutions").decode()
    assert [int(row["x0"]) for row in csv.DictReader(io.StringIO(text))] == [row["x0"] for row in rows]
    unsolved = asked_for(Fitted(known.squeeze_excite()), SMALL)
    data = PANES["cost"].read(unsolved)
    assert data["solutions"] == []
    assert "CSV of solutions" not in [one["format"] for one in PANES["cost"].exports(unsolved, data)]


def test_what_is_lit_together() -> None:
    operator = Fitted(known.involution())
    data = PANES["graph"].read(Asked(operator))
    ids, links = set(ids_of(data["svg"])), data["links"]
    assert data["description"] == describe(operator.kernel)
    last = len(operator.kernel.nodes)
    assert set(links) == {f"t{number}" for number in range(last + 1)} | {f"p{number}" for number in range(1, last + 1)}
    for name, link in links.items():
        assert name in link["light"]
        assert set(link["light"]) <= ids
    assert set(links[f"t{last}"]["light"]) == ids  # the output is computed from all that is drawn
    blended = next(n for n, node in enumerate(operator.kernel.nodes, 1) if node.primitive.name in BROADCASTS)
    assert links[f"p{blended}"]["light"] == [
        *(f"t{number}" for number in operator.kernel.nodes[blended - 1].inputs),
        f"p{blended}",
        f"p{blended}-lhs",
        f"p{blended}-rhs",
        f"p{blended}-out",
        f"t{blended}",
    ]
    assert set(PANES) <= set(NAMES)
    assert next(iter(PANES)) == "graph"
