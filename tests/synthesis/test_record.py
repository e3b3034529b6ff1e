"""Stored searches: they replay to the same operators, and every difference is found."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from syno_lab.commands.pgraphs import specs
from syno_lab.errors import FormatError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.operators import conv1x1, conv2d
from syno_lab.synthesis import record as records
from syno_lab.synthesis.fields import SpecFields
from syno_lab.synthesis.record import Record, digest, from_text, read, record_search, replay, to_text
from syno_lab.synthesis.rules import RULES, Rule
from syno_lab.synthesis.sampler import Sampler

SPEC = Spec.parse(
    "[C, H]", "[D, H]", ["C=4: 2", "D=6: 1", "H=8: 0"], ["k=3: 2"], max_primitives=4, max_tensors=2, max_shifts=0
)
LAST = [rule for rule in RULES if rule.kind != "space"][-1]
NOTHING_GOES = Rule("nothing", "X", "-", "Nothing goes.", "-", "exact", lambda state, step: True)


@pytest.fixture(scope="module")
def stored() -> Record:
    drawn = itertools.islice(Sampler.from_spec(SPEC, seed=9).samples(), 22)
    return record_search(SPEC, 9, drawn)


def changed(record: Record, **fields: Any) -> Record:
    return msgspec.structs.replace(record, **fields)


def with_fields(spec: SpecFields, **fields: Any) -> SpecFields:
    return msgspec.structs.replace(spec, **fields)


def test_a_record_replays_through_its_file(stored: Record, tmp_path: Path) -> None:
    assert stored.count == len(set(stored.digests)) == 22
    path = tmp_path / "run.json"
    path.write_text(to_text(stored), encoding="utf-8")
    said: list[tuple[str, float, str]] = []
    result = replay(read(path), report=lambda *args: said.append(args))
    assert result.same
    assert (result.compared, result.difference, result.notes) == (22, None, ())
    assert said[-1] == ("replay", 1.0, "22 of 22 operators")
    whole = [Operator.from_json(msgspec.json.encode(o).decode()) for o in stored.operators]
    assert [digest(operator) for operator in whole] == stored.digests[: len(whole)]
    assert len(whole) == records.WHOLE


def test_draws_that_do_not_spread_are_recorded_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno_lab.synthesis.sampler.COUNTABLE_NODES", 0)
    drawn = list(itertools.islice(Sampler.from_spec(SPEC, seed=9, spread=False).samples(), 22))
    assert replay(from_text(to_text(record_search(SPEC, 9, drawn, spread=False)))).same


def test_another_seed_or_spec_differs_at_once(stored: Record) -> None:
    other = replay(changed(stored, seed=10))
    assert not other.same
    assert other.compared < 22
    assert other.difference is not None
    assert f"operator {other.compared}: expected {stored.digests[other.compared]}: [C, H] -> [D, H]" in other.difference
    assert ", drew " in other.difference
    assert not replay(changed(stored, spec=with_fields(stored.spec, max_unfolds=0))).same


@pytest.mark.parametrize("place", [0, 21])
def test_the_first_difference_is_named(stored: Record, place: int) -> None:
    digests = [*stored.digests[:place], "0" * 32, *stored.digests[place + 1 : -1], "1" * 32]
    result = replay(changed(stored, digests=digests))
    assert result.compared == place
    assert result.difference is not None
    assert result.difference.startswith(f"operator {place}: expected {digests[place]}")
    assert stored.digests[place] in result.difference


def test_an_exhausted_search_has_no_more_and_a_longer_record_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    from syno_lab.synthesis import sampler

    if hasattr(sampler, "MAX_FAILED_WALKS"):  # repeats in a row before it gives up
        monkeypatch.setattr(sampler, "MAX_FAILED_WALKS", 300)
    tiny = Spec.parse("[H]", "[H]", ["H=4: 0"], ["k=3: 2"], max_primitives=2)
    every = list(Sampler.from_spec(tiny, seed=1).samples())
    assert set(every) == set(Sampler.from_spec(tiny).enumerate())
    whole = record_search(tiny, 1, every, exhausted=True)
    assert replay(whole).same
    short = changed(whole, count=whole.count - 1, digests=whole.digests[:-1], operators=[])
    assert replay(short).difference == f"expected no more than {whole.count - 1} operators, drew another"
    long = changed(whole, count=whole.count + 1, digests=[*whole.digests, "0" * 32])
    assert replay(long).difference == f"operator {whole.count}: expected {'0' * 32}, and there are no more to draw"
    none = changed(whole, spec=with_fields(whole.spec, max_primitives=1, min_weights=2))
    assert "operator 0: expected" in (replay(none).difference or "")


def test_another_version_is_said_and_tried(stored: Record) -> None:
    result = replay(changed(stored, syno_lab="0.0.1"))
    assert result.same
    assert result.notes == ("the record is of Syno Lab 0.0.1, this is 0.1.0",)
    (note,) = replay(changed(stored, syno_lab="\x1b[31m1")).notes
    assert note.isprintable()


def test_other_rules_are_said_and_tried(stored: Record) -> None:
    fewer = replay(stored, rules=tuple(rule for rule in RULES if rule != LAST))
    assert fewer.notes == (f"the record asked rules that are not here: {LAST.name}",)
    more = replay(stored, rules=(*RULES, NOTHING_GOES))
    assert more.same, "a rule that the record did not ask is not asked"
    assert more.notes == ("the record did not ask, and neither does the replay: nothing",)
    turned = replay(stored, rules=tuple(reversed(RULES)))
    assert turned.same
    assert turned.notes == ("the record asked the same rules in another order",)
    own = record_search(SPEC, 9, [], rules=(*RULES, NOTHING_GOES))
    assert own.rules[-1] == "nothing"


def test_digests_are_those_of_pgraphs_not_of_the_way_they_were_built() -> None:
    operator = conv2d()
    *first, main, window = operator.steps
    state = State.root(operator.spec)
    for step in (*first, window, main):
        state = state.apply(step)
    assert digest(state.operator()) == digest(operator) != digest(conv1x1())
    assert len(digest(operator)) == 32


@pytest.mark.parametrize("name", ["conv", "conv-authors", "readme"])
def test_the_spec_in_a_record_is_one_for_spec_files(name: str, tmp_path: Path) -> None:
    spec, _ = specs.load_spec(name, max_primitives=9, weight_limits="primary")
    path = tmp_path / "spec.json"
    path.write_bytes(msgspec.json.encode(SpecFields.from_spec(spec)))
    assert specs.load_spec(str(path)) == (spec, None)


def test_every_field_of_a_spec_is_kept() -> None:
    spec = Spec.parse(
        "[N, s^2*C, H, H]",
        "[N, D, s*H, s^-1*H]",
        ["N", "C=4: 2", "D: 1", "H=8"],
        ["s=2: 3", "k"],
        mappings=[{"N": 1, "D": 5, "k": 3}, {"N": 2, "D": 6, "k": 5}],
        fixed_io_pairs=[(0, 0)],
        unordered=["s^2*C"],
        weight_limits="primary",
        **dict.fromkeys(("max_splits", "max_merges", "max_shifts", "max_expands", "max_unfolds", "max_strides"), 3),
        max_contractions=2,
        max_tensors=4,
        max_reduces=6,
        max_flops=100,
        min_flops=10,
        max_params=50,
        max_memory=5000,
        min_weights=0,
    )
    stored = msgspec.json.encode(SpecFields.from_spec(spec))
    assert msgspec.json.decode(stored, type=SpecFields).spec() == spec
    assert set(msgspec.json.decode(stored)) == set(SpecFields.__struct_fields__), "nothing is left to the defaults"


GOOD = {
    "format": "syno-lab-search",
    "version": 1,
    "syno_lab": "0.1.0",
    "spec": {"input_shape": "[H]", "output_shape": "[H]", "primary_specs": ["H=4: 0"]},
    "seed": 1,
    "rules": [],
    "count": 0,
    "exhausted": False,
    "digests": [],
    "operators": [],
    "spread": True,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "expected format 'syno-lab-search', found 'x'"),
        ({"version": 2}, "expected version 1, found 2; use the Syno Lab that wrote it"),
        ({"seed": "one"}, r"expected JSON of syno-lab-search version 1: .*seed"),
        ({"more": 1}, "unknown field `more`"),
        ({"count": 3}, "expected 3 digests, as count says, found 0"),
        ({"operators": [{}]}, "expected at most 0 operators, as count says, found 1"),
        ({"count": 1, "digests": ["xyz"]}, "expected 32 hexadecimal digits at 0, found 'xyz'"),
    ],
)
def test_what_is_not_a_record_is_refused(change: dict[str, Any], message: str) -> None:
    assert from_text(msgspec.json.encode(GOOD)).count == 0
    with pytest.raises(FormatError, match=message):
        from_text(msgspec.json.encode(GOOD | change))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"input_shape": 3},
            r"search record: expected JSON of .*: Expected `str`, got `int` - at `\$.spec.input_shape`",
        ),
        ({"max_foo": 3}, r"unknown field `max_foo` - at `\$.spec`"),
        ({"max_\nfoo": 3}, r"unknown field `max_\\nfoo` - at `\$.spec`"),
        ({"max_shifts": None}, r"Expected `int`, got `null` - at `\$.spec.max_shifts`"),
        ({"max_tensors": 0}, "search record: spec: max_tensors counts the input"),
    ],
)
def test_a_record_with_a_bad_spec_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        replay(from_text(msgspec.json.encode(GOOD | {"spec": GOOD["spec"] | spec})))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match=r"none\.json: expected a readable file, found: No such file"):
        read(tmp_path / "none.json")
    path = tmp_path / "junk.json"
    path.write_bytes(b"\xff[")
    with pytest.raises(FormatError, match=r"junk\.json: search record: expected JSON"):
        read(path)
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(FormatError, match="expected JSON"):
        read(path)
    monkeypatch.setattr(records, "MAX_BYTES", 100)
    with pytest.raises(FormatError, match="expected at most 100 bytes, found 100000"):
        read(path)


def test_an_operator_in_a_record_that_is_not_one_is_only_shown_as_such() -> None:
    spec = {"input_shape": "[C, H]", "output_shape": "[D, H]", "primary_specs": ["C=4: 1", "D=6: 1", "H=8: 0"]}
    record = from_text(
        msgspec.json.encode(
            GOOD
            | {"spec": spec | {"max_primitives": 2}, "count": 1, "digests": ["0" * 32], "operators": [{"a": 1}]}
            | {"rules": [rule.name for rule in RULES]}
        )
    )
    assert f"{'0' * 32} (the operator in the record cannot be read)" in (replay(record).difference or "")


def test_a_record_without_the_space_is_refused(stored: Record) -> None:
    lacking = changed(stored, rules=["absorbed-weight"])
    with pytest.raises(FormatError, match=r"search record: rules: expected every row of kind 'space'.* are missing"):
        replay(lacking)
