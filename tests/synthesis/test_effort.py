"""No spec hangs or fills the memory: deadlines, bounds and what is too large to list."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syno_lab import operators
from syno_lab.effort import Effort, kept
from syno_lab.errors import OverTimeError, SpecError, StoppedError, SynoError, TooLargeError
from syno_lab.ir import plan as plans
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.synthesis import distance as distances
from syno_lab.synthesis import graph as graphs
from syno_lab.synthesis import reach, roots
from syno_lab.synthesis.candidates import candidates
from syno_lab.synthesis.graph import Graph
from syno_lab.synthesis.paths import exactly
from syno_lab.synthesis.sampler import Sampler
from syno_lab.synthesis.space import coefficient_products
from syno_lab.synthesis.ways import random_way, shortest_way

MIB = 1 << 20
#: A small space with REDUCEs, contractions and every kind of view.
SMALL = Spec.parse("[H, W]", "[H, W]", ["H=12: 1", "W=8: 1"], ["s=2: 2"], max_primitives=3)

DIMS = [f"D{i}" for i in range(30)]
CONV: dict[str, Any] = {
    "input_shape": "[N, C_in, H, W]",
    "output_shape": "[N, C_out, H, W]",
    "primary_specs": ["N: 0", "C_in: 3", "C_out: 0", "H: 0", "W: 0"],
    "coefficient_specs": ["k_1=3: 4", "k_2=5: 3", "s=2: 0", "g=16: 3"],
    "mappings": [{"N": 1, "C_in": 64, "C_out": 64, "H": 32, "W": 32}],
    "fixed_io_pairs": [[0, 0]],
    "max_flops": 10**9,
}
SQUARE = {"input_shape": "[H, W]", "output_shape": "[H, W]", "primary_specs": ["H=4096: 2", "W=4096: 2"]}
HOSTILE: dict[str, dict[str, Any]] = {
    "30 dimensions": {
        "input_shape": f"[{', '.join(DIMS)}]",
        "output_shape": f"[{', '.join(DIMS)}]",
        "primary_specs": [f"{name}={i + 2}: 2" for i, name in enumerate(DIMS)],
    },
    "10^18 primitives": SQUARE | {"max_primitives": 10**18},
    "2,000 coefficients": SQUARE | {"coefficient_specs": [f"c{i}=2: 2" for i in range(2000)]},
    "12 coefficients": SQUARE | {"coefficient_specs": [f"c{i}=2: 2" for i in range(12)], "max_primitives": 6},
    "20 primitives": CONV | {"max_primitives": 20, "max_tensors": 10},
}
#: Runs the command and says what it took: seconds of computing, and the most memory that it held.
MEASURED = """
import json, re, resource, sys
from pathlib import Path
from syno_lab.cli import main
begun = resource.getrusage(resource.RUSAGE_SELF)  # the imports are not the command's
status = main(sys.argv[1:])
ended = resource.getrusage(resource.RUSAGE_SELF)
cpu_s = ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps({"status": status, "cpu_s": cpu_s, "peak": int(peak[1]) * 1024}))
"""


def sampled(folder: Path, name: str, seconds: int) -> tuple[dict[str, Any], str]:
    """What ``syno-lab sample`` took, and the last line that it wrote to standard error."""
    file = folder / "spec.json"
    file.write_text(json.dumps(HOSTILE[name]))
    arguments = ["sample", "--spec", str(file), "--count", "1", "--seconds", str(seconds), "--seed", "0"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, timeout=300, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, (done.stderr.splitlines() or [""])[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory by /proc")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_spec_ends_in_time_and_memory(name: str, tmp_path: Path) -> None:
    found, line = sampled(tmp_path, name, 4)
    assert found["status"] == 0 or (found["status"] == 2 and line.startswith("syno-lab: ") and len(line) < 400), line
    assert found["cpu_s"] < 5.5
    assert found["peak"] < 500 * MIB


@pytest.mark.parametrize("name", ["12 coefficients", "20 primitives"])
def test_a_large_spec_gives_an_operator(name: str) -> None:
    operator = Sampler.from_spec(Spec.parse(**HOSTILE[name]), seed=0).sample(seconds=30)
    assert operator.state.is_complete


def test_a_random_way_from_the_root_of_operator_1() -> None:
    spec = operators.operator_1().spec
    operators_found = 0
    for seed in range(5):  # a tenth; benchmarks/completing.py has all
        begun = time.thread_time()
        try:
            way = random_way(State.root(spec), random.Random(seed))
        except SynoError:
            way = None
        assert time.thread_time() - begun < 5
        if way is not None:
            state = State.root(spec)
            for step in way.steps:
                state = state.apply(step)
            operators_found += state.is_complete
    assert operators_found >= 4


# -- random specs ------------------------------------------------------------------------------------------------------


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of a spec up to the limits, well-formed but for what cannot be reached."""
    names = [f"D{i}" for i in range(draw(st.sampled_from([1, 2, 5, 20, 64])))]
    coefficients = [f"c{i}" for i in range(draw(st.sampled_from([0, 1, 5, 40, 192])))]
    limit = st.sampled_from(["", ": 0", ": 2", ": 64"])
    value = st.sampled_from(["=2", "=12", "=720"])
    size = st.sampled_from([*names, *(f"{name}*{names[0]}" for name in names)])
    shape = st.lists(size, min_size=1, max_size=64)
    inputs = draw(shape)
    outputs = draw(st.one_of(st.just(inputs), st.permutations(inputs), shape))
    return {
        "input_shape": f"[{', '.join(inputs)}]",
        "output_shape": f"[{', '.join(outputs)}]",
        "primary_specs": [name + draw(value) + draw(limit) for name in names],
        "coefficient_specs": [name + draw(value) + draw(limit) for name in coefficients],
        "max_primitives": draw(st.sampled_from([1, 6, 20, 64])),
        "max_tensors": draw(st.sampled_from([2, 3, 10, 65])),
        "max_reduces": draw(st.sampled_from([0, 5, 64])),
        "max_flops": draw(st.sampled_from([None, 10**6, 10**12])),
        "unordered": draw(st.sampled_from([[], inputs[:1]])),
    }


