"""TVM modules of Canvas's kernels against their meaning in NumPy; TVM itself runs in a child process."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syno_lab.canvas.fitted import Fitted, fill
from syno_lab.canvas.kernel import Draft
from syno_lab.canvas.known import KNOWN
from syno_lab.canvas.matching import broadcast
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.primitives import Primitive
from syno_lab.canvas.sampler import Sampler

#: As many channels, parts that are averaged behind a pooling, parts that are concatenated, and one column.
PLACES = (Place(8, 8, 6, 4), Place(12, 4, 4, 6, 5, 3, stride=2), Place(4, 12, 6, 6), Place(6, 6, 5, 1))
RANDOM_KERNELS = 25
#: Relative to the largest element, in float64.
TOLERANCE = 1e-10

CHILD = """
import json, sys
import numpy as np
from syno_lab.processes.light import import_tvm, tame_intrinsics
tvm = import_tvm()
tame_intrinsics("x86")
from syno_lab.systems import lower_json
CANDIDATES = 2

def modules(task):
    module = lower_json(task["operator"], task["binding"], "float64")
    if not task["target"]:
        return [module], "llvm"
    from tvm.s_tir import meta_schedule as ms
    target = tvm.target.Target(task["target"])
    strategy = ms.search_strategy.EvolutionarySearch(
        population_size=2 * CANDIDATES, init_min_unmeasured=CANDIDATES, genetic_num_iters=0
    )
    context = ms.TuneContext(
        mod=module, target=target, space_generator="post-order-apply", search_strategy=strategy, task_name="main",
        rand_state=1, num_threads=1,
    )
    space = context.generate_design_space()
    context.pre_tuning(CANDIDATES, CANDIDATES, space, ms.database.MemoryDatabase(), ms.cost_model.RandomModel())
    return [one.sch.mod for one in context.generate_measure_candidates()], target

for number, task in enumerate(json.load(sys.stdin)):
    with np.load(f"{number}.npz") as file:
        arrays = [file[name] for name in file.files]
    found = []
    made, target = modules(task)
    for module in made:
        buffers = [tvm.runtime.tensor(array) for array in (*arrays, np.full(task["shape"], np.nan))]
        tvm.compile(module, target=target)["main"](*buffers)
        found.append(buffers[-1].numpy())
    np.save(f"{number}.npy", found)
"""


def outer(place: Place) -> dict[str, int]:
    """The binding of a place, for two images."""
    numbers = (2, place.c_in, place.c_out, place.h, place.w, place.kh, place.kw, place.stride)
    return dict(zip(("N", "C_in", "C_out", "H", "W", "KH", "KW", "s"), numbers, strict=True))


def agree(operators: list[tuple[Fitted, Place]], folder: Path, target: dict[str, Any] | None = None) -> int:
    """Compare what TVM computes with the meaning; the number of operators whose numbers have digits to compare."""
    rng = np.random.default_rng(0)
    tasks, wanted = [], []
    for operator, place in operators:
        bound = operator.complete_binding(outer(place))
        sizes = operator.weight_sizes(bound)
        arrays = [rng.normal(size=operator.input_sizes(bound))]
        arrays += [rng.normal(size=size) / math.sqrt(size[-1] if len(size) == 3 else 1) for size in sizes]
        with np.errstate(over="ignore", invalid="ignore"):
            want = operator.reference(*arrays, binding=bound)
        if not np.abs(want).max() < 1e30:
            continue  # exp of exp
        np.savez(folder / f"{len(tasks)}.npz", *arrays)
        tasks.append({"operator": operator.to_json(), "binding": bound, "shape": want.shape, "target": target})
        wanted.append((want, f"{place}, normalise={operator.kernel.normalise}: {operator}"))
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=folder,
        input=json.dumps(tasks),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for number, (want, what) in enumerate(wanted):
        found = np.load(folder / f"{number}.npy")
        assert len(found) > 0, what
        scale = max(float(np.abs(want).max()), 1e-30)
        for one in found:
            np.testing.assert_allclose(one / scale, want / scale, rtol=0, atol=TOLERANCE, err_msg=what)
    return len(wanted)


def known(name: str, place: Place, normalise: bool) -> tuple[Fitted, Place]:
    found = fill(replace(KNOWN[name](), normalise=normalise), [place], Budget(), 2)
    assert isinstance(found, Fitted), found
    return found, place


@pytest.mark.tvm
@pytest.mark.warm
def test_known_kernels(tmp_path: Path) -> None:
    operators = [known(name, PLACES[i % 4], normalise=i % 3 == 0) for i, name in enumerate(KNOWN)]
    assert agree(operators, tmp_path) == len(KNOWN)


@pytest.mark.tvm
@pytest.mark.warm
def test_random_kernels(tmp_path: Path) -> None:
    operators = []
    for number in range(RANDOM_KERNELS):
        place = PLACES[number % 4]
        sampler = Sampler([place], max_flops=None, primitives=(3, 8), normalise=number % 3 > 0, seed=number)
        operators.append((sampler.sample(), place))
    assert agree(operators, tmp_path) > RANDOM_KERNELS / 2


@pytest.mark.tvm
@pytest.mark.warm
def test_windows_of_rows_without_channels(tmp_path: Path) -> None:
    # The parts are on the axis of the rows then, and each part has a border of its own.
    draft = Draft()
    for tensor, text in enumerate(["fold_avg C", "unfold H", "softmax KH", "fold_max KH"]):
        name, _, parameter = text.partition(" ")
        draft = draft.apply(Primitive(name, parameter), (tensor,))
    operator = Fitted(broadcast(draft, "mul", 4, 0).kernel())
    assert agree([(operator, place) for place in PLACES[:3]], tmp_path) == 3


@pytest.mark.tvm
@pytest.mark.warm
def test_schedules_of_several_sums(tmp_path: Path) -> None:
    # MetaSchedule takes a plain padded copy of a sum for a write-back of it, and leaves the border unwritten; and where
    # a stage reads several sums it would move that stage into the loops of one (a ScheduleError).
    sums = Draft()
    for name, parameter, inputs in (("fc", "C", (0,)), ("fc", "C", (0,)), ("sigmoid", "", (1,)), ("mul", "", (2, 3))):
        sums = sums.apply(Primitive(name, parameter), inputs)
    operators = [known("spatially_separable", PLACES[0], normalise=True), (Fitted(sums.kernel()), PLACES[0])]
    target = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
    assert agree(operators, tmp_path, target) == 2
