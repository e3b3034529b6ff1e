"""Tuning as a job of a lab: progress, a pause that loses nothing, and what a job refuses."""

import time
from types import SimpleNamespace

import pytest

from syno_lab import operators
from syno_lab.errors import CodeError, TuningError
from syno_lab.jobs import Lab
from syno_lab.trial import TrialRequest
from syno_lab.tuning import TuningResult, list_records, local_board
from syno_lab.tuning.job import run

BINDING = {"N": 1, "C_in": 4, "C_out": 4, "H": 6, "W": 6, "k_1": 3}
TASK = {"label": "conv2d", "operator": operators.conv2d().to_json(), "binding": BINDING}


@pytest.mark.tvm
def test_a_job_that_is_paused_goes_on(tmp_path):
    with Lab.open(tmp_path, slots=1) as lab:
        handle = lab.submit("tune", {"tasks": [TASK], "trials": 20, "target": "local:1"}, name="tuning")
        deadline = time.monotonic() + 240
        while "trial " not in handle.record().message:
            assert time.monotonic() < deadline, handle.record()
            assert handle.record().state in ("waiting", "running"), handle.log()
            time.sleep(0.1)
        assert "trials an hour" in handle.record().message
        handle.pause()
        while handle.record().state not in ("paused", "finished"):
            assert time.monotonic() < deadline, handle.record()
            time.sleep(0.1)
        was_paused = handle.record().state == "paused"
        (row,) = list_records(tmp_path / "tuning")
        handle.resume()
        handle.wait(240)
        record = handle.record()
        assert record.state == "finished", handle.log()
        (told,) = record.result["results"]
        result = TuningResult.from_dict(told)
        assert result.trials == 20 or result.stopped == "space"
        assert result.known == (row["trials"] if was_paused else 0), "what was measured is not measured again"
        assert record.progress == 1.0
        lab.shutdown()


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({}, "tune: expected tasks as a list of operators, found none"),
        ({"tasks": [{"label": "x"}]}, "tune: expected label, operator and binding of a task"),
        ({"tasks": [TASK], "colour": 1}, "tune: expected the parameters .* found colour"),
        ({"tasks": [TASK], "trials": "many"}, "tune: parameter 'trials' holds 'many'"),
        ({"tasks": [TASK | {"builder": "os:system"}]}, "conv2d: expected a builder among .* found 'os:system'"),
        ({"tasks": [TASK], "rules": ["tilling"]}, "tune: expected a rule among default, .* found 'tilling'"),
        ({"tasks": [TASK], "rules": ["mine.py:rule"]}, "expected a rule among .*, or code; found 'mine.py:rule'"),
        ({"tasks": [TASK], "space": "mine.py:rule"}, "expected code as its name, source and origin, found 'mine.py"),
        (
            {"tasks": [TASK], "rules": [{"name": "../x", "source": "", "origin": ""}]},
            "expected code as its name, source and origin, found",
        ),
        ({"tasks": [TASK], "strategy": "luck"}, "expected a strategy among evolutionary, .* found 'luck'"),
        ({"tasks": [TASK], "cost_model": 3}, "expected code as its name, source and origin, found 3"),
        ({"tasks": [TASK], "mutators": ["unroll"]}, "tune: expected mutators as pairs of a mutator and its share"),
        ({"tasks": [TASK], "postprocessors": ["verify"]}, "tune: expected a postprocessor among no-dynamic-loop"),
        ({"tasks": [TASK], "key": "a"}, "expected tracker and key together, or neither"),
        ({"tasks": [TASK], "target": "no such thing"}, "expected a target among local"),
    ],
)
def test_bad_jobs(params, match, tmp_path):
    with pytest.raises((TuningError, CodeError), match=match):
        run(params, SimpleNamespace(root=tmp_path))


@pytest.mark.tvm
@pytest.mark.timeout(300)
def test_a_network_is_tuned_and_measured_where_it_runs(tmp_path):
    request = TrialRequest(backbone="cnn", data="digits", options={"width": 4, "blocks": 1})
    seen, lines = [], []
    folder = tmp_path / "job"
    folder.mkdir()
    context = SimpleNamespace(
        root=tmp_path,
        folder=folder,
        should_stop=lambda: False,
        report=lambda share, message: seen.append(share),
        log=lines.append,
    )
    with local_board("bench", threads=1) as board:
        place = {"tracker": f"{board.host}:{board.port}", "key": board.key}
        found = run({"network": request.to_dict(), "target": "local:1", "trials": 1, **place}, context)
    assert (found["of"], found["target"], found["failed"]) == ("whole network", "local:1", {})
    assert found["where"].startswith("127.0.0.1:")
    assert 0 < found["best_ms"] <= found["latency_ms"]
    assert found["error"] < 1e-5
    assert found["tuned"] == found["functions"] == len(found["parts"]) > 2
    assert found["trials"] == found["functions"] == len(seen)
    assert (seen[-1], found["known"]) == (1.0, 0)
    assert sum(part["calls"] for part in found["parts"]) >= found["functions"]
    assert lines[0].startswith("whole network through Relax: ")
    assert {row["label"] for row in list_records(tmp_path / "tuning")} == {part["name"] for part in found["parts"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": []}, "tune: expected the parameters network, target, .*, found tasks"),
        ({"network": {"backbone": 3}}, "tune: expected a trial's request, found"),
        ({"trials": "many"}, "tune: parameter 'trials' holds 'many'"),
        ({"target": "no such thing"}, "expected a target among local"),
        ({"tracker": "127.0.0.1:9190"}, "expected tracker and key together, or neither"),
    ],
)
def test_a_network_s_job_refuses_what_makes_no_sense(tmp_path, changes, message):
    context = SimpleNamespace(root=tmp_path, folder=tmp_path)
    request = TrialRequest(backbone="cnn", data="digits").to_dict()
    with pytest.raises(TuningError, match=message):
        run({"network": request} | changes, context)