#: Ten axes in 115,975 groupings, of sizes with very many exponents.
MANY_VARIABLES: dict[str, Any] = {
    "input_shape": "[D*D, D, D, D, D, D*D, D, D*D, D*D, D]",
    "output_shape": "[D*D, D]",
    "primary_specs": ["D=12: 2"],
    "coefficient_specs": [f"c{i}=2: 2" for i in range(192)],
    "max_primitives": 64,
    "max_tensors": 10,
    "max_reduces": 0,
}


@example(MANY_VARIABLES, 0)
@settings(max_examples=8, deadline=None)
@given(specs(), st.integers(0, 9))
def test_any_spec_ends_in_time(fields: dict[str, Any], seed: int) -> None:
    begun, line = time.thread_time(), ""
    try:
        Sampler.from_spec(Spec.parse(**fields), seed=seed).sample(seconds=1)
    except SynoError as error:
        line = str(error)
    assert "\n" not in line
    assert time.thread_time() - begun < 5


def test_what_no_machine_could_do_is_refused() -> None:
    names = [f"D{i}" for i in range(257)]

    def parsed(axes: int = 1, variables: int = 65, **limits: Any) -> Spec:
        shape = f"[{', '.join(names[:axes])}]"
        return Spec.parse(shape, shape, names[:variables], **limits)

    assert parsed(64, 256, max_primitives=64).limits.max_primitives == 64
    with pytest.raises(SpecError, match="input_shape: expected at most 64, found 65"):
        parsed(65)
    with pytest.raises(SpecError, match="variables: expected at most 256, found 257"):
        parsed(variables=257)
    with pytest.raises(SpecError, match=r"max_primitives: expected at most 64, .*, found 65"):
        parsed(max_primitives=65)
    with pytest.raises(SpecError, match="max_tensors: expected an integer of at most 18 digits, found a larger one"):
        parsed(max_tensors=10**5000)


def test_too_many_coefficients_are_named() -> None:
    spec = Spec.parse("[H]", "[H]", ["H"], [f"c{i}" for i in range(151)])
    with pytest.raises(TooLargeError, match=r"too many sizes for REDUCE, .* at most 150 coefficients .* found 151"):
        coefficient_products(spec)


# -- what is too large to list gives the same --------------------------------------------------------------------------


