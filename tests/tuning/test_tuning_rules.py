"""Spaces, rules, strategies and cost models of one's own: how they reach the tuning process, and what they do there."""

import importlib.util
import inspect
import itertools
import math
import os
import re
import signal
import textwrap
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import syno_lab as sl
from syno_lab.cli import app
from syno_lab.errors import CodeError, TuningError
from syno_lab.tuning import Method, TuningStopped, TuningTask, explain_schedule, explain_space, local_board, tune
from syno_lab.tuning.curves import curves_svg, latency_curves
from syno_lab.tuning.measuring import time_operators, time_schedules
from syno_lab.tuning.records import key_of
from syno_lab.tuning.space_size import tilings
from syno_lab.user_code import UserCode, user_code

BINDING = {"N": 1, "C_in": 4, "C_out": 8, "H": 6, "W": 10}
FACTOR = 2
NAMES = ("Y", "other")


@pytest.fixture(scope="module")
def task():
    conv2d = sl.operators.conv2d()
    return TuningTask("conv2d", conv2d.to_json(), conv2d.complete_binding(BINDING))


@pytest.fixture(scope="module")
def board():
    with local_board() as started:
        yield started


# ---- what the tests send


def is_the_sum(schedule, block):
    return schedule.get(block).name_hint in NAMES


def halve(schedule, block):
    if is_the_sum(schedule, block):
        schedule.split(schedule.get_loops(block)[1], [None, FACTOR])


def whole(schedule):
    block = schedule.get_sblock("Y")
    loops = schedule.get_loops(block)
    schedule.split(loops[1], [2, 4])
    return [schedule]


def raises(schedule, block):
    name = schedule.get(block).name_hint
    raise ValueError(f"no idea\nwhat to do with {name}")


def returns_a_number(schedule, block):
    return math.floor(3.5)


def returns_nothing_to_search(schedule):
    return []


def less_precise(schedule, block):
    if is_the_sum(schedule, block):
        schedule.cache_read(block, 0, "global")
        schedule.cache_write(block, 0, "global")
        schedule.unsafe_set_dtype(block, 0, "float16")


def dies(schedule, block):
    os.kill(os.getpid(), signal.SIGKILL)


def endless(marker):
    def wait(schedule, block):
        Path(marker).touch()
        time.sleep(600)

    return wait


# ---- functions as text


def load(code, folder):
    """The function as the tuning process has it, run here."""
    place = importlib.util.spec_from_file_location("sent", code.write(folder)["file"])
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return getattr(module, code.name)


def surrounded(x):
    def inside(y):
        return math.sqrt(y) + FACTOR

    return inside(x) + len(NAMES) + helper(x) + Path(str(x)).name.count("9")


def helper(x):
    return 0 if x < 1 else 1 + helper(x - 1)


def multiplier(number):
    def multiply(x):
        return x * number

    return multiply


def test_a_function_is_sent_with_what_it_needs(tmp_path):
    code = user_code(surrounded)
    assert load(code, tmp_path)(9) == surrounded(9) == 3 + FACTOR + 2 + 9 + 1
    assert "import pytest" not in code.source
    assert user_code(code) is code
    assert load(user_code(multiplier(3)), tmp_path)(5) == 15
    assert load(user_code(capturing(math.floor)), tmp_path)(None)(2.5) == 2  # a library's, which is imported


def test_texts_are_told_apart():
    two, three = user_code(multiplier(2)), user_code(multiplier(3))
    assert two.name == three.name == "multiply"
    assert two.digest != three.digest
    assert two == user_code(multiplier(2))
    assert re.fullmatch(r"multiply@[0-9a-f]{12}", str(two))


def test_a_function_in_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import math\n\ndef rule(x):\n    return math.floor(x)\n")
    assert load(user_code(f"{file}:rule"), tmp_path / "code")(2.5) == 2


def decorated():
    import functools

    @functools.cache
    def cached(schedule):
        return schedule

    return cached.__wrapped__


def capturing(value):
    def captured(schedule):
        return value

    return captured


def renamed(function, name):
    function.__name__ = name
    return function


class Something:
    def method(self, schedule):
        return schedule


