"""Cost models, mutators and postprocessors of one's own, rules of GPUs, and tunings that start from records."""

import importlib.util
import json
import math
import statistics
from pathlib import Path

import pytest

import syno_lab as sl
from syno_lab.errors import CodeError, TuningError
from syno_lab.tuning import Method, TuningTask, explain_space, tune
from syno_lab.tuning.method import from_job, to_job
from syno_lab.tuning.records import read_record
from syno_lab.user_code import user_code

BINDING = {"N": 1, "C_in": 4, "C_out": 8, "H": 6, "W": 10}
FACTOR = 2
NAMES = ("Y", "other")


@pytest.fixture(scope="module")
def task():
    conv2d = sl.operators.conv2d()
    return TuningTask("conv2d", conv2d.to_json(), conv2d.complete_binding(BINDING))


def load(code, folder):
    """The function as the tuning process has it, run here."""
    place = importlib.util.spec_from_file_location("sent", code.write(folder)["file"])
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return getattr(module, code.name)


def whole(schedule):
    block = schedule.get_sblock("Y")
    loops = schedule.get_loops(block)
    schedule.split(loops[1], [2, 4])
    return [schedule]


def no_class(schedule, block):
    return None


# ---- what the tests send


class Ranked:
    """Prefers programs with many loops, and remembers what it is told."""

    def __init__(self):
        self.told = []

    def extract(self, context, candidates):
        return [candidate.sch.mod.script().count("for ") * FACTOR for candidate in candidates]

    def update(self, features, seconds):
        if any(not math.isfinite(feature) for feature in features) or len(features) != len(seconds):
            raise ValueError("features")
        self.told += seconds
        if len(self.told) > 3:  # the test sees by it that it was told
            Path(NAMES[1] + ".told").write_text(str(len(self.told)))

    def predict(self, features):
        return [float(feature) for feature in features]


class Wrong:
    def extract(self, context, candidates):
        return candidates

    def update(self, features, seconds):
        pass

    def predict(self, features):
        return [1.0]


class Lacking:
    def predict(self, features):
        return [1.0]


def unchanged(trace):
    return trace


def rejects(schedule):
    return False


def odd(schedule):
    return 3


def test_a_class_is_sent_with_what_it_needs(tmp_path):
    code = user_code(Ranked, is_class=True)
    found = load(code, tmp_path)()
    assert found.predict([3]) == [3.0]
    assert "FACTOR = 2" in code.source
    assert "import pytest" not in code.source
    assert Method(cost_model=Ranked) == Method(cost_model=code)
    assert f"evolutionary, Ranked@{code.digest}" in str(Method(cost_model=Ranked))
    with pytest.raises(CodeError, match=r"a class with methods, or 'file.py:Class', found"):
        Method(cost_model=no_class)
    with pytest.raises(TuningError, match=r"expected a cost model among xgboost, random, a class or 'file\.py:class'"):
        Method(cost_model="linear")
    with pytest.raises(CodeError, match="expected a class 'no_class' in "):
        user_code(f"{__file__}:no_class", is_class=True)
    assert user_code(f"{__file__}:Ranked", is_class=True).name == "Ranked"


