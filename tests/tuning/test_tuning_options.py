"""The options of a tuning: one value, given whole, by names, or changed by names."""

import dataclasses
import inspect
import typing

import pytest

from syno_lab.tuning import Board, Method, TuningOptions, tune, tune_queue
from syno_lab.tuning.options import Budget


def test_names_make_a_value_and_change_one(tmp_path):
    base = TuningOptions(work_dir=tmp_path, trials=3)
    assert TuningOptions.of(None, {"work_dir": tmp_path, "trials": 3}) == base
    assert TuningOptions.of(base, {"seed": 7}) == dataclasses.replace(base, seed=7)
    assert hash(TuningOptions(work_dir=tmp_path, method=Method())) != hash(base)


@pytest.mark.parametrize("function", [tune, tune_queue])
def test_other_names_are_refused(function, tmp_path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'trails'"):
        function([], work_dir=tmp_path, trails=3)
    with pytest.raises(TypeError, match="work_dir"):
        function([], trials=3)


def test_no_name_is_both_an_option_and_an_argument():
    options = {field.name for field in dataclasses.fields(TuningOptions)}
    for function in (tune, tune_queue):
        named = {name for name, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY}
        assert named
        assert not named & options
    assert set(typing.get_type_hints(Budget)) - {"board"} <= options  # a board is a tracker and a key


def test_a_board_has_threads_of_its_own(tmp_path):
    here = TuningOptions(work_dir=tmp_path, threads=2)
    there = here.on(Board("127.0.0.1", 9190, "jetson"))
    assert (there.tracker, there.key, there.threads) == (("127.0.0.1", 9190), "jetson", None)
    assert here.on(None) == here
    assert there.on(None) == dataclasses.replace(here, threads=None)