def of_a_default(schedule, names=NAMES):
    return names


@pytest.mark.parametrize(
    ("what", "match"),
    [
        (lambda schedule: schedule, "expected a function written with def, or 'file.py:function', found a function"),
        (len, "expected a function written with def"),
        (Something().method, "expected a function written with def"),
        (renamed(multiplier(2), "my rule"), "expected the name of a function or a class, found 'my rule'"),
        (decorated(), "expected 'cached' to be a function written with def and without decorators"),
        (of_a_default, "expected the defaults of 'of_a_default' to be constants, found 'NAMES'"),
        (capturing(Something()), "cannot send 'value', a Something, which 'captured' uses: write it inside"),
        (capturing(float("nan")), "cannot send 'value', a float"),
        (capturing([Something()]), "cannot send 'value', a list"),
        ("rule", "expected a function as 'file.py:function', found 'rule'"),
        ("nowhere.py:rule", "nowhere.py cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_what_cannot_be_sent(what, match):
    with pytest.raises(CodeError, match=match):
        user_code(what)


def test_files_that_hold_no_such_function(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n")
    with pytest.raises(CodeError, match=r"expected a function 'rule' in .*mine\.py, found none"):
        user_code(f"{file}:rule")
    file.write_text("def rule(:\n")
    with pytest.raises(CodeError, match=r"mine\.py, line 1: invalid syntax"):
        user_code(f"{file}:rule")
    place = tmp_path / "folder"
    place.write_text("")
    with pytest.raises(CodeError, match="'x' cannot be written to"):
        UserCode("x", "", "here").write(place)


# ---- methods as values


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"rules": "tiling"}, r"expected rules as a list such as \('inline', 'tiling'\), found 'tiling'"),
        ({"rules": ["tilling"]}, "expected a rule among default, inline, .*, a function or .*, found 'tilling'"),
        ({"rules": ["tiling"], "space": whole}, "expected rules or a space of your own"),
        ({"strategy": "annealing"}, "expected a strategy among evolutionary, replay-trace, .*, found 'annealing'"),
        (
            {"cost_model": "linear"},
            "expected a cost model among xgboost, random, a class or .*, found 'linear'",
        ),
    ],
)
def test_methods_that_are_none(fields, match):
    with pytest.raises(TuningError, match=match):
        Method(**fields)


def test_a_method_is_a_value():
    assert Method(rules=["inline", halve]) == Method(rules=("inline", halve))
    assert hash(Method(rules=[halve])) == hash(Method(rules=(halve,)))
    assert str(Method(rules=("default",))) == ""
    assert str(Method()) == "rules fuse-stages:2, channel-lanes:4, default; evolutionary, xgboost"
    assert str(Method(rules=(), cost_model="random")) == "rules none; evolutionary, random"
    assert re.fullmatch(r"space whole@[0-9a-f]{12}; replay-func", str(Method(space=whole, strategy="replay-func")))
    assert [one.name for one in Method(rules=("default", halve)).code] == ["halve"]


def test_records_of_methods_are_kept_apart(task):
    plain = key_of(task, "{}", "0.27", "threads=1")
    assert key_of(task, "{}", "0.27", "threads=1", str(Method(rules=("default",)))) == plain
    other = key_of(task, "{}", "0.27", "threads=1", str(Method()))
    assert len({one.name for one in (plain, other, key_of(task, "{}", "0.27", "threads=1", "rules tiling"))}) == 3
    assert other.name != plain.name
    assert other.fingerprint == plain.fingerprint


# ---- curves


def test_curves_over_seeds():
    runs = [[(1, 8.0), (2, 4.0), (3, 4.0)], [(2, 6.0), (4, 5.0)], [(1, 9.0), (2, 3.0)]]
    curve, short = latency_curves({"a": runs, "b": [[(1, 2.0)]]})
    assert curve == ("a", (2, 3, 4), (4.0, 4.0, 4.0), (3.0, 3.0, 3.0), (6.0, 6.0, 5.0))
    assert short.trials == (1, 2, 3, 4)
    assert set(short.median) == {2.0}
    drawn = curves_svg((curve, short), "x < y")
    assert drawn.count("<svg") == 1
    assert all(text in drawn for text in ("x &lt; y", ">a<", ">b<", "milliseconds"))
    assert curves_svg((curve, short), "x < y") == drawn
    for nothing, who in (({}, "any"), ({"a": []}, "a"), ({"a": [[]], "b": [[(1, 1.0)]]}, "a")):
        with pytest.raises(TuningError, match=f"expected a history of trials for each curve, found none for {who}$"):
            latency_curves(nothing)


