"""Tests that every system of operators passes (:class:`syno_lab.protocol.System`), in any project.

A system's author subclasses :class:`SystemConformance` and overrides two fixtures::

    class TestMine(SystemConformance):
        @pytest.fixture
        def system(self) -> System:
            return MINE

        @pytest.fixture(params=[Case(mine(), {"N": 2, "C": 4}, {"N": 2, "C": 6})], ids=str)
        def case(self, request: pytest.FixtureRequest) -> Case:
            return request.param

Sizes should be small, because the reference is slow, and all different, if possible. The system must be registered: as
a row of :data:`syno_lab.systems.SYSTEMS`, or by the environment variable ``SYNO_LAB_SYSTEMS`` before pytest starts.
Tests that start TVM have the marker ``tvm`` (``pytest -m "not tvm"`` skips them); a project with strict markers must
declare it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import nn

from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.models.layers import survey
from syno_lab.models.sites import Site
from syno_lab.protocol import FLOAT32_BYTES, Binding, Operator, OperatorSpace, SpaceRequest, System
from syno_lab.search import RandomSearch
from syno_lab.search.protocol import State
from syno_lab.sessions.session import session_of
from syno_lab.systems import (
    binding_for,
    builder_of,
    builders,
    find_system,
    is_operator,
    read_operator,
    space_of,
    system_of,
)
from syno_lab.testing.numbers import arrays_of, by_source, by_tvm, filled_module, slope

#: The largest number of characters in a message of one line.
MOST_OF_A_LINE = 500
_DRAWN = 3  # the number of operators to draw from a space


@dataclass(frozen=True)
class Case:
    """An operator to test.

    Attributes:
        operator: the operator.
        binding: a small value for each variable of the operator.
        other: a second binding, under which the operator computes another function.
    """

    operator: Operator
    binding: Binding
    other: Binding

    def __str__(self) -> str:
        return str(self.operator)


class SystemConformance:
    """Tests of one system with the operators of its cases; subclasses override the fixtures."""

    @pytest.fixture
    def system(self) -> System:
        """Return the registered system."""
        raise NotImplementedError("give the fixture `system` of your own")

    @pytest.fixture
    def case(self) -> Case:
        """Return an operator with its two bindings."""
        raise NotImplementedError("give the fixture `case` of your own")

    @pytest.fixture
    def network(self) -> tuple[nn.Module, tuple[int, ...]]:
        """Return a network with layers that operators can replace, and its input shape without the batch."""
        layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, stride=2, padding=1)]
        return nn.Sequential(*layers), (3, 8, 6)

    # -- the value ----------------------------------------------------------------------------------------------------

    def test_the_system_is_registered(self, system: System, case: Case) -> None:
        """Find the system by its format, and check that its operators have this format."""
        assert find_system(system.format) is system
        assert case.operator.format == system.format
        assert system_of(case.operator) is system
        assert is_operator(case.operator)
        assert isinstance(case.operator, Operator)
        assert builder_of(case.operator.to_json()) in builders()
        assert system.title

    def test_json_is_read_back(self, system: System, case: Case) -> None:
        """Check that the JSON reads back to an equal operator with the same JSON, and has a format and a version."""
        text = case.operator.to_json()
        header = json.loads(text)
        assert header["format"] == system.format
        assert isinstance(header["version"], int)
        for again in (read_operator(text), system.read(text), system.read(text.encode())):
            assert again == case.operator
            assert hash(again) == hash(case.operator)
            assert again.to_json() == text

    def test_operators_are_values(self, case: Case) -> None:
        """Check that an operator equals its copy and does not equal its JSON."""
        again = copy.deepcopy(case.operator)
        assert again == case.operator
        assert hash(again) == hash(case.operator)
        assert case.operator != case.operator.to_json()
        assert str(case.operator)
        assert "\n" not in str(case.operator)

    def test_known_operators(self, system: System) -> None:
        """Check that known operators belong to the system, differ, and are the same in each call."""
        operators = {name: make() for name, make in system.known.items()}
        assert all(operator.format == system.format for operator in operators.values())
        assert len({operator.to_json() for operator in operators.values()}) == len(operators)
        assert all(make() == operators[name] for name, make in system.known.items())

    # -- numbers ------------------------------------------------------------------------------------------------------

    def test_sizes_are_positive_integers(self, case: Case) -> None:
        """Check that a complete binding has exactly the operator's variables, and that shapes and costs agree."""
        operator, bound = case.operator, case.operator.complete_binding(case.binding)
        assert set(bound) == set(operator.variables)
        assert operator.complete_binding(bound) == bound
        shapes = [operator.input_sizes(bound), operator.output_sizes(bound), *operator.weight_sizes(bound)]
        for shape in shapes:
            assert isinstance(shape, tuple)
            assert all(type(size) is int and size > 0 for size in shape)
        for number in (operator.flops(bound), operator.params(bound), operator.memory(bound)):
            assert type(number) is int
            assert number >= 0
        assert operator.params(bound) == sum(map(prod, shapes[2:]))
        assert operator.memory(bound) >= FLOAT32_BYTES * sum(map(prod, shapes))
        assert operator.input_sizes(case.binding) == shapes[0]

    def test_torch_computes_the_meaning(self, case: Case) -> None:
        """Compare the module's output with ``reference``; the weights are its only parameters."""
        arrays = arrays_of(case.operator, case.binding)
        module = filled_module(case.operator, case.binding, arrays[1:])
        assert [tuple(weight.shape) for weight in module.parameters()] == list(case.operator.weight_sizes(case.binding))
        wanted = case.operator.reference(*arrays, binding=case.binding)
        assert wanted.shape == case.operator.output_sizes(case.binding)
        with torch.no_grad():
            _same(module(torch.from_numpy(arrays[0])).numpy(), wanted, 1e-10)

    def test_gradients_are_those_of_the_meaning(self, case: Case) -> None:
        """Compare the gradients of the input and each weight with those of ``reference``, in a random direction."""
        arrays = arrays_of(case.operator, case.binding)
        for moved in range(len(arrays)):
            by_torch, by_meaning = slope(case.operator, case.binding, arrays, moved)
            assert by_torch == pytest.approx(by_meaning, rel=1e-4, abs=1e-6)

    def test_chance_decides_the_weights(self, case: Case) -> None:
        """Check that equal seeds of torch's generator give equal weights, and different seeds different weights."""
        drawn = []
        for seed in (0, 0, 1):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                drawn.append([weight.detach().clone() for weight in case.operator.to_torch(case.binding).parameters()])
        assert all(torch.equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
        assert not drawn[0] or any(not torch.equal(a, b) for a, b in zip(drawn[0], drawn[2], strict=True))

    def test_the_source_needs_torch_alone(self, case: Case, tmp_path: Path) -> None:
        """Run the source in a new interpreter: it gives the reference's output and imports nothing of Syno Lab."""
        arrays = arrays_of(case.operator, case.binding)
        output, loaded = by_source(case.operator, case.binding, arrays, tmp_path)
        _same(output, case.operator.reference(*arrays, binding=case.binding), 1e-10)
        assert loaded == ""

    @pytest.mark.tvm
    def test_tvm_computes_the_meaning(self, case: Case, tmp_path: Path) -> None:
        """Compare the module that a tuning builds from the operator's JSON with ``reference``."""
        arrays = arrays_of(case.operator, case.binding)
        output = by_tvm(case.operator, case.operator.complete_binding(case.binding), arrays)
        _same(output, case.operator.reference(*arrays, binding=case.binding), 1e-4)

    def test_a_fingerprint_tells_functions_apart(self, case: Case) -> None:
        """Check that a fingerprint has 32 hexadecimal digits, survives a round trip, and changes with the sizes."""
        fingerprint = case.operator.fingerprint(case.binding)
        assert len(fingerprint) == 32
        assert set(fingerprint) <= set("0123456789abcdef")
        assert read_operator(case.operator.to_json()).fingerprint(case.binding) == fingerprint
        assert case.operator.fingerprint(case.other) != fingerprint

    def test_pictures(self, case: Case) -> None:
        """Check that the operator's pictures, DOT text and valid SVG, are equal in each call."""
        assert case.operator.dot().lstrip().startswith(("digraph", "graph", "strict"))
        drawn = case.operator.svg()
        assert ElementTree.fromstring(drawn).tag.endswith("svg")  # noqa: S314 - the lab's own SVG
        assert case.operator.dot() == case.operator.dot()
        assert case.operator.svg() == drawn

    # -- refusals -----------------------------------------------------------------------------------------------------

    def test_bad_bindings_are_refused_in_one_line(self, case: Case) -> None:
        """Check that the operator refuses bindings that lack a variable or have sizes that are no positive integers."""
        operator = case.operator
        complete = operator.complete_binding(case.binding)
        bad: list[dict[str, Any]] = [
            {**complete, name: size} for name in complete for size in (0, -1, 1.5, "8\n", True, None)
        ]
        for binding in bad:
            for size_of in (operator.complete_binding, operator.input_sizes, operator.flops):
                _refused(SpecError, size_of, binding)
        for name in complete:
            short = {other: size for other, size in complete.items() if other != name}
            if not _has_default(operator, short):
                for compute in (operator.input_sizes, operator.params, operator.to_torch, operator.fingerprint):
                    _refused(SpecError, compute, short)

    def test_bad_files_are_refused_in_one_line(self, system: System, case: Case) -> None:
        """Check that the reader refuses text without JSON, other versions, missing or new fields, and wrong types."""
        text = case.operator.to_json()
        record = json.loads(text)
        bad = ["", "junk", "[]", "{}", text[:-2], text + "}", json.dumps({**record, "version": 999})]
        bad += [json.dumps({**record, "format": "nobody's"}), json.dumps({**record, "x\n\x1b[2J": 1}), "[" * 100_000]
        bad += [json.dumps({**record, name: {"a": [None, "\n"]}}) for name in record]
        for content in bad:
            _refused(FormatError, system.read, content)
            _refused(FormatError, read_operator, content)
        for name in record:
            short = json.dumps({other: value for other, value in record.items() if other != name})
            try:
                assert system.read(short).format == system.format
            except FormatError as error:
                _is_one_line(error)

    # -- in a network -------------------------------------------------------------------------------------------------

    def test_the_binding_of_a_place(
        self, system: System, case: Case, network: tuple[nn.Module, tuple[int, ...]]
    ) -> None:
        """Check that the system completes a layer's binding to the operator's variables, or refuses it in one line."""
        for site in _sites(network):
            shapes = (1, site.in_channels, site.height, site.width), (1, site.out_channels, site.height, site.width)
            try:
                binding = binding_for(case.operator, site.binding(), *shapes)
            except SpecError as error:
                _is_one_line(error)
                continue
            assert set(binding) <= set(case.operator.variables)
        _refused(SpecError, binding_for, case.operator, {"N": 1}, (1,), (1,))

    def test_it_takes_its_places_in_a_network(
        self, system: System, case: Case, network: tuple[nn.Module, tuple[int, ...]]
    ) -> None:
        """Check the costs of the network with operators in its layers, and that each weight gets a gradient."""
        net, shape = network
        sites = _sites(network)
        placement = system.placement(case.operator, sites, "pool")
        places = list(placement.places)
        assert [place.name for place in places] == [site.name for site in sites]
        before = [name for name, _ in net.named_parameters()]
        if not any(place.replaced for place in places):
            _refused(SpecError, placement.apply, net)
            assert [name for name, _ in net.named_parameters()] == before
            return
        count = sum(weight.numel() for weight in net.parameters())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            placed = placement.apply(net)
            x = torch.randn(2, *shape)
        gained = sum(place.params - site.params for place, site in zip(places, sites, strict=True) if place.replaced)
        assert sum(w.numel() for w in placed.parameters()) == count + gained
        for place in places:
            assert (place.binding is None) == (place.reason is not None)
            if place.binding is not None:
                assert place.flops == case.operator.flops(place.binding)
                assert system.traffic(case.operator, place.binding) >= prod(case.operator.output_sizes(place.binding))
        placed(x).square().mean().backward()
        assert all(w.grad is not None and bool(torch.isfinite(w.grad).all()) for w in placed.parameters())

    def test_traits_and_traffic_are_numbers(self, system: System, case: Case) -> None:
        """Check that traits map words to integers from 0 up, and that traffic is an integer from 0 up."""
        bound = case.operator.complete_binding(case.binding)
        traits = system.traits(case.operator, bound)
        assert all(isinstance(word, str) and type(number) is int and number >= 0 for word, number in traits.items())
        assert system.traits(case.operator, bound) == traits
        stored = system.traffic(case.operator, bound)
        assert type(stored) is int
        assert stored >= 0

    def test_panes_and_sessions(self, system: System, case: Case) -> None:
        """Check that the picture is the first pane, and that a session of the operator is complete or refused."""
        panes = system.panes
        assert next(iter(panes)) == "graph"
        assert all(callable(pane.read) for pane in panes.values())
        try:
            session = session_of(case.operator)
        except SpecError as error:
            _is_one_line(error)
        else:
            assert session.is_complete
            assert session.operator == case.operator

    def test_the_space_has_operators_that_fit(self, system: System, network: tuple[nn.Module, tuple[int, ...]]) -> None:
        """Check that a random search finds operators that fit all sites, or the space is refused in one line."""
        sites = [site for site in _sites(network) if site.in_channels % 8 == 0]
        try:
            space = space_of(system, SpaceRequest(sites, "pool", 10**9, None, {}, {}, wants=""))
        except SpecError as error:
            _is_one_line(error)
            return
        assert "\n" not in str(space)
        root = space.root(lambda operator: True)
        assert all(is_operator(operator) for operator in space.known(root).values())
        search = RandomSearch(root, random.Random(0))  # noqa: S311 - not for secrets
        operators = [candidate.operator for _ in range(_DRAWN) if (candidate := search.ask()) is not None]
        assert operators
        for operator in operators:
            assert operator.format == system.format
            again = read_operator(operator.to_json())
            assert again == operator
            assert space.name_of(again) == space.name_of(operator)
            self.check_probe(space.probe(operator), space.probe(again))
            assert all(place.replaced for place in system.placement(operator, sites, "pool").places)
        refused: list[Operator] = []

        def refuse(operator: Operator) -> bool:
            refused.append(operator)
            return False

        none = RandomSearch(space.root(refuse), random.Random(0)).ask(lambda: len(refused) >= _DRAWN)  # noqa: S311
        assert none is None
        assert refused, "the hard limit is asked of complete operators"
        self.check_steps(space, root)

    def check_probe(self, first: Mapping[str, float] | None, again: Mapping[str, float] | None) -> None:
        """Check that a probe is None or has numbers from 0 up with ``score``, and is equal in each call."""
        assert first == again
        assert first is None or "score" in first
        assert all(isinstance(name, str) and 0 <= number < float("inf") for name, number in (first or {}).items())

    def check_steps(self, space: OperatorSpace, root: State) -> None:
        """Check that children and their steps are equal in each call, and that their weights are positive."""
        hash(root.key)
        assert not root.is_complete
        first, again = root.children(), root.children()
        assert first
        for child, other in zip(first, again, strict=True):
            assert child.weight > 0
            assert [step.name for step in child.steps()] == [step.name for step in other.steps()]
            assert [step.state.key for step in child.steps()] == [step.state.key for step in other.steps()]
        for operator in list(space.known(root).values())[:1]:
            assert root.towards(operator), "a known operator of the space can be reached"


def _sites(network: tuple[nn.Module, tuple[int, ...]]) -> list[Site]:
    net, shape = network
    channels, height, width = shape
    return survey(net, (channels, height, width)).select()


def _has_default(operator: Operator, binding: Mapping[str, int]) -> bool:
    try:
        operator.complete_binding(binding)
    except SpecError:
        return False
    return True


def _same(actual: Any, wanted: Any, tolerance: float) -> None:
    """Assert that arrays are equal within a share of the largest element."""
    assert actual.shape == wanted.shape
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=tolerance * max(float(np.abs(wanted).max()), 1e-30))


def _refused(kind: type[SynoError], call: Callable[..., Any], *arguments: Any) -> None:
    with pytest.raises(kind) as caught:
        call(*arguments)
    _is_one_line(caught.value)


def _is_one_line(error: Exception) -> None:
    message = str(error)
    assert message
    assert message.isprintable(), message
    assert len(message) <= MOST_OF_A_LINE, message
