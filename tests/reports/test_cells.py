"""Cells of CSV: no text of a stranger's store is a formula for a spreadsheet; numbers stay numbers."""

from __future__ import annotations

import csv
import io
from dataclasses import fields, replace

import pandas as pd
import pytest

from syno_lab.inputs import no_formula
from syno_lab.panes.forms import csv_text
from syno_lab.reports.rows import TrialRow
from syno_lab.reports.tables import csv_bytes, trials_csv, trials_parquet

FORMULAS = ['=HYPERLINK("http://x","y")', "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", "＋1"]


def cells(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_any_text_column_is_a_formula(formula: str) -> None:
    texts = [one.name for one in fields(TrialRow) if one.type == "str"]
    assert {"label", "reason", "fingerprint", "state", "source", "known", "ended"} <= set(texts)
    plain = TrialRow("k", "s", 0, "a", "f", False, "failed", "no", None, 10, 1)
    row = replace(plain, **dict.fromkeys(texts, formula) | {"operator": ""})
    text = formula.replace("\r", "\n")
    (found,) = cells(trials_csv([row]))
    assert not [name for name, text in found.items() if text[:1] in set("=+-@\t\r\n＝＋－＠")]
    assert {found[name] for name in texts if name in found} == {f"'{text}"}
    assert pd.read_parquet(io.BytesIO(trials_parquet([row])))["reason"].tolist() == [formula]
    (pane,) = cells(csv_text([{"name": formula, "several": [formula, "b"], "number": -3}]).encode())
    assert pane == {"name": f"'{text}", "several": f"'{text} | b", "number": "-3"}


def test_numbers_and_what_is_missing_stay() -> None:
    frame = pd.DataFrame({"a": [-1, 2], "b": [-0.5, None], "c": ["-x", None], "d": ["plain", "=1"]})
    assert csv_bytes(frame).decode() == "a,b,c,d\n-1,-0.5,'-x,plain\n2,,,'=1\n"
    assert [no_formula(value) for value in (-1, None, True, "", "a=b")] == [-1, None, True, "", "a=b"]
    assert frame["c"].tolist()[0] == "-x"
    (row,) = cells(csv_bytes(pd.DataFrame({"a": ["b\r=1\r\n=2"], "c": [1]})))
    assert row == {"a": "b\n=1\n=2", "c": "1"}