# ---- the command


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--rule", "tilling"], "expected a rule among default, inline, .*, a function or .*, found 'tilling'"),
        (["--space", "mine.py"], "expected a function as 'file.py:function', found 'mine.py'"),
        (["--strategy", "luck"], "expected a strategy among evolutionary, replay-trace, replay-func, found 'luck'"),
    ],
)
def test_wrong_words(words, match):
    binding = [f"--bind={name}={value}" for name, value in BINDING.items()]
    told = CliRunner().invoke(app, ["tune", "conv2d", *binding, *words])
    assert told.exit_code != 0
    assert re.search(match, " ".join(told.output.split()) + str(told.exception))


# ---- spaces


def splits(explanation):
    """Extent and factors of each split that the trace tells of."""
    found = [re.match(r"split \S+ \((\d+)\) into ([\d ×]+)", step) for step in explanation.steps]
    return [(int(one[1]), [int(part) for part in one[2].split(" × ")]) for one in found if one]


@pytest.mark.tvm
def test_rules_are_composed_one_by_one(task):
    none = explain_space(task, Method(rules=()))
    (only,) = none.sketches
    assert none.changed == {}
    assert only.steps == ()
    assert only.draws == 0
    assert only.after == only.before
    assert only.before.splitlines()[-3:] == [
        "for i1 < 8; i2 < 6; i3 < 10; r0 < 4; r1 < 3; r2 < 3:",
        "  Y[i0, i1, i2, i3] = 0.0   # before the first",
        "  Y[i0, i1, i2, i3] += X_padded[i0, r0, i2 + r1, i3 + r2] * W1[r0, r1, r2, i1]",
    ]
    tiled = explain_space(task, Method(rules=("inline", "tiling", "compute-location")), seed=3)
    assert tiled.changed == {"inline": (), "tiling": ("Y",), "compute-location": ("X_padded",)}
    for sketch in tiled.sketches:
        found = splits(sketch)
        assert sorted(extent for extent, _ in found) == [3, 3, 4, 6, 8, 10]
        assert all(math.prod(factors) == extent for extent, factors in found)
        assert sketch.draws == 8
        assert sketch.before == only.before
        assert sketch.after != only.before
    default = explain_space(task, Method(rules=("default",)))
    assert default.changed["MultiLevelTiling"] == ("Y",)
    assert len(default.sketches) == len(tiled.sketches) == 3


@pytest.mark.tvm
def test_a_rule_of_one_s_own_is_used(task):
    # By default TVM would be told of this machine's cores, and would want 16 jobs for each.
    method = Method(rules=("rfactor", halve, "vectorize", "parallel", "unroll"))
    space = explain_space(task, method, target="local:1")
    marks = dict.fromkeys(("vectorize", "parallel", "unroll"), ("root",))
    assert space.changed == {"rfactor": (), "halve": ("Y",)} | marks
    (sketch,) = space.sketches
    assert "mark root: vectorize = 64" in sketch.steps
    assert "mark root: parallel = 16" in sketch.steps
    assert [step for step in sketch.steps if "split" in step] == ["split i1 (8) into the rest × 2"]
    assert "for i1_0 < 4; i1_1 < 2; i2 < 6;" in sketch.after
    assert str(space).splitlines()[:2] == ["rfactor: nothing", "halve: Y"]
    assert str(space).splitlines()[-1] == "sketch 1: 1 draws"


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("method", "match"),
    [
        ({"rules": (raises,)}, r"^conv2d: the rule 'raises' raised ValueError: what to do with \w+, in the line `r"),
        ({"rules": (returns_a_number,)}, "^conv2d: expected the rule 'returns_a_number' to return a sch.* found 3$"),
        ({"space": returns_nothing_to_search}, "^conv2d: the space 'returns_nothing_to_search' returned an empty list"),
    ],
)  # fmt: skip
def test_code_that_fails_is_one_line(task, method, match):
    with pytest.raises(TuningError, match=match) as caught:
        explain_space(task, Method(**method))
    assert "\n" not in str(caught.value)


