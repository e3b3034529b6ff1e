"""``syno-lab synthesise``: chains with wanted properties, and one line for what is wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import answered, refused

from syno_lab import alpha
from syno_lab.alpha import Graph, NetworkOperator, Properties, Rel, operation
from syno_lab.alpha.known import KNOWN
from syno_lab.operators import conv2d

SHAPE = (2, 8, 8, 16)
GRAPH = Graph.chain(SHAPE, [operation("conv", features=Rel(2)), operation("relu")])


@pytest.mark.parametrize("method", ["progressive", "greedy", "enumerative", "random"])
def test_every_method_gives_what_python_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str, fresh_seed: int
) -> None:
    wanted = Properties.of(GRAPH)
    # All chains of one operation are fewer than it looks at, and this one wish has one.
    wanted = Properties(shape=SHAPE, depth=1) if method in ("enumerative", "random") else wanted
    (tmp_path / "wanted.json").write_text(wanted.to_json())
    seed = fresh_seed % 10_000
    expected = alpha.synthesise(wanted, SHAPE, method, seed)
    asked = ("synthesise", "--properties", str(tmp_path / "wanted.json"), "--input", "2,8,8,16")
    more = ("--method", method, "--seed", str(seed), "--json", "-")
    if expected is None:  # the paper's rule gives up now and then
        assert "no chain found by --method" in refused(capsys, *asked, *more)
        return
    found = json.loads(answered(capsys, *asked, *more))
    graph = Graph.from_json(json.dumps(found["graph"]))  # type: ignore[attr-defined]
    assert graph == expected
    assert Properties.from_json(json.dumps(found["properties"])) == wanted
    assert found["flops"] == graph.flops()
    assert found["evaluations"] > 0
    assert [step["operation"] for step in found["steps"]] == ["input", *(str(node.operation) for node in graph.nodes)]
    for number, step in enumerate(found["steps"]):
        part = Graph.chain(SHAPE, [node.operation for node in graph.nodes[:number]])
        assert step["output"] == list(part.output_shapes[0])
        assert step["distances"] == wanted.distances(part)
    if method != "random":
        assert found["steps"][-1]["distance"] == 0


def test_the_properties_of_a_file_and_wishes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "graph.json").write_text(GRAPH.to_json())  # type: ignore[attr-defined]
    (tmp_path / "network.json").write_text(NetworkOperator.of_graph(GRAPH).to_json())
    found = [
        json.loads(answered(capsys, "synthesise", "--of", str(tmp_path / name), "--method", "greedy", "--json", "-"))
        for name in ("graph.json", "network.json")
    ]
    assert found[0] == found[1]
    assert Properties.of(GRAPH).satisfied_by(Graph.from_json(json.dumps(found[0]["graph"])))  # type: ignore[attr-defined]
    assert found[0]["properties"]["length"] == 2

    picture = tmp_path / "chain.svg"
    wishes = ("--wants", "C>=m, H->W>=m", "--input", "2, 8, 8, 16", "--method", "greedy", "--svg", str(picture))
    text = answered(capsys, "synthesise", *wishes)
    assert "operations by greedy after" in text or "operation by greedy after" in text
    assert "output" in text.splitlines()[0]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    found_wishes = json.loads(answered(capsys, "synthesise", *wishes[:-2], "--json", "-"))
    graph = Graph.from_json(json.dumps(found_wishes["graph"]))  # type: ignore[attr-defined]
    assert graph.output_shapes == (SHAPE,)
    marks = Properties.of(graph).mixing[0][0]
    assert marks is not None
    assert marks.marks[3][3] in "ma"
    assert marks.marks[2][1] in "ma"


@pytest.mark.parametrize("method", ["progressive", "greedy", "enumerative", "random"])
@pytest.mark.parametrize(
    "sizes", ["1,999999999,999999999,8", "[1, 3000000, 3000000, 999983]", "(1,1000000,1000000,1000000)"]
)
def test_large_inputs_end_in_time(capsys: pytest.CaptureFixture[str], method: str, sizes: str) -> None:
    asked = ("--wants", "C>=m", "--input", sizes, "--method", method, "--seconds", "4", "--json", "-")
    begun = time.process_time()
    found = json.loads(answered(capsys, "synthesise", *asked))
    assert time.process_time() - begun < 6
    assert found["input"] == [int(size) for size in sizes.strip("[]()").split(",")]


def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "conv.json").write_text(conv2d().to_json())
    (tmp_path / "graph.json").write_text(GRAPH.to_json())  # type: ignore[attr-defined]
    (tmp_path / "two.json").write_text(
        Graph((SHAPE, SHAPE), (alpha.Node(operation("add"), (0, 1)),), (2,)).to_json()  # type: ignore[attr-defined]
    )
    (tmp_path / "wanted.json").write_text(Properties.of(KNOWN["mlp_block"]().graph).to_json())
    wants, shape = ("--wants", "C>=m"), ("--input", "2,8,8,16")
    cases = [
        ((), "expected one of --properties, --of, --wants, found none"),
        ((*wants, "--of", "x"), "expected one of --properties, --of, --wants, found --of and --wants"),
        (wants, "--wants: expected --input with the shape too"),
        ((*wants, "--input", "2,8,x"), "--input: expected positive sizes such as 8,32,32,16, found '2,8,x'"),
        ((*wants, "--input", "16"), "--input: expected positive sizes such as 8,32,32,16, found '16'"),
        (
            (*wants, "--input", "1,999999999,999999999,999999999"),
            "--input: expected at most 9223372036854775807 elements",
        ),
        ((*wants, *shape, "--seconds", "0"), "no end within 0 seconds while looking at what follows 0 operations"),
        (("--wants", "Q>=m", *shape), "wants: expected an input axis of [B, H, W, C], found 'Q'"),
        (("--wants", "C>=z", *shape), "expected o, m or a after '>=', found 'z'"),
        # A wish that nothing meets says which entry: no operation pairs one example with another.
        (("--wants", "C>=m, B->C>=m", *shape), "nothing leads to the mixing B->C>=m"),
        (("--properties", str(tmp_path / "wanted.json"), *shape), "nothing leads to the shape and the mixing"),
        (("--properties", str(tmp_path / "graph.json"), *shape), "properties file: expected"),
        (("--properties", str(tmp_path / "none.json"), *shape), "expected a readable file, found: No such file"),
        (("--of", str(tmp_path / "graph.json"), *shape), "--input: expected none with --of"),
        (
            ("--of", str(tmp_path / "conv.json")),
            "--of: expected a graph or a network of αNAS, found one of syno-lab-op",
        ),
        (("--of", str(tmp_path / "two.json")), "--of: expected a graph of one input and one output, found 2 and 1"),
    ]
    for arguments, message in cases:
        assert message in refused(capsys, "synthesise", *arguments)
