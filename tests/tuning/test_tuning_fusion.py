"""The schedule rule ``fuse-stages``: where it applies, where it does not, and that it computes the same."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest
from trust.tvm_parent import Child

import syno_lab as sl
from syno_lab.tuning import Method, TuningTask, explain_space

sys.path.insert(0, str(Path(__file__).parent))
from test_tuning_lanes import CHILD, agree, sizes, task

CHAINS = ("stacked_grouped_convolution", "operator_1", "operator_2")
DRAWS = 2


@pytest.mark.tvm
def test_it_fits_chains_of_sums() -> None:
    chain, conv2d = sl.operators.operator_1(), sl.operators.conv2d()
    small, large = {"C_in": 16, "W": 16, "H": 8}, {"C_in": 16, "C_out": 64, "g": 8, "N": 2, "H": 16, "W": 64}
    cases = {
        "two threads": task(chain, sizes(chain, **small), cores=2, sketches=4),
        "four threads": task(chain, sizes(chain, **small | {"H": 16}), cores=4, sketches=4, draws=1),
        "a sample a block": task(chain, sizes(chain, N=4), cores=2, sketches=4, draws=1),
        "one thread": task(chain, sizes(chain, **small), sketches=4, draws=1),
        "samples too large for the cache": task(chain, sizes(chain, **large), cores=2, sketches=1, draws=1),
        "one sum": task(conv2d, sizes(conv2d, **small), cores=2, sketches=1, draws=1),
        "no vector registers": task(chain, sizes(chain, **small), cores=2, bits=0, draws=1),
        "a row": task(chain, sizes(chain, H=1, W=16), cores=2, sketches=1, draws=1),
        "more rows at edges than within": task(chain, sizes(chain, H=3, W=16), cores=2, sketches=1, draws=1),
    }
    found = dict(zip(cases, agree(list(cases.values())), strict=True))
    for name in list(cases)[:5]:
        assert found[name]["fused"] == ["Y"], name
        assert found[name]["changed"] == ["Y", "Z1"], "both sums have tiles inside the blocks"
        assert found[name]["errors"], name
        assert not found[name]["refused"], name
        # TVM would vectorize several rows of the copy at once, and divide each element's number for its conditions.
        assert found[name]["padded copies in vectors"] == 0, name
        if name != "one thread":  # the loop over the blocks is the only one in threads
            assert set(found[name]["in threads"][: found[name]["fused sketches"]]) == {1}, name
    for name in list(cases)[5:]:
        assert (found[name]["fused"], found[name]["fused sketches"]) == ([], 0), name


@pytest.mark.tvm
def test_chains_of_any_sizes_compute_the_same(rng: random.Random) -> None:
    tasks = []
    for _ in range(DRAWS):
        chain = sl.operators.KNOWN[rng.choice(CHAINS)]()
        more = {"N": rng.randint(1, 3), "H": rng.randint(1, 12), "W": rng.choice((4, 6, 7, 8, 12, 16)),
                "C_in": rng.choice((16, 32)), "C_out": rng.choice((16, 32)), "s": rng.choice((1, 2, 4)),
                "g": rng.choice((1, 2, 4)), "k": rng.choice((3, 5)), "k_1": rng.choice((1, 3, 5))}  # fmt: skip
        more = {name: size for name, size in more.items() if name in chain.spec.symbols.names}
        tasks.append(task(chain, sizes(chain, **more), dtype="float64", bits=rng.choice((128, 256, 512)),
                          cores=rng.randint(2, 4), draws=1))  # fmt: skip
    agree(tasks)


@pytest.mark.tvm
def test_it_is_part_of_the_default_and_says_what_it_does() -> None:
    chain = sl.operators.operator_1()
    small = TuningTask("chain", chain.to_json(), sizes(chain, C_in=16, H=8, W=16))
    ours, unfused = (
        explain_space(small, one, target="local:2") for one in (Method(), Method(("channel-lanes", "default")))
    )
    assert ours.changed["fuse-stages"] == ("Y",)
    assert "fuse-stages" not in unfused.changed
    fused = [sketch for sketch in ours.sketches if any(step.startswith("compute Z1 inside") for step in sketch.steps)]
    assert len(fused) == len(ours.sketches) - len(unfused.sketches) > 0
    for sketch in fused:
        blocks = re.fullmatch(r"split i2 \(8\) into the rest × (\d)", sketch.steps[0])
        assert blocks, sketch.steps[0]
        loops = sketch.after.splitlines()
        assert loops[0] == f"for i2_0 < {8 // int(blocks[1])}:"
        assert all(line.startswith("  ") for line in loops[1:]), "padding and both sums are inside the blocks"


@pytest.mark.tvm
def test_rows_of_a_sample_are_cut_where_a_sample_is_too_much_for_the_cache() -> None:
    chain = sl.operators.operator_1()
    bound = sizes(chain, C_in=16, C_out=64, g=8, N=2, H=16, W=64)
    blocks = set()
    for sketch in explain_space(TuningTask("chain", chain.to_json(), bound), target="local:2").sketches:
        if found := re.match(r"for i0 < 2; i2_0 < (\d+):", sketch.after):
            blocks.add(2 * int(found[1]))
    # The first stage is g x C_out/(g·s) x k_1 x (H + 2) x W for each sample.
    whole = 2 * 8 * 4 * 3 * 18 * 64 * 4
    assert blocks
    assert all(whole / one <= 256 * 1024 for one in blocks), blocks


@pytest.mark.tvm
def test_a_stage_that_blocks_do_not_cut_is_computed_once() -> None:
    with Child(CHILD) as child:
        nests, padded = (child.ask({"padded": one})["nests"] for one in (False, True))
    assert nests
    assert not padded, "the first sum of a block that begins in the padding has a condition, which no tile fits"
    for one in nests:
        outer = [line for line in one.splitlines() if not line.startswith(" ")]
        assert len(outer) == 2, one
        assert one.index("doubled[") < one.index(outer[1]) < one.index("Z1["), one
