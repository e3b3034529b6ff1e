"""αNAS through the conformance suite of systems, and edited networks in the place of backbones."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from syno_lab import alpha
from syno_lab.alpha import Graph, Rel, operation
from syno_lab.alpha.blocks import find_blocks
from syno_lab.alpha.edits import Deletion, Duplication, Replacement, Variant
from syno_lab.alpha.known import KNOWN
from syno_lab.alpha.module import Edited, example_of
from syno_lab.alpha.operator import NetworkOperator, from_json
from syno_lab.alpha.system import ALPHA
from syno_lab.cli import main
from syno_lab.errors import FormatError, SpecError
from syno_lab.models.registry import BACKBONES
from syno_lab.protocol import System
from syno_lab.systems import format_named, operator_of, read_operator
from syno_lab.testing.conformance import Case, SystemConformance
from syno_lab.trial import TrialRequest, costs_of, run_trial
from syno_lab.trial.backbone import build, facts_of

SMALL = (1, 4, 6, 8)


def chain(*operations: alpha.Operation) -> NetworkOperator:
    return NetworkOperator.of_graph(Graph.chain(SMALL, operations))


class TestAlpha(SystemConformance):
    @pytest.fixture
    def system(self) -> System:
        return ALPHA

    @pytest.fixture(
        params=[
            Case(chain(operation("conv", features=Rel(2), stride=2), operation("silu")), {"N": 2}, {"N": 3}),
            Case(KNOWN["mlp_block"](), {"N": 1}, {"N": 2}),
            Case(KNOWN["attention_block"](), {"N": 2}, {"N": 1}),
            Case(chain(operation("group_norm", groups=2), operation("dense", features=3)), {"N": 1}, {"N": 4}),
        ],
        ids=["conv", "mlp", "attention", "norm"],
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        found: Case = request.param
        return found

    def test_tvm_computes_the_meaning(self, case: Case, tmp_path: Path) -> None:
        """Networks have no single function."""
        with pytest.raises(SpecError, match="found a whole network of αNAS; compile it by `syno-lab network`"):
            case.operator.to_tvm(case.binding)

    def test_it_takes_its_places_in_a_network(
        self, system: System, case: Case, network: tuple[nn.Module, tuple[int, ...]]
    ) -> None:
        """It is a network of its own, and refuses others."""
        with pytest.raises(SpecError, match=r"made for|for images or tokens|a network that takes \[2, 8, 4, 6\]"):
            system.placement(case.operator, [], "pool").apply(network[0])


def test_it_is_called_alpha() -> None:
    assert format_named("alpha") == format_named("αNAS") == ALPHA.format
    graph = Graph.chain(SMALL, [operation("relu")])
    assert operator_of(graph) == NetworkOperator.of_graph(graph)
    assert ALPHA.recognise(KNOWN["mlp_block"]()) == "mlp_block"


# -- in the place of a backbone ----------------------------------------------------------------------------------------


def seed(name: str, **options: int) -> tuple[nn.Module, Variant]:
    known = BACKBONES[name]
    net = known.build(options=options)
    return net, Variant(find_blocks(alpha.trace(net, known.example())))


def narrowed(variant: Variant) -> Variant:
    """With a 1x1 convolution instead of the first block's first convolution."""
    network = variant.network
    number = next(number for number, block in enumerate(network.blocks) if block.mutable)
    graph = network.blocks[number].graph
    node = next(n for n in sorted(network.blocks[number].mutable) if graph.nodes[n].operation.name == "conv")
    old = graph.subgraph(graph.region([node]))
    features = old.output_shapes[0][-1]
    new = Graph.chain(old.inputs[0], [operation("conv", features=features, kernel=1), operation("silu")])
    return variant.edited(Replacement((number,), (node,), old, new))


def test_an_edited_network_is_a_placement() -> None:
    net, variant = seed("resnet20", width=4, blocks=2)
    edited = narrowed(variant)
    placement = Edited(NetworkOperator(edited).variant)
    assert ALPHA.network_costs(NetworkOperator(edited)) == (edited.flops(), edited.params())
    assert sum(place.params for place in placement.places) == edited.params()
    assert sum(place.flops for place in placement.places) == edited.flops()
    names = [place.name for place in placement.places if place.replaced]
    assert names[0] == "stage1.0.conv1"
    assert len(names) == 2
    again = read_operator(NetworkOperator(edited).to_json())
    torch.manual_seed(7)
    made = ALPHA.placement(again, [], "pool").apply(net)
    assert torch.equal(made.get_parameter("stage1.0.conv2.weight"), net.get_parameter("stage1.0.conv2.weight"))
    assert sum(one.numel() for one in made.parameters()) == edited.params()
    x = torch.randn(2, 3, 32, 32)
    assert made(x).shape == (2, 10)
    # Without edits it is the network itself.
    same = Edited(variant).apply(net)
    assert torch.allclose(same.eval()(x), net.eval()(x), atol=1e-5)
    with pytest.raises(SpecError, match=r"expected the network that the edits were made for .* found another CifarRes"):
        placement.apply(BACKBONES["resnet20"].build(options={"width": 4, "blocks": 1}))
    with pytest.raises(SpecError, match=r"for images or tokens, found one for an input of shape \[1, 16, 32\]"):
        example_of((1, 16, 32))


