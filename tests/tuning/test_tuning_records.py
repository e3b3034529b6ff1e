"""The records of tunings: what is appended stays, whatever happens to the file around it."""

import hashlib
import json
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from syno_lab import operators
from syno_lab.errors import FormatError, StoreError, TuningError
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.systems import builder_of, builders
from syno_lab.tuning import TuningResult, TuningTask, list_records
from syno_lab.tuning.records import Trial, key_of, known_target, open_record, remember_target
from syno_lab.tuning.values import NETWORK_BUILDER

BINDING = {"N": 1, "C_in": 4, "C_out": 8, "H": 6, "W": 6, "k_1": 3}
TASK = TuningTask("conv2d", operators.conv2d().to_json(), BINDING)
KEY = key_of(TASK, '{"kind": "llvm"}', "0.27.0", "threads=2")
RESULT = TuningResult("conv2d", 1.5, 1.25, 12, 3, 1, 9.0, '{"kind": "llvm"}', "0.27.0", 0, True, ((1, 2.0),))
TRIALS = [
    Trial([["GetSBlock", [], ["Y", "main"], ["b0"]], [0, [4, 1]]], (1e-3, 1.1e-3), board="127.0.0.1:1"),
    Trial([["x"], []], (), reason="RPCError: connection reset", board="127.0.0.1:2"),
    Trial([["ü"], [0.5]], (2e-3,)),
]


def plain(trials):
    return [replace(one, at="") for one in trials]


@pytest.fixture
def filled(tmp_path):
    with open_record(tmp_path, KEY) as record:
        for trial in TRIALS:
            record.add_trial(trial)
        record.add_result(RESULT)
    return record.path


def reopened(folder):
    with open_record(folder, KEY) as record:
        return record


def test_what_is_recorded_is_there(filled, tmp_path):
    record = reopened(tmp_path)
    assert plain(record.trials) == TRIALS
    assert all(one.at.startswith("20") for one in record.trials)
    assert record.results == [RESULT]
    assert record.damaged == 0
    (row,) = list_records(tmp_path)
    assert (row["label"], row["trials"], row["failed"], row["latency_ms"]) == ("conv2d", 3, 1, 1.5)
    assert (row["binding"], row["fingerprint"]) == (BINDING, KEY.fingerprint)


def test_a_torn_end_costs_one_line(filled, tmp_path):
    whole = filled.read_bytes()
    ends = [place for place, letter in enumerate(whole) if letter == 10]
    start = ends[-2] + 1  # of the last line, the result
    for cut in range(start + 1, len(whole), 7):
        filled.write_bytes(whole[:cut])
        record = reopened(tmp_path)
        assert plain(record.trials) == TRIALS
        assert (record.results, record.damaged) == ([], 1)
        assert whole[start:cut] in filled.with_suffix(".damaged").read_bytes()
    with open_record(tmp_path, KEY) as record:
        assert record.damaged == 0  # it was moved away
        record.add_result(RESULT)
    assert reopened(tmp_path).results == [RESULT]


def test_a_changed_byte_costs_its_own_line(filled, tmp_path, rng):
    whole = filled.read_bytes()
    for number, line in enumerate(whole.split(b"\n")[:-1]):
        start = whole.index(line)
        for place in rng.sample(range(start, start + len(line)), 6):
            filled.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            record = reopened(tmp_path)
            kept = TRIALS[: number - 1] + TRIALS[number:] if 1 <= number <= 3 else TRIALS
            assert plain(record.trials) == kept
            assert record.results == ([] if number == 4 else [RESULT])
            assert record.damaged == 1
            assert record.key == KEY
        filled.with_suffix(".damaged").unlink()


def test_a_line_that_is_whole_but_wrong_is_no_trial(filled, tmp_path):
    with open_record(tmp_path, KEY) as record:
        record._append({"kind": "trial", "trace": [], "seconds": [-1.0], "reason": "", "board": "", "at": ""})
        record._append({"kind": "trial", "seconds": [1.0]})
        record._append({"kind": "result", "result": {"version": 99}})
        with pytest.raises(ValueError, match="not JSON compliant"):
            record.add_trial(Trial([], (float("nan"),)))
    record = reopened(tmp_path)
    assert (plain(record.trials), record.results, record.damaged) == (TRIALS, [RESULT], 3)