@pytest.mark.tvm
def test_schedules_are_timed_beside_each_other(task):
    halved = '[[["GetSBlock",[],["Y","main"],["b0"]],["GetLoops",["b0"],[],["l1","l2","l3","l4","l5","l6","l7"]],'
    halved += '["Split",["l2",null,2],[true,false],["l8","l9"]]],[]]'
    times = time_schedules(task, {"as it is": "[[],[]]", "halved": halved}, rounds=4)
    assert times.keys() == {"as it is", "halved"}
    assert [len(one) for one in times.values()] == [4, 4]
    assert all(0 < one < 1e3 for found in times.values() for one in found)
    with pytest.raises(TuningError, match="conv2d: the trace does not fit this operator"):
        time_schedules(task, {"other": halved.replace('"l7"', '"l7","l70"')})
    with pytest.raises(TuningError, match="conv2d: expected traces as TVM's JSON text"):
        time_schedules(task, {"other": "none"})
    with pytest.raises(TuningError, match="conv2d: expected schedules and at least one round, found 0 and 100"):
        time_schedules(task, {})
    # Other operators have arguments of their own.
    other = TuningTask("dense", sl.operators.KNOWN["matmul"]().to_json(), {"M": 3, "K": 4, "N": 5})
    times = time_operators({"conv2d": (task, halved), "dense": (other, "[[],[]]")}, rounds=3)
    assert {name: len(one) for name, one in times.items()} == {"conv2d": 3, "dense": 3}
    with pytest.raises(TuningError, match="time_operators: the trace does not fit this operator"):
        time_operators({"conv2d": (task, halved), "dense": (other, halved)})


@pytest.mark.tvm
def test_targets_and_traces_of_others(task):
    with pytest.raises(TuningError, match="conv2d: the rules parallel are for processors, the target's device is cuda"):
        explain_space(task, Method(rules=("parallel",)), target="jetson-orin-nano")
    with pytest.raises(TuningError, match="conv2d: the trace does not fit this operator"):
        explain_schedule(task, '[[["GetSBlock",[],["nothing","main"],["b0"]]],[]]')
    with pytest.raises(TuningError, match="conv2d: expected a trace as TVM's JSON text, found 'no trace'"):
        explain_schedule(task, "no trace")


@pytest.mark.tvm
@pytest.mark.parametrize("target", ["jetson-orin-nano", "jetson-agx-orin", "jetson-xavier", "cuda"])
def test_spaces_of_gpus_are_told(task, target):
    """No GPU is needed to make them; from compute capability 8 on loops are pipelined, with an array of stages."""
    sketches = explain_space(task, target=target).sketches
    nests = [sketch.after for sketch in sketches]
    assert all("threadIdx.x" in str(sketch) for sketch in sketches)
    pipelined = [nest for nest in nests if "pipelined, its statements in stages 0 0" in nest]
    assert len(pipelined) == (2 if "orin" in target else 0)


@pytest.mark.tvm
def test_targets_that_this_machine_cannot_run_need_a_board(task, tmp_path):
    for target, reason in (("jetson-orin-nano", "it is for aarch64"), ("cuda", "TVM finds no cuda device here")):
        with pytest.raises(
            TuningError, match=f"expected a target that this machine .* can run, found '{target}': {reason}"
        ):
            tune(task, work_dir=tmp_path, target=target, trials=1)


# ---- tunings


def run(task, board, tmp_path, method, **options):
    return tune(
        task, tracker=board.address, key=board.key, work_dir=tmp_path, method=method, **({"trials": 2} | options)
    )


def few(schedule):
    loop = schedule.get_loops(schedule.get_sblock("Y"))[1]
    schedule.split(loop, schedule.sample_perfect_tile(loop, 2, 4))