def test_edited_networks_are_trained(tmp_path: Path) -> None:
    """As any operator: the costs are those of the edited network, and equal seeds give equal trainings."""
    base = TrialRequest(backbone="cnn", data="digits", options={"width": 4}, epochs=1, train_images=64, test_images=32)
    facts = facts_of(base)
    net = build(base).module
    variant = Variant(find_blocks(alpha.trace(net, (facts.channels, facts.size, facts.size))))
    seed_costs = costs_of(base)
    assert seed_costs == (variant.flops(), variant.params())
    longer = variant.edited(Duplication(0, len(variant.network.blocks)))
    outcomes = []
    for one in (variant, variant, narrowed(variant), longer):
        request = msgspec.structs.replace(base, operator=NetworkOperator(one).to_json())
        assert costs_of(request) == (one.flops(), one.params())
        outcome = run_trial(request, folder=tmp_path / str(len(outcomes)))
        assert (outcome.state, outcome.params, outcome.flops) == ("finished", one.params(), one.flops())
        outcomes.append([row["train_loss"] for row in outcome.curve])
    plain = run_trial(base, folder=tmp_path / "plain")
    assert outcomes[0] == outcomes[1] == [row["train_loss"] for row in plain.curve]  # without edits it is the network
    assert outcomes[2] != outcomes[0] != outcomes[3]
    other = msgspec.structs.replace(request, options={"width": 8})
    with pytest.raises(SpecError, match="expected the network that the edits were made for"):
        build(other)


def test_files_of_edited_networks() -> None:
    _, variant = seed("cnn", width=4)
    edited = narrowed(variant).edited(Deletion(1))
    operator = NetworkOperator(edited)
    text = operator.to_json()
    assert from_json(text) == operator
    assert from_json(text).variant.edits == edited.edits
    assert "conv 1x1" in str(operator)
    # Edits alone, for a seed that has changed since.
    edits = edited.to_json()
    assert Variant.from_json(edits, edited.seed).edits == edited.edits
    _, other = seed("cnn", width=8)
    with pytest.raises(
        FormatError, match=f"expected edits of the network {other.seed.digest}, found edits of '{edited.seed.digest}'"
    ):
        Variant.from_json(edits, other.seed)
    record = json.loads(text)
    record["edits"][0]["nodes"] = [99]
    with pytest.raises(FormatError, match="αNAS file: edit 0: expected nodes from 0 to"):
        from_json(json.dumps(record))
    record["seed"]["blocks"][0]["graph"]["nodes"][0]["operation"] = "launch"
    with pytest.raises(FormatError, match="αNAS file: seed: block 0: node 0: expected an operation"):
        from_json(json.dumps(record))


def test_mutations_keep_the_shapes_of_inner_chains() -> None:
    """What leads into the sum of a residual block; the result of a chain of blocks may get another shape."""
    changed = {}
    for name, options in {"resnet20": {"width": 4, "blocks": 1}, "cnn": {"width": 4}}.items():
        _, variant = seed(name, **options)
        once = alpha.Mutations(duplicate=0.0, delete=0.0, attempts=1)
        drawn = [alpha.mutate(variant.network, random.Random(number), once) for number in range(40)]
        found = [edit for edit in drawn if isinstance(edit, Replacement)]
        assert len(found) > 15
        changed[name] = sum(edit.old.output_shapes != edit.new.output_shapes for edit in found)
    assert changed["resnet20"] == 0 < changed["cnn"]


def test_random_networks_are_operators(rng: random.Random) -> None:
    _, variant = seed("cnn", width=4)
    for _ in range(5):
        edit = alpha.mutate(variant.network, rng)
        assert edit is not None
        edited = variant.edited(edit)
        operator = NetworkOperator(edited)
        if operator.params() > 10**8:  # more than this machine may hold
            continue
        variant = edited
        assert read_operator(operator.to_json()) == operator
        assert operator.params() == sum(one.numel() for one in operator.to_torch().parameters())
        assert operator.flops({"N": 3}) == 3 * operator.flops()


@pytest.mark.parametrize("suffix", ["onnx", "safetensors"])
def test_the_command_exports_a_network(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "mlp_block", "--out", str(tmp_path / f"block.{suffix}")]) == 0
    assert "read back" in capsys.readouterr().out