def test_a_record_of_something_long_is_refused_in_a_short_line(filled, tmp_path):
    header, _, rest = filled.read_bytes().partition(b"\n")
    key = {**json.loads(header.partition(b" ")[2]), "tvm": "x" * 100_000}
    text = json.dumps(key).encode()
    filled.write_bytes(hashlib.sha256(text).hexdigest()[:16].encode() + b" " + text + b"\n" + rest)
    with pytest.raises(TuningError, match=r"it has tvm 'xxx.*'0\.27\.0' is expected") as refused:
        reopened(tmp_path)
    assert len(str(refused.value)) < 500


def test_the_record_of_another_operator_is_refused(filled, tmp_path):
    other = replace(KEY, dtype="float64")
    filled.rename(tmp_path / f"{other.name}.jsonl")
    with (
        pytest.raises(
            TuningError, match="is the record of another operator or target: it has dtype 'float32' where 'float64'"
        ),
        open_record(tmp_path, other),
    ):
        pass
    header = {"kind": "key", "format": "syno-lab-tuning", "version": 2}
    with open_record(tmp_path, KEY) as record:
        record.path.write_bytes(b"")
        record._append(header)
    with pytest.raises(TuningError, match="expected a tuning record of version 1, found 2"), open_record(tmp_path, KEY):
        pass