def numbers(spec: Spec) -> list[int]:
    """How many operators there are of each length, met one by one."""
    graph = Graph(spec)
    return [sum(1 for _ in exactly(graph, graph.root, length)) for length in range(spec.limits.max_primitives + 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {(roots, "MOST_MULTISETS"): 3},
        {(graphs, "MOST_CONTRACTIONS"): 1},
        {(reach, "_MOST_GROUPINGS"): 0, (distances, "_MOST_GROUPINGS"): 0},
    ],
    ids=["multisets", "contractions", "bounds"],
)
def test_a_space_met_lazily_or_with_rough_bounds_is_the_same(
    changes: dict[Any, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = numbers(SMALL)
    names = {operator.key for operator in Sampler.from_spec(SMALL).enumerate()}
    for (module, name), number in changes.items():
        monkeypatch.setattr(module, name, number)
    assert numbers(SMALL) == whole
    sampler = Sampler.from_spec(SMALL, seed=1)
    assert {sampler.sample().key for _ in range(20)} <= names


def test_a_rough_distance_is_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    states = []
    for _ in range(20):
        state = State.root(SMALL)
        for _ in range(rng.randint(0, 3)):
            steps = [one.step for one in candidates(state)]
            state = state.apply(rng.choice(steps)) if steps else state
        states.append(state)
    exact = [distances.distance(state) for state in states]
    monkeypatch.setattr(distances, "_MOST_GROUPINGS", 0)
    for state, steps in zip(states, exact, strict=True):
        # Distances are kept: another spec, with a budget that changes none, has its own.
        other = replace(state.spec, limits=replace(state.spec.limits, max_memory=10**17))
        rough = distances.distance(replace(state, spec=other))
        assert steps is None or (rough is not None and rough <= steps)


def test_a_plan_of_too_many_orders_is_between_the_best_and_the_naive(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = operators.operator_1()
    binding = {"N": 1, "C_in": 8, "C_out": 16, "H": 6, "W": 6}
    best, naive = plans.plan(operator, binding), plans.plan(operator, binding, "naive")
    monkeypatch.setattr(plans, "_MOST_UNIONS", 1)
    plans._plan.cache_clear()
    rough = plans.plan(operator, binding)
    plans._plan.cache_clear()
    assert best.flops <= rough.flops <= naive.flops
    assert {r for stage in rough.stages for r in stage.summed} == set(operator.reductions)


# -- the effort itself -------------------------------------------------------------------------------------------------


def test_effort_ends_what_goes_on() -> None:
    begun = time.thread_time()
    with pytest.raises(OverTimeError, match=r"no end within 0\.05 seconds while counting sheep"):
        _go_on(Effort(0.05))
    assert time.thread_time() - begun >= 0.05
    with pytest.raises(StoppedError, match="stopped while counting sheep"):
        _go_on(Effort(should_stop=lambda: True))


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory by /proc")
def test_effort_ends_what_grows() -> None:
    effort = Effort(memory_bytes=32 * MIB)
    kept_bytes: list[bytearray] = []
    with pytest.raises(TooLargeError, match="counting sheep would take more than 32 MiB of memory"):
        _go_on(effort, lambda: kept_bytes.append(bytearray(10**4)))
    assert len(kept_bytes) * 10**4 < 256 * MIB
    with pytest.raises(TooLargeError, match="a list of sheep would take more than 1 MiB"):
        Effort(memory_bytes=MIB).make_room("a list of sheep", 2 * MIB)


def test_effort_is_bound_further_for_a_while() -> None:
    effort = Effort()
    with effort.within(should_stop=lambda: True) as same, pytest.raises(StoppedError, match="counting sheep"):
        _go_on(same)
    for _ in range(1000):
        effort.tick("counting sheep")


def _go_on(effort: Effort, do: Callable[[], None] = lambda: None) -> None:
    while True:
        effort.tick("counting sheep")
        do()


def test_what_is_kept_is_not_asked_for_again_and_bounded() -> None:
    asked = []

    @kept(2)
    def twice(number: int, *, effort: Effort | None = None) -> int:
        asked.append(number)
        return 2 * number

    assert [twice(n, effort=Effort()) for n in (1, 2, 1)] == [2, 4, 2]
    assert asked == [1, 2]
    assert [twice(n) for n in (3, 3, 1)] == [6, 6, 2]
    assert asked == [1, 2, 3, 1]


def test_everything_that_may_take_long_can_be_stopped() -> None:
    state = State.root(operators.operator_1().spec)
    for ask in (
        lambda stop: candidates(state, should_stop=stop),
        lambda stop: shortest_way(state, should_stop=stop),
        lambda stop: random_way(state, random.Random(0), should_stop=stop),
        lambda stop: Sampler.from_spec(state.spec).sample(should_stop=stop),
        lambda stop: next(Sampler.from_spec(state.spec).enumerate(should_stop=stop)),
    ):
        with pytest.raises(StoppedError, match="stopped while"):
            ask(lambda: True)


def test_candidates_that_would_fill_the_memory_are_refused_at_once() -> None:
    names = [f"D{i}" for i in range(40)]
    shape = f"[{', '.join(names)}]"
    with pytest.raises(TooLargeError, match=r"a list of the 12,157,.* CONTRACTIONs of 40 coordinates would take more"):
        candidates(State.root(Spec.parse(shape, shape, names)))


def test_counting_ends_with_the_effort() -> None:
    sampler = Sampler.from_spec(Spec.parse(**CONV), effort=Effort(0.02))
    with pytest.raises(OverTimeError, match="no end within"):
        _ = sampler.counted
