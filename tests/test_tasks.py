"""Each line of code of docs/tasks.md and each Python block of the README, alone in a process of its own.

The tables below give the names that a line stands on, as the page says them, and make minutes and epochs small.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import syno_lab as sl

pytestmark = pytest.mark.warm

ROOT = Path(__file__).parents[1]
NET = """
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

def make_model():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

def make_dataset():
    classes = torch.arange(80) % 4
    whole = TensorDataset(torch.randn(80, 16) + nn.functional.one_hot(classes, 16), classes)
    return Subset(whole, range(60)), Subset(whole, range(60, 80))

def make_images():
    whole = TensorDataset(torch.zeros(40, 3, 8, 8), torch.arange(40) % 10)
    return whole, whole
"""
MINE = '''
def mine(state, step):
    """No SHIFT."""
    return step.primitive == "SHIFT"

def reward(trial):
    """The accuracy."""
    return trial.accuracy
'''
#: What the names in a line of Python are.
NAMES = {
    "sl": "import syno_lab as sl",
    **{view: f"from syno_widgets import {view}" for view in ("Compare", "Explorer", "OperatorView", "Stepper")},
    "np": "import numpy as np",
    "Image": "from PIL import Image; Image.new('RGB', (40, 30), 'red').save('cat.png')",
    "spec": "import syno_lab as sl; spec = sl.operators.conv2d().spec",
    "state": "import syno_lab as sl; state = sl.Sampler.from_spec(sl.operators.conv2d().spec).root()",
    "operator": "operator = 'conv2d'",
    "lab": "lab = '.syno-lab'",
    "view": "from syno_widgets import RunsView; view = RunsView('.syno-lab')",
    "make_model": "from net import make_model",
    "data": "from net import make_dataset; data = make_dataset()",
    "mine": "from rules import mine",
    "search": (
        "import random, syno_lab as sl; from syno_lab.search import EstimateSearch; "
        "from syno_lab.pgraphs.space import synthesis_space; "
        "search = EstimateSearch(synthesis_space(sl.operators.conv2d().spec), random.Random(0))"
    ),
    "candidate": "candidate = search.ask()",
    "reward": "reward = 0.5",
}
SMALL = "minutes=0.1, epochs=1, batch_size=16, seeds=2, anyway=True"
SHORT = "--trials 2 --seeds 0 --to-the-end --epochs 1 --in-process --from-nothing"
OWN = "--model net.py:make_model --dataset net.py:make_dataset"
IMAGES = "--dataset net.py:make_images --width 4 --blocks 1 --max-primitives 4 --wants none"
ROW = "sl.Rule('mine', 'before', 'after', 'why', '6', 'exact', lambda state, step: False)"
#: A line, and what of it is another in the test.
EDITS = {
    "sl.Build(…)": ("…", "'[H]', '[H]', ['H=4']"),
    "mine = sl.Rule(…)": ("sl.Rule(…)", ROW),
    "sl.Sampler(…, rules=sl.RULES + (mine,))": ("…", "'[H]', '[H]', ['H=4'], ['k=3']"),
    "sl.improve(make_model, data, minutes=30)": ("minutes=30", SMALL),
    "sl.improve(…, rules=[mine])": ("…", f"make_model, data, {SMALL}"),
    "sl.improve(…, reward=mine)": ("…", f"make_model, data, {SMALL}"),
    "syno-lab export conv2d --out conv2d.onnx --bind N=1 --bind C_in=3 …": (
        "…", "--bind C_out=4 --bind H=8 --bind W=8 --bind k_1=3",
    ),
    "syno-lab search --model net.py:make_model --dataset net.py:make_dataset --minutes 30": ("--minutes 30", SHORT),
    "syno-lab search --dataset data.py:make_dataset --minutes 30": (
        "--dataset data.py:make_dataset --minutes 30", f"{IMAGES} {SHORT}",
    ),
    "syno-lab search --rule FILE.py:mine": ("FILE.py:mine", f"rules.py:mine {OWN} {SHORT}"),
    "syno-lab search --reward FILE.py:mine": ("FILE.py:mine", f"rules.py:reward {OWN} {SHORT}"),
    "syno-lab search --continue": ("--continue", f"--continue --in-process --trials 3 {OWN}"),
    "syno-lab search": ("search", f"search {OWN} {SHORT}"),
    "syno-lab board": ("board", "board --tracker 127.0.0.1:9"),
}  # fmt: skip
#: Names that are something else in a line.
OTHER = {
    "sl.Sampler(…, rules=sl.RULES + (mine,))": {"mine": f"import syno_lab as sl; mine = {ROW}"},
    "sl.improve(…, reward=mine)": {"mine": "from rules import reward as mine"},
}
#: Lines that are not run here, with the reason, and the test that walks them.
ELSEWHERE = {
    "syno-lab jobs resume 3": ("a job that was paused", "tests/jobs/test_jobs.py", "test_pause_and_resume_go_on"),
}


def _is_code(piece: str) -> bool:
    """Whether it is a command of ours, or Python that calls or asks something; a name of a module is none."""
    if piece.startswith("syno-lab "):
        return True
    try:
        nodes = list(ast.walk(ast.parse(piece.replace("…", "..."))))
    except SyntaxError:
        return False
    is_module = piece.replace(".", "").replace("_", "").isalpha() and piece.startswith("syno_")
    return not is_module and any(isinstance(node, ast.Call | ast.Attribute) for node in nodes)


def _pieces() -> Iterator[str]:
    text = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[1] for line in text.splitlines() if line.startswith("| ")][1:]
    for row in rows:
        yield from filter(_is_code, re.findall(r"`([^`]+)`", row))


PIECES = list(dict.fromkeys(_pieces()))
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def _run(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network, data, a rule, an operator's file, and a lab in which a search has run."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "net.py").write_text(NET)
    (folder / "rules.py").write_text(MINE)
    operator = sl.Sampler("[C, H]", "[C, H]", ["C=4", "H=8"], ["k=3"], seed=1).sample()
    (folder / "operator.json").write_text(operator.to_json())
    _run(["-m", "syno_lab.cli", "search", *shlex.split(f"{OWN} {SHORT}")], folder)
    return folder


def test_the_tables_are_of_lines_that_there_are() -> None:
    assert len(PIECES) >= 28
    assert {*EDITS, *OTHER, *ELSEWHERE} <= set(PIECES)
    for _, file, name in ELSEWHERE.values():
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("piece", [piece for piece in PIECES if piece not in ELSEWHERE])
def test_a_line_of_the_tasks_runs_alone(piece: str, filled: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(filled, tmp_path / "alone")
    line = piece.replace(*EDITS[piece]) if piece in EDITS else piece
    if "search" in line and "--continue" not in line:
        shutil.rmtree(folder / ".syno-lab")
    if line.startswith("syno-lab "):
        _run(["-m", "syno_lab.cli", *shlex.split(line)[1:]], folder)
        for written in re.findall(r"--out (\S+)", line):
            assert (folder / written).stat().st_size
        return
    nodes = list(ast.walk(ast.parse(line)))
    used = {node.id for node in nodes if isinstance(node, ast.Name)} - {
        node.arg for node in nodes if isinstance(node, ast.arg)
    }
    names = NAMES | OTHER.get(piece, {})
    assert used <= {*names}
    before = [code for name, code in names.items() if name in used]
    _run(["-c", "\n".join([*before, line])], folder)
    for written in re.findall(r'(?:save|to_html)\("([^"]+)"\)', line):
        assert (folder / written).stat().st_size


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_readme_runs_alone(number: int, tmp_path: Path) -> None:
    assert len(BLOCKS) == 3
    assert _run(["-c", BLOCKS[number]], tmp_path)