def test_one_writer_at_a_time(filled, tmp_path):
    with open_record(tmp_path, KEY):
        with pytest.raises(TuningError, match="another process is tuning and writes"), open_record(tmp_path, KEY):
            pass
        with open_record(tmp_path, replace(KEY, tvm="0.28.0")) as other:
            assert other.trials == []
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_tuning_records import KEY, open_record
with open_record({str(tmp_path)!r}, KEY):
    print("mine", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"mine\n"
        with pytest.raises(TuningError, match="another process is tuning and writes"), open_record(tmp_path, KEY):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert plain(reopened(tmp_path).trials) == TRIALS  # a lock ends with its holder, however that ends


def test_a_full_disk_is_an_error_and_costs_nothing(filled, tmp_path):
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open_record(tmp_path, KEY) as record:
        size = filled.stat().st_size
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
            with pytest.raises(StoreError, match=r"cannot be read or written \(File too large\): check free space"):
                record.add_trial(TRIALS[0])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert filled.stat().st_size == size
        record.add_trial(TRIALS[0])
    record = reopened(tmp_path)
    assert (plain(record.trials), record.damaged) == ([*TRIALS, TRIALS[0]], 0)


def test_what_a_record_answers(filled, tmp_path):
    with open_record(tmp_path, KEY) as record:
        assert record.answer(3) == RESULT
        assert record.answer(2) == RESULT
        assert record.answer(4) is None  # a larger budget goes on
        record.add_trial(TRIALS[0])
        assert record.answer(3) is None  # a tuning that was cut short is not over
        record.add_result(replace(RESULT, trials=4, stopped="space"))
        assert record.answer(500).trials == 4  # there are no more
        record.add_result(replace(RESULT, trials=4, stopped="time"))
        assert record.answer(500) is None


def test_a_key_is_what_a_latency_is_of():
    text = json.dumps(json.loads(TASK.operator), indent=7)
    assert key_of(replace(TASK, operator=text, label="other"), KEY.target, KEY.tvm, KEY.conditions) == KEY
    others = [
        key_of(replace(TASK, binding={**BINDING, "H": 7}), KEY.target, KEY.tvm, KEY.conditions),
        key_of(replace(TASK, dtype="float64"), KEY.target, KEY.tvm, KEY.conditions),
        key_of(replace(TASK, builder="somebody:else"), KEY.target, KEY.tvm, KEY.conditions),
        key_of(replace(TASK, operator=operators.shift_conv().to_json()), KEY.target, KEY.tvm, KEY.conditions),
        key_of(TASK, '{"kind": "cuda"}', KEY.tvm, KEY.conditions),
        key_of(TASK, KEY.target, "0.28.0", KEY.conditions),
        key_of(TASK, KEY.target, KEY.tvm, "threads=1"),
    ]
    assert len({one.name for one in [KEY, *others]}) == 1 + len(others)
    assert len(KEY.fingerprint) == 32
    network = replace(TASK, operator='{"nodes": []}', builder=NETWORK_BUILDER)
    assert key_of(network, "", "", "").fingerprint == ""
    assert KEY.difference(others[1]) == "dtype 'float64' where 'float32' is expected"


def test_an_operator_that_cannot_be_read_has_no_key():
    with pytest.raises(FormatError, match=r"^operator file: expected JSON of an operator"):
        key_of(replace(TASK, operator="no operator"), "", "", "")
    broken = json.dumps(json.loads(TASK.operator) | {"match": [0]})
    for builder in (TASK.builder, "somebody:else"):
        with pytest.raises(FormatError, match=r"^operator file: match: expected one data coordinate"):
            key_of(replace(TASK, operator=broken, builder=builder), "", "", "")


NAS_PTE_BUILDER = "syno_lab.nas_pte.tvm:lower_json"


def test_builders_are_keys_of_records_and_are_there():
    assert builder_of(nas_pte_1().to_json()) == NAS_PTE_BUILDER
    assert builder_of(TASK.operator) == TASK.builder == TuningTask.builder
    for builder in (*builders(), NETWORK_BUILDER):
        module, _, function = builder.partition(":")
        assert f"def {function}(" in Path(find_spec(module).origin).read_text()


def test_targets_are_remembered(tmp_path):
    folder = tmp_path / "new"
    assert known_target(folder, "local", "0.27.0") is None
    remember_target(folder, "local", "0.27.0", "a target")
    remember_target(folder, "cuda", "0.27.0", "another")
    assert known_target(folder, "local", "0.27.0") == "a target"
    assert known_target(folder, "cuda", "0.27.0") == "another"
    assert known_target(folder, "local", "0.28.0") is None
    for junk in ("{", "[]", '{"a": 1}'):
        (folder / "targets.json").write_text(junk)
        assert known_target(folder, "local", "0.27.0") is None
    remember_target(folder, "local", "0.27.0", "a target")
    assert known_target(folder, "local", "0.27.0") == "a target"


WRONG = [
    b"nonsense",
    b"[1, 2]",
    b"3",
    b'"text"',
    b"[" * 100_000,
    b"\xff\xfe",
    b'{"kind": "trial"}',
    b'{"kind": "trial", "trace": 1, "seconds": 3, "reason": "", "board": "", "at": ""}',
    b'{"kind": "trial", "trace": 1, "seconds": [1' + b"0" * 400 + b'], "reason": "", "board": "", "at": ""}',
    b'{"kind": "trial", "trace": 1, "seconds": ["1"], "reason": 3, "board": [], "at": {}}',
    b'{"kind": "result", "result": null}',
    b'{"kind": "result", "result": {"version": 1' + b"0" * 5000 + b"}}",
    b"{}",
]


def sealed(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode() + b" " + text + b"\n"


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_right_digest_over_wrong_json_costs_that_line(filled, tmp_path, text):
    filled.write_bytes(filled.read_bytes() + sealed(text))
    (row,) = list_records(tmp_path)
    assert (row["trials"], row["damaged"]) == (3, 1)
    record = reopened(tmp_path)
    assert (plain(record.trials), record.results, record.damaged) == (TRIALS, [RESULT], 1)


@pytest.mark.parametrize("change", [{"binding": "[1]"}, {"binding": "{"}, {"target": 3}, {"tvm": None}, {"more": "x"}])
def test_a_key_of_other_fields_is_refused_in_one_line(filled, tmp_path, change):
    first, _, rest = filled.read_bytes().partition(b"\n")
    key = json.loads(first.partition(b" ")[2]) | change
    filled.write_bytes(sealed(json.dumps(key).encode()) + rest)
    for look in (list_records, reopened):
        with pytest.raises(TuningError, match="expected the fields of a tuning record's key"):
            look(tmp_path)
