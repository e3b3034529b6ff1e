"""A primitive of one's own, added in a notebook's cell: its steps, code, pictures and files, in other processes too.

The oracle is NumPy's own indexing: what the primitive does to a tensor is ``numpy.flip`` here.
"""

from __future__ import annotations

import linecache
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import syno_lab as sl
from syno_lab.errors import FormatError, PrimitiveError
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.sessions.session import session_of
from syno_lab.trial import TrialRequest
from syno_lab.trial.own import bring, with_primitives

CELL = '''
import syno_lab as sl

def backwards(i, n):
    """The dimension is read from its end."""
    return n - 1 - i

flip = sl.add_primitive("FLIP", backwards)
build = sl.Build("[N, C_in, H]", "[N, C_out, H]", ["N", "C_in", "C_out", "H"], ["k=3"], fixed_io_pairs=[(0, 0)])
n, o, h = build.output
c, k = build.reduce("C_in"), build.reduce("k")
build.contract(share=[c, k], give=[o])
mirrored = build.finish(n, c, build.unfold(build.view("FLIP", h), k))
'''
SIZES = {"N": 2, "C_in": 3, "C_out": 4, "H": 5, "k": 3}


@pytest.fixture(name="cell")
def _cell() -> Iterator[dict[str, Any]]:
    """The names of a notebook in which :data:`CELL` was run; its source is found as a kernel's is."""
    names: dict[str, Any] = {"__name__": "__main__"}
    linecache.cache["<cell 1>"] = (len(CELL), None, CELL.splitlines(keepends=True), "<cell 1>")
    try:
        exec(compile(CELL, "<cell 1>", "exec"), names)
        yield names
    finally:
        PRIMITIVES.pop("FLIP", None)
        del linecache.cache["<cell 1>"]


def test_numpy_torch_and_the_loop_nest_agree(cell: dict[str, Any]) -> None:
    operator = cell["mirrored"]
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((2, 3, 5)), rng.standard_normal((3, 3, 4))  # [N, C_in, H], [C_in, k, C_out]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    slid = np.stack([padded[:, :, p : p + 5] for p in range(3)], axis=-1)  # [N, C_in, H, k]
    expected = np.einsum("nchk,cko->noh", np.flip(slid, axis=2), weight)
    np.testing.assert_allclose(operator.reference(x, weight, binding=SIZES), expected, rtol=1e-12)
    module = operator.to_torch(SIZES).double()
    with torch.no_grad():
        module.weight_1.copy_(torch.from_numpy(weight))
        np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), expected, rtol=1e-12)
    names: dict[str, Any] = {}
    exec(operator.loops(SIZES), names)
    (nest,) = [found for found in names.values() if callable(found)]
    result = np.zeros((2, 4, 5))  # [N, C_out, H]
    nest(x, weight, result)
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    # What it costs is what the same operator without it costs: a view multiplies nothing.
    assert operator.flops(SIZES) == 2 * 2 * 4 * 5 * 3 * 3
    assert operator.receptive_field((0, 0, 0), SIZES).axes[2].positions == (3, 4)
    assert "FLIP" in operator.dot()
    assert cell["flip"].is_one_to_one
    assert cell["flip"].card.top_down == "The dimension is read from its end."


@pytest.mark.parametrize("name", ["ROLL", "STAGE"])
def test_its_name_may_be_that_of_a_method_of_code_generation(name: str) -> None:
    sl.add_primitive(name, lambda i, n: n - 1 - i)
    try:
        build = sl.Build("[H]", "[H]", ["H"])
        module = build.finish(build.view(name, *build.output)).to_torch({"H": 3})
        assert module(torch.arange(3.0)).tolist() == [2.0, 1.0, 0.0]
    finally:
        sl.remove_primitive(name)


