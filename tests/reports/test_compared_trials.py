"""Which trials of a lab are of operators that are compared, against a search through all of them."""

from __future__ import annotations

from pathlib import Path

from known_runs import fill_lab, operator_texts

from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import conv2d, pixel_shuffle, separable
from syno_lab.panes.compared import NOTHING, subjects_of
from syno_lab.reports import LabReader
from syno_lab.reports.compared import result_rows, trials_of
from syno_lab.systems import read_operator


def test_each_operator_has_its_trial(tmp_path: Path) -> None:
    fill_lab(tmp_path, 24, texts=[*operator_texts(), nas_pte_1().to_json()])
    with LabReader(tmp_path) as reader:
        reading = reader.read()
    operators = [separable(), nas_pte_1(), pixel_shuffle(), conv2d()]
    found = trials_of(reading, subjects_of(operators))
    for operator, row in zip(operators, found, strict=True):
        of_it = [one for one in reading.rows if one.operator and read_operator(one.operator) == operator]
        known = [one for one in of_it if one.accuracy is not None]
        assert row == (max(known, key=lambda one: one.ended) if known else None)
    assert found[2] is None, "pixel_shuffle was never tried"
    lines = {line["title"]: line["cells"] for line in result_rows(found)}
    assert lines["accuracy"][2] == {"text": NOTHING, "ratio": ""}
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].accuracy is not None
    assert found[1].accuracy is not None
    assert lines["accuracy"][1]["ratio"] == f"{found[1].accuracy / found[0].accuracy:.3g} x"
    assert lines["FLOPs of the network"][0]["text"] == f"{found[0].flops:,}"
    assert lines["trial"][0]["text"] == f"{found[0].label} of known"
    assert "probe" not in lines, "no trial was probed"


def test_no_trial_no_lines() -> None:
    assert result_rows([None, None]) == []
