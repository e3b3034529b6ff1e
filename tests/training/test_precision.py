"""The fastest precision: what was measured decides, and nothing is measured where there is nothing to gain."""

import pytest
import torch

from syno_lab.training import recipes
from syno_lab.training.recipes import fastest_precision


@pytest.fixture(autouse=True)
def _asked_anew():
    fastest_precision.cache_clear()
    yield
    fastest_precision.cache_clear()


@pytest.mark.parametrize(
    ("seconds", "found"), [((2.0, 1.0), "bfloat16"), ((1.2, 1.0), "float32"), ((1.0, 3.0), "float32")]
)
def test_bfloat16_must_gain(monkeypatch, seconds, found):
    times = dict(zip((torch.float32, torch.bfloat16), seconds, strict=True))
    monkeypatch.setattr(recipes, "_seconds", times.__getitem__)
    monkeypatch.setattr(recipes, "_has_instructions", lambda: True)
    assert fastest_precision() == found


def test_a_processor_without_the_instructions_is_not_measured(monkeypatch, tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("model name : old\nflags : sse2 avx2\n\nmodel name : other\nflags : amx_bf16\n")
    monkeypatch.setattr(recipes, "_CPUINFO", info)
    monkeypatch.setattr(recipes, "_seconds", lambda dtype: pytest.fail("measured"))
    assert fastest_precision() == "float32"
    info.write_text("flags : sse2 avx512_bf16\n")
    assert recipes._has_instructions()
    assert fastest_precision("mps") == "float32"


def test_it_is_measured_here():
    assert fastest_precision() in ("float32", "bfloat16")
    assert recipes._seconds(torch.float32) > 0