def test_it_is_a_step_like_any_other(cell: dict[str, Any]) -> None:
    sampler = sl.Sampler("[N, H]", "[N, H]", ["N: 0", "H=6: 0"], [], fixed_io_pairs=[(0, 0)], max_primitives=2,
                         min_weights=0, max_shifts=0, max_tensors=1)  # fmt: skip
    root = sampler.root()
    (step,) = [one for one in root.candidates() if one.primitive == "FLIP"]
    assert step.verdict.canonical
    assert step.distance == 0
    found = root.apply(step)
    assert found.is_complete
    assert found != root
    np.testing.assert_array_equal(
        found.operator().reference(np.arange(6.0)[None], binding={"N": 1, "H": 6}), [np.arange(6.0)[::-1]]
    )
    # The search has the same operators: nothing, one FLIP, and two, which compute nothing again.
    listed = list(sampler.enumerate(2))
    prints = {len(one.steps): one.fingerprint({"N": 1, "H": 6}) for one in listed}
    assert prints[1] != prints[2]
    # A rule of one's own takes the second FLIP away.
    twice = sl.Rule("flip-twice", "FLIP of a FLIP", "nothing", "It turns back.", "own", "exact",
                    lambda state, step: step.operands[0].node.primitive == "FLIP", ("FLIP",))  # fmt: skip
    ruled = sl.Sampler.from_spec(sampler.spec, rules=(*sl.RULES, twice))
    assert max(len(one.steps) for one in ruled.enumerate(2)) == 1
    # A sum over a coordinate that is turned is the sum over the coordinate.
    summed = sl.Build("[N, C]", "[N]", ["N", "C"])
    reduction = summed.reduce("C")
    (turned,) = [s for s in summed.state.candidates() if s.primitive == "FLIP" and s.operands == (reduction,)]
    assert turned.verdict.rule == "view-of-reduction"
    assert turned.verdict.rewrite is not None


def test_files_have_its_digest_and_no_code(cell: dict[str, Any]) -> None:
    operator = cell["mirrored"]
    text = operator.to_json()
    assert cell["flip"].meaning in text
    assert "backwards" not in text
    assert sl.Operator.from_json(text) == operator
    session = sl.session(operator.spec)
    for step in operator.steps:
        session.apply(step)
    kept = session.to_json()
    assert session_of(kept).state == operator.state
    sl.remove_primitive("FLIP")
    with pytest.raises(
        FormatError, match=r"step 3: expected a primitive 'FLIP' of one's own with the digest .* found none"
    ):
        sl.Operator.from_json(text)
    with pytest.raises(FormatError, match=r"session: place 4: expected a primitive 'FLIP' of one's own"):
        session_of(kept)
    sl.add_primitive("FLIP", cell["backwards"])
    with pytest.raises(FormatError, match="expected a primitive 'FLIP' of one's own with the digest '0000'"):
        sl.Operator.from_json(text.replace(cell["flip"].meaning, "0000"))
    with pytest.raises(PrimitiveError, match="FLIP has meant another function in this process"):
        sl.add_primitive("FLIP", lambda i, n: (i + 2) % n)


@pytest.mark.warm
def test_its_code_goes_to_processes_of_trials_as_text(cell: dict[str, Any]) -> None:
    request = with_primitives(TrialRequest(backbone="resnet20", operator=cell["mirrored"].to_json()))
    assert set(request.own or {}) == {"primitive:FLIP"}
    bring(request)  # here it is there already
    child = (
        "import sys\nfrom syno_lab.trial import TrialRequest\nfrom syno_lab.trial.own import bring\n"
        "import msgspec, syno_lab as sl\nrequest = TrialRequest.from_dict(msgspec.json.decode(sys.stdin.read()))\n"
        "bring(request)\nprint(sl.Operator.from_json(request.operator).steps[3].primitive)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", child], input=_json(request), capture_output=True, text=True, check=True, timeout=250
    )
    assert done.stdout == "FLIP\n"


def _json(request: TrialRequest) -> str:
    import msgspec

    return msgspec.json.encode(request).decode()


@pytest.mark.parametrize(
    ("name", "function", "said"),
    [
        ("Flip", lambda i, n: i, "expected a name of 2 to 12 capital letters for a primitive, found 'Flip'"),
        ("SHIFT", lambda i, n: i, "expected a name that no primitive has, found 'SHIFT'"),
        ("WEIGHT", lambda i, n: i, "expected a name that no primitive has, found 'WEIGHT'"),
        ("NEXT", lambda i, n: i + 1, "NEXT: expected a position from 0 to 0, found 1 for position 0 of 1"),
        (
            "HALF",
            lambda i, n: i / 2,
            r"HALF: expected a function of \+ - \* // % alone, found one that fails|found 0.0",
        ),
        ("BACK", lambda i, n: (i - 1) % n, r"-1 is divided by 1; add the size first, as in \(i \+ n - 1\) % n"),
        ("CASE", lambda i, n: i if i else 0, r"CASE: expected a function of \+ - \* // % alone, found one that fails"),
        ("GONE", lambda i, n: {}[i], r"GONE: expected a function .* fails for a size of 1: KeyError"),
    ],
)
def test_what_is_none_is_refused_in_one_line(name: str, function: Any, said: str) -> None:
    before = dict(PRIMITIVES)
    with pytest.raises(PrimitiveError, match=said):
        sl.add_primitive(name, function)
    assert before == PRIMITIVES
    with pytest.raises(PrimitiveError, match="expected a primitive of your own, one of none, found 'SHIFT'"):
        sl.remove_primitive("SHIFT")