def test_parts_by_name_and_by_function():
    whole = Method(mutators={"tile-size": 0.9, unchanged: 0.1}, postprocessors=("reduction", rejects))
    assert [share for _, share in whole.mutations] == [0.9, 0.1]
    assert from_job(json.loads(json.dumps(to_job(whole)))) == whole
    own = Method(cost_model=Ranked)
    assert from_job(json.loads(json.dumps(to_job(own)))) == own
    default = "rules fuse-stages:2, channel-lanes:4, default; evolutionary, xgboost"
    assert str(Method()) == default  # records are keyed by it
    assert str(whole).startswith(f"{default}; mutators tile-size 0.9, ")
    for wrong, message in (
        ({"mutators": {"tiles": 1}}, "expected a mutator among tile-size, unroll, .*, found 'tiles'"),
        ({"mutators": ("tile-size",)}, "expected mutators with their shares, as in {'tile-size': 0.9}"),
        ({"mutators": {"unroll": 0}}, "expected the share of a mutator as a number above 0, found 0"),
        (
            {"postprocessors": "reduction"},
            r"expected postprocessors as a list such as .*, found 'reduction'",
        ),
        ({"postprocessors": ("verify",)}, "expected a postprocessor among no-dynamic-loop, .*, found 'verify'"),
    ):
        with pytest.raises(TuningError, match=message):
            Method(**wrong)
    for params, message in (
        ({"mutators": [["x", 1]]}, "tune: expected a mutator among"),
        ({"mutators": ["unroll"]}, "tune: expected mutators as pairs"),
        ({"postprocessors": "reduction"}, "tune: expected a list of postprocessors"),
        (
            {"cost_model": "file.py:Model"},
            "tune: expected a cost model among xgboost, random, or code; found",
        ),
    ):
        with pytest.raises(TuningError, match=message):
            from_job(params)


@pytest.mark.tvm
def test_parts_of_one_s_own_search(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    method = Method(cost_model=Ranked, mutators={"tile-size": 0.5, unchanged: 0.5})
    result = tune(task, work_dir=tmp_path, target="local:1", method=method, trials=6)
    assert (result.trials, result.verified) == (6, True)
    assert int(Path("other.told").read_text()) > 3


@pytest.mark.tvm
def test_a_tuning_starts_from_the_records_of_another_method(task, tmp_path):
    """A space of one program is searched: the best after its only trial is the best of the start, if that is faster."""
    where = {"work_dir": tmp_path, "target": "local:1", "store": tmp_path / "records"}
    first = tune(task, method=Method(rules=("default",)), trials=6, **where)
    second = tune(task, method=Method(space=whole), trials=2, start=tmp_path / "records", **where)
    assert (second.trials, second.known, second.from_records) == (1, 0, False)  # whole() has one program
    assert second.method.endswith("; started from records")
    (place,) = [one for one in (tmp_path / "records").glob("*.jsonl") if len(read_record(one).trials) == 6]
    fastest = min(statistics.median(one.seconds) for one in read_record(place).trials if one.seconds)
    assert second.history[0][1] <= 1e3 * fastest
    assert first.method == ""
    other = TuningTask("conv2d", task.operator, {**task.binding, "H": 7})
    for wrong, message in (
        (other, "expected a tuning record of this program, machine and TVM .*, the nearest is of other sizes"),
        (task, "there is no such folder: '.*nothing'"),
    ):
        folder = tmp_path / "records" if wrong is other else tmp_path / "nothing"
        with pytest.raises(TuningError, match=message):
            tune(wrong, work_dir=tmp_path, target="local:1", trials=1, start=folder)


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"cost_model": Wrong}, "expected predict of the cost model 'Wrong' to return one entry for each of"),
        ({"cost_model": Lacking}, "to have extract, update and predict, found no extract, update"),
        ({"postprocessors": (rejects,)}, "no program of this method passed its checks"),
        ({"postprocessors": (odd,)}, "expected the postprocessor 'odd' to return whether a candidate is kept, found 3"),
    ],
)
def test_parts_that_are_wrong_are_named(task, tmp_path, parts, message):
    with pytest.raises(TuningError, match=message):
        tune(task, work_dir=tmp_path, target="local:1", method=Method(**parts), trials=8)


@pytest.mark.tvm
def test_rules_of_gpus_by_name(task):
    space = explain_space(task, Method(rules=("tiling", "inline", "bind")), target="jetson-orin-nano")
    assert space.changed == {"tiling": ("Y",), "inline": ("X_padded",), "bind": ()}
    with pytest.raises(TuningError, match="the rules tensor-cores are for GPUs, the target's device is cpu: use"):
        explain_space(task, Method(rules=("tensor-cores",)))
