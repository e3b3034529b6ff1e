"""A recorded schedule that would bring code along is refused before TVM sees it; every one of TVM's own passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syno_lab.codegen.tvm_trace import DATABASE, check_database, check_trace
from syno_lab.errors import FormatError, TuningError

GOOD: list[Any] = [
    [
        ["GetSBlock", [], ["conv2d", "main"], ["b0"]],
        ["SamplePerfectTile", ["l1"], [4, 64], ["v1"]],
        ["Annotate", ["b0", '"SSRSRS"'], ["meta_schedule.tiling_structure"], []],
        ["Annotate", ["b0", 512], ["pragma_auto_unroll_max_step"], []],
        ["TransformLayout", ["b0", '{"root_index":1,"nodes":[{"type":"None"},{"type":"tirx.IndexMap"}]}'], [0], []],
    ],
    [[1, [2, 2]]],
]


def with_step(*step: Any) -> list[Any]:
    return [[*GOOD[0], list(step)], GOOD[1]]


def layout(node: str) -> str:
    return f'{{"root_index":1,"nodes":[{{"type":"None"}},{node}]}}'


BAD = [
    with_step("Annotate", ["b0", '"int f() {}"'], ["pragma_import_c"], []),
    with_step("Annotate", ["b0", '"define"'], ["pragma_import_llvm"], []),
    with_step("TransformLayout", ["b0", layout('{"type":"tirx.Call"}')], [0], []),
    with_step("TransformLayout", ["b0", layout('{"type":"\\u0074irx.C\\u0061ll"}')], [0], []),
    with_step("TransformLayout", ["b0", layout('{"type":"tirx.Call","type":"None"}')], [0], []),
    with_step("TransformLayout", ["b0", json.dumps(layout('{"type":"ir.Op"}'))], [0], []),
]


def test_good_ones_pass(tmp_path: Path) -> None:
    check_trace(GOOD)
    check_database(tmp_path)
    (tmp_path / DATABASE).write_text(json.dumps([0, [GOOD, None, None, None]]) + "\n" * 2)
    check_database(tmp_path)


@pytest.mark.parametrize("trace", BAD)
def test_code_is_refused(trace: Any, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="expected a recorded schedule of names and numbers, found code in it: '"):
        check_trace(trace)
    (tmp_path / DATABASE).write_text(json.dumps([0, [GOOD]]) + "\n" + json.dumps([0, [trace]]) + "\n")
    with pytest.raises(TuningError, match="found code in it"):
        check_database(tmp_path)


def test_other_files_are_one_line(tmp_path: Path) -> None:
    nested: Any = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(TuningError, match="nested too deeply"):
        check_trace(nested)
    (tmp_path / DATABASE).write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="found no text"):
        check_database(tmp_path)
    (tmp_path / DATABASE).unlink()
    (tmp_path / DATABASE).mkdir()
    with pytest.raises(FormatError, match="expected a regular file, found a folder"):
        check_database(tmp_path)
