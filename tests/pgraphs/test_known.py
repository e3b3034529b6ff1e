"""Searches that begin with the known operators of their space: which these are, and what becomes of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known_trainings import Known, accuracy, settings

from syno_lab import operators
from syno_lab.codegen.reference import reference
from syno_lab.errors import PrimitiveError
from syno_lab.experiments import Driver, SearchSettings, Space, Stopped
from syno_lab.experiments.watching import Board
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.pgraphs.of_network import known_operators, placed
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import RandomSearch
from syno_lab.store import Store
from syno_lab.synthesis.orders import rebuilt, steps_taken

BINDING = {"N": 1, "C_in": 8, "C_out": 8, "H": 6, "W": 6, "k_1": 3, "g": 4, "s": 2}


def spec_of(size: int) -> Spec:
    return Spec.parse(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N: 0", "C_in: 3", "C_out: 3", "H: 0", "W: 0"],
        ["k_1=3: 4", "g=4: 3", "s=2: 2"],
        mappings=[{"N": 1, "C_in": 16, "C_out": 16, "H": 8, "W": 8}],
        fixed_io_pairs=[(0, 0)],
        max_primitives=size,
    )


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (operators.conv1x1, 8),
        (operators.shift_conv, 8),
        (operators.separable, 8),
        (operators.grouped, 8),
        (operators.conv2d, 8),
        (operators.operator_2, 10),
    ],
)
def test_known_operators_have_their_place(make: Callable[[], Operator], size: int) -> None:
    spec, known = spec_of(size), make()
    found = placed(synthesis_space(spec, countable_nodes=0), known, spec)
    assert found is not None
    assert found.spec == spec
    sizes = {name: size for name, size in BINDING.items() if name in known.spec.symbols.names}
    assert (found.flops(BINDING), found.params(BINDING)) == (known.flops(sizes), known.params(sizes))
    # The same numbers where the weights are all alike: the same terms are summed, whatever order their axes have.
    x = np.random.default_rng(0).standard_normal(known.input_sizes(sizes))
    results = [
        reference(operator, x, *map(np.ones, operator.weight_sizes(binding)), binding=binding)
        for operator, binding in ((known, sizes), (found, BINDING))
    ]
    np.testing.assert_allclose(results[0], results[1])


def test_what_a_space_does_not_have_is_not_there() -> None:
    spec = spec_of(6)
    found = known_operators(synthesis_space(spec, countable_nodes=0), spec)
    assert {"conv2d", "conv1x1", "shift_conv"} <= found.keys()
    assert not found.keys() & {"separable", "grouped", "operator_2", "matmul", "pixel_shuffle"}
    limited = synthesis_space(spec, countable_nodes=0, accepts=lambda operator: operator.params(BINDING) < 100)
    assert set(known_operators(limited, spec)) == {"conv1x1", "shift_conv"}


def in_another_order(operator: Operator, rng: random.Random) -> Operator | None:
    """Its steps in a random order that Table 1 allows; None where the order drawn is not allowed."""
    left, done = steps_taken(operator), []
    known = set(operator.output)
    while left:
        able = [one for one in left if known.issuperset((*one[0].operands, *one[0].given))]
        chosen = rng.choice(able)
        left.remove(chosen)
        done.append(chosen)
        known.update(chosen[1])
    try:
        return rebuilt(operator, operator.spec, taken=done)
    except PrimitiveError:  # a coordinate was used up by another step
        return None


def test_every_operator_of_a_space_is_found_in_whatever_order_it_was_built(rng: random.Random) -> None:
    spec = spec_of(6)
    root = synthesis_space(spec, countable_nodes=0)
    search = RandomSearch(root, rng)
    # Of 20 operators about 17 other orders are drawn, and now and then 8: more operators are, until there are enough.
    shuffled = 0
    for number, candidate in enumerate(islice(iter(search.ask, None), 400)):
        if number >= 20 and shuffled > 10:
            break
        for _ in range(3):
            other = in_another_order(candidate.operator, rng)
            if other is not None:
                shuffled += other.steps != candidate.operator.steps
                assert placed(root, other, spec) == candidate.operator
    assert shuffled > 10


# -- searches that begin with them -----------------------------------------------------------------------------------


def drive(folder: Path, known: Known, chosen: SearchSettings, **more: Any) -> tuple[Driver, list[Any]]:
    folder.mkdir(exist_ok=True)
    with Store.open(folder) as store:
        log = store.search(chosen.name, chosen.identity)
        driver = Driver(chosen, Space(chosen), log, known, Board(folder / "board"), **more)
        driver.run()
        return driver, log.trials()


@pytest.mark.parametrize("workers", [1, 3])
def test_known_operators_are_the_first_trials_and_not_called_discovered(tmp_path: Path, workers: int) -> None:
    driver, trials = drive(tmp_path, Known(), settings(starts_with_known=True, workers=workers))
    names = [driver.known.get(trial.operator) for trial in trials]
    assert names[:2] == ["conv1x1", "shift_conv"]
    assert not any(names[2:])
    standing = driver.standing
    assert [(best.known, best.accuracy) for best in standing.known] == [
        (name, accuracy(trial.operator)) for name, trial in zip(names[:2], trials[:2], strict=True)
    ]
    found = standing.best(1.0)
    assert found is not None
    assert found.accuracy == max(trial.accuracy for trial in trials[2:])
    assert standing.best_known == max(standing.known, key=lambda best: best.accuracy)
    # The search has learned from them: they are told, and not asked for again.
    assert len({trial.fingerprint for trial in trials}) == len(trials) == len(driver.search.told)


def test_without_being_asked_to_a_search_begins_with_nothing(tmp_path: Path) -> None:
    driver, trials = drive(tmp_path, Known(), settings())
    assert len(trials) == 12
    assert not driver.known


@pytest.mark.parametrize("method", ["estimate", "mcts", "random", "evolution"])
@pytest.mark.parametrize("stops", [(1,), (2, 6)])
def test_a_killed_search_goes_on_as_if_it_had_not_been(tmp_path: Path, method: Any, stops: tuple[int, ...]) -> None:
    chosen = settings(method=method, starts_with_known=True)
    whole, _ = drive(tmp_path / "whole", Known(), chosen)
    known = Known()
    for most in stops:
        with pytest.raises(Stopped):
            drive(tmp_path / "killed", known, chosen, should_stop=lambda most=most: len(known.begun) >= most)
    driver, trials = drive(tmp_path / "killed", known, chosen)
    assert len(trials) == 12
    assert driver.search.told == whole.search.told
    assert driver.standing.known == whole.standing.known