@pytest.mark.parametrize(("extent", "parts", "innermost"), [(8, 2, 4), (12, 3, 64), (28, 4, 5), (7, 1, 6), (1, 3, 1)])
def test_tilings_are_counted(extent, parts, innermost):
    factors = itertools.product(range(1, extent + 1), repeat=parts)
    assert tilings(extent, parts, innermost) == sum(
        math.prod(one) == extent and one[-1] <= innermost for one in factors
    )


@pytest.mark.tvm
def test_a_small_space_is_searched_to_its_end_and_no_longer(task, board, tmp_path):
    result = run(task, board, tmp_path, Method(space=few), trials=12)
    assert (result.trials, result.failed, result.stopped, result.verified) == (3, 0, "space", True)


class Stubborn:
    """Likes the same program best, whatever was measured."""

    def extract(self, context, candidates):
        return [sum(map(ord, candidate.sch.mod.script())) for candidate in candidates]

    def update(self, features, seconds):
        pass

    def predict(self, features):
        return [float(feature) for feature in features]


@pytest.mark.tvm
def test_a_tuning_goes_on_where_the_model_s_favourite_is_known(task, board, tmp_path):
    method = Method(space=few, cost_model=Stubborn)
    for trials in (1, 2, 3):
        result = run(task, board, tmp_path, method, trials=trials, store=tmp_path / "records")
        assert (result.trials, result.stopped) == (trials, "budget")


@pytest.mark.tvm
def test_a_space_of_one_s_own_is_searched_and_recorded(task, board, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(inspect.getsource(whole))
    method = Method(space=f"{file}:whole", strategy="replay-trace", cost_model="random")
    store = tmp_path / "records"
    result = run(task, board, tmp_path, method, store=store)
    assert (result.trials, result.stopped, result.verified) == (1, "space", True)
    assert result.method == str(method)
    told = explain_schedule(task, result.trace)
    assert told.steps[0] == "split i1 (8) into 2 × 4"
    assert "sch.split" in told.python
    assert "T.sblock" in told.script
    again = run(task, board, tmp_path, method, store=store)
    assert again.from_records
    assert again.trace == result.trace
    words = ["tune", "conv2d", "--space", f"{file}:whole", "--strategy", "replay-trace", "--out", str(tmp_path)]
    words += [f"--bind={name}={value}" for name, value in BINDING.items()]
    told = CliRunner().invoke(app, [*words, "--records", str(store)])
    assert told.exit_code == 0, told.output
    assert "from the records of 1 trials" in told.output


@pytest.mark.tvm
def test_a_rule_that_computes_something_else_is_found_out(task, board, tmp_path):
    match = "conv2d: the tuned program computes something else: .* or of the method's own code"
    with pytest.raises(TuningError, match=match):
        run(task, board, tmp_path, Method(rules=(less_precise,), strategy="replay-func"))


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (raises, r"^conv2d: the rule 'raises' raised ValueError: what to do with \w+, in the line `raise ValueError"),
        (dies, r"^conv2d: the tuning process ended \(killed by SIGKILL\) after 0 trials, in the rule 'dies'"),
    ],
)
def test_a_rule_that_breaks_the_tuning(task, board, tmp_path, rule, match):
    with pytest.raises(TuningError, match=match) as caught:
        run(task, board, tmp_path, Method(rules=("inline", rule), strategy="replay-trace"))
    assert "\n" not in str(caught.value)


@pytest.mark.tvm
def test_a_rule_that_never_ends_can_be_stopped(task, board, tmp_path):
    marker, seen = tmp_path / "begun", []

    def should_stop():
        seen.append(marker.exists())
        return sum(seen) > 5  # what was told before it began has come by then

    with pytest.raises(TuningStopped, match="stopped on request after 0 trials, in the rule 'wait'"):
        run(task, board, tmp_path, Method(rules=(endless(str(marker)),)), should_stop=should_stop)


@pytest.mark.tvm
def test_a_file_that_cannot_be_run(task, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        textwrap.dedent("""
        import no_such_module

        def rule(schedule, block):
            return schedule
    """)
    )
    with pytest.raises(TuningError, match=r"cannot load 'rule' of .*mine\.py: ModuleNotFoundError: No module named"):
        explain_space(task, Method(rules=(f"{file}:rule",)))
